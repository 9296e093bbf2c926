"""
Strict reading with openpyxl: what it would repair, drop or guess is refused. Runs in the child process only.

openpyxl's reader is driven part by part instead of through ``load_workbook``, so that inflated bytes, rows and cells
are counted while they come, and a hidden row, an error or a formula is seen before anything is made of it.
"""

import io
import os
import re
import sys
import warnings
import zipfile
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from typing import IO, Any
from xml.etree.ElementTree import Element

from ..errors import Flaw, InvalidPlan, Words
from .limits import COLUMNS_MAX, INFLATED_BYTES_MAX, ROWS_MAX, SHEETS_MAX, refusal, visible
from .sheets import REFUSED, Number, Table

# The safe XML parser, and none of the libraries that openpyxl takes along when it finds them: they cost memory.
os.environ["OPENPYXL_LXML"] = "False"
for _name in ("numpy", "PIL"):
    sys.modules.setdefault(_name, None)  # type: ignore[arg-type]

from openpyxl.reader.excel import ExcelReader  # noqa: E402
from openpyxl.utils.cell import column_index_from_string  # noqa: E402
from openpyxl.worksheet._reader import (  # noqa: E402
    CELL_TAG,
    FORMULA_TAG,
    INLINE_STRING,
    VALUE_TAG,
    WorkSheetParser,
)
from openpyxl.worksheet.cell_range import CellRange  # noqa: E402
from openpyxl.worksheet.dimensions import ColumnDimension, RowDimension  # noqa: E402

#: Bytes that are inflated in one go.
CHUNK_BYTES = 2**16
#: A spreadsheet keeps numbers as floating point, exact to 15 digits; a longer one belongs into a text cell.
NUMBER_MAX = 10**15 - 1
PLACE = re.compile(r"([A-Z]{1,3})([1-9][0-9]{0,6})", re.ASCII)
ROW_NUMBER = re.compile(r"[1-9][0-9]{0,6}", re.ASCII)
#: What may stand in a cell of each type; in the others any text.
VALUES = {
    "b": re.compile("[01]"),
    "n": re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,4})?", re.ASCII),
    "s": re.compile(r"[0-9]{1,9}", re.ASCII),
}
OTHER_TYPES = frozenset({"d", "e", "inlineStr", "str"})
TRUE = frozenset({"1", "true", "on"})
ENCRYPTED = 0x1
#: Of APPNOTE.TXT 6.3, the newest.
VERSION_MAX = 63
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Malformed(ValueError):
    """The workbook breaks a rule of its format."""


class CountedPart(io.RawIOBase):
    """A part of the archive that counts the bytes it really inflates to, whatever the archive says of them."""

    def __init__(self, archive: "CountedArchive", source: IO[bytes]) -> None:
        self.archive, self.source = archive, source

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size >= 0:
            return self.archive.count(self.source.read(min(size, CHUNK_BYTES)))
        return b"".join(iter(lambda: self.archive.count(self.source.read(CHUNK_BYTES)), b""))

    def close(self) -> None:
        self.source.close()
        super().close()


class CountedArchive(zipfile.ZipFile):
    """A ZIP file of which only so much is inflated, all reads together."""

    inflated_bytes = 0

    def open(self, name: Any, mode: Any = "r", *args: Any, **options: Any) -> Any:
        return CountedPart(self, super().open(name, mode, *args, **options))

    def count(self, chunk: bytes) -> bytes:
        """Count bytes and pass them on. Raises: InvalidPlan at the limit."""
        self.inflated_bytes += len(chunk)
        if self.inflated_bytes > INFLATED_BYTES_MAX:
            text = Words("has more than %(limit)s bytes when unpacked", limit=format(INFLATED_BYTES_MAX, ","))
            raise refusal(text)
        return chunk

    def check(self) -> None:
        """Refuse what an honest writer does not produce."""
        names = [entry.filename for entry in self.infolist()]
        if len(set(names)) != len(names):
            raise Malformed("two parts of one name")
        if any(entry.compress_type not in METHODS for entry in self.infolist()):
            raise Malformed("a part is compressed by another method than deflate")
        if any(entry.flag_bits & ENCRYPTED or entry.extract_version > VERSION_MAX for entry in self.infolist()):
            raise Malformed("a part has a password, or is of a version that is not known")


