"""Applying changes: whole or not at all, once, and with a receipt."""

import contextlib

import pytest
from django.db import IntegrityError, ProgrammingError, connection, transaction

from portal.models import OrderLine
from receipts.api import (
    Conflict,
    InvalidPlan,
    NotWritten,
    Target,
    UnknownKind,
    apply_change,
    cancel_one,
    inspect_change,
    rehearse_change,
)
from receipts.models import Audit, Change
from tests.babelfish import is_stand_in
from tests.factories import make_line
from tests.receipts.plain import cancel, states, target

pytestmark = pytest.mark.django_db


def refusal(*targets, **more):
    """Return the Conflict that these targets meet, and see that nothing was written."""
    before = list(OrderLine.objects.order_by("pk").values())
    receipts = list(Change.objects.values())
    with pytest.raises(Conflict) as caught:
        cancel(*targets, **more)
    assert list(OrderLine.objects.order_by("pk").values()) == before
    assert list(Change.objects.values()) == receipts
    return caught.value


def test_one_row_is_cancelled_and_returned_with_its_next_revision():
    line = make_line()

    row = cancel_one(tenant="acme", target=target(line))

    assert row == Target(id=line.pk, revision=5, qty=10)
    assert states(line) == [("cancelled", 5)]


@pytest.mark.parametrize(
    ("fields", "changed", "tenant", "problem"),
    [
        ({}, {"revision": 3}, "acme", "revision_differs"),
        ({}, {"qty": 11}, "acme", "qty_differs"),
        ({"state": "accepted"}, {}, "acme", "not_pending"),
        ({}, {}, "other", "missing"),
    ],
)
def test_one_row_that_is_not_as_approved_is_a_conflict(fields, changed, tenant, problem):
    line = make_line(**fields)

    with pytest.raises(Conflict) as caught:
        cancel_one(tenant=tenant, target=target(line, **changed))

    assert [one.problem for one in caught.value.problems] == [problem]
    assert states(line) == [(line.state, 4)]


def test_one_row_takes_a_single_update(django_assert_num_queries):
    line = make_line()

    with django_assert_num_queries(3) as watched:
        cancel_one(tenant="acme", target=target(line))

    words = [query["sql"].split()[0] for query in watched]
    # SQL Server has no RELEASE; mssql-django looks first whether a transaction is there to be saved.
    assert words == (
        ["SELECT", "SAVE", "SET"] if connection.vendor == "microsoft" else ["SAVEPOINT", "UPDATE", "RELEASE"]
    )


def test_a_batch_is_applied_whole_and_leaves_its_receipt():
    second, first = make_line(revision=0, qty=3), make_line()

    assert cancel(target(first), target(second), actor="ann", reason="sold out") is True

    assert states(first, second) == [("cancelled", 5), ("cancelled", 1)]
    receipt = inspect_change(change_id="CHG-1")
    assert (receipt.kind, receipt.tenant, receipt.actor, receipt.reason) == ("cancel", "acme", "ann", "sold out")
    assert receipt.targets == (Target(second.pk, 0, 3), Target(first.pk, 4, 10))
    assert receipt.is_genuine
    assert [tuple(row) for row in receipt.audit] == [
        (second.pk, 0, 1, 3, "pending", "cancelled", None),
        (first.pk, 4, 5, 10, "pending", "cancelled", None),
    ]


def test_a_batch_takes_the_same_number_of_statements_whatever_its_size(django_assert_max_num_queries):
    lines = [make_line() for _ in range(50)]

    with django_assert_max_num_queries(12):
        cancel(*map(target, lines))

    assert {state for state, _ in states(*lines)} == {"cancelled"}


def test_a_conflict_names_every_failing_target_and_writes_nothing():
    good, stale, other, gone, done = make_line(), make_line(), make_line(tenant="b"), make_line(), make_line()
    OrderLine.objects.filter(pk=stale.pk).update(revision=7, qty=12)
    OrderLine.objects.filter(pk=done.pk).update(state="rejected", rejected_at="2026-01-31T08:00:00Z")
    OrderLine.objects.filter(pk=gone.pk).delete()

    conflict = refusal(*map(target, (good, stale, other, gone, done)))

    assert conflict.conflict == "stale"
    assert [(one.id, one.problem) for one in conflict.problems] == [
        (stale.pk, "revision_differs"),
        (other.pk, "missing"),
        (gone.pk, "missing"),
        (done.pk, "not_pending"),
    ]
    assert conflict.problems[0].approved == {"revision": 4, "qty": 10}
    assert conflict.problems[0].current == {"revision": 7, "qty": 12, "state": "pending"}


