"""Texts that fit where they go: one line, whole characters, nothing that a database or a header refuses; pure."""

import re

import regex

ELLIPSIS = "…"
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
    return " ".join(text.split())


def shorten(text: str, units_max: int) -> str:
    """Return the text, cut before the last whole character (grapheme cluster) that fits, with an ellipsis."""
    if len(text) * 2 <= units_max or units(text) <= units_max:
        return text
    kept, room = [], units_max - units(ELLIPSIS)
    for character in regex.findall(r"\X", text):
        room -= units(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept).rstrip() + ELLIPSIS


def stored(text: str, chars_max: int) -> str:
    """Return a long text (a traceback, a list of keys) as the log can store it."""
    text = clean(text)
    return text if len(text) <= chars_max else text[: chars_max - 1] + ELLIPSIS
