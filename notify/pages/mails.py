"""The mail queue: what waits, for how long, what is blocked and why; hold, release, correct."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from desk.acts import Act
from desk.admins import WindowAdmin
from desk.filters import Asked, Choice, Id, equals
from desk.parts import NONE, Cell, Detail, Fact, Row, Section, Text

from ..errors import WrongAddress
from ..models import Control, MailQueue, MailState, RunLog
from ..queues import correct_mails, good_addresses, hold_mails, release_mails
from .words import STATES, age, line_of

PERMISSION = "notify.retry_mail"
#: States in which a mail is over: these lists begin with the newest, all others with the one that waits longest.
OVER = frozenset({MailState.SENT, MailState.PARTIAL})


def states() -> Iterable[tuple[str, Text]]:
    """Return the states as choices."""
    return [(name, badge.word) for name, badge in STATES.items()]


class HoldForm(forms.Form):
    """Why."""

    reason = forms.CharField(label=gettext_lazy("Reason"), required=False, max_length=200)


class CorrectForm(forms.Form):
    """The right addresses."""

    recipients = forms.CharField(
        label=gettext_lazy("Recipients"), max_length=2000, help_text=gettext_lazy("Several are separated by commas.")
    )

    def clean_recipients(self) -> str:
        """Refuse what is nobody's address, naming it."""
        text: str = self.cleaned_data["recipients"]
        try:
            good_addresses(text)
        except WrongAddress as error:
            raise forms.ValidationError(_("Not an address: %s") % error) from error
        return text


@admin.register(MailQueue)
class MailQueueAdmin(WindowAdmin):
    """What is to be sent, and what is blocked and why."""

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
        Choice("state", gettext_lazy("State"), equals("state"), choices=states),
        Id("pass", gettext_lazy("Pass"), equals("pass_id")),
    )
    acts = (
        Act(
            name="release",
            label=gettext_lazy("Release"),
            explains=gettext_lazy(
                "Held mails go back into the queue and are sent by the next delivery. A mail without an address or a "
                "subject stays blocked."
            ),
            permission=PERMISSION,
            verb=release_mails,
            eligible=lambda rows: rows.filter(pk__in=MailQueue.objects.releasable().values("pk")),
        ),
        Act(
            name="hold",
            label=gettext_lazy("Hold"),
            explains=gettext_lazy("Waiting mails are not sent until somebody releases them."),
            permission=PERMISSION,
            verb=hold_mails,
            eligible=lambda rows: rows.filter(state=MailState.QUEUED),
            form=HoldForm,
        ),
        Act(
            name="correct",
            label=gettext_lazy("Correct the address"),
            explains=gettext_lazy("The mail gets these recipients, goes back into the queue and is sent."),
            permission=PERMISSION,
            verb=correct_mails,
            eligible=lambda rows: rows.filter(state=MailState.BLOCKED).exclude(subject=""),
            form=CorrectForm,
            is_single=True,
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Join the event."""
        return super().get_queryset(request).select_related("control")

    def order_for(self, asked: Asked) -> Sequence[str]:
        """Return the order of the index that serves the filter."""
        if "pass" in asked.values or "state" not in asked.values:
            return ("-pk",)
        return ("-due_at", "-pk") if asked.values["state"] in OVER else ("due_at", "pk")

    def rows(self, request: HttpRequest, found: Sequence[Any]) -> list[Row]:
        """Return one line per mail."""
        return [Row(cells=self.cells(mail), key=str(mail.pk), name=f"{mail.pk} {mail.control}") for mail in found]

    def cells(self, mail: MailQueue) -> list[Cell]:
        """Return a mail's cells."""
        return [
            Cell(text=mail.pk, url=self.url("change", mail.pk)),
            Cell(text=mail.control, url=self.url_of(Control, "change", mail.control_id)),
            Cell(badge=STATES[mail.state]),
            Cell(at=mail.due_at),
            Cell(text=age(mail.due_at, now=timezone.now())),
            Cell(text=line_of(mail.subject)),
            Cell(text=line_of(", ".join(mail.recipients))),
            Cell(text=line_of(mail.problem)),
        ]

    def detail(self, request: HttpRequest, row: Any) -> Detail:
        """Return a mail in full."""
        facts = [
            Fact(name=_("event"), cell=Cell(text=row.control, url=self.url_of(Control, "change", row.control_id))),
            Fact(name=_("subject"), cell=Cell(text=row.subject)),
            Fact(name=_("recipients"), cell=Cell(text=", ".join(row.recipients) or NONE)),
            Fact(name=_("language"), cell=Cell(text=row.language)),
            Fact(name=_("prepared"), cell=Cell(at=row.created_at)),
            Fact(name=_("due"), cell=Cell(at=row.due_at)),
            Fact(name=_("attempts"), cell=Cell(text=row.attempts)),
        ]
        if row.pass_id:
            url = self.url_of(RunLog, "pass", row.pass_id)
            facts.append(Fact(name=_("prepared by pass"), cell=Cell(text=row.pass_id, is_code=True, url=url)))
        sections = [Section(facts=facts)]
        if row.problem:
            sections.insert(0, Section(title=_("What is wrong"), text=row.problem))
        values = json.dumps(row.payload, ensure_ascii=False, indent=2)
        sections.append(Section(title=_("Values for its body"), text=values))
        return Detail(title=_("Mail %d") % row.pk, badge=STATES[row.state], sections=sections)
