"""Registers the pages; they need the app ``desk``, without which the engine runs as before."""

from typing import Any

from django.apps import apps
from django.contrib import admin
from django.http import HttpRequest

from .models import StoredPlan

if apps.is_installed("desk"):
    from .pages import panels, receipts, reconciling, runs  # noqa: F401


class ReadOnly(admin.ModelAdmin):  # type: ignore[type-arg] # Django cannot subscript it at run time
    """Shows rows and lets nobody touch them."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(StoredPlan)
class StoredPlanAdmin(ReadOnly):
    list_display = ("change_id", "kind", "tenant", "state", "author", "approver", "created_at")
