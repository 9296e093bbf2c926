"""Reconciliation: per id, in one snapshot, naming no cause and repairing nothing."""

import pytest

from portal.models import OrderLine
from receipts import change_types as kinds
from receipts.api import UnknownKind, inspect_change, reconcile, record_reconciliation
from receipts.models import Change, Reconciliation
from receipts.reconcile import Row
from tests.factories import make_line
from tests.receipts.plain import cancel, target

pytestmark = pytest.mark.django_db


def result(change_id="CHG-1"):
    """Reconcile one change."""
    (only,) = reconcile(change_ids=[change_id])
    return only


def categories(change_id="CHG-1"):
    """Return id -> category."""
    return {item.id: item.category for item in result(change_id).items}


def test_each_id_is_a_match_changed_or_missing():
    same, moved, gone = make_line(), make_line(), make_line()
    cancel(*map(target, (same, moved, gone)))
    OrderLine.objects.filter(pk=moved.pk).update(qty=3, revision=6)
    OrderLine.objects.filter(pk=gone.pk).delete()
    rows = list(OrderLine.objects.order_by("pk").values())

    found = result()

    assert (found.match, found.changed, found.missing, found.is_match) == (1, 1, 1, False)
    assert [(item.id, item.category, item.fields) for item in found.items] == [
        (same.pk, "match", ()),
        (moved.pk, "changed", ("revision", "qty")),
        (gone.pk, "missing", ()),
    ]
    assert found.items[1].recorded == Row(5, 10, "cancelled")
    assert found.items[1].current == Row(6, 3, "cancelled")
    assert found.items[2].current is None
    assert list(OrderLine.objects.order_by("pk").values()) == rows


def test_a_row_changed_and_changed_back_is_changed():
    """R16: same qty, same state, higher revision."""
    line = make_line()
    cancel(target(line))
    OrderLine.objects.filter(pk=line.pk).update(revision=7)

    assert categories() == {line.pk: "changed"}
    assert result().items[0].fields == ("revision",)


def test_a_deleted_row_is_missing_however_many_rows_there_are():
    """R17: another cancelled row with the same values is nobody's replacement."""
    line = make_line()
    cancel(target(line))
    OrderLine.objects.filter(pk=line.pk).delete()
    make_line(state="cancelled", revision=5)

    assert categories() == {line.pk: "missing"}


def test_a_row_given_to_another_tenant_is_missing_like_no_row():
    line = make_line()
    cancel(target(line))
    OrderLine.objects.filter(pk=line.pk).update(tenant="other")

    assert categories() == {line.pk: "missing"}
    assert result().items[0].current is None


def test_a_reinserted_row_is_compared_by_what_it_says():
    line = make_line()
    cancel(target(line))
    OrderLine.objects.filter(pk=line.pk).delete()
    make_line(pk=line.pk, revision=5, state="cancelled", qty=None)

    assert result().items[0].fields == ("qty",)


def test_one_receipt_takes_as_many_statements_whatever_its_size(django_assert_num_queries):
    cancel(*(target(make_line()) for _ in range(30)))

    # Its header, its targets, and its audit rows beside its rows.
    with django_assert_num_queries(3):
        assert result().match == 30


def test_all_receipts_come_one_by_one_in_pages():
    for number in range(5):
        cancel(target(make_line()), change_id=f"CHG-{number}")

    assert [row[0] for row in Change.objects.in_pages(page_rows=2)] == [f"CHG-{number}" for number in range(5)]
    assert [one.change_id for one in reconcile()] == [f"CHG-{number}" for number in range(5)]


def test_a_change_id_without_a_receipt_is_an_error_before_anything_is_compared():
    cancel(target(make_line()))

    with pytest.raises(LookupError, match="'CHG-2', 'CHG-3'"):
        reconcile(change_ids=["CHG-1", "CHG-2", "CHG-3"])


def test_a_receipt_of_a_kind_that_nobody_declares_any_more_is_an_error(monkeypatch):
    cancel(target(make_line()))
    monkeypatch.setattr(kinds, "_registered", {})

    with pytest.raises(UnknownKind):
        result()
    assert inspect_change(change_id="CHG-1").kind == "cancel"


def test_inspecting_for_another_tenant_finds_nothing():
    cancel(target(make_line()))

    assert inspect_change(change_id="CHG-1", tenant="acme") is not None
    assert inspect_change(change_id="CHG-1", tenant="other") is None
    assert inspect_change(change_id="CHG-2") is None


def test_results_can_be_kept_so_that_drift_has_a_history():
    line, other = make_line(), make_line()
    cancel(target(line), target(other))
    record_reconciliation(result(), actor="ann")
    OrderLine.objects.filter(pk=line.pk).update(qty=11)

    record_reconciliation(result(), actor="bob")

    kept = Reconciliation.objects.order_by("pk").values_list("actor", "match", "changed", "missing", "items")
    assert list(kept) == [
        ("ann", 2, 0, 0, []),
        (
            "bob",
            1,
            1,
            0,
            [
                {
                    "id": line.pk,
                    "category": "changed",
                    "recorded": {"revision": 5, "qty": 10, "state": "cancelled"},
                    "current": {"revision": 5, "qty": 11, "state": "cancelled"},
                }
            ],
        ),
    ]
