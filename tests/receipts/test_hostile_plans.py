"""Plan files that would harm a reader: each is refused in bounded time and memory, and with words."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from receipts.errors import InvalidPlan
from receipts.plans import subprocess as plan_subprocess
from receipts.plans.canonical import Target
from receipts.plans.limits import PLAN_BYTES_MAX, READ_MEMORY_BYTES_MAX
from receipts.plans.model import read_plan
from receipts.plans.readers import Request

from .hostile_plans import HOSTILE, ROW, book, json_plan, sheet, with_cell

#: Seconds in which any file is answered.
ANSWER_S_MAX = 10.0
#: Megabytes by which the process that asks may grow.
PARENT_MB_MAX = 50
NAMES = {"change_id": "CHG-1", "tenant": "acme"}


def read(data, suffix, **options):
    """Read a plan file of the change CHG-1 of acme."""
    names = {} if suffix == ".json" else NAMES
    return read_plan(data, name=f"plan{suffix}", targets_max=10_000, **names, **options)


def flaws(data, suffix, **options):
    """Return the problems of a file."""
    with pytest.raises(InvalidPlan) as caught:
        read(data, suffix, **options)
    return caught.value.flaws


#: Reads a file as a web worker would, in a process whose memory nothing else has touched.
MEASURE = """
import json, pathlib, resource, sys, time
from receipts.errors import InvalidPlan
from receipts.plans.model import read_plan
path, names = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
data = path.read_bytes()
before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
try:
    read_plan(data, name=path.name, targets_max=10_000, **names)
    flaws = []
