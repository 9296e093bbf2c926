"""The mail queue: what waits, for how long, what is blocked and why, what the server said, what was sent."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotFound
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kwit.admin.base import ReadOnlyAdmin
from kwit.admin.components import NONE, Cell, Detail, Fact, Link, Row, Section, Text
from kwit.admin.filters import ChoiceFilter, FilterValues, UuidFilter, equals
from kwit.middleware import sandboxed
from kwit.people.tenants import tenants_of

from ..explain.messages import say_problem
from ..messages.values import LANGUAGE, readable
from ..models import Control, MailQueue, MailState, RunLog
from ..operations.preview import Preview, preview_mail
from .actions import MAIL_ACTIONS
from .attempts import look_around, sections_of
from .badges import STATES, addressees, age, line_of

#: States in which a mail is over: these lists begin with the newest, all others with the one that waits longest.
OVER = frozenset({MailState.SENT, MailState.PARTIAL})


def states() -> Iterable[tuple[str, Text]]:
    """Return the states as choices."""
    return [(name, badge.word) for name, badge in STATES.items()]


@admin.register(MailQueue)
class MailQueueAdmin(ReadOnlyAdmin):
    """What is to be sent, what was, and what is blocked and why."""

    tenant_lookup = "tenant"
    intro = gettext_lazy("Waiting mails stand first that wait longest; sent ones newest first.")
    head = (
        gettext_lazy("mail"),
        gettext_lazy("event"),
        gettext_lazy("state"),
        gettext_lazy("due"),
        gettext_lazy("age"),
        gettext_lazy("subject"),
        gettext_lazy("recipients"),
        gettext_lazy("problem"),
    )
    filters = (
        ChoiceFilter("state", gettext_lazy("State"), equals("state"), choices=states),
        UuidFilter("pass", gettext_lazy("Pass"), equals("pass_id")),
    )
    list_actions = MAIL_ACTIONS

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Join the event, and the mail in whose digest one travels."""
        return super().get_queryset(request).select_related("control", "digest_of")

    def get_urls(self) -> list[URLPattern]:
        """Add the preview and the document in its frame."""
        preview = self.admin_site.admin_view(self.preview_view)
        frame = self.admin_site.admin_view(self.frame_view)
        return [
            path("<int:pk>/preview/", preview, name=self.url_name("preview")),
            path("<int:pk>/html/", frame, name=self.url_name("html")),
            *super().get_urls(),
        ]

    def order_for(self, asked: FilterValues) -> Sequence[str]:
        """Return the order of the index that serves the filter."""
        if "pass" in asked.values or "state" not in asked.values:
            return ("-pk",)
        return ("-due_at", "-pk") if asked.values["state"] in OVER else ("due_at", "pk")

    def rows(self, request: HttpRequest, found: Sequence[Any]) -> list[Row]:
        """Return one line per mail."""
        return [
            Row(cells=self.cells(request, mail), key=str(mail.pk), name=f"{mail.pk} {mail.control}") for mail in found
        ]

    def cells(self, request: HttpRequest, mail: MailQueue) -> list[Cell]:
        """Return a mail's cells."""
        return [
            Cell(text=mail.pk, url=self.url("change", mail.pk)),
            Cell(text=mail.control, url=self.url_if_allowed(request, Control, "change", mail.control_id)),
            Cell(badge=STATES[mail.state]),
            Cell(at=mail.due_at),
            Cell(text=age(mail.due_at, now=timezone.now())),
            Cell(text=line_of(mail.subject)),
            Cell(text=line_of(addressees(mail.recipients))),
            Cell(text=line_of(say_problem(mail))),
        ]

    def detail(self, request: HttpRequest, row: Any) -> Detail:
        """Return a mail in full: what is wrong, what it is, what became of it, what was sent."""
        now, way = timezone.now(), partial(self.url_if_allowed, request)
        sections = [Section(facts=self.facts(request, row))]
        if row.problem:
            sections.insert(0, Section(title=_("What is wrong"), text=say_problem(row)))
        around = look_around(row, now=now, is_whole=tenants_of(request.user) is None)
        sections += sections_of(around, now=now, way=way, frame_url=self.url("html", row.pk))
        values = json.dumps(readable(row.payload), ensure_ascii=False, indent=2)
        sections.append(Section(title=_("Values for its body"), text=values))
        links = [Link(_("Preview"), self.url("preview", row.pk))]
        if url := way(Control, "explain", kind=row.control.kind, key=row.control.key, key2=row.control.key2):
            links.append(Link(_("Explain"), url))
        return Detail(title=_("Mail %d") % row.pk, badge=STATES[row.state], sections=sections, links=links)

    def facts(self, request: HttpRequest, mail: MailQueue) -> list[Fact]:
        """Return what was prepared."""
        facts = [
            Fact(
                name=_("event"),
                cell=Cell(text=mail.control, url=self.url_if_allowed(request, Control, "change", mail.control_id)),
            ),
            Fact(name=_("subject"), cell=Cell(text=mail.subject)),
            Fact(name=_("recipients"), cell=Cell(text=addressees(mail.recipients) or NONE)),
            Fact(name=_("language"), cell=Cell(text=language_shown(mail))),
            Fact(name=_("prepared"), cell=Cell(at=mail.created_at)),
            Fact(name=_("due"), cell=Cell(at=mail.due_at)),
            Fact(name=_("attempts"), cell=Cell(text=mail.attempts)),
        ]
        if mail.pass_id:
            url = self.url_if_allowed(request, RunLog, "pass", mail.pass_id)
            facts.append(Fact(name=_("prepared by pass"), cell=Cell(text=mail.pass_id, is_code=True, url=url)))
        return facts

    def preview_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show a mail as its recipients get it."""
        mail = self.get_row(request, str(pk))
        try:
            page = self.preview(mail, preview_mail(mail))
        except Exception as error:  # whatever a template or a value raises is what there is to show
            text = f"{type(error).__name__}: {error}"
            page = Detail(title=_("Preview"), sections=[Section(title=_("It cannot be made"), text=text)])
        back = [Link(_("Mail %d") % mail.pk, self.url("change", mail.pk))]
        context = self.context(request, title=f"{page.title}: {mail}", detail=replace(page, links=back))
        return TemplateResponse(request, "kwit/detail.html", context)

    def preview(self, mail: MailQueue, shown: Preview) -> Detail:
        """Return the page of a preview."""
        copies = [("Cc", shown.cc), ("Bcc", shown.bcc), (_("attachments"), shown.attachments)]
        facts = [
            Fact(name=_("subject"), cell=Cell(text=shown.subject)),
            Fact(name=_("sender"), cell=Cell(text=shown.sender)),
            Fact(name=_("recipients"), cell=Cell(text=", ".join(shown.recipients) or NONE)),
            *(Fact(name=name, cell=Cell(text=", ".join(people))) for name, people in copies if people),
            Fact(name=_("language"), cell=Cell(text=shown.language)),
            *(Fact(name=name, cell=Cell(text=value)) for name, value in shown.headers.items()),
        ]
        sections = [Section(facts=facts), Section(title=_("Text"), text=shown.text)]
        if shown.html:
            sections.append(Section(title=_("HTML"), frame=self.url("html", mail.pk)))
        return Detail(title=_("Preview"), sections=sections)

    def frame_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Return a mail's HTML: what was sent, or what would be. It can do nothing, in its frame or alone."""
        mail = self.get_row(request, str(pk))
        kept = mail.digest_of or mail
        html = kept.message_html if kept.message_text else html_of(mail)
        return sandboxed(html) if html else HttpResponseNotFound()


def html_of(mail: MailQueue) -> str:
    """Return the HTML that would be sent; empty when none can be made, which the preview says."""
    try:
        return preview_mail(mail).html
    except Exception:  # whatever a template or a value raises stands on the page around the frame
        return ""


def language_shown(mail: MailQueue) -> str:
    """Return a mail's language, and the one that was asked for where the site has only its parent, or none."""
    asked = mail.payload.get(LANGUAGE) if isinstance(mail.payload, dict) else None
    if not asked:
        return mail.language
    return _("%(language)s (asked for: %(asked)s)") % {"language": mail.language, "asked": asked}
