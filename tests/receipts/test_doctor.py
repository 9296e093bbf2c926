"""The guard, the checks, and the doctor that asks them."""

import io
import json
import re
from unittest import mock

import pytest
from django.apps import apps
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import DatabaseError, IntegrityError, OperationalError, connection, models, transaction
from django.test.utils import isolate_apps

from kwit.commands import EXIT_TRY_AGAIN
from portal.models import OrderLine
from receipts import api
from receipts import change_types as kinds
from receipts.change_types import ChangeKind, register
from receipts.checks import check_database, check_settings, kind_flaws
from receipts.conf import load_settings
from receipts.dialects import dialect_of
from receipts.dialects.base import GUARDED_TABLES
from receipts.dialects.postgresql import ReceiptsPostgresql
from receipts.management.command import EXIT_CONFLICT, EXIT_DIFFERS, EXIT_INVALID
from receipts.models import Audit, Change
from tests.babelfish import stand_in_cannot
from tests.crashing import ROOT
from tests.factories import make_line
from tests.receipts.plain import cancel, target

pytestmark = pytest.mark.django_db


def ids(messages):
    """Return the check ids."""
    return sorted({message.id for message in messages})


def kind(**changed):
    """Return a kind like cancel."""
    values = {"name": "test", "model": OrderLine, "required_state": "pending", "sets": {"state": "cancelled"}}
    return ChangeKind(**values | changed)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("model", [Change, Audit])
@pytest.mark.parametrize("verb", ["update", "delete"])
def test_the_database_refuses_to_change_or_delete_a_receipt(model, verb):
    cancel(target(make_line()))
    table = model._meta.db_table
    sql = f"DELETE FROM {table}" if verb == "delete" else f"UPDATE {table} SET change_id = 'x'"

    # On SQL Server a trigger cannot choose the class of its error, and ends the whole transaction.
    with pytest.raises(DatabaseError, match=f"{table} is append-only"), transaction.atomic():
        connection.cursor().execute(sql)

    assert Change.objects.count() == Audit.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("model", [Change, Audit])
def test_a_receipt_can_neither_be_replaced_nor_truncated(model):
    cancel(target(make_line()))
    table = model._meta.db_table
    if connection.vendor != "microsoft":  # it has no constraint that waits for the commit
        connection.check_constraints()
    columns = ", ".join(field.column for field in model._meta.fields)
    sql = {
        "sqlite": f"INSERT OR REPLACE INTO {table} ({columns}) SELECT {columns} FROM {table}",
        "postgresql": f"TRUNCATE {table} CASCADE",
        "microsoft": f"TRUNCATE TABLE {table}",
    }[connection.vendor]

    with pytest.raises(DatabaseError, match=r"is append-only|truncate a? ?table"), transaction.atomic():
        connection.cursor().execute(sql)

    assert Change.objects.count() == Audit.objects.count() == 1


@stand_in_cannot("it does not find the constraint of a default by its name")
@pytest.mark.django_db(transaction=True)
def test_the_guards_migration_goes_back_and_forth():
    dialect = dialect_of(connection)
    assert dialect.guard_flaws(connection) == []

    call_command("migrate", "receipts", "0001", verbosity=0)
    try:
        assert len(dialect.guard_flaws(connection)) >= 2
        assert "receipts.E033" in ids(check_database(databases=["default"]))
    finally:
        call_command("migrate", "receipts", verbosity=0)

    assert dialect.guard_flaws(connection) == []


def test_settings_have_defaults_and_refuse_what_they_do_not_know(settings):
    settings.RECEIPTS = {}
    assert load_settings().max_targets == 10_000
    settings.RECEIPTS = {"MAX_TARGETS": 5}
    assert load_settings().max_targets == 5
    for wrong in ({"MAX_TARGET": 5}, {"MAX_TARGETS": "5"}, {"MAX_TARGETS": 0}, {"MAX_TARGETS": True}):
        settings.RECEIPTS = wrong
        with pytest.raises(ImproperlyConfigured):
            load_settings()
        assert ids(check_settings()) == ["receipts.E001"]


def test_the_limit_on_targets_is_the_sites(settings):
    settings.RECEIPTS = {"MAX_TARGETS": 1}

    with pytest.raises(Exception, match="has 2 targets; a change has from 1 to 1"):
        cancel(target(make_line()), target(make_line()))


