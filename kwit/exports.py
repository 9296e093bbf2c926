"""
Files for download: CSV that no spreadsheet evaluates, sent while it is read, recorded as an action.

CSV is UTF-8 with a byte order mark, comma, CRLF and every cell in quotes. An apostrophe stands before each character
that would begin a formula in a reader that splits lines at a comma, semicolon, tab, bar or line end, whatever quotes
it honours; ``plain_cell`` takes the apostrophes away again.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import datetime
from typing import Any, TypeVar

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils.http import content_disposition_header

from .admin.actions import record_action

T = TypeVar("T")
#: Rows of one exported list at most.
EXPORT_ROWS_MAX = 100_000
BOM = "\ufeff"
TYPES = {"csv": "text/csv; charset=utf-8", "json": "application/json", "tlog-proof": "text/plain; charset=utf-8"}
#: Where some reader may begin a new cell: separators, tabs and everything that counts as a line end somewhere.
SEPARATORS = ",;|\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"
CONTROL = frozenset("\t\r\n")
#: What begins a formula, in ASCII and full-width as a Japanese keyboard types it; and the apostrophe itself.
FORMULA = "=+\\-@\uff1d\uff0b\uff0d\uff20'"
#: A possible beginning of a cell, after it blanks, quotes and what some reader drops (NUL, a byte order mark), and what
#: would make it a formula. It consumes what it has seen, so that the time is linear in the length of the text.
BEGINNING = re.compile(rf"(?P<start>^|[{SEPARATORS}])(?P<blanks>[\s\"\x00\u200b\ufeff]*+)(?P<sign>[{FORMULA}]?)")
ESCAPED = re.compile(rf"(?P<start>^|[{SEPARATORS}])(?P<blanks>[\s\"\x00\u200b\ufeff]*+)(?P<sign>'?)")


def escaped(sign: str) -> str:
    """Return the character that would begin a formula with an apostrophe before it; nothing stays nothing."""
    return f"'{sign}" if sign else ""


def csv_cell(value: Any) -> Any:
    """Return a value for a CSV file: numbers unchanged, texts so that no formula can begin in them."""
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    safe = BEGINNING.sub(lambda found: found[0][: found.start("sign") - found.start()] + escaped(found["sign"]), text)
    return f"'{safe}" if text[:1] in CONTROL else safe


def plain_cell(text: str) -> str:
    """Return the text of which ``csv_cell`` made a cell."""
    return ESCAPED.sub(lambda found: found["start"] + found["blanks"], text)


class Echo:
    """A file for ``csv.writer`` whose ``write`` returns the line instead of storing it."""

    def write(self, text: str) -> str:
        """Return the line."""
        return text


def csv_lines(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield a CSV line by line."""
    writer = csv.writer(Echo(), quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    yield BOM + str(writer.writerow([csv_cell(name) for name in head]))
    for row in rows:
        yield str(writer.writerow([csv_cell(value) for value in row]))


def with_first_read(items: Iterator[T]) -> Iterator[T]:
    """Read the first item now, so that what fails fails before a response has begun."""
    for first in items:
        return prepend(first, items)
    return iter(())


def prepend(first: T, rest: Iterator[T]) -> Iterator[T]:
    """Yield an item, then the rest."""
    with closing(rest):  # type: ignore[type-var]
        yield first
        yield from rest


def as_file(lines: Iterable[str], *, request: HttpRequest, shape: str, name: str, **record: Any) -> HttpResponse:
    """Return a file that is made while it is sent, recorded when that begins and when it ends."""
    response = StreamingHttpResponse(
        recorded(lines, actor=request.user.get_username(), note=shape, **record), content_type=TYPES[shape]
    )
    safe = re.sub(r"[^\w.-]+", "_", name)[:80]
    response["Content-Disposition"] = content_disposition_header(True, f"{safe}.{shape}") or "attachment"
    response["Cache-Control"] = "no-store"
    return response  # type: ignore[return-value]


def recorded(lines: Iterable[str], *, actor: str, note: str, **record: Any) -> Iterator[str]:
    """Yield the lines, and record who got how many of them: one that was broken off is a failed action."""
    with record_action(actor=actor, name="export", **record) as doing:
        doing.note = note
        for line in lines:
            yield line
            doing.done += 1