def test_targets_in_another_order_are_the_same_change():
    """R1: already applied, and nothing is written the second time."""
    one, two = make_line(), make_line()
    cancel(target(one), target(two))
    before = list(Audit.objects.order_by("pk").values())

    assert cancel(target(two), target(one)) is False

    assert list(Audit.objects.order_by("pk").values()) == before
    assert states(one, two) == [("cancelled", 5), ("cancelled", 5)]


@pytest.mark.parametrize("wrong", [True, "1", 1.0, "01", " 1", "\uff11", 2**63, -1, 0, None])
def test_an_id_of_another_type_is_invalid_and_never_another_row(wrong, django_assert_num_queries):
    """R2: refused with its place before any SQL; SQLite would take the first five for row 1."""
    make_line(pk=1)

    with django_assert_num_queries(0), pytest.raises(InvalidPlan) as caught:
        cancel(Target(id=wrong, revision=4, qty=10))

    assert [flaw.where for flaw in caught.value.flaws] == ["targets[0].id"]
    assert OrderLine.objects.get(pk=1).state == "pending"


def test_change_ids_are_compared_exactly():
    """R5: abc and ABC are two changes."""
    one, two = make_line(), make_line()

    assert cancel(target(one), change_id="abc") is True
    assert cancel(target(two), change_id="ABC") is True

    assert sorted(Change.objects.values_list("pk", flat=True)) == ["ABC", "abc"]


@pytest.mark.parametrize("change_id", ["", "x" * 65, "CHG ", "C\x00", "Cafe\u0301", " CHG", "C\nG", "\ud800"])
def test_a_change_id_that_is_no_fit_key_is_invalid(change_id):
    """R5: empty, 65 characters, a trailing blank, NUL, NFD."""
    with pytest.raises(InvalidPlan) as caught:
        cancel(target(make_line()), change_id=change_id)

    assert [flaw.where for flaw in caught.value.flaws] == ["change_id"]


def test_a_change_id_of_64_characters_is_fine():
    assert cancel(target(make_line()), change_id="é" * 64) is True


def test_the_change_id_of_another_tenant_is_a_conflict_that_tells_nothing():
    """R7: the answer is the same as for one's own reused id, and names nothing of what is stored."""
    mine, theirs = make_line(), make_line(tenant="secret-tenant", qty=77)
    cancel(target(theirs), tenant="secret-tenant", actor="secret-actor", reason="secret-reason")

    conflict = refusal(target(mine))

    assert conflict.conflict == "change_id_reused"
    assert conflict.problems == ()
    assert "secret" not in str(conflict)
    assert "77" not in str(conflict)
    own = refusal(target(mine), tenant="secret-tenant")
    assert str(own) == str(conflict)


@pytest.mark.parametrize("changed", [{"revision": 5}, {"qty": 9}])
def test_the_same_change_id_with_other_content_is_a_conflict(changed):
    line = make_line()
    cancel(target(line))

    assert refusal(target(line, **changed)).conflict == "change_id_reused"


def test_the_same_change_id_for_another_kind_is_a_conflict():
    line = make_line()
    cancel(target(line))

    with pytest.raises(Conflict) as caught:
        apply_change(kind="accept", change_id="CHG-1", tenant="acme", targets=[target(line)])

    assert caught.value.conflict == "change_id_reused"


def test_a_row_of_another_tenant_is_answered_like_no_row():
    """R8: exactly the same answer, apart from the id that was asked for."""
    theirs, gone = make_line(tenant="other"), make_line()
    gone.delete()
    asked = Target(theirs.pk, 4, 10), Target(theirs.pk + 1000, 4, 10)

    there, absent = (refusal(one) for one in asked)

    assert str(there).replace(str(asked[0].id), "ID") == str(absent).replace(str(asked[1].id), "ID")
    assert there.problems[0].problem == absent.problems[0].problem == "missing"
    assert there.problems[0].current is absent.problems[0].current is None


