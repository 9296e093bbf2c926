"""What the API tells of this engine: receipts, plans, stored reconciliations."""

from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest

from kwit.api.encoding import as_command
from kwit.api.problems import not_found
from kwit.api.resources import Column, Resource, array_of, model_columns, register

from ..models import Change, Reconciliation, StoredPlan
from ..receipt import inspect_change

# The page may leave out what the list here has, and each row would then fetch it by itself: so ``defer(None)`` first.


class Receipts(Resource):
    """Receipts as committed."""

    name = "receipts"
    about = "Receipts; a receipt's own address has its targets and audit rows, as inspect_change --json prints them."
    model = Change
    columns = model_columns(Change, "change_id", "kind", "tenant", "digest", "actor", "reason", "created_at")
    details = (
        Column("targets", array_of({"type": "object"}), lambda row: row.targets),
        Column("audit", array_of({"type": "object"}), lambda row: []),
        Column("problems", array_of({"type": "object"}), lambda row: []),
    )

    def shown(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """Return receipts without their targets, which may be many; one query, because the page may list verdicts."""
        found = Change.objects.defer("targets").in_bulk([row.pk for row in rows])
        return super().shown([found[row.pk] for row in rows])

    def one(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return a receipt as committed; two queries."""
        found = inspect_change(change_id=row.pk, tenant=row.tenant)
        if found is None:
            raise not_found()
        return as_command(found.as_json())  # type: ignore[no-any-return]


class Reconciliations(Resource):
    """Stored comparisons."""

    name = "reconciliations"
    about = (
        "Stored reconciliations: how many targets matched, changed, were missing or broken; its own address has which."
    )
    model = Reconciliation
    columns = model_columns(
        Reconciliation, "id", "change_id", "tenant", "taken_at", "actor", "match", "changed", "missing", "broken"
    )
    details = model_columns(Reconciliation, "items")

    def list_queryset(self, request: HttpRequest, asked: Any) -> QuerySet[Any]:
        """Return the page's rows; the list has no items."""
        return super().list_queryset(request, asked).defer(None).defer("items")


class Plans(Resource):
    """Plans and what became of them."""

    name = "plans"
    about = "Stored plans: draft, approved, applied or refused; its own address has the targets and the problems."
    model = StoredPlan
    columns = model_columns(
        StoredPlan,
        *("id", "change_id", "kind", "tenant", "state", "author", "approver", "reason"),
        *("digest", "approved_digest", "created_at", "approved_at", "decided_at"),
    )
    details = model_columns(StoredPlan, "targets", "problems")

    def list_queryset(self, request: HttpRequest, asked: Any) -> QuerySet[Any]:
        """Return the page's rows; the list has neither targets nor problems."""
        return super().list_queryset(request, asked).defer(None).defer("targets", "problems")


for source in (Receipts(), Reconciliations(), Plans()):
    register(source)
