"""
Mail addresses: recipients as a step gives them -> the good ones, once each, and the bad ones by name; the sender.

``mailbox_key`` says which spellings are one mailbox, everywhere: recipients, suppression list, retries, digests,
explanations; ``wire_address`` is what a mail server gets. Pure, no ORM.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import idna
from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from .errors import WrongAddress
from .text import one_line

#: Characters of an address, RFC 5321 section 4.5.3.1 (a path is 256 octets with its brackets).
ADDRESS_CHARS_MAX = 254
#: Characters of a bad address that are shown to people.
SHOWN_CHARS_MAX = 80

#: An address that needs no parser: no blank, quote, comment, bracket, comma or semicolon.
PLAIN = re.compile(r"[^\s\"(),:;<>@\\\[\]]+@[^\s\"(),:;<>@\\\[\]]+", re.ASCII)

#: One entry between separators, which do not separate within quotes; a text with an open quote is no list of these.
QUOTED = r'"(?:[^"\\]|\\.)*"'
ENTRY = re.compile(r'(?:"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[^";,])+', re.DOTALL)
ENTRIES = re.compile(rf'(?:{QUOTED}|[^"])*', re.DOTALL)
#: A display name, in quotes or of harmless characters, before an address in brackets.
NAMED = re.compile(rf'({QUOTED}\s*|[^"<>()\[\],;:@\\]*)<([^<>]*)>', re.DOTALL)
#: A quoted character of a display name.
ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True)
class Recipients:
    """The recipients of a mail, and the given texts that are not addresses."""

    good: tuple[str, ...]
    bad: tuple[str, ...]


class Mailbox(NamedTuple):
    """An address with the name that is shown with it, which may be empty."""

    name: str
    address: str


def parse_recipients(given: Any, *, fold_local_part: bool = True) -> Recipients:
    """
    Take recipients apart: None, one text (separated by ``;`` or ``,``), a JSON array as text, or a sequence of these.

    Display names are dropped. The first spelling of an address wins; the domain is compared as the domain
    name system does, the local part without case unless ``fold_local_part`` is False.
    """
    if given is None or isinstance(given, str):
        return parse_text(given or "", fold_local_part)
    good: dict[str, str] = {}
    bad: list[str] = []
    for entry in given if isinstance(given, Iterable) else [given]:
        if isinstance(entry, str) and entry.strip():
            found = parse_text(entry, fold_local_part)
            bad += found.bad
            for address in found.good:
                good.setdefault(mailbox_key(address, fold_local_part), address)
        else:
            bad.append(repr(entry))
    return Recipients(tuple(good.values()), tuple(bad))


@lru_cache(maxsize=20_000)
def parse_text(text: str, fold_local_part: bool) -> Recipients:
    """Take one text apart; cached, because a pass meets the same few people again and again."""
    if text.startswith("["):
        try:
            return parse_recipients(json.loads(text), fold_local_part=fold_local_part)
        except (ValueError, RecursionError):
            return Recipients((), (shown(text),))
    good: dict[str, str] = {}
    bad: list[str] = []
    for address in split(text):
        if is_address(address):
            good.setdefault(mailbox_key(address, fold_local_part), address)
        else:
            bad.append(shown(address))
    return Recipients(tuple(good.values()), tuple(bad))


def split(text: str) -> Iterator[str]:
    """Yield the addresses of one text; empty places between separators are nobody and say nothing."""
    # Not email.utils.getaddresses: what it makes of a broken text depends on Python's patch release (CVE-2023-27043),
    # and it follows nested comments until the stack ends.
    stripped = text.strip()
    if PLAIN.fullmatch(stripped):
        yield stripped
    elif not ENTRIES.fullmatch(stripped):
        yield from filter(None, [stripped])
    else:
        for entry in filter(None, (part.strip() for part in ENTRY.findall(stripped))):
            named = NAMED.fullmatch(entry)
            yield named[2] if named else entry


def parse_mailbox(text: str) -> Mailbox:
    """
    Return one address with or without a display name, as a setting or a step gives its sender.

    A name with a comma or other special characters has to be in quotes, or it would be read as several addresses.
    Raises: WrongAddress, saying what is wrong.
    """
    stripped = text.strip()
    if stripped != one_line(stripped):
        raise WrongAddress(f"{shown(text)} has control characters")
    named = NAMED.fullmatch(stripped)
    name, address = (named[1].strip(), named[2]) if named else ("", stripped)
    if name.startswith('"'):
        name = ESCAPED.sub(r"\1", name[1:-1])
    if not is_address(address):
        raise WrongAddress(
            f"{shown(text)} is not one mail address; write name@example.org or Name <name@example.org>, a name with a "
            'comma or other special characters in quotes: "Name, Inc." <name@example.org>'
        )
    return Mailbox(name, address)


def is_address(text: str) -> bool:
    """Whether mail can be addressed to it."""
    if len(text) > ADDRESS_CHARS_MAX or not text.isprintable():
        return False
    try:
        wire = wire_address(text)
        validate_email(wire)
    except (ValueError, ValidationError):
        return False
    return len(wire) <= ADDRESS_CHARS_MAX


@lru_cache(maxsize=20_000)
def wire_address(address: str) -> str:
    """Return a bare address as a mail server takes it, its domain in ASCII. Raises: ValueError."""
    local, at, domain = address.rpartition("@")
    if not local.isascii() or not address.isprintable() or any(c in address for c in "<> "):
        raise ValueError(f"not an address that mail can be sent to: {address!r}")
    return f"{local}{at}{wire_domain(domain)}"


def wire_domain(domain: str) -> str:
    """
    Return a domain in ASCII and lower case. Raises: ValueError.

    By UTS 46 without its transitional rules, as browsers do: ``faß.de`` is not ``fass.de``, which is somebody else's.
    """
    if domain.isascii():
        return domain.lower()
    return idna.encode(domain, uts46=True, transitional=False).decode("ascii").lower()


def mailbox_key(address: str, fold_local_part: bool) -> str:
    """Return the same key for all spellings of one mailbox; a text that is not an address is its own key."""
    local, _, domain = address.rpartition("@")
    try:
        domain = wire_domain(domain)
    except ValueError:
        domain = domain.casefold()
    return f"{local.casefold() if fold_local_part else local}@{domain}"


def spellings(address: str) -> set[str]:
    """Return how a mailbox may stand in a list that plain SQL has written: by its key, or with its domain as read."""
    key = mailbox_key(address, fold_local_part=True)
    local, _, domain = key.rpartition("@")
    if "xn--" not in domain:
        return {key}
    try:
        return {key, f"{local}@{idna.decode(domain)}"}
    except ValueError:
        return {key}


def shown(text: str) -> str:
    """Return a text that is safe to show, shortened, in quotes."""
    return repr(text if len(text) <= SHOWN_CHARS_MAX else text[: SHOWN_CHARS_MAX - 1] + "…")
