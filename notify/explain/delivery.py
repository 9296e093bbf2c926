"""What became of an event's mails and tasks, as data and as sentences; reads only."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..addresses import parse_recipients
from ..clock import is_lease_over, paused
from ..models import Attempt, Channel, Control, HeldFor, MailQueue, MailState, Suppression, SuppressionCause, TaskQueue
from .messages import say_attempt, say_problem

OUTCOMES = {
    "sent": gettext_lazy("sent"),
    "refused": gettext_lazy("refused for good"),
    "deferred": gettext_lazy("not now, to be tried again"),
    "uncertain": gettext_lazy("perhaps sent: the answer never came"),
    "suppressed": gettext_lazy("not mailed"),
    "error": gettext_lazy("an unexpected error before anything was sent"),
    "bounced": gettext_lazy("came back after it was sent"),
    "complained": gettext_lazy("reported as unwanted by the recipient"),
    "delivered": gettext_lazy("delivered, says a report"),
}


@dataclass(frozen=True)
class MailExplanation:
    """One mail: its row, its attempts, and what there is to say."""

    id: int
    pass_id: str
    state: str
    due_at: datetime
    subject: str
    recipients: tuple[str, ...]
    attempts: tuple[dict[str, Any], ...]
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class TaskExplanation:
    """One task: its row and what there is to say."""

    id: int
    pass_id: str
    title: str
    sentences: tuple[str, ...]


def moment(at: datetime | None) -> str:
    """Return a moment for a person; the offset says whose clock it is."""
    return _("an unknown date") if at is None else f"{timezone.localtime(at):%Y-%m-%d %H:%M:%S%z}"


def explain_mails(control: Control, *, using: str, now: datetime, is_whole: bool = True) -> Iterator[MailExplanation]:
    """
    Explain an event's mails.

    Unless it is for somebody who sees all, a pause has no reason: the server's words may quote another tenant's mail.
    """
    for mail in MailQueue.objects.using(using).filter(control=control).select_related("digest_of").order_by("pk"):
        leader = mail.digest_of or mail
        attempts = list(Attempt.objects.using(using).filter(mail=leader).order_by("pk"))
        sentences = [
            *say_introduction(mail, using),
            *(say_attempt_made(each) for each in attempts),
            *say_state(mail, using, now, is_whole),
        ]
        yield MailExplanation(
            id=mail.pk,
            pass_id=str(mail.pass_id or ""),
            state=mail.state,
            due_at=mail.due_at,
            subject=mail.subject,
            recipients=parse_recipients(mail.recipients).good,
            attempts=tuple(attempt_data(each) for each in attempts),
            sentences=tuple(sentences),
        )


def say_introduction(mail: MailQueue, using: str) -> Iterator[str]:
    """Yield what the mail is, and in whose company it travels."""
    to = ", ".join(parse_recipients(mail.recipients).good) or _("nobody")
    values = {"mail": mail.pk, "subject": mail.subject, "to": to, "at": moment(mail.created_at)}
    yield _("Mail %(mail)s, “%(subject)s”, to %(to)s, was queued on %(at)s.") % values
    if mail.digest_of_id:
        text = _("It travels in a digest, with mail %(mail)s; the attempts are that mail's.")
        yield text % {"mail": mail.digest_of_id}
    elif count := MailQueue.objects.using(using).filter(digest_of=mail.pk).count():
        yield _("It leads a digest of %(count)s mails.") % {"count": count + 1}
    if mail.operator:
        text = _("%(person)s was the last to step in, on %(at)s.")
        yield text % {"person": mail.operator, "at": moment(mail.operated_at)}


def say_attempt_made(attempt: Attempt) -> str:
    """Say what one attempt gave for one recipient, with the server's words."""
    words = " ".join(
        str(part) for part in (attempt.code, attempt.enhanced, say_attempt(attempt).split("\n", 1)[0]) if part
    )
    begun = (
        _("%(at)s, attempt %(number)s to %(recipient)s: %(outcome)s")
        if attempt.recipient
        else _("%(at)s, attempt %(number)s: %(outcome)s")
    )
    values = {"channel": attempt.channel, "worker": attempt.worker}
    return "".join(
        (
            begun
            % {
                "at": moment(attempt.at),
                "number": attempt.number,
                "recipient": attempt.recipient,
                "outcome": OUTCOMES[attempt.outcome],
            },
            f": {words}" if words else "",
            _(" (over %(channel)s by %(worker)s)") % values if attempt.channel else "",
            _("; a person overruled this") if attempt.is_overruled else "",
            ".",
        )
    )


def attempt_data(attempt: Attempt) -> dict[str, Any]:
    """Return one attempt as data."""
    names = ("number", "part", "recipient", "outcome", "code", "enhanced", "text", "worker", "channel", "is_overruled")
    return {"at": attempt.at.isoformat(), **{name: getattr(attempt, name) for name in names}}


