"""Reading plans: strict types, every flaw in one go, each with its place."""

import io
import json
import zipfile

import openpyxl
import pytest

from receipts.errors import InvalidPlan
from receipts.plans.canonical import Target
from receipts.plans.model import PLAN_BYTES_MAX, Plan, check_origin, read_plan

GOOD = Plan(change_id="CHG-1", tenant="acme", targets=(Target(1, 4, 10), Target(2, 0, 0)))
HEAD = '{"change_id": "CHG-1", "tenant": "acme", "targets": '


def read(data, *, name="plan.json", limit=10_000, **options):
    """Read a plan from text or bytes."""
    return read_plan(data.encode() if isinstance(data, str) else data, name=name, targets_max=limit, **options)


def read_csv(data, **options):
    """Read a CSV of the change CHG-1 of acme."""
    return read(data, name="plan.csv", **{"change_id": "CHG-1", "tenant": "acme"} | options)


def flaws(data, *, reader=read, **options):
    """Return (where, problem) of each flaw."""
    with pytest.raises(InvalidPlan) as caught:
        reader(data, **options)
    return [(flaw.where, flaw.problem) for flaw in caught.value.flaws]


def workbook(*sheets):
    """Return an XLSX with these sheets of rows."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for rows in sheets:
        sheet = book.create_sheet()
        for row in rows:
            sheet.append(row)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def read_xlsx(*sheets, **options):
    """Read a workbook with these sheets as the change CHG-1 of acme."""
    return read(workbook(*sheets), name="plan.xlsx", change_id="CHG-1", tenant="acme", **options)


def test_json_gives_a_plan_sorted_by_id_whatever_the_order():
    """R1: targets and keys in another order are the same plan."""
    text = (
        '{"targets": [{"qty": 0, "id": 2, "revision": 0}, {"id": 1, "revision": 4, "qty": 10}],'
        ' "tenant": "acme", "change_id": "CHG-1"}'
    )

    assert read(text) == read("\ufeff" + text) == read(text, name="-") == GOOD


@pytest.mark.parametrize(
    "wrong", ["true", '"1"', "1.0", '"01"', '" 1"', '"\uff11"', "9223372036854775808", "-1", "0", "null", "[1]"]
)
def test_an_id_that_is_no_plain_integer_is_invalid_with_its_place(wrong):
    """R2: each is refused at targets[1].id."""
    rows = f'[{{"id": 1, "revision": 4, "qty": 10}}, {{"id": {wrong}, "revision": 4, "qty": 10}}]'

    assert [where for where, _ in flaws(HEAD + rows + "}")] == ["targets[1].id"]


def test_every_flaw_is_reported_in_one_go():
    text = (
        '{"change_id": " x", "tenant": 7, "targets": [{"id": 1, "revision": 2147483647, "qty": -1, "note": ""},'
        ' {"revision": 1.5, "qty": 2147483648}, 5]}'
    )

    assert flaws(text) == [
        ("change_id", "has a blank at an end"),
        ("tenant", "must be text, not 7"),
        ("targets[0].revision", "must be 2147483646 or less, not 2147483647"),
        ("targets[0].qty", "must be 0 or more, not -1"),
        ("targets[0].note", "is not known here"),
        ("targets[1].id", "is missing"),
        ("targets[1].revision", "must be an integer, not 1.5"),
        ("targets[1].qty", "must be 2147483647 or less, not 2147483648"),
        ("targets[2]", "must be an object, not 5"),
    ]


@pytest.mark.parametrize("second", [4, 5])
def test_a_target_given_twice_is_invalid(second):
    """R3: with the same revision and with another one."""
    rows = json.dumps([{"id": 1, "revision": 4, "qty": 10}, {"id": 1, "revision": second, "qty": 10}])

    assert flaws(HEAD + rows + "}") == [
        (f"targets[{at}].id", "id 1 stands in the plan more than once") for at in (0, 1)
    ]


def test_a_plan_has_from_one_target_to_the_limit():
    """R4: none and 10,001 are invalid; 1 and 10,000 are fine."""
    rows = [{"id": number, "revision": 4, "qty": 10} for number in range(1, 10_002)]

    assert flaws(HEAD + "[]}") == [("targets", "has 0 targets; a change has from 1 to 10,000")]
    assert flaws(HEAD + json.dumps(rows) + "}") == [("targets", "has 10,001 targets; a change has from 1 to 10,000")]
    assert len(read(HEAD + json.dumps(rows[:-1]) + "}").targets) == 10_000


@pytest.mark.parametrize("change_id", ["", "x" * 65, "x ", "x\x00", "e\u0301", "\ud800", "x\u00a0y"])
def test_a_change_id_that_is_no_fit_key_is_invalid(change_id):
    """R5: empty, 65 characters, trailing blank, NUL, NFD."""
    plan = {"change_id": change_id, "tenant": "acme", "targets": [{"id": 1, "revision": 4, "qty": 10}]}

    assert [where for where, _ in flaws(json.dumps(plan))] == ["change_id"]


def test_a_key_given_twice_is_refused_at_its_place():
    text = (
        '{"change_id": "A", "change_id": "CHG-1", "tenant": "acme",'
        ' "targets": [{"id": 1, "id": 2, "revision": 4, "qty": 10}]}'
    )

    assert flaws(text) == [
        ("change_id", "is given more than once"),
        ("targets[0].id", "is given more than once"),
    ]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[" * 100_000, HEAD + "NaN}", HEAD + "9" * 5_000 + "}", b"\xff\xfe\x00", b'{"change_id": "\xe9"}'],
    ids=["empty", "cut", "deep", "nan", "digits", "utf16", "latin1"],
)
def test_what_is_not_json_is_said_to_be_not_json(text):
    (where, problem), *more = flaws(text)

    assert where == "the file"
    assert problem.startswith("is not JSON")
    assert not more


@pytest.mark.parametrize("text", ["[]", "1", "null", '"x"'])
def test_json_that_is_no_object_is_refused(text):
    assert flaws(text) == [("the plan", "must be an object with change_id, tenant and targets")]


def test_options_may_repeat_what_a_json_plan_says_but_not_contradict_it():
    rows = '[{"id": 1, "revision": 4, "qty": 10}]}'

    assert read(HEAD + rows, change_id="CHG-1", tenant="acme").tenant == "acme"
    assert flaws(HEAD + rows, tenant="b") == [("tenant", "is 'acme' in the file, but 'b' was asked for")]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_csv_is_read_with_any_usual_separator_and_mark(separator, encoding, ending):
    """R6: a byte order mark is fine."""
    rows = ["revision,id,qty", "4,1,10", '"0",2,0', ",,", ""]
    text = ending.join(rows).replace(",", separator)

    assert read_csv(text.encode(encoding)) == GOOD


@pytest.mark.parametrize(
    "wrong", ["0010", "10.0", "1E+05", "01", " 1", "+1", "-1", "\uff11", "", "true", "9" * 19, "9" * 40]
)
def test_a_csv_cell_that_is_no_plain_integer_is_invalid_with_row_and_column(wrong):
    """R6: what spreadsheets make of ids."""
    assert [where for where, _ in flaws(f"id,revision,qty\n1,4,10\n{wrong},4,10\n", reader=read_csv)] == [
        "row 3, column 1 (id)"
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [("the file", "is empty; it needs a first row with id, revision, qty")]),
        ("id,qty\n1,2\n", [("row 1", "column revision is missing")]),
        ("id,revision,qty,id\n", [("row 1", "column id is there twice")]),
        (
            "id,revision,qty,note\n",
            [("row 1, column 4", "'note' is not one of the columns id, revision, qty")],
        ),
        ("id,revision,qty\n", [("targets", "has 0 targets; a change has from 1 to 10,000")]),
    ],
)
def test_a_csv_without_the_right_header_is_refused(text, expected):
    assert flaws(text, reader=read_csv) == expected


def test_a_csv_row_with_too_few_or_too_many_cells_is_named():
    assert flaws("id,revision,qty\n1,4\n2,4,10,7\n", reader=read_csv) == [
        ("row 2", "has 2 cells instead of 3"),
        ("row 3", "has 4 cells instead of 3"),
    ]


def test_a_csv_needs_change_id_and_tenant_beside_it():
    text = "id,revision,qty\n1,4,10\n"

    assert flaws(text, reader=read, name="plan.csv") == [("--change-id", "is missing"), ("--tenant", "is missing")]
    assert flaws(text, reader=read_csv, change_id=" x") == [("--change-id", "has a blank at an end")]


@pytest.mark.parametrize("data", [b"id,revision,qty\n\xff,1,1", 'id,revision,qty\n"1,4,10\n'])
def test_what_is_not_csv_is_said_to_be_not_csv(data):
    assert flaws(data, reader=read_csv)[0][1].startswith("is not CSV in UTF-8")


def test_an_xlsx_gives_the_same_plan_with_numbers_or_plain_text():
    assert read_xlsx([["id", "revision", "qty"], [1, 4, 10], ["2", "0", 0.0], [None, None, None]]) == GOOD


@pytest.mark.parametrize("wrong", [True, 1.5, "0010", "1E+05", " 1", 1e15, -1, "=1+1", None])
def test_an_xlsx_cell_that_is_no_plain_integer_is_invalid_with_row_and_column(wrong):
    """R6: and a formula that was never computed."""
    found = flaws([["id", "revision", "qty"], [wrong, 4, 10]], reader=read_xlsx)

    assert [where for where, _ in found] == ["row 2, column 1 (id)"]


def test_a_workbook_with_a_second_filled_sheet_is_refused():
    head = ["id", "revision", "qty"]

    assert read_xlsx([head, [1, 4, 10]], []).targets == (Target(1, 4, 10),)
    with pytest.raises(InvalidPlan, match="is a second sheet with content"):
        read_xlsx([head, [1, 4, 10]], [head, [2, 4, 10]])


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 no zip", b"id,revision,qty"])
def test_what_is_no_workbook_is_said_to_be_none(data):
    options = {"name": "plan.xlsx", "change_id": "CHG-1", "tenant": "acme"}

    assert flaws(data, **options)[0][1].startswith("is not an XLSX workbook")


def redone(data, change):
    """Return a workbook whose sheet's XML was changed."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w") as new:
        for entry in old.infolist():
            part = old.read(entry)
            new.writestr(entry.filename, change(part) if "sheet" in entry.filename else part)
    return file.getvalue()


