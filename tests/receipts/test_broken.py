"""Receipts that disagree with their own audit rows, and revisions that were given twice."""

import json
from io import StringIO

import pytest
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.utils import timezone

from portal.models import OrderLine
from receipts import api
from receipts.checks import DOCTOR
from receipts.dialects import dialect_of
from receipts.errors import NotWritten
from receipts.models import Audit, Change, Reconciliation, Verdict
from receipts.pages.metrics import read as read_metrics
from receipts.querysets import Found
from receipts.reconcile import reconcile
from tests.factories import make_line
from tests.receipts.plain import cancel, states, target, traces

pytestmark = pytest.mark.django_db(transaction=True)


def as_owner(*statements):
    """Do what only the owner of the tables can: drop the guard, write, put the guard back."""
    dialect = dialect_of(connection)
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in [*dialect.unguard(connection), *statements, *dialect.guard(connection)]:
            cursor.execute(*statement) if isinstance(statement, tuple) else cursor.execute(statement)


def three():
    """Commit CHG-1 over three rows, and return them."""
    lines = [make_line() for _ in range(3)]
    cancel(*map(target, lines))
    return lines


def compared(change_id="CHG-1"):
    (result,) = reconcile(change_ids=[change_id])
    return result


def printed(*arguments):
    """Return the exit code and the object that a command prints."""
    out, code = StringIO(), 0
    try:
        call_command(*arguments, "--json", stdout=out, stderr=StringIO())
    except CommandError as error:
        code = error.returncode
    return code, json.loads(out.getvalue())


def test_a_target_without_its_audit_row_is_broken_and_not_a_match():
    one, two, left = three()
    as_owner(("DELETE FROM receipts_audit WHERE target_id IN (%s, %s)", [one.pk, two.pk]))
    OrderLine.objects.filter(pk__in=[one.pk, two.pk]).update(revision=9)

    code, answer = printed("reconcile", "CHG-1")

    (change,) = answer["changes"]
    assert code == 5
    assert (change["match"], change["changed"], change["missing"], change["broken"]) == (1, 0, 0, 2)
    assert [(item["id"], item["category"], item.get("problem")) for item in change["items"]] == [
        (one.pk, "broken", "audit_missing"),
        (two.pk, "broken", "audit_missing"),
        (left.pk, "match", None),
    ]
    assert "broken" in "\n".join(compared().as_lines())


def test_a_receipt_without_any_audit_row_is_broken():
    three()
    as_owner("DELETE FROM receipts_audit")

    assert (compared().match, compared().broken) == (0, 3)
    assert printed("reconcile", "--all")[0] == 5


def test_an_audit_row_without_its_target_is_broken():
    three()
    columns = "change_id, target_id, revision_before, revision_after, qty, state_before, state_after"
    as_owner(f"INSERT INTO receipts_audit ({columns}) VALUES ('CHG-1', 999, 4, 5, 10, 'pending', 'cancelled')")

    result = compared()

    assert (result.match, result.broken) == (3, 1)
    assert [str(one) for one in result.problems] == ["audit row 999 has no target"]


@pytest.mark.parametrize("column", ["qty", "revision_before"])
def test_an_audit_row_of_another_revision_or_qty_than_approved_is_broken(column):
    line, *_ = three()
    as_owner((f"UPDATE receipts_audit SET {column} = 3 WHERE target_id = %s", [line.pk]))

    assert compared().broken == 1
    assert compared().items[0].problem == "audit_differs"


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("digest", "0" * 64, "digest_differs"),
        ("targets", "[]", "digest_differs"),
        ("targets", "7", "targets_unreadable"),
    ],
)
def test_a_digest_that_is_not_that_of_the_content_breaks_the_whole_receipt(column, value, problem):
    three()
    as_owner((f"UPDATE receipts_changes SET {column} = %s", [value]))

    result = compared()

    assert (result.match, result.broken) == (0, 3)
    assert result.problems[0].problem == problem
    code, answer = printed("inspect_change", "CHG-1")
    assert code == 5
    assert answer["problems"]


def test_inspect_says_what_is_broken_and_exits_not_0():
    line, *_ = three()
    assert printed("inspect_change", "CHG-1")[0] == 0
    as_owner(("DELETE FROM receipts_audit WHERE target_id = %s", [line.pk]))

    code, answer = printed("inspect_change", "CHG-1")

    assert code == 5
    assert answer["problems"] == [{"id": line.pk, "problem": "audit_missing"}]


def test_a_broken_receipt_is_recorded_and_the_doctor_names_it():
    line, *_ = three()
    as_owner(("DELETE FROM receipts_audit WHERE target_id = %s", [line.pk]))

    found = run_checks(tags=[DOCTOR], include_deployment_checks=True, databases=["default"])
    assert [one.msg for one in found if one.id == "receipts.E043"] == [
        "default: receipts disagree with their own audit rows: CHG-1"
    ]
    api.record_reconciliation(compared(), actor="ann")
    assert Reconciliation.objects.get().broken == 1
    assert Verdict.objects.get().found == Found.BROKEN


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE receipts_changes SET digest = 'f'",
        "UPDATE receipts_changes SET tenant = 'other'",
        "UPDATE receipts_audit SET qty = 11",
        "UPDATE receipts_audit SET revision_before = 3",
        "UPDATE receipts_audit SET target_id = target_id + 1000",
    ],
)
def test_the_doctor_reads_the_newest_receipts_and_does_not_only_count(statement):
    three()
    as_owner(statement)

    found = run_checks(tags=[DOCTOR], include_deployment_checks=True, databases=["default"])
    assert [one.msg for one in found if one.id == "receipts.E043"] == [
        "default: receipts disagree with their own audit rows: CHG-1"
    ]


