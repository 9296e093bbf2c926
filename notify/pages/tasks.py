"""The task queue: what people have to do, and who has done it when."""

import json
from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kwit.admin.base import ReadOnlyAdmin
from kwit.admin.components import NONE, Badge, Cell, Detail, Fact, Row, Section
from kwit.admin.filters import Filter, FlagFilter, UuidFilter, equals

from ..messages.values import readable
from ..models import Control, RunLog, TaskQueue
from .actions import TASK_ACTIONS
from .badges import age, line_of

DONE = Badge(gettext_lazy("done"), "✓", "good")
OPEN = Badge(gettext_lazy("open"), "…", "busy")


@admin.register(TaskQueue)
class TaskQueueAdmin(ReadOnlyAdmin):
    """What people have to do."""

    tenant_lookup = "tenant"
    intro = gettext_lazy("Newest first.")
    head = (
        gettext_lazy("task"),
        gettext_lazy("event"),
        gettext_lazy("state"),
        gettext_lazy("title"),
        gettext_lazy("assignee"),
        gettext_lazy("created"),
        gettext_lazy("age"),
        gettext_lazy("done"),
        gettext_lazy("by"),
    )
    filters = (
        FlagFilter("open", gettext_lazy("Only open"), lambda rows, value: rows.filter(done_at__isnull=True)),
        Filter("assignee", gettext_lazy("Assignee"), equals("assignee")),
        UuidFilter("pass", gettext_lazy("Pass"), equals("pass_id")),
    )
    list_actions = TASK_ACTIONS

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Join the event."""
        return super().get_queryset(request).select_related("control")

    def rows(self, request: HttpRequest, found: Sequence[Any]) -> list[Row]:
        """Return one line per task."""
        return [
            Row(cells=self.cells(request, task), key=str(task.pk), name=f"{task.pk} {task.title}") for task in found
        ]

    def cells(self, request: HttpRequest, task: TaskQueue) -> list[Cell]:
        """Return a task's cells."""
        return [
            Cell(text=task.pk, url=self.url("change", task.pk)),
            Cell(text=task.control, url=self.url_if_allowed(request, Control, "change", task.control_id)),
            Cell(badge=DONE if task.done_at else OPEN),
            Cell(text=line_of(task.title)),
            Cell(text=task.assignee),
            Cell(at=task.created_at),
            Cell(text=age(task.created_at, now=task.done_at or timezone.now())),
            Cell(at=task.done_at) if task.done_at else Cell(text=NONE),
            Cell(text=task.done_by),
        ]

    def detail(self, request: HttpRequest, row: Any) -> Detail:
        """Return a task in full."""
        facts = [
            Fact(name=name, cell=cell) for name, cell in zip(self.head[1:], self.cells(request, row)[1:], strict=True)
        ]
        facts.append(Fact(name=_("due"), cell=Cell(at=row.due_at) if row.due_at else Cell(text=NONE)))
        if row.pass_id:
            url = self.url_if_allowed(request, RunLog, "pass", row.pass_id)
            facts.append(Fact(name=_("prepared by pass"), cell=Cell(text=row.pass_id, is_code=True, url=url)))
        values = json.dumps(readable(row.payload), ensure_ascii=False, indent=2)
        sections = [Section(facts=facts), Section(title=_("Values"), text=values)]
        return Detail(title=row.title, badge=DONE if row.done_at else OPEN, sections=sections)