@pytest.mark.parametrize(
    "stray",
    [
        b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>',
        b'<!-- <c " --><row r="1048576"><c s=\'0\' r = "XFD1048576"><v>1</v></c></row>',
        b'<row r="1048576">' + b"<c><v>1</v></c>" * 9 + b"</row>",
        b"<row>" + b"<c/>" * 64 + b"<c><v>1</v></c></row>",
    ],
)
def test_a_workbook_with_a_cell_at_the_far_end_is_refused_and_not_unrolled(stray):
    data = workbook([["id", "revision", "qty"], [1, 4, 10]])
    far = redone(data, lambda part: part.replace(b"</sheetData>", stray + b"</sheetData>"))
    options = {"name": "plan.xlsx", "change_id": "CHG-1", "tenant": "acme"}

    assert [problem for _, problem in flaws(far, **options)] == ["is filled, far from all else; delete what is there"]


def test_a_cell_at_the_far_end_that_has_a_format_only_does_no_harm():
    formatted = b'<row r="1048576"><c r="XFD1048576" s="0"/></row></sheetData>'
    data = workbook([["id", "revision", "qty"], [1, 4, 10]])
    data = redone(data, lambda part: part.replace(b"</sheetData>", formatted))

    assert read(data, name="plan.xlsx", change_id="CHG-1", tenant="acme").targets == (Target(1, 4, 10),)


