"""What people may decide about mails and tasks: the kwit's keys and forms, handed to the engine's verbs."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from django import forms
from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kwit.admin.actions import ListAction

from ..errors import UnknownMail, WrongAddress
from ..models import SUBJECT_UNITS_MAX, MailQueue, MailState, TaskQueue
from ..operations.mails import checked, confirm_mails, correct_mail, hold_mails, release_mails, retry_mails
from ..operations.tasks import assign_task, complete_tasks, reopen_task
from .badges import addressees

MAIL_PERMISSION = "notify.retry_mail"
TASK_PERMISSION = "notify.finish_task"
Rows = QuerySet[Any]


class HoldForm(forms.Form):
    """Why."""

    reason = forms.CharField(label=gettext_lazy("Reason"), required=False, max_length=200)


class CorrectForm(forms.Form):
    """The right addresses and the right subject."""

    recipients = forms.CharField(
        label=gettext_lazy("Recipients"), max_length=2000, help_text=gettext_lazy("Several are separated by commas.")
    )
    subject = forms.CharField(label=gettext_lazy("Subject"), max_length=SUBJECT_UNITS_MAX)

    def clean_recipients(self) -> str:
        """Refuse an invalid address, naming it."""
        text: str = self.cleaned_data["recipients"]
        try:
            checked(text)
        except WrongAddress as error:
            raise forms.ValidationError(_("Not an address: %s") % str(error).partition(": ")[2]) from error
        return text


class AssignForm(forms.Form):
    """Who has to do it, by when."""

    assignee = forms.CharField(label=gettext_lazy("Assignee"), max_length=254)
    due_at = forms.DateTimeField(
        label=gettext_lazy("Due"), required=False, help_text=gettext_lazy("For example 2026-01-31 12:00.")
    )


def on_mails(verb: Callable[..., int]) -> Callable[..., int]:
    """Return a verb for mails as Kwit's pages calls it, with keys."""
    return lambda pks, *, actor, using, **data: verb(
        MailQueue.objects.filter(pk__in=pks), actor=actor, using=using, **data
    )


def correct_and_send(pks: Sequence[int], *, actor: str, using: str, recipients: str, subject: str) -> int:
    """
    Put a mail right and let it go when nothing else holds it; return 0 when it is out of reach.

    One that is queued stays in its place; an uncertain one stays held, because who has it nobody knows yet.
    """
    [pk] = pks
    try:
        correct_mail(pk, actor=actor, recipients=recipients, subject=subject, using=using)
    except UnknownMail:
        return 0  # it went on the wire, or was sent, since the page was shown
    rows = MailQueue.objects.filter(pk=pk)
    release_mails(rows.filter(state=MailState.BLOCKED), actor=actor, using=using)
    retry_mails(rows, actor=actor, using=using)
    return 1


def as_it_is(mail: MailQueue) -> dict[str, Any]:
    """Return what the form to correct a mail begins with."""
    return {"recipients": addressees(mail.recipients), "subject": mail.subject}


def complete_all(pks: Sequence[int], *, actor: str, using: str) -> int:
    """Mark open tasks as done by this person."""
    return complete_tasks(pks, by=actor, using=using)


def reopen_one(pks: Sequence[int], *, actor: str, using: str) -> int:
    """Take back that a task is done."""
    [pk] = pks
    return int(reopen_task(pk, using=using))


def assign_one(pks: Sequence[int], *, actor: str, using: str, assignee: str, due_at: datetime | None) -> int:
    """Give an open task to somebody."""
    [pk] = pks
    return int(assign_task(pk, to=assignee, due_at=due_at, using=using))


def in_states(*states: MailState) -> Callable[[Rows], Rows]:
    """Return the filter for mails in these states that do not travel in another one's digest."""
    return lambda rows: rows.filter(state__in=states, digest_of__isnull=True)