def test_after_a_conflict_the_corrected_plan_may_use_the_same_change_id():
    """R13: a refused plan leaves no receipt."""
    line = make_line()
    refusal(target(line, revision=3))

    assert cancel(target(line)) is True


def test_quantities_and_revisions_at_their_limits_get_clear_answers():
    """R14: nothing overflows."""
    top = make_line(revision=2**31 - 2, qty=0)
    beyond = make_line(revision=2**31 - 1, qty=2**31 - 1)
    empty = make_line(qty=None)

    assert cancel(target(top)) is True
    assert states(top) == [("cancelled", 2**31 - 1)]
    with pytest.raises(InvalidPlan, match=r"targets\[0\].revision: must be 2147483646 or less"):
        cancel(target(beyond), change_id="CHG-2")
    with pytest.raises(InvalidPlan, match=r"targets\[0\].qty: must be 0 or more, not -1"):
        cancel(target(top, qty=-1), change_id="CHG-2")
    conflict = refusal(target(beyond, revision=4), target(empty, qty=0), change_id="CHG-2")
    assert [one.problem for one in conflict.problems] == ["revision_differs", "qty_differs"]
    assert conflict.problems[1].current == {"revision": 4, "qty": None, "state": "pending"}


def test_a_second_kind_changes_rows_its_own_way():
    line = make_line()

    assert apply_change(kind="accept", change_id="CHG-1", tenant="acme", targets=[target(line)]) is True

    assert states(line) == [("accepted", 5)]
    assert inspect_change(change_id="CHG-1").audit[0].state_after == "accepted"


def test_an_unknown_kind_is_refused_by_name():
    with pytest.raises(UnknownKind, match=r"'melt' in its changes\.py; known: accept, cancel"):
        apply_change(kind="melt", change_id="CHG-1", tenant="acme", targets=[target(make_line())])


def test_a_batch_inside_the_callers_transaction_commits_and_rolls_back_with_it():
    one, two, three = make_line(), make_line(), make_line()

    with transaction.atomic():
        assert cancel(target(one)) is True
        cancel_one(tenant="acme", target=target(two))
        transaction.set_rollback(True)
    with transaction.atomic():
        assert cancel(target(three), change_id="CHG-2") is True
        cancel_one(tenant="acme", target=target(two))

    assert states(one, two, three) == [("pending", 4), ("cancelled", 5), ("cancelled", 5)]
    assert list(Change.objects.values_list("pk", flat=True)) == ["CHG-2"]


def test_the_callers_transaction_goes_on_after_a_conflict():
    good, bad = make_line(), make_line()

    with transaction.atomic():
        refusal(target(good), target(bad, qty=1))
        cancel(target(good), change_id="CHG-2")

    assert states(good, bad) == [("cancelled", 5), ("pending", 4)]


def test_a_rehearsal_answers_and_writes_nothing():
    line = make_line()
    plan = {"kind": "cancel", "change_id": "CHG-1", "tenant": "acme", "targets": [target(line)]}

    assert rehearse_change(**plan) is True
    assert states(line) == [("pending", 4)]
    assert inspect_change(change_id="CHG-1") is None
    cancel(target(line))
    assert rehearse_change(**plan) is False


@pytest.fixture
def break_with_trigger(transactional_db):
    """
    Return a function that puts a trigger of the host project's in the way, until the test ends.

    On SQL Server an error in a trigger ends the whole transaction, so the test must not be in one.
    """
    broken = []

    def put(table, verb, *, sqlite, postgresql, microsoft):
        broken.append(table)
        with connection.cursor() as cursor:
            if connection.vendor == "sqlite":
                cursor.execute(f"CREATE TRIGGER broken BEFORE {verb} ON {table} BEGIN {sqlite}; END")
            elif connection.vendor == "microsoft":
                cursor.execute(f"CREATE TRIGGER broken ON {table} INSTEAD OF {verb} AS BEGIN {microsoft}; END")
            else:
                cursor.execute(
                    f"CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {postgresql}; END $$"
                )
                cursor.execute(f"CREATE TRIGGER broken BEFORE {verb} ON {table} FOR EACH ROW EXECUTE FUNCTION broken()")

    yield put
    with connection.cursor() as cursor:
        for _ in broken:
            dropped = "FUNCTION broken() CASCADE" if connection.vendor == "postgresql" else "TRIGGER broken"
            cursor.execute(f"DROP {dropped}")


