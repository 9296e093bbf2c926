"""Texts that fit where they go: one line, whole characters, nothing that a database or a header refuses; pure."""

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import regex

ELLIPSIS = "…"
#: UTF-16 code units of a tenant's name, which is a key: as long as in the receipts.
TENANT_UNITS_MAX = 64
#: Unicode's categories Cc, Zl and Zp.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def units(text: str) -> int:
    """Return the length in UTF-16 code units, which is what NVARCHAR(n) counts."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def clean(text: str) -> str:
    """Replace what PostgreSQL or UTF-8 cannot store: NUL and lone surrogates."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def one_line(text: str) -> str:
    """Turn line ends, tabs and other control characters into single blanks, so that no header can be injected."""
    if not (text := text.strip()).isprintable():
        text = CONTROL.sub(" ", clean(text))
    elif "  " not in text:
        # Of all blanks only the plain one is printable.
        return text
    return " ".join(text.split())


def is_tenant(value: Any) -> bool:
    """Whether a value is a valid tenant; it is never corrected, as the result might be another tenant."""
    return isinstance(value, str) and len(value) <= TENANT_UNITS_MAX and is_key(value)


@lru_cache(maxsize=10_000)
def is_key(text: str) -> bool:
    """Whether a short text is fit to be a key; cached, because a pass meets the same few tenants again and again."""
    # A blank at an end is none to SQL Server, which would take it for the tenant without it.
    is_plain = text == text.strip() and not CONTROL.search(text) and clean(text) == text
    return is_plain and units(text) <= TENANT_UNITS_MAX


@cache
def character() -> "regex.Pattern[str]":
    """Return the pattern of one whole character."""
    import regex  # here, because few texts are too long and it takes as long to import as a third of a pass

    return regex.compile(r"\X")


def shorten(text: str, units_max: int) -> str:
    """Return the text, cut before the last whole character (grapheme cluster) that fits, with an ellipsis."""
    if len(text) * 2 <= units_max or units(text) <= units_max:
        return text
    end, left = 0, units_max - units(ELLIPSIS)
    # A character begins where the one before has ended, and nothing before that matters. So only what may still fit is
    # looked at, never the whole text for each of its flags.
    while left > 0 and (found := character().match(text[end : end + left + 1])):
        left -= units(found[0])
        if left < 0:
            break
        end += found.end()
    return text[:end].rstrip() + ELLIPSIS


def stored(text: str, chars_max: int) -> str:
    """Return a long text (a traceback, a list of keys) as the log can store it."""
    text = clean(text)
    return text if len(text) <= chars_max else text[: chars_max - 1] + ELLIPSIS