def test_the_portals_kinds_have_no_flaws():
    assert [flaw for one in kinds.each_kind() for flaw in kind_flaws(one)] == []


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"tenant_field": "nothing"}, "receipts.E011"),
        ({"revision_field": "item"}, "receipts.E011"),
        ({"qty_field": "state"}, "receipts.E011"),
        ({"state_field": "qty"}, "receipts.E011"),
        ({"sets": {"state": "cancelled", "qty": 0}}, "receipts.E012"),
        ({"sets": {"state": "cancelled", "id": 7}}, "receipts.E012"),
        ({"sets": {}}, "receipts.E013"),
        ({"sets": {"melted": True}}, "receipts.E013"),
        ({"sets": {"comments": None}}, "receipts.E013"),
        ({"required_state": "melted"}, "receipts.E014"),
        ({"sets": {"state": "melted"}}, "receipts.E014"),
    ],
)
def test_a_kind_whose_model_lacks_what_it_needs_is_a_finding(changed, expected):
    assert expected in ids(kind_flaws(kind(**changed)))


@isolate_apps("portal")
def test_a_kind_needs_a_table_with_an_integer_key_of_its_own():
    class Named(models.Model):
        name = models.CharField(max_length=9, primary_key=True)

        class Meta:
            app_label = "portal"

        def __str__(self):
            return self.name

    class Child(OrderLine):
        class Meta:
            app_label = "portal"

        def __str__(self):
            return "child"

    assert ids(kind_flaws(kind(model=Named))) == ["receipts.E010"]
    assert ids(kind_flaws(kind(model=Child))) == ["receipts.E010"]


def test_two_kinds_cannot_have_one_name_and_names_are_plain(monkeypatch):
    monkeypatch.setattr(kinds, "_registered", {})
    first = register(kind())

    assert register(kind()) == first
    with pytest.raises(ValueError, match="two kinds"):
        register(kind(sets={"state": "accepted"}))
    for name in ("", "Test", "9", "x" * 21, "a b"):
        with pytest.raises(ValueError, match="cannot name a kind"):
            register(kind(name=name))


def test_a_kind_may_set_an_expression(monkeypatch):
    monkeypatch.setattr(kinds, "_registered", {})
    sets = {"state": "rejected", "rejected_at": models.functions.Now(), "reason": models.F("item")}
    register(kind(name="cancel", sets=sets))
    line = make_line(item="bolts")

    assert cancel(target(line)) is True

    line.refresh_from_db()
    assert (line.state, line.reason, line.revision) == ("rejected", "bolts", 5)
    assert line.rejected_at is not None


def doctor():
    """Run doctor; return (exit code, id -> severity)."""
    out, code = io.StringIO(), 0
    try:
        call_command("doctor", "--json", "--database", "default", stdout=out)
    except CommandError as error:
        code = error.returncode
    findings = json.loads(out.getvalue())["findings"]
    assert all(set(one) == {"id", "severity", "about", "what_to_do"} and one["what_to_do"] for one in findings)
    mine = {one["id"]: one["severity"] for one in findings if one["id"].startswith("receipts.")}
    return code, mine


def test_the_doctor_finds_a_database_that_does_not_wait_for_its_disk():
    """The tests' own databases are such."""
    with connection.cursor() as cursor:
        off = set()
        if connection.vendor == "postgresql":
            names = {"fsync": "receipts.E021", "full_page_writes": "receipts.E022"}
            cursor.execute("SELECT name FROM pg_settings WHERE name = ANY(%s) AND setting = 'off'", [list(names)])
            off = {names[name] for (name,) in cursor.fetchall()}
        elif connection.vendor == "sqlite" and cursor.execute("PRAGMA synchronous").fetchone()[0] == 0:
            off = {"receipts.E024"}

    code, found = doctor()

    assert set(found) == off
    assert code == 1 or not off


@pytest.mark.django_db(transaction=True)
def test_the_doctor_finds_settings_of_the_connection_that_bear_no_promise():
    if connection.vendor == "microsoft":
        pytest.skip("there it is the whole database that has them")
    sqlite = {
        "PRAGMA synchronous = OFF": "receipts.E024",
        "PRAGMA synchronous = NORMAL": "receipts.W024",
        "PRAGMA journal_mode = OFF": "receipts.E025",
    }
    cases = sqlite if connection.vendor == "sqlite" else {"SET synchronous_commit = off": "receipts.E023"}
    for sql, expected in cases.items():
        connection.close()
        with connection.cursor() as cursor:
            cursor.execute(sql)
            assert expected in doctor()[1]
    connection.close()
    if connection.vendor == "sqlite":
        connection.ensure_connection()
        with mock.patch.object(connection, "transaction_mode", None):
            assert doctor()[1]["receipts.W026"] == "warning"