def test_a_workbook_of_another_zip_version_or_with_a_password_is_none():
    data = workbook([["id", "revision", "qty"], [1, 4, 10]])
    options = {"name": "plan.xlsx", "change_id": "CHG-1", "tenant": "acme"}

    for at, value in ((6, 0xFF), (8, 1)):
        spoilt = bytearray(data)
        spoilt[data.index(b"PK\x01\x02") + at] = value
        assert flaws(bytes(spoilt), **options)[0][1].startswith("is not an XLSX workbook")


def test_far_too_many_targets_are_one_flaw():
    """However wrong each is: a file of sixteen megabytes holds millions."""
    found = flaws(HEAD + "[" + ",".join(["{}"] * 10_001) + "]}")

    assert found == [("targets", "has 10,001 targets; a change has from 1 to 10,000")]


def test_other_files_and_too_large_ones_are_refused():
    assert flaws(b"", name="plan.ods") == [("plan.ods", "is neither a .json nor a .csv nor an .xlsx file")]
    assert "bytes" in flaws(b" " * (PLAN_BYTES_MAX + 1))[0][1]


def test_actor_and_reason_must_be_storable():
    check_origin(actor="ann", reason="two\nlines")

    with pytest.raises(InvalidPlan) as caught:
        check_origin(actor="a" * 151, reason="\x00")
    assert [flaw.where for flaw in caught.value.flaws] == ["actor", "reason"]
