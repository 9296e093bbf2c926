"""
CSV and XLSX as numbered rows of cells, in which only the plainest spelling of an integer is one. Pure, no ORM.

A spreadsheet guesses; ``0010``, ``10.0`` and full-width digits stay text here, and the plan then refuses them.
"""

import csv
import io
import re
import zipfile
import zlib
from typing import Any

from python_calamine import CalamineError, CalamineWorkbook

from ..errors import Flaw, InvalidPlan, Words
from .xlsx_limits import check_extent

#: Bytes of an XLSX when unpacked: a small file can hold a very large sheet.
XLSX_BYTES_MAX = 128 * 2**20
#: A spreadsheet keeps numbers as floating point, exact to 15 digits; a longer id belongs into a text cell.
XLSX_NUMBER_MAX = 10**15 - 1
SEPARATORS = ",;\t|"
PLAIN_INTEGER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)


def decoded(data: bytes) -> str:
    """Decode UTF-8, with or without a byte order mark, or UTF-16 with one."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return data.decode(encoding)


def csv_rows(data: bytes) -> list[tuple[int, list[Any]]]:
    """Read a CSV; its separator is the one that splits the header into known columns."""
    try:
        text = decoded(data)
        first = text.split("\n", 1)[0].strip("\r")
        separator = max(SEPARATORS, key=first.count)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        rows = [(reader.line_num, [plain_integer(cell) for cell in cells]) for cells in reader]
    except (UnicodeError, csv.Error) as error:
        raise InvalidPlan([Flaw(Words("the file"), Words("is not CSV in UTF-8: %(error)s", error=error))]) from error
    return [(number, cells) for number, cells in rows if any(cell != "" for cell in cells)]


def xlsx_rows(data: bytes) -> list[tuple[int, list[Any]]]:
    """Read the one sheet of a workbook."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            unpacked_bytes = sum(entry.file_size for entry in packed.infolist())
            if unpacked_bytes > XLSX_BYTES_MAX:
                text = Words("has more than %(limit)s bytes when unpacked", limit=format(XLSX_BYTES_MAX, ","))
                raise InvalidPlan([Flaw(Words("the file"), text)])
            for entry in packed.infolist():
                check_extent(packed.read(entry), entry.filename)
        book = CalamineWorkbook.from_filelike(io.BytesIO(data))
        sheets = [(name, book.get_sheet_by_name(name).to_python(skip_empty_area=False)) for name in book.sheet_names]
    except (CalamineError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        # What zipfile raises depends on where the file is spoilt; RuntimeError is its answer to a password.
        raise InvalidPlan(
            [Flaw(Words("the file"), Words("is not an XLSX workbook: %(error)s", error=error))]
        ) from error
    filled = [(name, rows) for name, rows in sheets if any(cell != "" for row in rows for cell in row)]
    if len(filled) > 1:
        where = Words("sheet %(name)s", name=repr(filled[1][0]))
        raise InvalidPlan([Flaw(where, Words("is a second sheet with content; a plan is one sheet"))])
    rows = [
        (number, [spreadsheet_integer(cell) for cell in row])
        for _, rows in filled
        for number, row in enumerate(rows, 1)
    ]
    return [(number, cells) for number, cells in rows if any(cell != "" for cell in cells)]


def plain_integer(cell: str) -> int | str:
    """Return an integer for its plainest spelling only; ``0010``, ``10.0`` and full-width digits stay text."""
    return int(cell) if PLAIN_INTEGER.fullmatch(cell) else cell


def spreadsheet_integer(cell: Any) -> Any:
    """Return an integer for a whole number that a spreadsheet holds exactly, or for plain digits in a text cell."""
    if isinstance(cell, str):
        return plain_integer(cell)
    if isinstance(cell, float) and cell.is_integer() and abs(cell) <= XLSX_NUMBER_MAX:
        return int(cell)
    return cell
