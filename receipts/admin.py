"""A window on receipts, not a door."""

from typing import Any

from django.apps import apps
from django.contrib import admin
from django.http import HttpRequest

from .models import Audit, Change, Reconciliation


class ReadOnly(admin.ModelAdmin):  # type: ignore[type-arg] # Django cannot subscript it at run time
    """Shows rows and lets nobody touch them."""

    show_full_result_count = False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # These pages know no tenants, so they are for those who see all.
        sees_all: bool = request.user.has_perm("desk.see_all_tenants")
        return sees_all and super().has_view_permission(request, obj)

    def get_queryset(self, request: HttpRequest) -> Any:
        # A row that somebody may not see is answered as one that is not there, on every page.
        rows = super().get_queryset(request)
        return rows if request.user.has_perm("desk.see_all_tenants") else rows.none()

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Change)
class ChangeAdmin(ReadOnly):
    list_display = ("change_id", "kind", "tenant", "actor", "created_at")


@admin.register(Audit)
class AuditAdmin(ReadOnly):
    list_display = ("change_id", "target_id", "revision_before", "revision_after", "qty", "state_before", "state_after")


@admin.register(Reconciliation)
class ReconciliationAdmin(ReadOnly):
    list_display = ("change_id", "taken_at", "match", "changed", "missing")


if apps.is_installed("desk"):
    from .pages import api, measures, plans  # noqa: F401