except InvalidPlan as error:
    flaws = [[flaw.where, flaw.problem, flaw.given, flaw.column] for flaw in error.flaws]
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
# Whatever stands in the file, its refusal can be printed and shown.
json.dumps(flaws, ensure_ascii=False).encode()
print(json.dumps([time.monotonic() - began, grown, child, len(flaws), flaws[:3]]))
"""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_bounded_time_and_memory(name, tmp_path):
    suffix, make = HOSTILE[name]
    path = tmp_path / f"plan{suffix}"
    path.write_bytes(make())
    assert path.stat().st_size <= PLAN_BYTES_MAX
    names = json.dumps({} if suffix == ".json" else NAMES)

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", MEASURE, str(path), names]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)

    assert run.returncode == 0, run.stderr[-2000:]
    seconds, grown_kb, child_kb, count, shown = json.loads(run.stdout)
    assert seconds < ANSWER_S_MAX
    assert grown_kb < PARENT_MB_MAX * 1024
    assert child_kb * 1024 <= READ_MEMORY_BYTES_MAX
    assert count, shown


def test_an_honest_workbook_is_no_hostile_one():
    """The generators make files that are read; only what each adds is refused."""
    assert read(book(sheet(ROW)), ".xlsx").targets == (Target(1, 4, 10),)
    assert read(book(sheet(ROW), sheet("", header="")), ".xlsx").targets == (Target(1, 4, 10),)
    hidden_but_empty = sheet(ROW, before='<cols><col min="4" max="16384" hidden="1"/></cols>')
    assert read(book(hidden_but_empty), ".xlsx").targets == (Target(1, 4, 10),)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (with_cell('<c r="A2" t="e"><v>#REF!</v></c>'), ("row 2, column 1 (id)", "is an error: #REF!")),
        (with_cell('<c r="A2"><f>1-1</f><v>0</v></c>'), ("row 2, column 1 (id)", "is a formula; paste its value")),
        (book(sheet(ROW.replace("<row ", '<row hidden="1" '))), ("row 2", "is hidden or filtered out")),
        (
            book(sheet(ROW, before='<cols><col min="2" max="9" hidden="1"/></cols>')),
            ("row 1, column 2 (revision)", "is in a hidden column"),
        ),
        (book(sheet(ROW), states={1: "hidden"}), ("sheet 'S1'", "is a hidden sheet")),
    ],
    ids=["error", "formula", "row", "column", "sheet"],
)
def test_what_nobody_typed_or_sees_is_refused_with_its_place(data, expected):
    found = flaws(data, ".xlsx")

    assert (found[0].where, found[0].problem) == expected


def test_a_row_of_errors_is_refused_and_not_dropped():
    _, make = HOSTILE["a row of errors"]

    assert [flaw.where for flaw in flaws(make(), ".xlsx")] == [
        f"row 3, column {at} ({name})" for at, name in enumerate(("id", "revision", "qty"), 1)
    ]


def test_hidden_rows_and_formulas_are_taken_when_asked_to():
    hidden = book(sheet(ROW.replace("<row ", '<row hidden="1" ')))
    formula = with_cell('<c r="A2"><f>1-1</f><v>7</v></c>')

    assert read(hidden, ".xlsx", accept_hidden=True).targets == (Target(1, 4, 10),)
    assert read(formula, ".xlsx", accept_formulas=True).targets == (Target(7, 4, 10),)


def test_an_id_may_be_given_as_text_beside_the_number_or_instead_of_it():
    big = 2**53 + 1
    both = f'[{{"id": {big}, "id_str": "{big}", "revision": 4, "qty": 10}}]'
    text = f'[{{"id_str": "{big}", "revision": 4, "qty": 10}}]'
    rounded = f'[{{"id": {2**53}, "id_str": "{big}", "revision": 4, "qty": 10}}]'

    assert read(json_plan(both), ".json") == read(json_plan(text), ".json")
    assert [(flaw.where, flaw.problem) for flaw in flaws(json_plan(rounded), ".json")] == [
        ("targets[0].id_str", "is another id than 9007199254740992")
    ]
    for wrong in ("1", '"01"', "null", '"x"', f'"{2**63}"'):
        assert flaws(json_plan(f'[{{"id_str": {wrong}, "revision": 4, "qty": 10}}]'), ".json")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "the reader ended with code -11"),
        ("import os, signal; os.abort()", "the reader ended with code -6"),
        ("import sys; sys.exit(70)", "needs more than 512 MB to read"),
        ("import sys; sys.exit(3)", "the reader ended with code 3"),
        ("while True: pass", "needs more than 1 seconds to read"),
        ("import time; time.sleep(60)", "needs more than 1 seconds to read"),
    ],
)
def test_however_the_reader_dies_the_file_is_refused(code, said, tmp_path, monkeypatch):
    """The child is another program here: what it does to itself is what a file might make it do."""
    package = tmp_path / "receipts" / "plans"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    lines = ["EXIT_MEMORY = 70", "if __name__ == '__main__':", f"    {code}"]
    (package / "child.py").write_text("\n".join(lines))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    with pytest.raises(InvalidPlan) as caught:
        plan_subprocess.read_apart(b"{}", Request(suffix=".json", columns=["id"], targets_max=1), wall_s=1)

    assert said in caught.value.flaws[0].problem


def test_the_reader_needs_no_django():
    """It starts for each file: what it imports is what people wait for."""
    code = "import receipts.plans.child, sys; print(sorted({name.split('.')[0] for name in sys.modules}))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)

    assert not {"django", "openpyxl", "regex", "pydantic"} & set(json.loads(run.stdout.replace("'", '"')))


def test_a_reader_leaves_no_process_behind():
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    if not children.exists():
        pytest.skip("needs the list of children in /proc")
    before = children.read_text()

    flaws(b"\n" * 1_000_000, ".csv")

    assert children.read_text() == before


FROM_THE_WORKING_DIRECTORY = """
import os, sys
assert sys.path[0] == ""
from receipts.plans.model import read_plan
if sys.argv[1] == "elsewhere":
    os.chdir("/")
print(len(read_plan(sys.stdin.buffer.read(), name="p.json", targets_max=10).targets))
"""


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_a_site_that_is_importable_through_the_working_directory_only_reads_plans(where):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", FROM_THE_WORKING_DIRECTORY, where],
        cwd=Path(__file__).resolve().parents[2],
        env=environment,
        input=json_plan('[{"id": 1, "revision": 4, "qty": 10}]'),
        capture_output=True,
        check=False,
    )

    assert (done.returncode, done.stdout.strip()) == (0, b"1"), done.stderr


def test_a_child_that_needs_too_much_processor_time_says_so_by_its_signal():
    program = "from receipts.plans.child import limit_resources\nlimit_resources(cpu_s=1)\nwhile True: pass"
    done = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).resolve().parents[2], check=False)

    assert done.returncode == -signal.SIGXCPU
    assert "seconds to read" in str(plan_subprocess.died(done.returncode).flaws[0].problem)


def test_values_that_are_too_long_together_are_refused_in_plain_words():
    data = b"id,revision,qty\n" + (b"x" * 1_600 + b",1,1\n") * 9_990

    assert [(flaw.where, str(flaw.problem)) for flaw in flaws(data, ".csv")] == [
        ("targets", "has more than 8,388,608 bytes")
    ]
