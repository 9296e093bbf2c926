"""Kinds that name their fields: any compared field, values of the plan's own, before and after in the receipt."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction

from portal.changes import REPRICE
from portal.models import LineState, OrderLine, Price
from receipts.api import (
    Conflict,
    InvalidPlan,
    apply_change,
    apply_plan,
    approve_plan,
    edit_plan,
    inspect_change,
    preview_change,
    reconcile,
    record_reconciliation,
    revert_plan,
    store_plan,
)
from receipts.change_types import ChangeType
from receipts.errors import NotApproved, NotWritten
from receipts.field_changes import change_fields, read_rows
from receipts.models import Audit, Change, StoredPlan
from receipts.plans.canonical import FieldTarget
from receipts.plans.model import read_plan
from receipts.previews import renew_targets
from receipts.verify import recomputed
from tests.factories import make_line
from tests.receipts.plain import target as plain_target

pytestmark = pytest.mark.django_db


def make_price(**more):
    """Make a price of acme."""
    return Price.objects.create(**({"tenant": "acme", "article": "bolt", "price": Decimal("10.00")} | more))


def target(row, *, to="12.50", **more):
    """Return a target for a price as it is, with the price that it gets."""
    values = {"price": str(row.price), "currency": row.currency, "set:price": to, "set:valid_from": "2026-02-01"}
    return {"id": row.pk} | values | more


def apply(*targets, **more):
    """Apply a price list of acme."""
    change = {"kind": "reprice", "change_id": "CHG-1", "tenant": "acme", "targets": targets} | more
    return apply_change(**change)


def problems(*targets, **more):
    """Return (id, problem) of each row that is not as approved."""
    with pytest.raises(Conflict) as caught:
        apply(*targets, **more)
    return [(one.id, one.problem) for one in caught.value.problems]


def test_a_price_list_sets_each_row_to_its_own_price():
    one, two = make_price(currency="EUR"), make_price(currency="PLN", price=Decimal("7.10"))

    assert apply(target(two, to=Decimal("0.99")), target(one)) is True
    assert apply(target(one), target(two, to="0.99")) is False

    rows = Price.objects.order_by("pk").values_list("price", "valid_from", "currency")
    assert list(rows) == [
        (Decimal("12.50"), date(2026, 2, 1), "EUR"),
        (Decimal("0.99"), date(2026, 2, 1), "PLN"),
    ]
    assert Price.objects.filter(changed_at__isnull=False).count() == 2
    receipt = inspect_change(change_id="CHG-1")
    assert receipt.is_genuine
    assert not receipt.problems
    audited = receipt.audit[0].fields
    assert audited["price"] == {"before": "10.00", "after": "12.50"}
    assert audited["currency"] == {"before": "EUR", "after": "EUR"}
    assert audited["valid_from"] == {"before": None, "after": "2026-02-01"}
    assert audited["changed_at"]["before"] is None
    assert datetime.fromisoformat(audited["changed_at"]["after"]).tzinfo == UTC
    assert receipt.as_json()["targets"][0]["set:price"] == "12.50"


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"price": Decimal("10.01")}, "price_differs"),
        ({"currency": "eur"}, "currency_differs"),
        ({"tenant": "b"}, "missing"),
    ],
)
def test_an_approval_notices_what_an_ordinary_save_has_changed(changed, problem):
    good, bad = make_price(currency="EUR"), make_price(currency="EUR")
    targets = [target(good), target(bad)]
    Price.objects.filter(pk=bad.pk).update(**changed)

    assert problems(*targets) == [(bad.pk, problem)]

    assert Price.objects.get(pk=good.pk).price == Decimal("10.00")
    assert not Change.objects.exists()
    assert not Audit.objects.exists()


def test_the_update_itself_compares(monkeypatch):
    """Whatever was locked and read before: the row changes in between here, as it may where nothing can be locked."""
    row = make_price(currency="EUR")
    seen = read_rows(REPRICE, "acme", [row.pk], alias="default")
    Price.objects.filter(pk=row.pk).update(price=Decimal("11.00"))
    monkeypatch.setattr("receipts.field_changes.read_rows", lambda *args, **options: seen)
    planned = FieldTarget(row.pk, {name: value for name, value in target(row).items() if name != "id"})

    with pytest.raises(NotWritten):
        change_fields(REPRICE, "acme", [planned], alias="default")

    assert Price.objects.get(pk=row.pk).price == Decimal("11.00")


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("set:price", "12.505", "has more than 2 decimal places"),
        ("set:price", "1e3", "must be a number like 12.50, not '1e3'"),
        ("set:price", 12.5, "must be a number like 12.50, not 12.5"),
        ("set:price", "99999999999.00", "Ensure that there are no more than"),
        ("set:price", None, "is empty"),
        ("set:price", True, "must be a number"),
        ("set:valid_from", "1.2.2026", "must be a date like 2026-01-31"),
        ("set:valid_from", "2026-02-30", "must be a date like 2026-01-31"),
        ("currency", 1, "must be text"),
        ("price", "", "must be a number"),
    ],
)
def test_a_value_that_its_field_does_not_take_is_invalid_with_its_place(column, value, said):
    with pytest.raises(InvalidPlan) as caught:
        apply(target(make_price(currency="EUR")) | {column: value})

    (flaw,) = caught.value.flaws
    assert flaw.where == f"targets[0].{column}"
    assert said in flaw.problem


def test_a_target_of_another_shape_is_invalid():
    row = make_price(currency="EUR")
    without = {name: value for name, value in target(row).items() if name != "set:price"}

    for wrong in (without, target(row) | {"note": 1}, 5):
        with pytest.raises(InvalidPlan, match="must be a target with id, price, currency, set:price, set:valid_from"):
            apply(wrong)


def test_a_csv_has_the_compared_fields_and_set_columns():
    row = make_price(currency="EUR")
    text = f"id,price,currency,set:price,set:valid_from\n{row.pk},10.00,EUR,12.50,\n"

    plan = read_plan(text.encode(), name="p.csv", targets_max=10, change_id="CHG-1", tenant="acme", shape=REPRICE)
    assert apply(*plan.targets)

    assert Price.objects.values_list("price", "valid_from").get() == (Decimal("12.50"), None)
    with pytest.raises(InvalidPlan) as caught:
        read_plan(
            text.replace("12.50", "12,5").replace(",", ";").encode(),
            name="p.csv",
            targets_max=10,
            change_id="CHG-1",
            tenant="acme",
            shape=REPRICE,
        )
    assert caught.value.flaws


def test_reconciliation_compares_every_recorded_field():
    rows = [make_price(currency="EUR") for _ in range(3)]
    apply(*map(target, rows))
    Price.objects.filter(pk=rows[1].pk).update(price=Decimal("1.00"))
    Price.objects.filter(pk=rows[2].pk).delete()

    (found,) = reconcile(change_ids=["CHG-1"])

    assert [(item.id, item.category, item.fields) for item in found.items] == [
        (rows[0].pk, "match", ()),
        (rows[1].pk, "changed", ("price",)),
        (rows[2].pk, "missing", ()),
    ]
    assert f"{rows[1].pk}: changed: price 12.50 -> 1.00" in found.items[1].as_text()
    record_reconciliation(found, actor="ann")


def test_the_preview_and_new_targets_know_the_fields():
    row, other = make_price(currency="EUR"), make_price(currency="EUR", tenant="b")
    targets = [
        FieldTarget(pk, {name: value for name, value in target(row).items() if name != "id"})
        for pk in (row.pk, other.pk)
    ]
    Price.objects.filter(pk=row.pk).update(price=Decimal("11.00"))

    shown = preview_change(kind="reprice", tenant="acme", targets=targets)
    renewed = renew_targets(kind="reprice", tenant="acme", ids=[row.pk, other.pk])

    assert [one.problem for one in shown.rows] == ["price_differs", "missing"]
    assert shown.rows[0].as_problem().current["price"] == "11.00"
    assert renewed.left_out == ((other.pk, "missing"),)
    assert renewed.targets[0].values == {
        "price": "11.00",
        "currency": "EUR",
        "set:price": "11.00",
        "set:valid_from": None,
    }


@pytest.mark.django_db(transaction=True)
def test_a_stored_plan_of_such_a_kind_goes_its_way():
    row = make_price(currency="EUR")
    plan = store_plan(kind="reprice", change_id="CHG-1", tenant="acme", targets=[target(row)], author="ann")
    approve_plan(pk=plan.pk, approver="bob", digest=plan.digest)

    assert apply_plan(pk=plan.pk) is True

    assert Price.objects.get().price == Decimal("12.50")


def test_a_kind_may_compare_a_state_and_a_revision_and_set_what_it_compares():
    kind = ChangeType(
        name="requantify",
        model=OrderLine,
        compares=("revision", "qty", "item"),
        settable=("qty",),
        required_state=LineState.PENDING.value,
        tenant_field=None,
    )
    line = make_line(qty=10, item="a '\u017b")
    values = {"revision": 4, "qty": 10, "item": "a '\u017b", "set:qty": None}

    assert not change_fields(kind, "any", [FieldTarget(line.pk, values)], alias="default")
    assert OrderLine.objects.values_list("revision", "qty").get(pk=line.pk) == (5, None)
    stale = change_fields(kind, "any", [FieldTarget(line.pk, values)], alias="default")
    assert [one.problem for one in stale] == ["revision_differs"]
    OrderLine.objects.filter(pk=line.pk).update(revision=4, qty=10, state=LineState.ACCEPTED)
    stale = change_fields(kind, "any", [FieldTarget(line.pk, values)], alias="default")
    assert [one.problem for one in stale] == ["not_pending"]


def test_the_audit_of_a_plain_kind_still_needs_its_values():
    change = Change.objects.create(change_id="X", kind="cancel", tenant="acme", targets=[], digest="")

    with pytest.raises(IntegrityError), transaction.atomic():
        Audit.objects.create(change=change, target_id=1)
    assert connection.is_usable()


def test_what_is_hashed_is_one_form_on_every_database():
    row = make_price(pk=7, currency="EUR")
    apply(target(row, to="12.5"))

    stored = Change.objects.get()
    assert stored.targets == [
        {"currency": "EUR", "id": 7, "price": "10.00", "set:price": "12.50", "set:valid_from": "2026-02-01"}
    ]
    assert stored.digest == "4fdb25a42d414b3270c430164a4e10ab3195b26a3c1670851c7ca664c6de4809"
    # As verify.py recomputes it, without any of this.
    receipt = inspect_change(change_id="CHG-1").as_json()
    assert recomputed(json.loads(json.dumps(receipt, default=str))) == stored.digest


@pytest.mark.django_db(transaction=True)
def test_a_price_list_is_taken_back_by_a_plan_of_its_own():
    rows = [make_price(currency="EUR"), make_price(currency="PLN", price=Decimal("7.10"))]
    before = list(Price.objects.order_by("pk").values())
    apply(*map(target, rows))

    plan = revert_plan(change_id="CHG-1", author="ann")
    approve_plan(pk=plan.pk, approver="bob", digest=plan.digest)
    assert apply_plan(pk=plan.pk) is True

    assert list(Price.objects.order_by("pk").values()) == before
    assert (plan.kind, plan.change_id, plan.reason) == ("undo_reprice", "UNDO-CHG-1", "takes back CHG-1")
    (found,) = reconcile(change_ids=["UNDO-CHG-1"])
    assert found.is_match


@pytest.mark.django_db(transaction=True)
def test_nobody_writes_a_plan_that_takes_a_change_back_by_hand(tmp_path):
    row = make_price(currency="EUR")
    apply(target(row))
    plan = revert_plan(change_id="CHG-1", author="ann")
    forged = [{**plan.targets[0], "set:price": "0.01"}]

    with pytest.raises(InvalidPlan, match="takes a change back"):
        store_plan(kind="undo_reprice", change_id="X", tenant="acme", targets=plan.targets, author="eve")
    with pytest.raises(NotApproved, match="takes a change back"):
        edit_plan(pk=plan.pk, targets=forged, author="eve")
    for name, more in (("apply_batch", []), ("plan_store", ["--author", "eve"])):
        (tmp_path / "plan.json").write_text("{}")
        with pytest.raises(CommandError, match="takes a change back"):
            call_command(name, str(tmp_path / "plan.json"), "--kind", "undo_reprice", *more)


@pytest.mark.django_db(transaction=True)
def test_a_cancelled_line_is_taken_back_with_a_higher_revision():
    line = make_line()
    apply_change(kind="cancel", change_id="C", tenant="acme", targets=[plain_target(line)])

    plan = revert_plan(change_id="C", author="ann")

    apply_change(kind=plan.kind, change_id="U", tenant="acme", targets=plan.targets)
    assert OrderLine.objects.values_list("state", "revision", "qty").get() == ("pending", 6, 10)


def test_what_has_changed_since_is_not_taken_back():
    row, other = make_price(currency="EUR"), make_price(currency="EUR")
    apply(target(row), target(other))
    Price.objects.filter(pk=row.pk).update(valid_from=None)

    with pytest.raises(Conflict) as caught:
        revert_plan(change_id="CHG-1", author="ann")

    assert [(one.id, one.problem) for one in caught.value.problems] == [(row.pk, "valid_from_differs")]
    assert not StoredPlan.objects.exists()
    with pytest.raises(LookupError):
        revert_plan(change_id="CHG-9", author="ann")
    with pytest.raises(LookupError):
        revert_plan(change_id="CHG-1", author="ann", tenant="b")


def test_whatever_else_a_kind_with_a_state_sets_is_audited_by_name():
    kind = ChangeType(
        name="close",
        model=OrderLine,
        required_state=LineState.PENDING.value,
        sets={"state": LineState.ACCEPTED.value, "reason": "done", "handled": True},
    )
    line = make_line()
    change = Change.objects.create(change_id="C", kind="close", tenant="acme", targets=[], digest="")

    assert kind.row_of(plain_target(line)) == [line.pk, 4, 10]
    assert not change_fields(kind, "acme", [plain_target(line)], alias="default", change_id=change.pk)

    audited = Audit.objects.get()
    assert (audited.revision_before, audited.revision_after, audited.qty) == (4, 5, 10)
    assert (audited.state_before, audited.state_after) == ("pending", "accepted")
    assert audited.fields["reason"] == {"before": "", "after": "done"}
    assert audited.fields["handled"]["after"] is True