def lacks_nothing(rows: Rows) -> Rows:
    """Return the blocked and withdrawn mails that could be sent as they are, or whose message can be built again."""
    held = in_states(MailState.BLOCKED, MailState.WITHDRAWN)(rows)
    return held.filter(Q(subject="") | ~Q(recipients=[]))


MAIL_ACTIONS = (
    ListAction(
        name="retry",
        label=gettext_lazy("Retry"),
        explains=gettext_lazy(
            "Whoever has not got these mails is asked again, with all attempts anew. Who has one does not get it twice."
        ),
        permission=MAIL_PERMISSION,
        verb=on_mails(retry_mails),
        eligible=in_states(MailState.FAILED, MailState.PARTIAL),
    ),
    ListAction(
        name="release",
        label=gettext_lazy("Release"),
        explains=gettext_lazy(
            "Held mails go back into the queue and are sent by the next delivery. A mail whose message could not be "
            "made is made anew; when that fails again, it stays blocked and says why."
        ),
        permission=MAIL_PERMISSION,
        verb=on_mails(release_mails),
        eligible=lacks_nothing,
    ),
    ListAction(
        name="hold",
        label=gettext_lazy("Hold"),
        explains=gettext_lazy("Waiting mails are not sent until somebody releases them."),
        permission=MAIL_PERMISSION,
        verb=on_mails(hold_mails),
        eligible=in_states(MailState.QUEUED),
        form=HoldForm,
    ),
    ListAction(
        name="resend",
        label=gettext_lazy("Send again"),
        explains=gettext_lazy(
            "Nobody knows whether these mails have arrived. They are sent again under the same Message-ID: whoever has "
            "one already may get it twice."
        ),
        permission=MAIL_PERMISSION,
        verb=on_mails(release_mails),
        eligible=in_states(MailState.UNCERTAIN),
    ),
    ListAction(
        name="confirm",
        label=gettext_lazy("It has arrived"),
        explains=gettext_lazy("These mails are taken as sent, on your word. Nothing is sent."),
        permission=MAIL_PERMISSION,
        verb=on_mails(confirm_mails),
        eligible=in_states(MailState.UNCERTAIN),
    ),
    ListAction(
        name="correct",
        label=gettext_lazy("Correct the address"),
        explains=gettext_lazy(
            "The mail gets these recipients and this subject. A blocked or failed one is sent; an uncertain one stays "
            "held. Who has it already does not get it again."
        ),
        permission=MAIL_PERMISSION,
        verb=correct_and_send,
        eligible=in_states(
            MailState.BLOCKED, MailState.FAILED, MailState.PARTIAL, MailState.QUEUED, MailState.UNCERTAIN
        ),
        form=CorrectForm,
        initial=as_it_is,
        is_single=True,
    ),
)


def to_do(rows: Rows) -> Rows:
    """Return the open tasks."""
    return rows.filter(done_at__isnull=True)


def as_assigned(task: TaskQueue) -> dict[str, Any]:
    """Return what the form to assign a task begins with."""
    return {"assignee": task.assignee, "due_at": task.due_at}


TASK_ACTIONS = (
    ListAction(
        name="done",
        label=gettext_lazy("Done"),
        explains=gettext_lazy("The tasks are closed with your name and the time of now."),
        permission=TASK_PERMISSION,
        verb=complete_all,
        eligible=to_do,
    ),
    ListAction(
        name="assign",
        label=gettext_lazy("Assign"),
        explains=gettext_lazy("The task is this person's, due at this time or whenever."),
        permission=TASK_PERMISSION,
        verb=assign_one,
        eligible=to_do,
        form=AssignForm,
        initial=as_assigned,
        is_single=True,
    ),
    ListAction(
        name="reopen",
        label=gettext_lazy("Not done after all"),
        explains=gettext_lazy("The task is open again."),
        permission=TASK_PERMISSION,
        verb=reopen_one,
        eligible=lambda rows: rows.filter(done_at__isnull=False),
        is_single=True,
    ),
)
