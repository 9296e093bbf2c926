"""Receipts as they stand in the database, many at once, and people who may do what with them."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User

from kwit.models import Membership
from portal.models import OrderLine
from receipts.api import reconcile, record_reconciliation
from receipts.models import Audit, Change, Reconciliation
from receipts.plans.canonical import Target, canonical_targets, digest
from tests.browser.story import make_user
from tests.factories import NOW, make_line, make_many
from tests.receipts.plain import cancel, target

VIEW = ("receipts.view_change", "receipts.view_reconciliation")
WORK = (*VIEW, "receipts.reconcile", "receipts.export")
ALL = "kwit.see_all_tenants"


def make_person(name: str, *permissions: str, tenants: Iterable[str] = ()) -> User:
    """Make somebody with these permissions who belongs to these tenants."""
    user = make_user(name, *permissions)
    for tenant in tenants:
        Membership.objects.create(user=user, tenant=tenant)
    return user


def make_receipt(
    change_id: str,
    *,
    tenant: str = "acme",
    kind: str = "cancel",
    at: datetime = NOW,
    ids: Iterable[int] = (1,),
    **fields: Any,
) -> Change:
    """Make a genuine receipt of rows in revision 4 with 10 pieces, without the rows."""
    targets = [Target(id=pk, revision=4, qty=10) for pk in ids]
    content = digest(change_id=change_id, kind=kind, tenant=tenant, targets=canonical_targets(targets))
    values = {"kind": kind, "tenant": tenant, "created_at": at, "digest": content} | fields
    change = Change(change_id=change_id, **{"targets": [target._asdict() for target in targets]} | values)
    change.save(force_insert=True)
    steps = {"revision_before": 4, "revision_after": 5, "qty": 10, "state_before": "pending"}
    make_many(Audit(change=change, target_id=one.id, state_after="cancelled", **steps) for one in targets)
    return change


def keep(change_id: str, *, changed: int = 0, actor: str = "ann") -> Reconciliation:
    """Keep a reconciliation of a receipt with so many rows changed; the others match."""
    (result,) = reconcile(change_ids=[change_id])
    return record_reconciliation(result, actor=actor)


def drifted() -> tuple[OrderLine, OrderLine, OrderLine]:
    """Commit CHG-1 of acme over three rows; one stays, one is changed, one goes."""
    same, moved, gone = make_line(), make_line(), make_line()
    cancel(*map(target, (same, moved, gone)), actor="olga", reason="sold out")
    OrderLine.objects.filter(pk=moved.pk).update(qty=3, revision=6)
    OrderLine.objects.filter(pk=gone.pk).delete()
    return same, moved, gone