def say_state(mail: MailQueue, using: str, now: datetime, is_whole: bool) -> Iterator[str]:
    """Yield the current state of the mail and what to do about it."""
    values = {"mail": mail.pk, "worker": mail.worker, "problem": say_problem(mail), "at": moment(mail.sent_at)}
    if mail.state == MailState.QUEUED:
        yield from say_why_queued(mail, using, now, is_whole)
    elif mail.state == MailState.SENDING and is_lease_over(mail.lease_until, now=now):
        text = _("It was on the wire with worker %(worker)s, not heard of since; the next delivery will say so.")
        yield text % values
    elif mail.state == MailState.SENDING:
        yield _("It is on the wire now, with worker %(worker)s.") % values
    elif mail.state == MailState.UNCERTAIN:
        text = _(
            "It is held because nobody knows whether it arrived. Send it again with the same Message-ID "
            "(notify_release %(mail)s) or confirm that it has arrived (notify_release %(mail)s --confirm)."
        )
        yield text % values
    elif mail.state == MailState.BLOCKED:
        yield _("It is blocked: %(problem)s. Correct that, then release it: notify_release %(mail)s.") % values
    elif mail.state == MailState.WITHDRAWN:
        text = _(
            "It was withdrawn right before sending: the step's query does not give the event any more. To send it all "
            "the same: notify_release %(mail)s."
        )
        yield text % values
        return
    elif mail.state == MailState.FAILED:
        yield _("It is given up: nobody got it. To try the others again: notify_retry %(mail)s.") % values
    elif mail.state == MailState.PARTIAL:
        yield _("It is given up: not everybody got it. To try the others again: notify_retry %(mail)s.") % values
    else:
        yield _("It was sent on %(at)s.") % values
    if mail.state != MailState.BLOCKED and mail.problem:
        yield _("What was wrong with it from the start: %(problem)s.") % values


def say_why_queued(mail: MailQueue, using: str, now: datetime, is_whole: bool) -> Iterator[str]:
    """Yield what a queued mail waits for."""
    values = {"at": moment(mail.due_at), "worker": mail.worker}
    if mail.held_for == HeldFor.DIGEST and mail.due_at > now:
        yield _("It waits for others to join its digest until %(at)s.") % values
    elif mail.held_for and mail.due_at > now:
        yield _("It waits for the end of the recipient's quiet hours until %(at)s.") % values
    elif mail.due_at > now:
        yield _("It is tried again after %(at)s.") % values
    elif mail.worker and not is_lease_over(mail.lease_until, now=now):
        yield _("Worker %(worker)s has claimed it and will send it soon.") % values
    else:
        yield _("It is due since %(at)s and waits for a delivery (notify_deliver, notify_work).") % values
    for channel in Channel.objects.using(using).filter(paused(now)).order_by("name"):
        text = (
            _("Channel %(channel)s pauses until %(at)s: %(reason)s")
            if is_whole
            else _("Channel %(channel)s pauses until %(at)s.")
        )
        yield text % {"channel": channel.name, "at": moment(channel.paused_until), "reason": channel.reason}
    good = parse_recipients(mail.recipients).good
    for entry in Suppression.objects.using(using).for_mail(good, mail.control.kind):
        yield say_suppression(entry)


def say_suppression(entry: Suppression) -> str:
    """Say why an address gets no mail."""
    values = {"address": entry.address, "at": moment(entry.since), "kind": entry.kind}
    if entry.cause == SuppressionCause.LINK:
        return _("%(address)s unsubscribed on %(at)s by link.") % values
    if entry.kind:
        return _("%(address)s is on the suppression list for %(kind)s and will not be mailed.") % values
    return _("%(address)s is on the suppression list and will not be mailed.") % values


def explain_tasks(control: Control, *, using: str) -> Iterator[TaskExplanation]:
    """Explain an event's tasks."""
    for task in TaskQueue.objects.using(using).filter(control=control).order_by("pk"):
        values = {
            "task": task.pk,
            "title": task.title,
            "whom": task.assignee or _("nobody in particular"),
            "at": moment(task.created_at),
            "due_at": moment(task.due_at),
            "person": task.done_by,
            "done_at": moment(task.done_at),
        }
        if task.done_at:
            text = _(
                "Task %(task)s, “%(title)s”, for %(whom)s, was queued on %(at)s; "
                "it is done by %(person)s on %(done_at)s."
            )
        elif task.due_at:
            text = _("Task %(task)s, “%(title)s”, for %(whom)s, was queued on %(at)s; it is open, due on %(due_at)s.")
        else:
            text = _("Task %(task)s, “%(title)s”, for %(whom)s, was queued on %(at)s; it is open.")
        yield TaskExplanation(task.pk, str(task.pass_id or ""), task.title, (text % values,))
