"""
How far a workbook's sheet extends, read from its XML before the reader unrolls it. Pure, no ORM.

python-calamine holds the whole rectangle from the first to the last filled cell in memory. A file of one kilobyte can
ask for half a terabyte, and then it is the process that ends, not the call.
"""

import re

from ..errors import Flaw, InvalidPlan, Words

#: Cells of the rectangle from A1 to the last filled cell: thirty columns of a hundred thousand rows, 100 MB in memory.
XLSX_CELLS_MAX = 3_000_000
#: Rows and cells of a sheet's XML with their attributes, the place in those, and what is not XML's content.
XLSX_TAG = re.compile(rb"""<(?:\w+:)?(row|c)\b((?:[^>"']|"[^"]*"|'[^']*')*)>""")
XLSX_ATTRIBUTE = re.compile(rb"""([\w:]+)\s*=\s*("[^"]*"|'[^']*')""")
XLSX_PLACE = re.compile(rb"""["']([A-Za-z]*)([0-9]+)["']""")
XLSX_ASIDE = re.compile(rb"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>", re.DOTALL)


def check_extent(part: bytes, name: str) -> None:
    """Refuse a sheet whose last filled cell is so far from the first that the reader could not hold what is between."""
    row, column, last_row, last_column = 0, 0, 1, 1
    for tag, attributes in XLSX_TAG.findall(XLSX_ASIDE.sub(b"", part)):
        place = XLSX_PLACE.fullmatch(dict(XLSX_ATTRIBUTE.findall(attributes)).get(b"r", b""))
        letters, digits = place.groups() if place else (b"", b"")
        # Both places may be left out, and are then the next ones.
        if tag == b"row":
            row, column = int(digits[:9] or row + 1), 0
        elif letters:
            row, column = int(digits[:9]), column_number(letters)
        else:
            column += 1
        if tag == b"row" or attributes.endswith(b"/"):
            continue  # a cell that ends at once has a format only
        last_row, last_column = max(last_row, row), max(last_column, column)
        if last_row * last_column > XLSX_CELLS_MAX:
            where = Words(
                "%(name)s, row %(row)s, column %(column)s",
                name=name,
                row=format(last_row, ","),
                column=format(last_column, ","),
            )
            raise InvalidPlan([Flaw(where, Words("is filled, far from all else; delete what is there"))])


def column_number(letters: bytes) -> int:
    """Return 1 for A, 28 for AB; of a longer name than any sheet has, the first letters."""
    number = 0
    for letter in letters[:5].upper():
        number = number * 26 + letter - 64
    return number