class PlanWorkbook(ExcelReader):  # type: ignore[misc]
    """The parts of a workbook; `read` finds the sheets and leaves them unread."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), read_only=True, keep_links=False)
        self.archive = CountedArchive(io.BytesIO(data))
        self.archive.check()
        #: Name, state and part of each sheet.
        self.parts: list[tuple[str, str, str]] = []

    def read_theme(self) -> None:
        """Leave colours alone."""

    def read_worksheets(self) -> None:
        """List the sheets."""
        for sheet, relation in self.parser.find_sheets():
            if "worksheet" not in relation.Type:
                raise Malformed(f"sheet {sheet.name!r} is no table")
            self.parts.append((sheet.name, sheet.state, relation.target))
        if len(self.parts) > SHEETS_MAX:
            raise refusal(Words("has more than %(limit)s sheets", limit=SHEETS_MAX))
        if len({part for _, _, part in self.parts}) != len(self.parts):
            raise Malformed("two sheets are one part")
        self.parser.defined_names = type(self.parser.defined_names)()

    def rows(
        self, part: str, table: Table, *, accept_hidden: bool, accept_formulas: bool
    ) -> Iterator[tuple[int, list[Any]]]:
        """Yield the rows of a sheet that have content."""
        with self.archive.open(part) as source:
            sheet = StrictSheet(source, self, table, accept_hidden=accept_hidden, accept_formulas=accept_formulas)
            for number, cells in sheet.parse():
                if cells:
                    yield number, cells
            sheet.look_for_merged()


class StrictSheet(WorkSheetParser):  # type: ignore[misc]
    """One sheet; its rows are lists of values, empty for a row without content."""

    def __init__(
        self, source: IO[bytes], book: PlanWorkbook, table: Table, *, accept_hidden: bool, accept_formulas: bool
    ) -> None:
        wb = book.wb
        super().__init__(
            source,
            book.shared_strings,
            data_only=True,
            epoch=wb.epoch,
            date_formats=wb._date_formats,
            timedelta_formats=wb._timedelta_formats,
        )
        self.table, self.accept_hidden, self.accept_formulas = table, accept_hidden, accept_formulas
        self.wb = wb
        self.row_before = self.column_before = 0
        #: The last row and column that have content.
        self.extent = (0, 0)
        self.hidden_columns: set[int] = set()

    def parse_column_dimensions(self, col: Element) -> None:
        """Note which columns nobody sees."""
        super().parse_column_dimensions(col)
        self.check_dimension(ColumnDimension, dict(col.attrib), "style")
        if is_hidden(col.attrib, "width"):
            first, last = int(col.attrib["min"]), int(col.attrib["max"])
            self.hidden_columns.update(range(max(first, 1), min(last, COLUMNS_MAX) + 1))

    def parse_row(self, row: Element) -> tuple[int, list[Any]]:
        """Return a row's number and cells."""
        given = row.get("r")
        if given is not None and not ROW_NUMBER.fullmatch(given):
            raise Malformed(f"row number {given!r}")
        number = self.row_before + 1 if given is None else int(given)
        if number <= self.row_before:
            raise Malformed(f"row {number} stands twice or not in its order")
        self.row_before = self.row_counter = number
        self.column_before = self.col_counter = 0
        self.check_dimension(RowDimension, dict(row.attrib), "s")
        cells: list[Any] = []
        for element in row:
            if element.tag != CELL_TAG:
                raise Malformed(f"row {number} has something else than cells")
            column, value = self.cell(number, element)
            if value is not None and value != "":
                if number > ROWS_MAX or column > COLUMNS_MAX:
                    where = f"row {number:,}, column {column:,}"
                    raise refusal(Words("is filled, far from all else; delete what is there"), where)
                cells.extend([""] * (column - len(cells) - 1))
                cells.append(value)
        if cells:
            self.extent = (number, max(self.extent[1], len(cells)))
            self.table.count(min(number, ROWS_MAX), cells)
            self.look_for_hidden(number, row, cells)
        return number, cells

    def look_for_hidden(self, number: int, row: Element, cells: list[Any]) -> None:
        """Count and refuse content that nobody sees."""
        zero_height = getattr(getattr(self, "sheet_format", None), "zeroHeight", None)
        if is_hidden(row.attrib, "ht") or (zero_height and row.get("hidden") is None):
            self.table.hidden += 1
            if not self.accept_hidden:
                self.table.flaws.add(Flaw(f"row {number}", Words("is hidden or filtered out"), row=number))
        for column in sorted(self.hidden_columns):
            if column <= len(cells) and cells[column - 1] != "":
                self.hidden_columns.discard(column)
                self.table.hidden += 1
                if not self.accept_hidden:
                    where = f"row {number}, column {column}"
                    text = Words("is in a hidden column")
                    self.table.flaws.add(Flaw(where, text, row=number, column=str(column)))

    def check_dimension(self, dimension: Any, attributes: dict[str, str], style: str) -> None:
        """Let openpyxl look at the attributes of a row or column, as it does when it loads a whole workbook."""
        if attributes.keys() - {"r", "spans"}:
            self.check_style(attributes.pop(style, "0"))
            dimension(None, **attributes)

    def check_style(self, index: Any) -> None:
        """Refuse a style that there is not."""
        if not 0 <= int(index) < max(1, len(self.wb._cell_styles)):
            raise Malformed(f"style {index!r} is not there")

    def look_for_merged(self) -> None:
        """Refuse merged cells beside content: what one of them hides, nobody sees."""
        for merged in self.merged_cells.mergeCell if self.merged_cells is not None else ():
            place = CellRange(merged.ref)
            if place.min_row <= self.extent[0] and place.min_col <= self.extent[1]:
                where = f"row {place.min_row}, column {place.min_col}"
                text = Words("is merged with other cells; a plan has one value in each cell")
                flaw = Flaw(where, text, row=place.min_row, column=str(place.min_col))
                self.table.flaws.add(flaw)

    def cell(self, row: int, element: Element) -> tuple[int, Any]:
        """Return a cell's column and value, None for a cell that has a format only."""
        column = self.column_of(row, element)
        kind = element.get("t", "n")
        found = {tag: element.findall(tag) for tag in (VALUE_TAG, FORMULA_TAG, INLINE_STRING)}
        where = f"row {row}, column {column}"
        if kind not in VALUES and kind not in OTHER_TYPES:
            raise Malformed(f"{where}: a cell of type {kind!r}")
        if any(len(elements) > 1 for elements in found.values()) or any(len(one) for one in found[VALUE_TAG]):
            raise Malformed(f"{where}: two values in one cell")
        text = found[VALUE_TAG][0].text if found[VALUE_TAG] else None
        if text and kind in VALUES and not VALUES[kind].fullmatch(text.strip()):
            raise Malformed(f"{where}: {text[:20]!r} in a cell of type {kind!r}")
        self.check_style(element.get("s", "0"))
        if found[FORMULA_TAG]:
            self.table.formulas += 1
            if not self.accept_formulas:
                self.flaw(row, column, Words("is a formula; paste its value"), element)
                return column, REFUSED
        parsed = super().parse_cell(element)
        if parsed["data_type"] == "e":
            self.flaw(row, column, Words("is an error: %(value)s", value=visible(str(parsed["value"]))), element)
            return column, REFUSED
        return column, plain(parsed["value"])

    def column_of(self, row: int, element: Element) -> int:
        """Return the number of a cell's column; it stands behind the one before."""
        given = element.get("r")
        column = self.column_before + 1
        if given is not None:
            place = PLACE.fullmatch(given)
            if place is None or int(place[2]) != row:
                raise Malformed(f"a cell named {given!r} in row {row}")
            column = column_index_from_string(place[1])
        if column <= self.column_before:
            raise Malformed(f"cell {given!r} stands twice or not in its order")
        self.column_before = column
        return column

    def flaw(self, row: int, column: int, text: Words, element: Element) -> None:
        """Note a cell that is not taken."""
        value = element.findtext(VALUE_TAG) or ""
        given = visible(repr(value)) if value else ""
        self.table.flaws.add(Flaw(f"row {row}, column {column}", text, row=row, column=str(column), given=given))


