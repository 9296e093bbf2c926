"""A window on the control table, the run log and the queues: to look, not to touch."""

from typing import cast

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

from .models import Control, MailQueue, RunLog, TaskQueue

#: What a list says it has when nobody has counted: a COUNT(*) over ten million rows would take longer than the page.
UNCOUNTED = 10_000


class UncountedPaginator(Paginator):  # type: ignore[type-arg]
    """Pages through a table without counting it."""

    @cached_property
    def count(self) -> int:
        """Return how many rows there are up to ``UNCOUNTED``, looking at no more than these."""
        rows = cast("QuerySet[Model]", self.object_list)
        return rows.order_by().values("pk")[:UNCOUNTED].count()


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Lists and shows rows; adds, changes and deletes none."""

    actions = None
    list_per_page = 50
    show_full_result_count = False
    paginator = UncountedPaginator

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Rows come from a pass."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody edits what was logged."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody deletes what was logged."""
        return False


@admin.register(Control)
class ControlAdmin(ReadOnlyAdmin):
    """Which events have had their message prepared."""

    list_display = ("kind", "key", "key2", "language", "recipients", "created_at")
    list_filter = ("kind",)
    search_fields = ("=key",)
    ordering = ("-id",)


@admin.register(RunLog)
class RunLogAdmin(ReadOnlyAdmin):
    """What each pass and each of its steps did."""

    list_display = ("started_at", "step", "outcome", "candidates", "mails", "tasks", "ms", "first_line", "host", "pid")
    list_filter = ("outcome", "step")
    ordering = ("-started_at", "-id")

    @admin.display(description="error")
    def first_line(self, row: RunLog) -> str:
        """Return the beginning of the error; the row's own page has it all."""
        return (row.error or "").split("\n", 1)[0][:120]


class QueueAdmin(ReadOnlyAdmin):
    """What the two queues have in common: a row belongs to an event."""

    list_select_related = ("control",)
    ordering = ("-id",)

    @admin.display(description="event")
    def event(self, row: MailQueue | TaskQueue) -> str:
        """Return kind and key."""
        return str(row.control)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        """Join the event, on a row's own page too."""
        return super().get_queryset(request).select_related("control")


@admin.register(MailQueue)
class MailQueueAdmin(QueueAdmin):
    """What is to be sent, and what is blocked and why."""

    list_display = ("id", "event", "state", "subject", "recipients", "problem", "due_at")
    list_filter = ("state",)


@admin.register(TaskQueue)
class TaskQueueAdmin(QueueAdmin):
    """What people have to do."""

    list_display = ("id", "event", "title", "assignee", "created_at", "done_at")
