"""
A table as numbered rows of cells, counted while it is read; and CSV. Runs in the child process only.

A cell is a text, an integer, a `Number`, a boolean or a datetime. Nothing is converted here: ``0010`` and full-width
digits stay text, and what a column takes is decided later.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..errors import Words
from .limits import CELL_CHARS_MAX, CELLS_MAX, COLUMNS_MAX, ROWS_MAX, Flaws, refusal, visible

SEPARATORS = ",;\t|"
#: Characters of the first line in which the separator is looked for.
HEADER_CHARS_MAX = 10_000


class Number(str):
    """A number that is no integer, in the digits in which it is written."""

    def __repr__(self) -> str:
        return str(self)


class Refused:
    """In place of a cell that is not taken, and about which everything is said."""


REFUSED = Refused()


@dataclass
class Table:
    """What is counted while a file is read."""

    flaws: Flaws = field(default_factory=Flaws)
    cells: int = 0
    #: Rows, columns and sheets with content that nobody sees, and formulas.
    hidden: int = 0
    formulas: int = 0

    def count(self, number: int, cells: list[Any]) -> None:
        """Count a row. Raises: InvalidPlan at a limit."""
        if number > ROWS_MAX:
            raise refusal(Words("has more than %(limit)s rows", limit=format(ROWS_MAX, ",")))
        if len(cells) > COLUMNS_MAX:
            text = Words("has %(count)s cells; a row has up to %(limit)s", count=len(cells), limit=COLUMNS_MAX)
            raise refusal(text, f"row {number}")
        self.cells += len(cells)
        if self.cells > CELLS_MAX:
            raise refusal(Words("has more than %(limit)s cells", limit=format(CELLS_MAX, ",")))
        for at, cell in enumerate(cells, 1):
            if isinstance(cell, str) and len(cell) > CELL_CHARS_MAX:
                text = Words("has more than %(limit)s characters", limit=format(CELL_CHARS_MAX, ","))
                raise refusal(text, f"row {number}, column {at}")


def decoded(data: bytes) -> str:
    """Decode UTF-8, with or without a byte order mark, or UTF-16 with one."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return data.decode(encoding)


def csv_rows(data: bytes, table: Table) -> Iterator[tuple[int, list[Any]]]:
    """Read a CSV; its separator is the one that splits the first line into most columns. Raises: InvalidPlan."""
    try:
        text = decoded(data)
        first = text[:HEADER_CHARS_MAX].split("\n", 1)[0].strip("\r")
        separator = max(SEPARATORS, key=first.count)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        for cells in reader:
            table.count(reader.line_num, cells)
            if any(cells):
                yield reader.line_num, list(cells)
    except (UnicodeError, csv.Error) as error:
        raise refusal(Words("is not CSV in UTF-8: %(error)s", error=visible(str(error)))) from error
