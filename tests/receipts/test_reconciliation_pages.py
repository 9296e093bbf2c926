"""Reconcile now: recorded and current side by side, categories, the history, and what nobody declares."""

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from kwit.models import Action
from portal.models import OrderLine
from receipts import change_types as kinds
from receipts.models import Reconciliation
from receipts.pages import receipt_rows as contents
from tests.factories import make_line
from tests.receipts.kept import drifted, keep, make_receipt
from tests.receipts.pages import KEPT, LIST, text_of

pytestmark = pytest.mark.django_db


def test_reconcile_now_shows_recorded_and_current_side_by_side_with_what_differs_marked(root: Client) -> None:
    same, moved, gone = drifted()
    before = list(OrderLine.objects.order_by("pk").values())
    assert "Reconcile now" in text_of(root, f"{LIST}CHG-1/change/")

    answer = root.post(f"{LIST}CHG-1/reconcile/")
    page = root.get(answer.url)

    kept = Reconciliation.objects.get()
    assert (kept.match, kept.changed, kept.missing, kept.actor, kept.tenant) == (1, 1, 1, "root", "acme")
    section = page.context["detail"].sections[1]
    cells = {
        row.cells[0].text: [(str(cell.text), cell.is_marked) for cell in row.cells[2:]] for row in section.table.rows
    }
    assert cells == {
        same.pk: [(text, False) for text in ("5", "5", "10", "10", "cancelled", "cancelled")],
        moved.pk: [
            *[("5", False), ("6", True), ("10", False), ("3", True)],
            *[("cancelled", False), ("cancelled", False)],
        ],
        gone.pk: [
            *[("5", False), ("—", True), ("10", False), ("—", True)],
            *[("cancelled", False), ("—", True)],
        ],
    }
    assert [link.text for link in section.choices] == ["all: 3", "match: 1", "changed: 1", "missing: 1", "broken: 0"]
    body = page.content.decode()
    assert "Nothing here says by whom or why" in body
    assert f'datetime="{timezone.localtime(kept.taken_at).isoformat()}"' in body
    assert "<form" not in body[body.index('id="content-main"') :]  # there is nothing to revert with
    assert list(OrderLine.objects.order_by("pk").values()) == before
    action = Action.objects.get()
    assert (action.actor, action.name, action.scope, action.tenant) == ("root", "reconcile", "CHG-1", "acme")
    assert (action.outcome, action.note) == ("done", "1 match, 1 changed, 1 missing, 0 broken")


@pytest.mark.parametrize("category", ["match", "changed", "missing"])
def test_each_category_is_a_filter(root: Client, category: str) -> None:
    lines = dict(zip(("match", "changed", "missing"), drifted(), strict=True))
    kept = keep("CHG-1")

    page = root.get(f"{KEPT}{kept.pk}/change/", {"category": category})

    assert [row.cells[0].text for row in page.context["detail"].sections[1].table.rows] == [lines[category].pk]


def test_the_rows_of_a_large_reconciliation_come_in_pages(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receipts.pages.reconcile.ROWS_SHOWN", 3)
    lines = [make_line(state="cancelled", revision=5 + number % 2) for number in range(11)]
    # Above whatever id a test of SQL Server has reached.
    gone = 2**62
    make_receipt("CHG-1", ids=[*(line.pk for line in lines), gone])
    kept = keep("CHG-1")

    def walk(category: str) -> list[int]:
        seen, address = [], f"{KEPT}{kept.pk}/change/?category={category}"
        while address:
            section = root.get(address).context["detail"].sections[1]
            seen += [row.cells[0].text for row in section.table.rows]
            address = next((link.url for link in section.pages if link.text == "Next page"), "")
        return seen

    ids = [line.pk for line in lines]
    assert walk("") == [*ids, gone]
    assert walk("match") == ids[::2]
    assert walk("changed") == ids[1::2]
    assert walk("missing") == [gone]


def test_an_earlier_reconciliation_can_be_opened_as_it_was(root: Client) -> None:
    _, moved, _ = drifted()
    first = keep("CHG-1")
    OrderLine.objects.filter(pk=moved.pk).update(qty=2)
    keep("CHG-1")

    receipt, earlier = text_of(root, f"{LIST}CHG-1/change/"), root.get(f"{KEPT}{first.pk}/change/?category=changed")

    assert f"{KEPT}{first.pk}/change/" in receipt
    assert [cell.text for cell in earlier.context["detail"].sections[1].table.rows[0].cells][2:6] == [5, 6, 10, 3]


def test_a_long_history_is_cut_and_leads_to_all_of_it(root: Client) -> None:
    make_receipt("CHG-1", ids=[999])
    for _ in range(21):
        keep("CHG-1")

    page = text_of(root, f"{LIST}CHG-1/change/")

    assert "All of them" in page
    assert len(root.get(f"{KEPT}?change_id=CHG-1").context["table"].rows) == 21


def test_a_receipt_of_a_kind_that_nobody_declares_any_more_says_so(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_receipt("CHG-1", ids=[999])
    kept = keep("CHG-1")
    monkeypatch.setattr(kinds, "_registered", {})

    page = text_of(root, f"{LIST}CHG-1/change/")
    answer = root.post(f"{LIST}CHG-1/reconcile/", follow=True)

    assert "declares the kind of change “cancel” any more" in page
    assert "/reconcile/" not in page
    assert answer.status_code == 200
    assert next(iter(map(str, answer.context["messages"]))).startswith("No app of this site declares")
    assert root.get(f"{KEPT}{kept.pk}/change/").status_code == 200
    assert (Reconciliation.objects.count(), Action.objects.get().outcome) == (1, "failed")


def test_a_stored_item_is_read_once_and_the_audit_by_range(root: Client, django_assert_max_num_queries: Any) -> None:
    make_receipt("CHG-1", ids=range(1, 60))
    kept = keep("CHG-1")

    with django_assert_max_num_queries(8):
        root.get(f"{KEPT}{kept.pk}/change/")
    assert len(contents.items_after(kept, "missing", 50)) == 9
