"""Plans in the database: four eyes, an approval bound to the content, and refused attempts that stay."""

import pytest
from django.db import IntegrityError, connection, transaction

from portal.models import OrderLine
from receipts.api import (
    Conflict,
    InvalidPlan,
    NotApproved,
    Target,
    apply_plan,
    approve_plan,
    edit_plan,
    inspect_change,
    store_plan,
)
from receipts.models import StoredPlan
from tests.factories import NOW, make_line
from tests.receipts.plain import states, target

pytestmark = pytest.mark.django_db


def stored(*targets, **more):
    """Store a plan of ann's."""
    plan = {"kind": "cancel", "change_id": "CHG-1", "tenant": "acme", "targets": targets, "author": "ann"} | more
    return store_plan(**plan)


def approved(*targets, **more):
    """Store a plan of ann's that bob has approved."""
    plan = stored(*targets, **more)
    approve_plan(pk=plan.pk, approver="bob", digest=plan.digest, now=NOW)
    return plan


def state(plan):
    """Return a plan's state as it is now."""
    return StoredPlan.objects.get(pk=plan.pk).state


def test_a_plan_goes_from_draft_to_approved_to_applied():
    line = make_line()
    plan = stored(target(line), reason="sold out")
    assert state(plan) == "draft"

    approve_plan(pk=plan.pk, approver="bob", digest=plan.digest, now=NOW)
    assert apply_plan(pk=plan.pk, now=NOW) is True

    assert state(plan) == "applied"
    assert states(line) == [("cancelled", 5)]
    receipt = inspect_change(change_id="CHG-1")
    assert (receipt.actor, receipt.reason) == ("bob", "sold out")


def test_a_plan_that_was_applied_before_is_applied_again_without_writing():
    line = make_line()
    apply_plan(pk=approved(target(line)).pk)

    again = approved(target(line))
    assert apply_plan(pk=again.pk) is False

    assert state(again) == "applied"
    assert states(line) == [("cancelled", 5)]


def test_the_approver_is_not_the_author():
    plan = stored(target(make_line()))

    for approver in ("ann", ""):
        with pytest.raises(NotApproved, match="who is not its author"):
            approve_plan(pk=plan.pk, approver=approver, digest=plan.digest)

    assert state(plan) == "draft"


@pytest.mark.parametrize(
    "changed",
    [
        {"approver": "ann"},
        {"digest": "0" * 64},
        {"approved_digest": "0" * 64},
        {"approver": ""},
        {"approved_at": None},
        {"state": "applied"},
        {"state": "refused", "decided_at": NOW},
        {"state": "draft"},
        {"state": "melted"},
    ],
)
def test_the_database_refuses_a_plan_that_contradicts_itself(changed):
    plan = approved(target(make_line()))

    with pytest.raises(IntegrityError), transaction.atomic():
        StoredPlan.objects.filter(pk=plan.pk).update(**changed)


def test_an_edit_voids_the_approval():
    line = make_line()
    plan = approved(target(line))

    edit_plan(pk=plan.pk, targets=[target(line, qty=9)])

    assert state(plan) == "draft"
    with pytest.raises(NotApproved):
        apply_plan(pk=plan.pk)
    assert states(line) == [("pending", 4)]


def test_an_approval_of_what_was_edited_meanwhile_is_refused():
    line = make_line()
    plan = stored(target(line))
    edit_plan(pk=plan.pk, targets=[target(line, qty=9)])

    with pytest.raises(NotApproved):
        approve_plan(pk=plan.pk, approver="bob", digest=plan.digest)


def test_targets_changed_behind_the_digest_are_not_applied():
    """Somebody with SQL changes the targets and leaves the digest; the approval is not for these."""
    line, other = make_line(), make_line()
    plan = approved(target(line))
    rows = [target(other)._asdict()]
    StoredPlan.objects.filter(pk=plan.pk).update(targets=rows)

    with pytest.raises(NotApproved):
        apply_plan(pk=plan.pk)

    assert states(line, other) == [("pending", 4), ("pending", 4)]


@pytest.mark.django_db(transaction=True)
def test_a_refused_attempt_is_kept_with_its_problems():
    """Written after the transaction that failed, and outside of it."""
    good, bad = make_line(), make_line()
    plan = approved(target(good), target(bad))
    OrderLine.objects.filter(pk=bad.pk).update(revision=9)

    with pytest.raises(Conflict):
        apply_plan(pk=plan.pk, now=NOW)

    kept = StoredPlan.objects.get(pk=plan.pk)
    assert (kept.state, kept.decided_at) == ("refused", NOW)
    assert [(one["id"], one["problem"]) for one in kept.problems] == [(bad.pk, "revision_differs")]
    assert inspect_change(change_id="CHG-1") is None
    assert states(good) == [("pending", 4)]
    with pytest.raises(NotApproved):
        apply_plan(pk=plan.pk)
    corrected = approved(target(good))
    assert apply_plan(pk=corrected.pk) is True


@pytest.mark.django_db(transaction=True)
def test_a_plan_whose_change_id_was_used_is_refused_and_kept():
    one, two = make_line(), make_line()
    apply_plan(pk=approved(target(one)).pk)

    plan = approved(target(two))
    with pytest.raises(Conflict):
        apply_plan(pk=plan.pk)

    assert StoredPlan.objects.get(pk=plan.pk).problems == [{"problem": "change_id_reused"}]


@pytest.mark.django_db(transaction=True)
def test_an_approved_plan_is_not_applied_inside_another_transaction():
    plan = approved(target(make_line()))

    with pytest.raises(RuntimeError, match="durable"), transaction.atomic():
        apply_plan(pk=plan.pk)

    assert state(plan) == "approved"
    assert not connection.in_atomic_block


def test_a_settled_plan_cannot_be_edited():
    line = make_line()
    plan = approved(target(line))
    apply_plan(pk=plan.pk)

    with pytest.raises(NotApproved):
        edit_plan(pk=plan.pk, targets=[target(line)])


def test_a_flawed_plan_is_not_stored():
    with pytest.raises(InvalidPlan):
        stored(Target(True, 4, 10))

    assert not StoredPlan.objects.exists()


def test_a_plan_without_an_author_is_refused_in_words():
    with pytest.raises(InvalidPlan, match="author"):
        store_plan(kind="cancel", change_id="CHG-9", tenant="acme", targets=[Target(1, 0, 1)], author=" ")