def is_hidden(attributes: dict[str, str], size: str) -> bool:
    """Whether a row or column is hidden, or of no height or width."""
    if attributes.get("hidden", "").lower() in TRUE:
        return True
    return size in attributes and float(attributes[size]) == 0


def plain(value: Any) -> Any:
    """Return a cell's value as the other formats have it."""
    if value is None or isinstance(value, bool | datetime):
        return value
    if isinstance(value, int | float):
        if abs(value) <= NUMBER_MAX and float(value).is_integer():
            return int(value)
        return Number(repr(value))
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, time | timedelta):
        return Number(str(value))
    return str(value)


def xlsx_rows(
    data: bytes, table: Table, *, accept_hidden: bool = False, accept_formulas: bool = False
) -> Iterator[tuple[int, list[Any]]]:
    """Read the one sheet of a workbook that has content. Raises: InvalidPlan."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield from filled_rows(data, table, accept_hidden=accept_hidden, accept_formulas=accept_formulas)
    except (InvalidPlan, MemoryError):
        raise
    except Exception as error:
        # What a reader raises depends on where the file is spoilt, and this process has no other work to lose.
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise refusal(Words("is not an XLSX workbook: %(error)s", error=visible(text))) from error


def filled_rows(
    data: bytes, table: Table, *, accept_hidden: bool, accept_formulas: bool
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the rows of the sheet that has content; look into all the others, too."""
    book = PlanWorkbook(data)
    book.read()
    filled = ""
    for name, state, part in book.parts:
        where = Words("sheet %(name)s", name=visible(repr(name)))
        for number, cells in book.rows(part, table, accept_hidden=accept_hidden, accept_formulas=accept_formulas):
            if filled not in ("", part):
                raise refusal(Words("is a second sheet with content; a plan is one sheet"), where)
            if not filled and state != "visible":
                table.hidden += 1
                if not accept_hidden:
                    table.flaws.add(Flaw(where, Words("is a hidden sheet")))
            filled = part
            yield number, cells
