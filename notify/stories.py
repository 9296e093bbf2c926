"""What became of an event's mails and tasks, as data and as sentences; reads only."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .addresses import parse_recipients
from .models import Attempt, Channel, Control, MailQueue, MailState, Suppression, TaskQueue

OUTCOMES = {
    "sent": "sent",
    "refused": "refused for good",
    "deferred": "not now, to be tried again",
    "uncertain": "perhaps sent: the answer never came",
    "suppressed": "not mailed",
    "error": "an unexpected error before anything was sent",
}


@dataclass(frozen=True)
class MailStory:
    """One mail: its row, its attempts, and what there is to say."""

    id: int
    pass_id: str
    state: str
    subject: str
    recipients: tuple[str, ...]
    attempts: tuple[dict[str, Any], ...]
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class TaskStory:
    """One task: its row and what there is to say."""

    id: int
    pass_id: str
    title: str
    sentences: tuple[str, ...]


def moment(at: datetime | None) -> str:
    """Return a moment for a person; the offset says whose clock it is."""
    return "an unknown date" if at is None else f"{at:%Y-%m-%d %H:%M:%S%z}"


def mail_stories(control: Control, *, using: str, now: datetime, is_whole: bool = True) -> Iterator[MailStory]:
    """
    Yield the stories of an event's mails.

    Unless it is for somebody who sees all, a pause has no reason: the server's words may quote another tenant's mail.
    """
    for mail in MailQueue.objects.using(using).filter(control=control).select_related("digest_of").order_by("pk"):
        leader = mail.digest_of or mail
        attempts = list(Attempt.objects.using(using).filter(mail=leader).order_by("pk"))
        said = [
            *introduce(mail, using),
            *(describe_attempt(each) for each in attempts),
            *stand(mail, using, now, is_whole),
        ]
        yield MailStory(
            id=mail.pk,
            pass_id=str(mail.pass_id or ""),
            state=mail.state,
            subject=mail.subject,
            recipients=parse_recipients(mail.recipients).good,
            attempts=tuple(attempt_data(each) for each in attempts),
            sentences=tuple(said),
        )


def introduce(mail: MailQueue, using: str) -> Iterator[str]:
    """Yield what the mail is, and in whose company it travels."""
    to = ", ".join(parse_recipients(mail.recipients).good) or "nobody"
    yield f"Mail {mail.pk}, {mail.subject!r}, to {to}, was queued on {moment(mail.created_at)}."
    if mail.digest_of_id:
        yield f"It travels in a digest, with mail {mail.digest_of_id}; the attempts are that mail's."
    elif count := MailQueue.objects.using(using).filter(digest_of=mail.pk).count():
        yield f"It leads a digest of {count + 1} mails."
    if mail.operator:
        yield f"{mail.operator} was the last to step in, on {moment(mail.operated_at)}."


def describe_attempt(attempt: Attempt) -> str:
    """Say what one attempt gave for one recipient, with the server's words."""
    words = " ".join(str(part) for part in (attempt.code, attempt.enhanced, attempt.text.split("\n", 1)[0]) if part)
    said = f": {words}" if words else ""
    whom = f" to {attempt.recipient}" if attempt.recipient else ""
    over = f" (over {attempt.channel} by {attempt.worker})" if attempt.channel else ""
    undone = "; a person overruled this" if attempt.is_overruled else ""
    return f"{moment(attempt.at)}, attempt {attempt.number}{whom}: {OUTCOMES[attempt.outcome]}{said}{over}{undone}."


def attempt_data(attempt: Attempt) -> dict[str, Any]:
    """Return one attempt as data."""
    names = ("number", "part", "recipient", "outcome", "code", "enhanced", "text", "worker", "channel", "is_overruled")
    return {"at": attempt.at.isoformat(), **{name: getattr(attempt, name) for name in names}}


def stand(mail: MailQueue, using: str, now: datetime, is_whole: bool) -> Iterator[str]:
    """Yield how the mail stands now and what to do about it."""
    if mail.state == MailState.QUEUED:
        yield from why_queued(mail, using, now, is_whole)
    elif mail.state == MailState.SENDING:
        is_over = mail.lease_until is not None and mail.lease_until < now
        yield (
            f"It was on the wire with worker {mail.worker}, not heard of since; the next delivery will say so."
            if is_over
            else f"It is on the wire now, with worker {mail.worker}."
        )
    elif mail.state == MailState.UNCERTAIN:
        yield (
            "It is held because nobody knows whether it arrived. Send it again with the same Message-ID "
            f"(notify_release {mail.pk}) or confirm that it has arrived (notify_release {mail.pk} --confirm)."
        )
    elif mail.state == MailState.BLOCKED:
        yield f"It is blocked: {mail.problem}. Correct that, then release it: notify_release {mail.pk}."
    elif mail.state in (MailState.FAILED, MailState.PARTIAL):
        who = "nobody" if mail.state == MailState.FAILED else "not everybody"
        yield f"It is given up: {who} got it. To try the others again: notify_retry {mail.pk}."
    else:
        yield f"It was sent on {moment(mail.sent_at)}."
    if mail.state != MailState.BLOCKED and mail.problem:
        yield f"What was wrong with it from the start: {mail.problem}."


def why_queued(mail: MailQueue, using: str, now: datetime, is_whole: bool) -> Iterator[str]:
    """Yield what a queued mail waits for."""
    if mail.held_for and mail.due_at > now:
        reason = "others to join its digest" if mail.held_for == "digest" else "the end of the recipient's quiet hours"
        yield f"It waits for {reason} until {moment(mail.due_at)}."
    elif mail.due_at > now:
        yield f"It is tried again after {moment(mail.due_at)}."
    elif mail.worker and mail.lease_until is not None and mail.lease_until > now:
        yield f"Worker {mail.worker} has claimed it and will send it soon."
    else:
        yield f"It is due since {moment(mail.due_at)} and waits for a delivery (notify_deliver, notify_work)."
    for channel in Channel.objects.using(using).filter(paused_until__gt=now).order_by("name"):
        reason = f": {channel.reason}" if is_whole else "."
        yield f"Channel {channel.name} pauses until {moment(channel.paused_until)}{reason}"
    good = parse_recipients(mail.recipients).good
    for address in sorted(Suppression.objects.using(using).among(good)):
        yield f"{address} is on the suppression list and will not be mailed."


def task_stories(control: Control, *, using: str) -> Iterator[TaskStory]:
    """Yield the stories of an event's tasks."""
    for task in TaskQueue.objects.using(using).filter(control=control).order_by("pk"):
        done = (
            f"done by {task.done_by} on {moment(task.done_at)}"
            if task.done_at
            else "open" + (f", due on {moment(task.due_at)}" if task.due_at else "")
        )
        whom = task.assignee or "nobody in particular"
        text = f"Task {task.pk}, {task.title!r}, for {whom}, was queued on {moment(task.created_at)}; it is {done}."
        yield TaskStory(task.pk, str(task.pass_id or ""), task.title, (text,))
