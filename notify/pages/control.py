"""The control table: which events have had their message prepared, by which pass, and what became of it."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kwit.admin.base import ReadOnlyAdmin
from kwit.admin.components import NONE, Cell, Detail, Fact, Link, Row, Section, Table
from kwit.admin.filters import ChoiceFilter, FilterValues, NumberFilter, equals
from kwit.people.tenants import of_model, tenants_of

from ..explain.messages import say_problem
from ..models import Control, MailQueue, RunLog, TaskQueue
from .badges import STATES, addressees, kinds
from .explain import explain_page, explain_url
from .keys import KeyFilter, key_shown, of_key

#: Messages shown on an event's page; a kind makes one mail and one task.
MESSAGES_MAX = 20


@admin.register(Control)
class ControlAdmin(ReadOnlyAdmin):
    """Which events have had their message prepared."""

    tenant_lookup = "tenant"
    names_tenants = True
    intro = gettext_lazy(
        "One line per event that has had its message prepared. Search by kind and key; the event's page leads to its "
        "messages and to the pass that prepared them."
    )
    head = (
        gettext_lazy("event"),
        gettext_lazy("kind"),
        gettext_lazy("key"),
        gettext_lazy("key2"),
        gettext_lazy("language"),
        gettext_lazy("recipients"),
        gettext_lazy("prepared"),
    )
    numbers = frozenset({2, 3})
    filters = (
        ChoiceFilter("kind", gettext_lazy("Kind"), equals("kind"), choices=kinds),
        KeyFilter("key", gettext_lazy("Key"), of_key),
        NumberFilter("key2", gettext_lazy("Key 2"), lambda rows, value: rows),
    )

    def list_queryset(self, request: HttpRequest, asked: FilterValues) -> Any:
        """Return the rows; a key alone is sought under every kind of the site: the index begins with the kind."""
        rows = self.get_queryset(request)
        if "key2" in asked.values and "key" in asked.values:
            rows = rows.filter(key2=asked.values["key2"])
        if "key" in asked.values and "kind" not in asked.values:
            rows = rows.filter(kind__in=[kind for kind, _word in kinds()])
        return rows

    def order_for(self, asked: FilterValues) -> Sequence[str]:
        """Return the unique index's order when kind or key are given, else newest first."""
        if "key" in asked.values:
            return ("kind", "key", "key2")
        return ("-key", "-key2") if "kind" in asked.values else ("-pk",)

    def order_of(self, request: HttpRequest, asked: FilterValues) -> Sequence[str]:
        """Return newest first for members of tenants: their index goes by time, not by kind."""
        is_member = tenants_of(request.user) is not None
        return ("-pk",) if is_member and "key" not in asked.values else self.order_for(asked)

    def get_urls(self) -> list[URLPattern]:
        """Add the page that explains an event."""
        view = self.admin_site.admin_view(self.explain_view)
        return [path("explain/", view, name=self.url_name("explain")), *super().get_urls()]

    def links(self, request: HttpRequest) -> Sequence[Link]:
        """Return the way to the explanations."""
        url = explain_url(self, request)
        return [Link(_("Why was, or was not, somebody notified?"), url)] if url else []

    def explain_view(self, request: HttpRequest) -> HttpResponse:
        """Tell why an event was or was not notified."""
        return explain_page(self, request)

    def rows(self, request: HttpRequest, found: Sequence[Any]) -> list[Row]:
        """Return one line per event."""
        return [Row(cells=self.cells(row), key=str(row.pk), name=str(row)) for row in found]

    def cells(self, row: Control) -> list[Cell]:
        """Return an event's cells."""
        return [
            Cell(text=row, url=self.url("change", row.pk)),
            Cell(text=row.kind),
            Cell(text=key_shown(row), is_number=not row.original_key),
            Cell(text=row.key2, is_number=True),
            Cell(text=row.language),
            Cell(text=row.recipients),
            Cell(at=row.created_at),
        ]

    def detail(self, request: HttpRequest, row: Any) -> Detail:
        """Return an event with its messages and its pass."""
        mails = list(of_model(request.user, MailQueue).filter(control=row).order_by("pk")[:MESSAGES_MAX])
        tasks = list(of_model(request.user, TaskQueue).filter(control=row).order_by("pk")[:MESSAGES_MAX])
        facts = [Fact(name=name, cell=cell) for name, cell in zip(self.head[1:], self.cells(row)[1:], strict=True)]
        facts += self.pass_facts(request, [*mails, *tasks])
        sections = [Section(facts=facts)]
        if mails:
            sections.append(Section(title=_("Mails"), table=self.mail_table(request, mails)))
        if tasks:
            sections.append(Section(title=_("Tasks"), table=self.task_table(request, tasks)))
        if not mails and not tasks:
            text = _("No message was prepared: the event was marked by a baseline, or by plain SQL.")
            sections.append(Section(title=_("Messages"), text=text))
        url = explain_url(self, request, kind=row.kind, key=row.key, key2=row.key2)
        links = [Link(_("Explain"), url)] if url else []
        return Detail(title=str(row), sections=sections, links=links)

    def pass_facts(self, request: HttpRequest, messages: Sequence[MailQueue | TaskQueue]) -> list[Fact]:
        """Return the way to the pass that prepared the messages."""
        pass_id = next((message.pass_id for message in messages if message.pass_id), None)
        if pass_id is None:
            return []
        url = self.url_if_allowed(request, RunLog, "pass", pass_id)
        return [Fact(name=_("prepared by pass"), cell=Cell(text=pass_id, is_code=True, url=url))]

    def mail_table(self, request: HttpRequest, mails: Sequence[MailQueue]) -> Table:
        """Return an event's mails."""
        head = [_("mail"), _("state"), _("subject"), _("recipients"), _("problem"), _("due")]
        rows = [
            Row(
                cells=[
                    Cell(text=mail.pk, url=self.url_if_allowed(request, MailQueue, "change", mail.pk)),
                    Cell(badge=STATES[mail.state]),
                    Cell(text=mail.subject),
                    Cell(text=addressees(mail.recipients)),
                    Cell(text=say_problem(mail)),
                    Cell(at=mail.due_at),
                ]
            )
            for mail in mails
        ]
        return Table(head=head, rows=rows)

    def task_table(self, request: HttpRequest, tasks: Sequence[TaskQueue]) -> Table:
        """Return an event's tasks."""
        head = [_("task"), _("title"), _("assignee"), _("done"), _("by")]
        rows = [
            Row(
                cells=[
                    Cell(text=task.pk, url=self.url_if_allowed(request, TaskQueue, "change", task.pk)),
                    Cell(text=task.title),
                    Cell(text=task.assignee),
                    Cell(at=task.done_at) if task.done_at else Cell(text=NONE),
                    Cell(text=task.done_by),
                ]
            )
            for task in tasks
        ]
        return Table(head=head, rows=rows)
