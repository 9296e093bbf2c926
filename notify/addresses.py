"""Recipients as a step gives them -> the good addresses, once each, and the bad ones by name; pure, no ORM."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

#: Characters of an address, RFC 5321 section 4.5.3.1 (a path is 256 octets with its brackets).
ADDRESS_CHARS_MAX = 254
#: Characters of a bad address that are shown to people.
SHOWN_CHARS_MAX = 80

#: An address that needs no parser: no blank, quote, comment, bracket, comma or semicolon.
PLAIN = re.compile(r"[^\s\"(),:;<>@\\\[\]]+@[^\s\"(),:;<>@\\\[\]]+", re.ASCII)

#: One entry between separators, which do not separate within quotes; a text with an open quote is no list of these.
QUOTED = r'"(?:[^"\\]|\\.)*"'
ENTRY = re.compile(rf'(?:{QUOTED}|[^";,])+', re.DOTALL)
ENTRIES = re.compile(rf'(?:{QUOTED}|[^"])*', re.DOTALL)
#: A display name, in quotes or of harmless characters, before an address in brackets.
NAMED = re.compile(rf'(?:{QUOTED}\s*|[^"<>()\[\],;:@\\]*)<([^<>]*)>', re.DOTALL)


@dataclass(frozen=True)
class Recipients:
    """Who gets the mail, and what was given besides that is nobody's address."""

    good: tuple[str, ...]
    bad: tuple[str, ...]


def parse_recipients(given: Any, *, fold_local_part: bool = True) -> Recipients:
    """
    Take recipients apart: None, one text (separated by ``;`` or ``,``), a JSON array as text, or a sequence of these.

    Display names are dropped. The first spelling of an address wins; the domain is compared without case, the local
    part too unless ``fold_local_part`` is False.
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
                good.setdefault(identity(address, fold_local_part), address)
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
            good.setdefault(identity(address, fold_local_part), address)
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
            yield named[1] if named else entry


def is_address(text: str) -> bool:
    """Whether mail can be addressed to it."""
    if len(text) > ADDRESS_CHARS_MAX or not text.isprintable():
        return False
    try:
        validate_email(text)
    except ValidationError:
        return False
    return True


def identity(address: str, fold_local_part: bool) -> str:
    """Return what two spellings of one mailbox have in common."""
    local, _, domain = address.rpartition("@")
    return f"{local.casefold() if fold_local_part else local}@{domain.casefold()}"


def shown(text: str) -> str:
    """Return a text that is safe to show, shortened, in quotes."""
    return repr(text if len(text) <= SHOWN_CHARS_MAX else text[: SHOWN_CHARS_MAX - 1] + "…")