def test_the_doctor_finds_missing_tables_constraints_and_triggers():
    with connection.cursor() as cursor:
        for statement in dialect_of(connection).unguard(connection):
            cursor.execute(statement)
    constraint = next(one for one in Audit._meta.constraints if one.name == "uq_receipts_audit_target")
    with connection.schema_editor(atomic=False) if connection.vendor == "postgresql" else mock.MagicMock() as editor:
        editor.remove_constraint(Audit, constraint)
        editor.delete_model(apps.get_model("receipts", "Reconciliation"))

    found = ids(check_database(databases=["default"]))

    assert "receipts.E033" in found
    if connection.vendor == "postgresql":
        assert {"receipts.E031", "receipts.E032"} < set(found)


def test_the_doctor_names_kinds_that_nobody_declares(monkeypatch):
    cancel(target(make_line()))
    monkeypatch.setattr(kinds, "_registered", {})

    assert "receipts.W035" in ids(check_database(databases=["default"]))


#: What somebody may do to the guard, by vendor; each leaves its parts in place by their names.
NAME = "receipts_audit_append_only"
HOLLOW = {
    "postgresql": [
        "CREATE OR REPLACE FUNCTION receipts_refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END $$",
        "ALTER FUNCTION receipts_refuse() SET search_path = pg_temp",
        f"ALTER TABLE receipts_audit DISABLE TRIGGER {NAME}",
        f"ALTER TABLE receipts_audit ENABLE REPLICA TRIGGER {NAME}",
        "ALTER TABLE receipts_audit DISABLE TRIGGER ALL",
        *(
            f"DROP TRIGGER {NAME} ON receipts_audit; CREATE TRIGGER {NAME} {wrong}"
            for wrong in [
                "BEFORE UPDATE ON receipts_audit FOR EACH STATEMENT EXECUTE FUNCTION receipts_refuse()",
                "BEFORE UPDATE OR DELETE ON receipts_audit FOR EACH ROW EXECUTE FUNCTION receipts_refuse()",
                "AFTER UPDATE OR DELETE OR TRUNCATE ON receipts_audit EXECUTE FUNCTION receipts_refuse()",
                "BEFORE UPDATE OF qty OR DELETE OR TRUNCATE ON receipts_audit EXECUTE FUNCTION receipts_refuse()",
                "BEFORE UPDATE OR DELETE OR TRUNCATE ON receipts_audit WHEN (1 = 0) EXECUTE FUNCTION receipts_refuse()",
            ]
        ),
        "CREATE SCHEMA other; CREATE FUNCTION other.receipts_refuse() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$BEGIN RETURN NULL; END $$; DROP TRIGGER {NAME} ON receipts_audit; CREATE TRIGGER {NAME} BEFORE UPDATE OR"
        " DELETE OR TRUNCATE ON receipts_audit EXECUTE FUNCTION other.receipts_refuse()",
    ],
    "sqlite": [
        "DROP TRIGGER receipts_audit_no_update;"
        "CREATE TRIGGER receipts_audit_no_update BEFORE UPDATE ON receipts_audit WHEN 0"
        " BEGIN SELECT RAISE(ABORT, 'receipts_audit is append-only'); END",
        "DROP TRIGGER receipts_audit_no_delete;"
        "CREATE TRIGGER receipts_audit_no_delete BEFORE DELETE ON receipts_audit BEGIN SELECT 1; END",
        "DROP TRIGGER receipts_audit_no_delete;"
        "CREATE TRIGGER receipts_audit_no_delete AFTER INSERT ON receipts_audit BEGIN SELECT 1; END",
        "DROP TRIGGER receipts_changes_no_replace",
    ],
    "microsoft": [
        f"DISABLE TRIGGER {NAME} ON receipts_audit",
        f"CREATE OR ALTER TRIGGER {NAME} ON receipts_audit INSTEAD OF UPDATE, DELETE AS RETURN;",
        "ALTER TABLE receipts_audit_pin NOCHECK CONSTRAINT fk_receipts_audit_pin",
    ],
}