def test_a_whole_receipt_stays_whole():
    three()

    assert (compared().match, compared().broken, compared().is_match) == (3, 0, True)
    assert "receipts.E043" not in {one.id for one in run_checks(tags=[DOCTOR], databases=["default"])}


def test_a_revision_that_was_put_back_and_given_again_is_no_match_in_either_receipt():
    line = make_line()
    cancel(target(line))
    OrderLine.objects.filter(pk=line.pk).update(state="pending", revision=4)
    cancel(target(line), change_id="CHG-2")

    first, second = compared("CHG-1"), compared("CHG-2")

    assert [(one.match, one.changed) for one in (first, second)] == [(0, 1), (0, 1)]
    assert first.items[0].also_in == ("CHG-2",)
    assert second.items[0].as_json()["also_in"] == ["CHG-1"]
    assert "given a second time, by CHG-2" in first.as_lines()[1]


def test_the_same_revision_of_another_tenant_s_receipt_is_not_told():
    line = make_line()
    cancel(target(line))
    OrderLine.objects.filter(pk=line.pk).update(state="pending", revision=4, tenant="zeta")
    cancel(target(line), change_id="CHG-2", tenant="zeta")

    assert compared("CHG-2").items[0].also_in == ()


# Triggers that leave a row which no receipt can hold.

ALTER_ROWS = """
CREATE FUNCTION kwit_alters() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}; RETURN NEW; END $$;
CREATE TRIGGER kwit_alters BEFORE UPDATE ON portal_orderline FOR EACH ROW EXECUTE FUNCTION kwit_alters();
ALTER TABLE portal_orderline ALTER COLUMN qty DROP NOT NULL;
"""
LEAVE_ROWS = """
DROP FUNCTION kwit_alters() CASCADE;
ALTER TABLE portal_orderline ALTER COLUMN qty SET NOT NULL;
"""


@pytest.mark.parametrize("assignment", ["NEW.revision := 4", "NEW.qty := 7", "NEW.qty := NULL"])
def test_a_trigger_that_freezes_the_revision_or_alters_qty_is_not_written(assignment):
    if connection.vendor != "postgresql":
        pytest.skip("a trigger of PostgreSQL's: it alters the row that the UPDATE writes")
    line = make_line()
    with connection.cursor() as cursor:
        cursor.execute(ALTER_ROWS.format(assignment))
    try:
        with pytest.raises(NotWritten, match="look for triggers"):
            cancel(target(line))
        with pytest.raises(NotWritten, match="look for triggers"):
            api.cancel_one(tenant="acme", target=target(line))
    finally:
        with connection.cursor() as cursor:
            cursor.execute(LEAVE_ROWS)

    assert traces("CHG-1", line) == (0, 0, 0)
    assert states(line) == [("pending", 4)]


def test_a_row_of_a_table_that_inherits_is_not_the_row():
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL's tables inherit")
    line = make_line()
    cancel(target(line))
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE portal_twin () INHERITS (portal_orderline)")
        try:
            cursor.execute("INSERT INTO portal_twin SELECT * FROM ONLY portal_orderline")
            assert OrderLine.objects.filter(pk=line.pk).count() == 2
            cursor.execute("DELETE FROM ONLY portal_orderline WHERE id = %s", [line.pk])

            assert compared().missing == 1
            cursor.execute("UPDATE portal_twin SET state = 'pending', revision = 4")
            with pytest.raises(api.Conflict):
                cancel(target(line), change_id="CHG-2")
        finally:
            cursor.execute("DROP TABLE portal_twin")
    assert Change.objects.count() == Audit.objects.count() == 1


def test_the_pages_the_dashboard_and_the_metrics_show_what_is_broken(root):
    line, *_ = three()
    as_owner(("DELETE FROM receipts_audit WHERE target_id = %s", [line.pk]))
    kept = api.record_reconciliation(compared(), actor="ann")

    detail = root.get(f"/admin/receipts/reconciliation/{kept.pk}/change/").content.decode()
    only = root.get(f"/admin/receipts/reconciliation/{kept.pk}/change/?category=broken").context["detail"]
    listed = root.get("/admin/receipts/change/?broken=1").content.decode()
    front = root.get("/admin/").content.decode()
    measured = {metric.name: metric for metric in read_metrics(timezone.now())}

    assert "⚠</span> broken" in detail
    assert [len(section.table.rows) for section in only.sections if section.table] == [1]
    assert "CHG-1" in listed
    assert "1 broken" in listed
    assert "disagrees with its own audit rows" in front
    assert [value for _, value in measured["kwit_receipts_broken"].samples] == [1]


def test_a_stored_broken_reconciliation_is_exported_as_reconcile_printed_it(root):
    line, *_ = three()
    as_owner(("DELETE FROM receipts_audit WHERE target_id = %s", [line.pk]))
    _, told = printed("reconcile", "CHG-1")
    kept = api.record_reconciliation(compared(), actor="ann")

    answer = root.get(f"/admin/receipts/reconciliation/{kept.pk}/export/json/")

    assert json.loads(b"".join(answer.streaming_content)) == told
