"""Plans in the database: four eyes, an approval bound to the content, and refused attempts that stay."""

from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
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
    expire_plans,
    inspect_change,
    person_of,
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
    assert apply_plan(pk=plan.pk, actor="olga", now=NOW) is True

    assert state(plan) == "applied"
    assert states(line) == [("cancelled", 5)]
    receipt = inspect_change(change_id="CHG-1")
    assert (receipt.actor, receipt.reason) == ("olga", "sold out")


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


def test_whoever_renames_himself_is_still_the_author():
    user = get_user_model().objects.create_user("ann")
    plan = stored(target(make_line()))
    user.username = "zoe"
    user.save()

    for approver in ("zoe", person_of(user)):
        with pytest.raises(NotApproved, match="who is not its author"):
            approve_plan(pk=plan.pk, approver=approver, digest=plan.digest)

    with pytest.raises(IntegrityError), transaction.atomic():
        StoredPlan.objects.filter(pk=plan.pk).update(
            state="approved", approver="zoe", approver_key=plan.author_key, approved_digest=plan.digest, approved_at=NOW
        )


@pytest.mark.parametrize("approver", ["Ann", "ANN", "\uff41nn", " ann"])
def test_names_that_people_do_not_tell_apart_are_one_person_s(approver):
    plan = stored(target(make_line()))

    with pytest.raises(NotApproved, match="who is not its author"):
        approve_plan(pk=plan.pk, approver=approver, digest=plan.digest)


def test_an_edit_without_a_change_changes_neither_author_nor_approval():
    line = make_line()
    plan = approved(target(line))

    assert edit_plan(pk=plan.pk, targets=[target(line)], author="carl") is False

    kept = StoredPlan.objects.get(pk=plan.pk)
    assert (kept.state, kept.author, kept.edits) == ("approved", "ann", 0)


def test_whoever_ever_wrote_the_content_does_not_approve_it():
    """Written by ann, edited by carl and back by dora: it is ann's content again."""
    line = make_line()
    plan = stored(target(line))
    edit_plan(pk=plan.pk, targets=[target(line, qty=9)], author="carl")
    edit_plan(pk=plan.pk, targets=[target(line)], author="dora")

    for approver in ("ann", "dora"):
        with pytest.raises(NotApproved, match="who is not its author"):
            approve_plan(pk=plan.pk, approver=approver, digest=plan.digest)
    approve_plan(pk=plan.pk, approver="carl", digest=plan.digest)

    kept = StoredPlan.objects.get(pk=plan.pk)
    assert [(digest == plan.digest, name) for digest, _, name in kept.writers] == [
        (True, "ann"),
        (False, "carl"),
        (True, "dora"),
    ]


def test_an_approval_loses_to_an_edit_and_back_in_between():
    """The content is the same again, but who wrote it is not: the approval repeats which edit it has seen."""
    line = make_line()
    plan = stored(target(line))
    edits = plan.edits
    edit_plan(pk=plan.pk, targets=[target(line, qty=9)], author="bob")
    edit_plan(pk=plan.pk, targets=[target(line)], author="bob")

    rows = StoredPlan.objects.all()
    assert not rows.try_approve(plan.pk, edits=edits, approver="bob", approver_key="", digest=plan.digest, now=NOW)


def test_a_plan_expires_when_nobody_has_touched_it_for_long(settings):
    settings.RECEIPTS = {"PLAN_EXPIRES": 30}
    old, touched, just_approved, decided = (stored(target(make_line()), change_id=f"CHG-{n}") for n in "1234")
    long_ago, now = NOW - timedelta(days=31), NOW
    approve_plan(pk=just_approved.pk, approver="bob", digest=just_approved.digest, now=long_ago)
    StoredPlan.objects.update(created_at=long_ago)
    StoredPlan.objects.filter(pk=just_approved.pk).update(approved_at=now - timedelta(days=1))
    StoredPlan.objects.filter(pk=decided.pk).update(state="withdrawn", decided_at=long_ago)
    edit_plan(pk=touched.pk, targets=[target(make_line())], now=now - timedelta(days=1))

    with pytest.raises(NotApproved):
        approve_plan(pk=old.pk, approver="bob", digest=old.digest, now=now)

    assert [state(plan) for plan in (old, touched, just_approved, decided)] == [
        "expired",
        "draft",
        "approved",
        "withdrawn",
    ]
    assert expire_plans(now=now) == 0


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
