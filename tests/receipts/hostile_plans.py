"""
Plan files that harmed readers, each made here: by what they are, not by what they do.

`HOSTILE` maps a name to a function that returns the file's suffix and content. Sizes are those that did harm.
"""

import io
import json
import struct
import zipfile
from collections.abc import Callable
from typing import Any

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
TYPES = "application/vnd.openxmlformats-officedocument.spreadsheetml."
HEADER = '<row r="1"><c r="A1" t="inlineStr"><is><t>id</t></is></c><c r="B1" t="inlineStr"><is><t>revision</t></is></c>'
HEADER += '<c r="C1" t="inlineStr"><is><t>qty</t></is></c></row>'
ROW = '<row r="2"><c r="A2"><v>1</v></c><c r="B2"><v>4</v></c><c r="C2"><v>10</v></c></row>'
MIB = 2**20


def sheet(rows: str = "", *, before: str = "", head: str = "", header: str = HEADER) -> str:
    """Return the XML of a sheet: the header and these rows."""
    return f'{head}<worksheet xmlns="{MAIN}">{before}<sheetData>{header}{rows}</sheetData></worksheet>'


def package(
    *sheets: str | bytes,
    shared: str = "",
    formats: str = "",
    parts: list[int] | None = None,
    states: dict[int, str] | None = None,
) -> dict[str, str | bytes]:
    """Return the parts of a workbook; ``parts`` says which part each of its sheets is."""
    parts = parts or list(range(1, len(sheets) + 1))
    listed = "".join(
        f'<sheet name="S{at}" sheetId="{at}" r:id="rId{at}" state="{(states or {}).get(at, "visible")}"/>'
        for at in range(1, len(parts) + 1)
    )
    relations = "".join(
        f'<Relationship Id="rId{at}" Type="{RELATIONS}/worksheet" Target="worksheets/sheet{part}.xml"/>'
        for at, part in enumerate(parts, 1)
    )
    types = "".join(
        f'<Override PartName="/xl/worksheets/sheet{at}.xml" ContentType="{TYPES}worksheet+xml"/>'
        for at in range(1, len(sheets) + 1)
    )
    found: dict[str, str | bytes] = {
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        f'<Override PartName="/xl/workbook.xml" ContentType="{TYPES}sheet.main+xml"/>{types}'
        + (f'<Override PartName="/xl/sharedStrings.xml" ContentType="{TYPES}sharedStrings+xml"/>' if shared else "")
        + "</Types>",
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{RELATIONS}"><sheets>{listed}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/'
        f'relationships">{relations}</Relationships>',
        "xl/styles.xml": f'<styleSheet xmlns="{MAIN}">{formats}<fonts><font/></fonts><fills><fill><patternFill/>'
        "</fill></fills>"
        '<borders><border/></borders><cellStyleXfs><xf/></cellStyleXfs><cellXfs><xf numFmtId="0"/><xf numFmtId="46"/>'
        '<xf numFmtId="14"/></cellXfs></styleSheet>',
    }
    found |= {f"xl/worksheets/sheet{at}.xml": text for at, text in enumerate(sheets, 1)}
    if shared:
        found["xl/sharedStrings.xml"] = f'<sst xmlns="{MAIN}">{shared}</sst>'
    return found