@stand_in_cannot("its triggers are those of PostgreSQL")
@pytest.mark.parametrize("hollow", HOLLOW[connection.vendor])
def test_the_doctor_finds_a_guard_that_is_hollow_and_its_statement_mends_it(hollow):
    dialect = dialect_of(connection)

    with connection.cursor() as cursor:
        for statement in re.split(r";(?=CREATE)", hollow) if connection.vendor == "sqlite" else [hollow]:
            cursor.execute(statement)
    flaws = dialect.guard_flaws(connection)
    found = [message for message in check_database(databases=["default"]) if message.id == "receipts.E033"]

    assert len(flaws) == 1
    assert [message.hint for message in found] == [f"run as the owner of the tables: {flaws[0].mend}"]
    mend(flaws[0].mend)
    assert dialect.guard_flaws(connection) == []


def mend(statement: str) -> None:
    """Run what the doctor proposes, as somebody would who copies it into a client."""
    parts = statement.split("; ", 1) if connection.vendor == "sqlite" else [statement]
    with connection.cursor() as cursor:
        for part in parts:
            cursor.execute(part)


def test_a_session_that_counts_as_a_replica_is_not_guarded():
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL has such sessions")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")

    assert {flaw.name for flaw in dialect_of(connection).guard_flaws(connection)} == {
        f"{table}_append_only" for table in GUARDED_TABLES
    }


def test_the_doctor_answers_when_there_is_no_connection(monkeypatch):
    """Whole and as JSON, whichever app's checks would have asked first."""
    monkeypatch.setattr(connection, "ensure_connection", mock.Mock(side_effect=OperationalError("refused")))
    output = io.StringIO()

    with pytest.raises(CommandError):
        call_command("doctor", "--json", "--database", "default", stdout=output)

    assert [one["id"] for one in json.loads(output.getvalue())["findings"]] == ["receipts.E020"]


def test_the_doctor_says_when_a_database_does_not_answer(monkeypatch):
    monkeypatch.setattr(connection.introspection, "table_names", mock.Mock(side_effect=DatabaseError("gone")))

    assert ids(check_database(databases=["default"])) == ["receipts.E020"]


def test_a_database_without_a_dialect_is_named(monkeypatch):
    monkeypatch.setattr(connection, "vendor", "oracle")

    assert ids(check_database(databases=["default"])) == ["receipts.E034"]


def test_checks_ask_no_database_unless_one_is_named(django_assert_num_queries):
    with django_assert_num_queries(0):
        assert check_database() == []
    with mock.patch("receipts.checks.database_flaws", side_effect=AssertionError("was asked")):
        run_checks(include_deployment_checks=True)


def test_the_dialect_of_postgresql_knows_what_an_error_means():
    postgresql = ReceiptsPostgresql()

    def error(kind, code, constraint=None):
        cause = Exception()
        cause.sqlstate, cause.diag = code, mock.Mock(constraint_name=constraint)
        raised = kind()
        raised.__cause__ = cause
        return raised

    from django.db import InterfaceError, OperationalError

    assert postgresql.is_collision(error(OperationalError, "40001"))
    assert postgresql.is_collision(error(OperationalError, "40P01"))
    assert postgresql.is_collision(error(IntegrityError, "23505", "receipts_changes_pkey"))
    assert not postgresql.is_collision(error(IntegrityError, "23505", "uq_receipts_audit_target"))
    assert not postgresql.is_collision(ValueError())
    assert postgresql.is_lost(InterfaceError())
    assert postgresql.is_lost(error(OperationalError, "57P01"))
    assert not postgresql.is_lost(error(OperationalError, "55P03"))
    assert not postgresql.is_lost(error(IntegrityError, "08006"))


def test_every_check_exit_code_and_verb_is_in_the_docs():
    text = (ROOT / "docs" / "receipts.md").read_text(encoding="utf-8")
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "receipts").rglob("*.py"))

    found = set(re.findall(r"receipts\.[EW]\d{3}", sources))
    assert found == set(re.findall(r"receipts\.[EW]\d{3}", text))
    for command in ("cancel_batch", "apply_batch", "inspect_change", "reconcile", "doctor"):
        assert f"`{command}" in text or f"manage.py {command}" in text
    for code in (EXIT_CONFLICT, EXIT_INVALID, EXIT_DIFFERS, EXIT_TRY_AGAIN):
        assert f"| {code} |" in text
    for verb in set(api.__all__) - {one for one in api.__all__ if one[0].isupper()}:
        assert verb in text
