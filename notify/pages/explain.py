"""Why was, or was not, somebody notified? The engine's sentences for an event, found by kind and key."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kwit.admin.base import ReadOnlyAdmin
from kwit.admin.components import Badge, Cell, Fact, Row, Section, Table
from kwit.admin.filters import ChoiceFilter, Filter, NumberFilter, equals, filter_controls, parse_filters
from kwit.people.tenants import of_model, tenants_of

from ..explain.event import EventExplanation, explain_event
from ..models import KIND_LENGTH_MAX, Control, MailQueue, MailState, RunLog, TaskQueue
from .badges import STATES, kinds
from .keys import KeyFilter, of_key

#: Events of one key explained together; of more, their names are listed.
EXPLAINED_MAX = 10
#: Events listed when a key has many.
LISTED_MAX = 200
MAIL_PERMISSION = "notify.view_mailqueue"
NOTIFIED = Badge(gettext_lazy("notified"), "✓", "good")
BASELINE = Badge(gettext_lazy("never: baseline"), "○", "idle")
#: The state that the answer shows when an event has several mails: what needs a person comes first.
ANSWERS = (
    *(MailState.UNCERTAIN, MailState.FAILED, MailState.BLOCKED, MailState.PARTIAL, MailState.SENDING),
    *(MailState.QUEUED, MailState.SENT),
)
NOT_NOTIFIED = Badge(gettext_lazy("not notified"), "○", "idle")


def explain_url(admin: ReadOnlyAdmin, request: HttpRequest, **query: Any) -> str:
    """Return the address of an event's explanation; empty when this user may not read it."""
    return admin.url_if_allowed(request, Control, "explain", **query) if request.user.has_perm(MAIL_PERMISSION) else ""


def explain_page(admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """Return the page that asks for kind and key and explains it. Raises: PermissionDenied."""
    # The explanation quotes mails.
    if not admin.has_view_permission(request) or not request.user.has_perm(MAIL_PERMISSION):
        raise PermissionDenied
    filters = filters_for(request.GET.get("kind", ""))
    asked = parse_filters(filters, request.GET)
    is_asked = not asked.errors and {"kind", "key"} <= asked.values.keys()
    context = admin.context(
        request,
        title=_("Why was, or was not, somebody notified?"),
        intro=_("Give the kind of the event and its key, for example the number of the row that it is about."),
        controls=filter_controls(filters, asked),
        sections=sections_of(admin, request, asked.values) if is_asked else [],
    )
    return TemplateResponse(request, "notify/pages/explain.html", context)


def filters_for(given: str) -> tuple[Filter, ...]:
    """Return what is asked; a link from a row of a kind that no app registers any more must be readable, too."""
    extra = [(given, given)] if 0 < len(given) <= KIND_LENGTH_MAX else []
    return (
        ChoiceFilter("kind", _("Kind"), equals("kind"), choices=lambda: dict([*kinds(), *extra]).items()),
        KeyFilter("key", _("Key"), of_key, kind=given),
        NumberFilter("key2", _("Key 2"), equals("key2")),
    )


def sections_of(admin: ReadOnlyAdmin, request: HttpRequest, asked: Mapping[str, Any]) -> list[Section]:
    """Return the explanations of a key's events, or their names when there are many."""
    kind = asked["kind"]
    key, made = asked["key"].of_kind(kind)
    key2 = asked.get("key2", made)
    if key2 is None:
        rows = of_model(request.user, Control).filter(kind=kind, key=key).order_by("key2")
        known = list(rows.values_list("key2", flat=True)[: LISTED_MAX + 1])
        if len(known) > EXPLAINED_MAX:
            return [events_section(admin, request, kind=kind, key=key, known=known)]
    found = explain_event(kind=kind, key=key, key2=key2, tenants=tenants_of(request.user))
    nothing = Section(title=f"{kind} {key}", text=_("There is no such event, or none of your tenants."))
    return [section_of(admin, request, event) for event in found.events] or [nothing]


def events_section(admin: ReadOnlyAdmin, request: HttpRequest, *, kind: str, key: int, known: list[int]) -> Section:
    """Return the events of a key that has many."""
    rows = [
        Row(cells=[Cell(text=f"{kind} {key}/{one}", url=explain_url(admin, request, kind=kind, key=key, key2=one))])
        for one in known[:LISTED_MAX]
    ]
    more = _("There are more: give key 2.") if len(known) > LISTED_MAX else ""
    return Section(
        title=_("This key has several events; choose one"), table=Table(head=[_("event")], rows=rows), text=more
    )


def answer_cell(event: EventExplanation, *, now: datetime) -> Cell:
    """Return the answer: the state of the event's mail that needs a person most, until when it waits, or never."""
    if not event.is_notified:
        return Cell(badge=NOT_NOTIFIED)
    if not event.mails:
        return Cell(badge=NOTIFIED if event.tasks else BASELINE)
    mail = min(event.mails, key=lambda one: ANSWERS.index(one.state) if one.state in ANSWERS else 0)
    waits = mail.state == MailState.QUEUED and mail.due_at > now
    until = _(", waiting until %s") % f"{timezone.localtime(mail.due_at):%Y-%m-%d %H:%M}" if waits else ""
    return Cell(badge=STATES[mail.state], text=until)


def section_of(admin: ReadOnlyAdmin, request: HttpRequest, event: EventExplanation) -> Section:
    """Return the explanation of one event with links to what it names."""
    facts = [Fact(name=_("answer"), cell=answer_cell(event, now=timezone.now()))]
    if event.pass_id:
        url = admin.url_if_allowed(request, RunLog, "pass", event.pass_id)
        facts.append(Fact(name=_("prepared by pass"), cell=Cell(text=event.pass_id, is_code=True, url=url)))
    for mail in event.mails:
        facts.append(
            Fact(
                name=_("mail"), cell=Cell(text=mail.id, url=admin.url_if_allowed(request, MailQueue, "change", mail.id))
            )
        )
    for task in event.tasks:
        facts.append(
            Fact(
                name=_("task"), cell=Cell(text=task.id, url=admin.url_if_allowed(request, TaskQueue, "change", task.id))
            )
        )
    return Section(title=event.name, facts=facts, lines=event.sentences)
