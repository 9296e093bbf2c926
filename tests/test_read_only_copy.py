"""A copy of a SQLite database that cannot be written can be explained, inspected and reconciled."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import ROOT

#: Runs a command as somebody who may write neither the file nor its folder; root may, whatever the mode says.
PROGRAM = """
import json, os, sys
may = os.access
kept = [os.path.realpath(path) for path in json.loads(sys.argv[1])]

def access(path, mode, **more):
    return not (mode & os.W_OK and os.path.realpath(path) in kept) and may(path, mode, **more)

os.access = access
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", *sys.argv[2:]])
"""


def run(path: Path, *arguments: str, kept: list[Path]) -> subprocess.CompletedProcess[str]:
    """Run a command on a database."""
    environment = os.environ | {
        "DATABASE_URL": f"sqlite:///{path}",
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "SECRET_KEY": "x",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", PROGRAM, json.dumps([str(one) for one in kept]), *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A database with a notified event and a receipt, as the last of its connections has left it."""
    folder = tmp_path_factory.mktemp("copy")
    path, plan = folder / "kwit.sqlite3", folder / "plan.json"
    plan.write_text('{"change_id": "CHG-1", "tenant": "acme", "targets": [{"id": 1, "revision": 0, "qty": 10}]}')
    for arguments in (
        ["migrate", "-v0"],
        ["seed_portal", "--orders", "1", "--lines-per-order", "1", "--comments", "1", "--tenants", "acme"],
        ["notify_pass"],
    ):
        done = run(path, *arguments, kept=[])
        assert done.returncode == 0, done.stderr
    done = run(path, "cancel_batch", "--json", str(corrected(path, plan)), kept=[])
    assert done.returncode == 0, done.stdout + done.stderr
    return path


def corrected(path: Path, plan: Path) -> Path:
    """Write the revision and quantity of the only line into the plan."""
    import sqlite3
    from contextlib import closing

    # Closed, or the last of the command's connections would leave a log behind that a reader writes into the file.
    with closing(sqlite3.connect(path)) as database, database:
        pk, revision, qty = database.execute("SELECT id, revision, qty FROM portal_orderline").fetchone()
        database.execute("UPDATE portal_orderline SET state = 'pending'")
    target = {"id": pk, "revision": revision, "qty": qty}
    plan.write_text(json.dumps({"change_id": "CHG-1", "tenant": "acme", "targets": [target]}))
    return plan


@pytest.mark.parametrize("is_folder_kept", [False, True])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["notify_explain", "comment", "1"], "was prepared on"),
        (["inspect_change", "CHG-1"], "CHG-1: cancel"),
        (["reconcile", "--all"], "CHG-1: 1 match"),
    ],
)
def test_a_copy_that_cannot_be_written_can_be_read(copy, arguments, said, is_folder_kept):
    before = copy.read_bytes()

    done = run(copy, *arguments, kept=[copy, *([copy.parent] if is_folder_kept else [])])

    assert done.returncode == 0, done.stdout + done.stderr
    assert said in done.stdout
    assert copy.read_bytes() == before


def test_it_is_not_written_to(copy):
    """The positive control: the database itself refuses, whoever asks."""
    done = run(copy, "notify_pass", kept=[copy])

    assert done.returncode == 1
    assert "readonly database" in done.stderr
