"""Limits of a plan file, and what a reader raises at one of them. Needs Python only: the child process imports it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ..errors import Flaw, InvalidPlan, Words

#: Bytes of a plan file. Ten thousand targets need less than one megabyte in any of the formats.
PLAN_BYTES_MAX = 16 * 2**20
#: Bytes of a workbook's parts as they are inflated: ten thousand rows of ten columns need six million.
INFLATED_BYTES_MAX = 32 * 2**20
#: Rows of a table, empty ones included.
ROWS_MAX = 100_000
#: Columns of a table and keys of a JSON object. A kind compares and sets a handful of fields.
COLUMNS_MAX = 64
#: Filled cells of a table: ten thousand targets of fifty columns.
CELLS_MAX = 500_000
#: Sheets of a workbook, empty ones included.
SHEETS_MAX = 16
#: Characters of one cell: the most that a spreadsheet keeps in one.
CELL_CHARS_MAX = 32_767
#: Levels of a JSON plan: the plan, its targets, one target, and one more to name what stands in place of a value.
DEPTH_MAX = 8
#: Problems that are listed. Somebody who sees five thousand corrects the file, not the cell.
FLAWS_MAX = 5_000
#: Bytes of what the child process answers: ten thousand targets of a few fields need less than two million.
ANSWER_BYTES_MAX = 8 * 2**20
#: Bytes of memory, seconds of processor time and seconds of the clock that reading one file may take.
READ_MEMORY_BYTES_MAX = 512 * 2**20
READ_CPU_S_MAX = 5
READ_WALL_S_MAX = 8.0

#: Characters of a value that is quoted in a message.
SHOWN_CHARS_MAX = 40


def visible(text: str) -> str:
    """Return text that every terminal, page and database takes: what cannot be encoded is escaped."""
    short = text if len(text) <= 4 * SHOWN_CHARS_MAX else text[: 4 * SHOWN_CHARS_MAX - 1] + "…"
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in short)


def shortened(value: Any) -> str:
    """Return a value as it was given, in a line."""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    is_long = isinstance(value, str) and len(value) > SHOWN_CHARS_MAX
    shown = repr(value[:SHOWN_CHARS_MAX] if is_long else value)
    return shown if len(shown) <= SHOWN_CHARS_MAX else shown[: SHOWN_CHARS_MAX - 1] + "…"


def refusal(problem: Words, where: str | None = None) -> InvalidPlan:
    """Return the refusal of a file as a whole, or of one place in it."""
    return InvalidPlan([Flaw(where or Words("the file"), problem)])


class Flaws(list[Flaw]):
    """Problems found so far; the one past the limit ends the reading."""

    def add(self, flaw: Flaw) -> None:
        """Append a problem. Raises: InvalidPlan with all of them when there are too many."""
        self.append(flaw)
        if len(self) >= FLAWS_MAX:
            text = Words("has more problems; the first %(limit)s are listed", limit=format(FLAWS_MAX, ","))
            raise InvalidPlan([*self, Flaw(Words("the file"), text)])

    def raise_any(self, more: Sequence[Flaw] = ()) -> None:
        """Raise InvalidPlan if there are problems."""
        if self or more:
            raise InvalidPlan([*self, *more])
