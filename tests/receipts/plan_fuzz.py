"""
Mutated plan files, read in one process under the limits of the real one: ``python -m tests.receipts.plan_fuzz …``.

Each mutation is answered by a refusal with words, or by the values that an independent reader finds. A process for
each would need an hour; whatever ends this one is a finding as well, and its seed says which file it was.
"""

import csv
import io
import json
import random
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import openpyxl

from receipts.errors import InvalidPlan
from receipts.plans.child import answer_to, limit_resources
from receipts.plans.limits import READ_CPU_S_MAX
from receipts.plans.model import COLUMNS, plan_in
from receipts.plans.readers import Request, decoded_content
from receipts.plans.sheets import SEPARATORS, decoded

from .hostile_plans import book, json_plan, package, sheet, zipped

NAMES = ("id", "revision", "qty")
ROWS = [(1, 4, 10), (2, 0, 0), (9007199254740993, 2147483646, 2147483647)]
INTERESTING = [
    *(b"\x00", b"\xff", b"\xef\xbb\xbf", b'"', b"'", b"\\", b",", b";", b"\n", b"\r", b"[", b"]", b"{", b"}", b":"),
    *(b"<", b">", b"/", b"&", b"&#0;", b"&#xD800;", b"<!--", b"-->", b"<![CDATA[", b"]]>", b"<c>", b"</c>", b"<v>"),
    *(b' hidden="1"', b' t="e"', b' t="s"', b' r="A2"', b"<f>1</f>", b"-1", b"1e300", b"NaN", b"true", b"null"),
    *(b"9223372036854775808", "\uff11".encode(), b"\\ud800", b'"id":1,', b'"id_str":"1",', b"0010", b"1.0", b"1_0"),
]


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return data with one to three pieces changed."""
    spoilt = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at = chance.randrange(len(spoilt) + 1)
        match chance.randrange(6):
            case 0:
                spoilt[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del spoilt[at : at + chance.choice((1, 1, 2, 8, 64))]
            case 2:
                spoilt[at:at] = chance.choice(INTERESTING)
            case 3:
                spoilt[at : at + chance.randrange(12)] = chance.choice(INTERESTING)
            case 4:
                begin = chance.randrange(len(spoilt) + 1)
                spoilt[at:at] = spoilt[begin : begin + chance.randrange(80)]
            case _:
                spoilt[at:at] = spoilt[at : at + 20] * chance.choice((1, 2, 50))
    return bytes(spoilt)


def texts() -> dict[str, bytes]:
    """Return an honest file in each of the text formats."""
    targets = json.dumps([dict(zip(NAMES, row, strict=True)) for row in ROWS])
    lines = "".join(f"{pk},{revision},{qty}\r\n" for pk, revision, qty in ROWS)
    return {".json": json_plan(targets), ".csv": f"id,revision,qty\r\n{lines}".encode()}


def workbook() -> dict[str, Any]:
    """Return the parts of an honest workbook: numbers, an inline text, a shared text, a date format."""
    rows = (
        '<row r="2"><c r="A2"><v>1</v></c><c r="B2"><v>4</v></c><c r="C2"><v>10</v></c></row>'
        '<row r="3"><c r="A3" t="s"><v>0</v></c><c r="B3" t="inlineStr"><is><t>0</t></is></c><c r="C3"><v>0</v>'
        "</c></row>"
    )
    return package(sheet(rows, before='<cols><col min="1" max="3" width="9"/></cols>'), shared="<si><t>2</t></si>")


def workbooks(chance: random.Random) -> Iterator[bytes]:
    """Yield mutated workbooks: mostly the sheet, sometimes another part, sometimes the archive around them."""
    honest = workbook()
    archive, names = book(sheet()), sorted(honest)
    while True:
        name = "xl/worksheets/sheet1.xml" if chance.random() < 0.6 else chance.choice([*names, ""])
        if name:
            yield zipped(honest | {name: mutated(str(honest[name]).encode(), chance)})
        else:
            yield mutated(archive, chance)


def files(suffix: str, chance: random.Random) -> Iterator[bytes]:
    """Yield mutated files of a format."""
    if suffix == ".xlsx":
        yield from workbooks(chance)
    honest = texts()[suffix]
    while True:
        yield mutated(honest, chance)


def number(value: Any) -> Any:
    """Return what an integer's plain digits mean."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


def independent(data: bytes, suffix: str) -> list[tuple[Any, ...]]:
    """Return the values that another reader finds."""
    if suffix == ".json":
        found = json.loads(decoded(data))["targets"]
        return [(int(row.get("id_str", row.get("id"))), row["revision"], row["qty"]) for row in found]
    if suffix == ".csv":
        text = decoded(data)
        separator = max(SEPARATORS, key=text.split("\n", 1)[0].count)
        lines = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if any(row)]
        return [tuple(number(row[lines[0].index(name)]) for name in NAMES) for row in lines[1:]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sheets = openpyxl.load_workbook(io.BytesIO(data)).worksheets
    rows = [
        row for one in sheets for row in one.iter_rows(values_only=True) if any(cell not in (None, "") for cell in row)
    ]
    order = [rows[0].index(name) for name in NAMES]
    return [tuple(number(row[at]) for at in order) for row in rows[1:]]


def checked(data: bytes, suffix: str) -> bool:
    """Read a file; return whether it is a plan, whose values another reader finds as well."""
    request = Request(suffix=suffix, columns=[column.name for column in COLUMNS], targets_max=10_000)
    answer = json.loads(answer_to(data, request))
    try:
        plan = plan_in(decoded_content(answer), given={"change_id": "CHG-1", "tenant": "acme"})
    except InvalidPlan as error:
        json.dumps([[flaw.where, flaw.problem, flaw.given] for flaw in error.flaws], ensure_ascii=False).encode()
        return not error.flaws
    assert list(plan.targets) == sorted(independent(data, suffix)), plan.targets
    return True


def main(suffix: str, seed: int, count: int) -> None:
    """Read so many files, and print how many were plans, and the longest time that one took."""
    limit_resources(cpu_s=None)
    chance, plans, longest_s = random.Random(seed), 0, 0.0
    made = files(suffix, chance)
    for at in range(count):
        data = next(made)
        signal.setitimer(signal.ITIMER_REAL, READ_CPU_S_MAX)
        began = time.monotonic()
        try:
            plans += checked(data, suffix)
        except BaseException:
            sys.stderr.write(f"{suffix}, seed {seed}, file {at}: {data!r}\n")
            raise
        longest_s = max(longest_s, time.monotonic() - began)
    signal.setitimer(signal.ITIMER_REAL, 0)
    sys.stdout.write(json.dumps({"files": count, "plans": plans, "longest_s": longest_s}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
