"""What the API tells of this engine: receipts, plans, stored reconciliations."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from desk.admins import WindowAdmin
from desk.encoding import as_command
from desk.filters import Filter, equals
from desk.problems import not_found
from desk.resources import Column, Resource, array_of, model_columns, register
from desk.tenants import within

from ..models import Change, Reconciliation, StoredPlan
from ..reconcile import inspect_change


class Plain(WindowAdmin):
    """Stands in where the model has no page of the desk: the same scope, by key."""

    tenant_lookup = "tenant"
    filters = (Filter("change_id", "Change", equals("change_id")),)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows of the user's tenants."""
        return within(self.model._default_manager.all(), request.user, self.tenant_lookup)


class PlainOfChange(Plain):
    """The same where the tenant is that of the receipt."""

    tenant_lookup = "change__tenant"


class Paged(Resource):
    """Rows of a model that may have no page of the desk."""

    @property
    def window(self) -> WindowAdmin:
        """The admin class that the rows come from."""
        found = admin.site.get_model_admin(self.model)
        plain = PlainOfChange if self.model is Reconciliation else Plain
        return found if isinstance(found, WindowAdmin) else plain(self.model, admin.site)


# The page may leave out what the list here has, and each row would then fetch it by itself: so ``defer(None)`` first.


class Receipts(Paged):
    """Receipts as committed."""

    name = "receipts"
    about = "Receipts; a receipt's own address has its targets and audit rows, as inspect_change --json prints them."
    model = Change
    columns = model_columns(Change, "change_id", "kind", "tenant", "digest", "actor", "reason", "created_at")
    details = (
        Column("targets", array_of({"type": "object"}), lambda row: row.targets),
        Column("audit", array_of({"type": "object"}), lambda row: []),
    )

    def listed(self, request: HttpRequest, asked: Any) -> QuerySet[Any]:
        """Return the page's rows without their targets, which may be ten thousand each."""
        return super().listed(request, asked).defer(None).defer("targets")

    def one(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return a receipt as committed; two queries."""
        found = inspect_change(change_id=row.pk, tenant=row.tenant)
        if found is None:
            raise not_found()
        return as_command(found.as_json())  # type: ignore[no-any-return]


class Reconciliations(Paged):
    """Stored comparisons."""

    name = "reconciliations"
    about = "Stored reconciliations: how many targets matched, changed, were missing; its own address has which."
    model = Reconciliation
    columns = model_columns(Reconciliation, "id", "change_id", "taken_at", "actor", "match", "changed", "missing")
    details = model_columns(Reconciliation, "items")

    def listed(self, request: HttpRequest, asked: Any) -> QuerySet[Any]:
        """Return the page's rows; the list has no items."""
        return super().listed(request, asked).defer(None).defer("items")


class Plans(Paged):
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

    def listed(self, request: HttpRequest, asked: Any) -> QuerySet[Any]:
        """Return the page's rows; the list has neither targets nor problems."""
        return super().listed(request, asked).defer(None).defer("targets", "problems")


for source in (Receipts(), Reconciliations(), Plans()):
    register(source)