@pytest.mark.parametrize("table", ["portal_orderline", "receipts_changes", "receipts_audit"])
def test_an_error_inside_the_batch_is_an_error_and_undoes_it(table, break_with_trigger):
    """R11: a trigger raises an IntegrityError; nothing of the batch stays, and nobody is told of success."""
    line = make_line()
    verb = "UPDATE" if table == "portal_orderline" else "INSERT"
    break_with_trigger(
        table,
        verb,
        sqlite="SELECT RAISE(ABORT, 'not today')",
        postgresql="RAISE EXCEPTION 'not today' USING ERRCODE = 'integrity_constraint_violation'",
        microsoft="THROW 51000, N'not today', 1",
    )

    # On SQL Server a trigger cannot choose the class of what it raises.
    with pytest.raises(ProgrammingError if connection.vendor == "microsoft" else IntegrityError, match="not today"):
        cancel(target(line))

    assert states(line) == [("pending", 4)]
    assert not Change.objects.exists()
    assert not Audit.objects.exists()


@pytest.mark.parametrize("table", ["portal_orderline", "receipts_changes", "receipts_audit"])
def test_a_database_that_silently_writes_less_is_no_success(table, break_with_trigger):
    """R11: a trigger swallows the row without an error; success is what the receipt proves, so there is none."""
    line = make_line()
    verb = "UPDATE" if table == "portal_orderline" else "INSERT"
    break_with_trigger(table, verb, sqlite="SELECT RAISE(IGNORE)", postgresql="RETURN NULL", microsoft="RETURN")

    with pytest.raises((NotWritten, IntegrityError)):
        cancel(target(line))

    assert states(line) == [("pending", 4)]
    assert not Change.objects.exists()


def test_a_database_that_sets_another_state_is_no_success(break_with_trigger):
    """R11: a trigger keeps the row pending; a receipt of "pending" is not what was asked for."""
    if connection.vendor == "sqlite":
        pytest.skip("no trigger can change the row that is about to be written there")
    line = make_line()
    break_with_trigger(
        "portal_orderline",
        "UPDATE",
        sqlite="",
        postgresql="NEW.state = OLD.state; RETURN NEW",
        microsoft="UPDATE l SET revision = i.revision FROM portal_orderline AS l JOIN inserted AS i ON i.id = l.id",
    )

    with pytest.raises(NotWritten):
        cancel(target(line))
    # The stand-in's OUTPUT tells nothing where there is an INSTEAD OF trigger.
    with pytest.raises(Conflict if is_stand_in() else NotWritten):
        cancel_one(tenant="acme", target=target(line))

    assert states(line) == [("pending", 4)]
    assert not Change.objects.exists()


def cancel_after_a_swallowed_error(line):
    """Do what a careless caller does: go on in a transaction that an error has spoiled."""
    with transaction.atomic():
        with contextlib.suppress(IntegrityError), connection.cursor() as cursor:
            cursor.execute("INSERT INTO portal_contact (name) VALUES ('x'), ('x')")
        cancel(target(line))


@pytest.mark.django_db(transaction=True)
def test_a_swallowed_error_of_the_caller_does_not_become_success():
    """R11: on PostgreSQL such a COMMIT is a silent ROLLBACK, but the verb cannot even begin in there."""
    line = make_line()

    if connection.vendor == "postgresql":
        with pytest.raises(Exception, match="current transaction is aborted"):
            cancel_after_a_swallowed_error(line)
        assert states(line) == [("pending", 4)]
    else:
        cancel_after_a_swallowed_error(line)
        assert states(line) == [("cancelled", 5)]