def zipped(parts: dict[str, str | bytes], *, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a ZIP file of these parts."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return file.getvalue()


def book(*sheets: str | bytes, **more: Any) -> bytes:
    """Return a workbook of these sheets."""
    return zipped(package(*sheets, **more))


def with_cell(cell: str, **more: Any) -> bytes:
    """Return a workbook whose second row has this cell in place of the id."""
    return book(sheet(f'<row r="2">{cell}<c r="B2"><v>4</v></c><c r="C2"><v>10</v></c></row>', **more))


def lying() -> bytes:
    """Return a workbook whose sheet says that it inflates to a hundred bytes, and inflates to 64 MiB."""
    name = "xl/worksheets/sheet1.xml"
    data = bytearray(book(sheet(ROW + " " * (64 * MIB))))
    at = data.rindex(name.encode()) - 46
    data[at + 24 : at + 28] = struct.pack("<I", 100)
    local = data.index(name.encode()) - 30
    data[local + 22 : local + 26] = struct.pack("<I", 100)
    return bytes(data)


def corrupt_lzma() -> bytes:
    """Return a workbook compressed by LZMA whose sheet is spoilt."""
    data = bytearray(zipped(package(sheet(ROW)), method=zipfile.ZIP_LZMA))
    at = data.index(b"xl/worksheets/sheet1.xml") + 40
    data[at : at + 20] = b"\xff" * 20
    return bytes(data)


def json_plan(targets: str) -> bytes:
    """Return a plan with these targets."""
    return f'{{"change_id": "CHG-1", "tenant": "acme", "targets": {targets}}}'.encode()


def unknown_keys() -> bytes:
    """Return 9,900 targets with as many unknown keys as a file of 16 MiB holds."""
    target = {f"k{at}": 0 for at in range(60)}
    targets = ", ".join(json.dumps({"id": pk, "revision": 4, "qty": 10} | target) for pk in range(1, 9_901))
    return json_plan(f"[{targets}]")


def many_unknown_keys() -> bytes:
    """Return 9,900 targets with two hundred unknown keys each."""
    more = ",".join(f'"{at}":0' for at in range(200))
    return json_plan("[" + ",".join([f"{{{more}}}"] * 9_900) + "]")


LONG_TEXT = f"<si><t>{'x' * MIB}</t></si>"

#: Each is refused whatever it takes.
HOSTILE: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a cell named AAAAAAAA2": (".xlsx", lambda: with_cell('<c r="AAAAAAAA2"><v>1</v></c>')),
    "a comment in an attribute": (".xlsx", lambda: with_cell('<c r="<!--"><v>1</v></c>')),
    "a comment in a doctype": (".xlsx", lambda: book(sheet(ROW, head='<!DOCTYPE x [<!ENTITY a "<!--">]>'))),
    "entities within entities": (
        ".xlsx",
        lambda: book(sheet(ROW, head='<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>')),
    ),
    "a prefix with a dash": (".xlsx", lambda: book(sheet('<a-b:row r="2"><a-b:c r="XFD1"/></a-b:row>'))),
    "a prefix with a dot": (".xlsx", lambda: book(sheet('<a.b:row r="2"><a.b:c r="XFD1"/></a.b:row>'))),
    "unclosed cells": (".xlsx", lambda: book("<c " * 20_000)),
    "unclosed sections": (".xlsx", lambda: book("<![CDATA[" * 20_000)),
    "unclosed quotes": (".xlsx", lambda: book("<c '\"" * 20_000)),
    "cells within cells": (".xlsx", lambda: book(sheet('<row r="2">' + "<c>" * 500_000))),
    "empty elements": (".xlsx", lambda: book(sheet("<x/>" * (7 * MIB)))),
    "empty cells": (".xlsx", lambda: book(sheet('<row r="2">' + "<c/>" * (7 * MIB) + "</row>"))),
    "empty rows": (".xlsx", lambda: book(sheet("<row/>" * (5 * MIB)))),
    "a far cell on each of a hundred sheets": (
        ".xlsx",
        lambda: book(*[sheet('<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>')] * 100),
    ),
    "one part that is thirty sheets": (
        ".xlsx",
        lambda: book(sheet(ROW + '<row r="9"><c r="A9"/></row>' * 10_000), parts=[1] * 30),
    ),
    "a text of 1 MiB in 5,000 cells": (
        ".xlsx",
        lambda: book(
            sheet("".join(f'<row r="{at}"><c r="A{at}" t="s"><v>0</v></c></row>' for at in range(2, 5_002))),
            shared=LONG_TEXT,
        ),
    ),
    "many shared texts": (".xlsx", lambda: book(sheet(ROW), shared="<si><t>x</t></si>" * 1_500_000)),
    "a lie about the inflated size": (".xlsx", lying),
    "256 MiB of blanks": (".xlsx", lambda: book(b" " * (256 * MIB))),
    "a corrupt LZMA part": (".xlsx", corrupt_lzma),
    "a duration of 1e12": (".xlsx", lambda: with_cell('<c r="A2" s="1"><v>1000000000000</v></c>')),
    "a date of -1e300": (".xlsx", lambda: with_cell('<c r="A2" s="2"><v>-1e300</v></c>')),
    "two cells named A2": (".xlsx", lambda: with_cell('<c r="A2"><v>1</v></c><c r="A2"><v>2</v></c>')),
    "two rows numbered 2": (".xlsx", lambda: book(sheet(ROW + ROW))),
    "two values in a cell": (".xlsx", lambda: with_cell('<c r="A2"><v>1</v><v>2</v></c>')),
    "a shared text numbered -5": (".xlsx", lambda: with_cell('<c r="A2" t="s"><v>-5</v></c>')),
    "a number with an underscore": (".xlsx", lambda: with_cell('<c r="A2"><v>1_0</v></c>')),
    "a full-width number": (".xlsx", lambda: with_cell('<c r="A2"><v>\uff11</v></c>')),
    "a cell of an unknown type": (".xlsx", lambda: with_cell('<c r="A2" t="z"><v>1</v></c>')),
    "an error": (".xlsx", lambda: with_cell('<c r="A2" t="e"><v>#REF!</v></c>')),
    "a row of errors": (
        ".xlsx",
        lambda: book(
            sheet(
                ROW
                + '<row r="3"><c r="A3" t="e"><v>#N/A</v></c><c r="B3" t="e"><v>#N/A</v></c>'
                + '<c r="C3" t="e"><v>#N/A</v></c></row>'
            )
        ),
    ),
    "a formula": (".xlsx", lambda: with_cell('<c r="A2"><f>1-1</f><v>0</v></c>')),
    "a hidden row": (".xlsx", lambda: book(sheet(ROW.replace("<row ", '<row hidden="1" ')))),
    "a row of no height": (".xlsx", lambda: book(sheet(ROW.replace("<row ", '<row ht="0" ')))),
    "a hidden column": (
        ".xlsx",
        lambda: book(sheet(ROW, before='<cols><col min="2" max="2" hidden="1"/></cols>')),
    ),
    "a hidden sheet": (".xlsx", lambda: book(sheet(ROW), states={1: "hidden"})),
    "a very hidden sheet": (".xlsx", lambda: book(sheet(ROW), states={1: "veryHidden"})),
    "merged cells": (
        ".xlsx",
        lambda: book(
            sheet(ROW).replace("</sheetData>", '</sheetData><mergeCells><mergeCell ref="A2:B2"/></mergeCells>')
        ),
    ),
    "CSV of short rows": (".csv", lambda: b"id,revision,qty\n" + b"1\n" * (8 * MIB - 8)),
    "CSV of newlines": (".csv", lambda: b"\n" * (16 * MIB)),
    "CSV with a header of commas": (".csv", lambda: b"," * (8 * MIB)),
    "CSV of one long cell": (".csv", lambda: b"id,revision,qty\n" + b"1" * (15 * MIB)),
    "CSV of quotes": (".csv", lambda: b'id,revision,qty\n"' + b'""' * (7 * MIB)),
    "CSV of wide characters": (".csv", lambda: "\U0001f600".encode() * (4 * MIB - 8)),
    "JSON with two hundred unknown keys a target": (".json", many_unknown_keys),
    "JSON with sixty unknown keys a target": (".json", unknown_keys),
    "JSON of empty lists": (".json", lambda: json_plan("[" + "[]," * (5 * MIB) + "[]]")),
    "JSON of empty objects": (".json", lambda: json_plan("[" + "{}," * (5 * MIB) + "{}]")),
    "JSON of lists within lists": (".json", lambda: b"[" * (16 * MIB)),
    "JSON of objects within objects": (".json", lambda: json_plan('{"a":' * 1_200 + "0" + "}" * 1_200)),
    "JSON with deep targets": (".json", lambda: json_plan('[{"id": ' + "[" * 900 + "]" * 900 + "}]")),
    "JSON with a lone surrogate given twice": (".json", lambda: b'{"\\ud800": 1, "\\ud800": 2}'),
    "JSON with a lone surrogate as a key": (".json", lambda: json_plan('[{"\\ud800": 1}]')),
    "JSON with a change_id of 16 MiB": (".json", lambda: b'{"change_id": "' + b"x" * (15 * MIB) + b'", "targets": []}'),
    "JSON of one long number": (".json", lambda: json_plan("[" + "9" * (15 * MIB) + "]")),
}
