"""A role that owns the tables and one that works: what the working one cannot undo, and that it can still work."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import ProgrammingError, connection, transaction

from notify.models import MailQueue
from receipts.dialects import dialect_of
from receipts.models import Audit, Change
from tests.crashing import child_environment, run_child
from tests.factories import NOW, make_comment, make_contact, make_line

pytestmark = [
    pytest.mark.skipif(connection.vendor != "postgresql", reason="PostgreSQL only"),
    pytest.mark.django_db(transaction=True),
]
SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "postgresql-roles.sql"
#: Roles belong to the whole server, which the other test processes use, too.
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "alone")
OWNER, APP = f"kwit_owner_{WORKER}", f"kwit_app_{WORKER}"
PASSWORD = "only-for-this-test"


def run_script() -> None:
    """Run the script with this test's names of the roles; its own BEGIN and COMMIT are Django's here."""
    sql = SCRIPT.read_text().replace("kwit_owner", OWNER).replace("kwit_app", APP)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql.replace("\nBEGIN;", "", 1).replace("\nCOMMIT;", ""))


@contextlib.contextmanager
def two_roles() -> Iterator[None]:
    """Run the script, twice as it says it may be; give the tables back at the end."""
    try:
        run_script()
        run_script()
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER ROLE {APP} PASSWORD '{PASSWORD}'")
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"REASSIGN OWNED BY {OWNER} TO CURRENT_USER")
            # One after the other: the default privileges stand with both.
            cursor.execute(f"DROP OWNED BY {OWNER}")
            cursor.execute(f"DROP OWNED BY {APP}")
            cursor.execute(f"DROP ROLE {OWNER}, {APP}")


def work() -> None:
    """What the site does as the working role, in a process of its own."""
    from django.core.management import call_command

    from receipts.api import Target, cancel_many

    call_command("notify_pass")
    call_command("notify_deliver")
    line = int(os.environ["LINE"])
    assert cancel_many(change_id="CHG-1", tenant="acme", targets=[Target(line, 4, 10)])
    call_command("reconcile", "--all")
    assert dialect_of(connection).guard_flaws(connection) == []


def test_the_working_role_can_do_all_of_its_work():
    make_comment(recipient=make_contact(), created_at=NOW)
    line = make_line()

    with two_roles():
        ended = run_child(
            "tests.dialects.test_owner_role:work",
            environment=child_environment(USER=APP, PASSWORD=PASSWORD) | {"LINE": str(line.pk)},
        )

    assert ended.returncode == 0, ended.stderr
    assert Change.objects.count() == Audit.objects.count() == 1
    assert MailQueue.objects.count() == 1


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE receipts_audit DISABLE TRIGGER receipts_audit_append_only",
        "ALTER TABLE receipts_audit DISABLE TRIGGER ALL",
        "DROP TRIGGER receipts_changes_append_only ON receipts_changes",
        "CREATE OR REPLACE FUNCTION receipts_refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END $$",
        "DROP FUNCTION receipts_refuse() CASCADE",
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END $$",
        "SET LOCAL session_replication_role = replica",
        "UPDATE receipts_changes SET actor = 'x'",
        "DELETE FROM receipts_audit",
        "TRUNCATE receipts_audit",
        "ALTER TABLE receipts_audit RENAME TO x",
        "DROP TABLE receipts_audit",
    ],
)
def test_the_working_role_cannot_undo_the_guard(statement):
    with two_roles():
        with pytest.raises(ProgrammingError, match=r"permission denied|must be owner"):
            try_as(APP, statement)
        # The positive control: who owns the tables, as in a site without two roles, may do so.
        if statement.startswith("ALTER TABLE receipts_audit DISABLE"):
            try_as(OWNER, statement.replace(" ALL", " USER"))


def try_as(role: str, statement: str) -> None:
    """Execute a statement as a role, and undo it."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {role}")
        cursor.execute(statement)
        transaction.set_rollback(True)
