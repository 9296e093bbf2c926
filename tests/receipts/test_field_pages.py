"""Plans and receipts of kinds that name their fields, on the pages: each field by its name."""

from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from portal.models import Price
from receipts.api import approve_plan, reconcile, record_reconciliation, store_plan
from receipts.models import Change, StoredPlan
from tests.receipts.plan_people import ALL, PLANS, address, decide, said, send, signed_in, text_of

pytestmark = pytest.mark.django_db
RECEIPT = "/admin/receipts/change/CHG-1/"
EVERYTHING = (*ALL, "receipts.reconcile", "receipts.export", "receipts.view_reconciliation")


def make_price(**more: Any) -> Price:
    """Make a price of acme."""
    return Price.objects.create(
        **({"tenant": "acme", "article": "<b>bolt</b>", "price": Decimal("10.00"), "currency": "EUR"} | more)
    )


def stored(*rows: Price, **more: Any) -> StoredPlan:
    """Store ann's price list for these rows as they are."""
    targets: Any = [
        {"id": row.pk, "price": "10.00", "currency": "EUR", "set:price": "12.50", "set:valid_from": None}
        for row in rows
    ]
    return store_plan(
        **({"kind": "reprice", "change_id": "CHG-1", "tenant": "acme", "targets": targets, "author": "ann"} | more)
    )


def test_the_approver_sees_label_compared_fields_and_before_and_after() -> None:
    bob = signed_in("bob", *EVERYTHING)
    row, changed, foreign = make_price(), make_price(), make_price(tenant="b", article="secret")
    plan = stored(row, changed, foreign)
    Price.objects.filter(pk=changed.pk).update(price=Decimal("11.00"))

    page = text_of(bob, address(plan))

    assert "&lt;b&gt;bolt&lt;/b&gt;" in page
    assert "secret" not in page
    assert "10.00 → 12.50" in page
    assert "10.00 ≠ 11.00" in page
    assert "price differs" in page
    csv = bob.get(address(plan, "targets.csv").rstrip("/")).content.decode("utf-8-sig")
    assert csv.splitlines()[0] == '"id","currency","price","set:price","set:valid_from"'
    assert csv.splitlines()[1] == f'"{row.pk}","EUR","10.00","12.50",""'


def test_a_price_list_is_uploaded_approved_and_applied_and_its_receipt_shows_the_fields() -> None:
    ann, bob = signed_in("ann", *EVERYTHING), signed_in("bob", *EVERYTHING)
    row = make_price()
    template = ann.get(f"{PLANS}template.csv", {"kind": "reprice"}).content.decode()
    assert template == "id,price,currency,set:price,set:valid_from\r\n"
    assert ann.get(f"{PLANS}template.csv", {"kind": "nothing"}).status_code == 404

    answer = send(ann, template + f"{row.pk},10.00,EUR,12.50,2026-02-01\r\n", kind="reprice")
    assert answer.status_code == 302, answer.context["problems"]
    plan = StoredPlan.objects.get()
    decide(bob, plan, "approve")
    assert said(decide(bob, plan, "apply")).startswith("Applied.")

    page = text_of(bob, f"{RECEIPT}change/")
    assert "10.00 → 12.50" in page
    for shape in ("csv", "json", "print"):
        assert "12.50" in document(bob, shape)
    Price.objects.update(price=Decimal("1.00"))
    (found,) = reconcile(change_ids=["CHG-1"])
    kept = record_reconciliation(found, actor="ann")
    page = text_of(bob, f"/admin/receipts/reconciliation/{kept.pk}/change/")
    assert "price 12.50" in page
    assert "price 1.00" in page


def document(client: Client, shape: str) -> str:
    """Return a receipt in a form."""
    answer = client.get(f"{RECEIPT}export/{shape}/")
    content = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return str(content.decode())


def test_a_refused_attempt_shows_what_was_found() -> None:
    bob = signed_in("bob", *EVERYTHING)
    row, good = make_price(), make_price()
    plan = stored(row, good)
    approve_plan(pk=plan.pk, approver="bob", digest=plan.digest)
    Price.objects.filter(pk=row.pk).update(currency="PLN")
    decide(bob, plan, "apply")

    page = text_of(bob, address(plan))

    assert "EUR ≠ PLN" in page
    assert "currency differs" in page
    assert not Change.objects.exists()
