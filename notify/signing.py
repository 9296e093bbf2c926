"""
Tokens that only this site can make: who a report is about, and who unsubscribes. Both end with the secret.

A report's token stands in an address, which mail servers write in lower case; an unsubscribe token stands in a link,
and nobody reads an address out of it. While a secret is exchanged (SECRET_KEY_FALLBACKS) those of the old one count.
"""

import base64
import json
from collections.abc import Iterator
from typing import NamedTuple

from django.conf import settings
from django.utils.crypto import constant_time_compare, salted_hmac
from django.utils.encoding import force_str
from django.utils.http import base36_to_int, int_to_base36

REPORT_SALT, LINK_SALT = "notify.signing.report", "notify.signing.link"
#: Octets of a report token's signature, 80 bits; the part of an address before the @ has 64 characters at most.
SIGNATURE_OCTETS = 10
#: Most characters of a link's token; longer ones are invalid.
LINK_CHARS_MAX = 1000
INT_CHARS_MAX = 13


class WrongToken(ValueError):
    """A token that this site did not create, or with a secret that is no longer used."""


class Sent(NamedTuple):
    """What a report is about: one part of one mail."""

    mail_id: int
    part: int


class Leaving(NamedTuple):
    """Who may leave what: an address, the kind of the mail that had the link, and the language of that mail."""

    address: str
    kind: str
    language: str


def secrets() -> Iterator[str]:
    """Yield the secret that signs, and those that are still accepted."""
    yield settings.SECRET_KEY
    yield from map(force_str, settings.SECRET_KEY_FALLBACKS)


def sign_report(sent: Sent) -> str:
    """Return the token for reports about one part of a mail."""
    payload = f"{int_to_base36(sent.mail_id)}-{int_to_base36(sent.part)}"
    return f"{payload}-{report_signature(payload, settings.SECRET_KEY)}"


def read_report_token(token: str) -> Sent:
    """Return what a report's token is about. Raises: WrongToken."""
    payload, _, given = token.lower().rpartition("-")
    if not any(constant_time_compare(given, report_signature(payload, secret)) for secret in secrets()):
        raise WrongToken("not signed by this site")
    mail_id, _, part = payload.partition("-")
    return Sent(base36_to_int(mail_id[:INT_CHARS_MAX]), base36_to_int(part[:INT_CHARS_MAX]))


def report_signature(payload: str, secret: str) -> str:
    """Return a report token's signature, in letters that survive an address."""
    digest = salted_hmac(REPORT_SALT, payload, secret=secret, algorithm="sha256").digest()
    return base64.b32encode(digest[:SIGNATURE_OCTETS]).decode("ascii").lower()


def bounce_address(base: str, sent: Sent) -> str:
    """Return the envelope sender of one part of a mail: ``bounces@example.org`` with the token in it."""
    local, _, domain = base.rpartition("@")
    return f"{local}+{sign_report(sent)}@{domain}"


def token_in(address: str, base: str) -> str:
    """Return the token in an address, empty when there is none or it is another site's."""
    local, _, domain = address.strip().strip("<>").lower().rpartition("@")
    base_local, _, base_domain = base.lower().rpartition("@")
    prefix = f"{base_local}+"
    return local.removeprefix(prefix) if local.startswith(prefix) and domain == base_domain else ""


def seal_link(leaving: Leaving) -> str:
    """Return the token of an unsubscribe link."""
    from cryptography.fernet import Fernet

    token = Fernet(link_key(settings.SECRET_KEY)).encrypt(json.dumps(leaving).encode())
    return token.decode("ascii").rstrip("=")


def open_link(token: str) -> Leaving:
    """Return who unsubscribes from what. Raises: WrongToken."""
    from cryptography.fernet import Fernet, InvalidToken, MultiFernet

    if len(token) > LINK_CHARS_MAX:
        raise WrongToken("too long")
    keys = MultiFernet([Fernet(link_key(secret)) for secret in secrets()])
    try:
        return Leaving(*json.loads(keys.decrypt(token.encode() + b"=" * (-len(token) % 4))))
    except (InvalidToken, ValueError, TypeError) as error:
        raise WrongToken("not made by this site") from error


def link_key(secret: str) -> bytes:
    """Return the key that one secret gives for links."""
    return base64.urlsafe_b64encode(salted_hmac(LINK_SALT, "key", secret=secret, algorithm="sha256").digest())
