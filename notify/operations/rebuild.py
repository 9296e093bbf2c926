"""Builds the message of a blocked mail again after a person has corrected the cause."""

import json
import logging
from collections.abc import Collection
from datetime import datetime

from django.db import connections
from django.db.models import Q, QuerySet

from ..conf import conf
from ..dialects import dialect_of
from ..messages.builder import Message, make_messages, problem_text
from ..messages.coalesce import EVENTS_MAX, coalesce
from ..messages.values import thaw
from ..models import Control, MailQueue, MailState, TaskQueue
from ..notes import as_data, note
from ..passes.rows import task_row
from ..steps import Event, Scope, Step, columns_of, event_reader, reading_order, step_of, supported_language

logger = logging.getLogger(__name__)


def unmade(mails: QuerySet[MailQueue]) -> QuerySet[MailQueue]:
    """Return the blocked mails that have no message: what could not be made has no subject."""
    return mails.filter(state=MailState.BLOCKED, subject="", digest_of__isnull=True)


def remake_mails(ids: Collection[int], *, using: str) -> int:
    """
    Make the messages anew of those of these mails that have none; return how many could be made.

    They are made of the event as the step's query gives it now, or of the values frozen then when it gives it no more.
    All stay blocked: whoever releases them releases those that have a message now; the others say what is wrong now.

    Transaction: none of its own; each mail is one statement.
    """
    now, made = dialect_of(connections[using]).now(connections[using]), 0
    rows = MailQueue.objects.using(using)
    for mail in list(unmade(rows.filter(pk__in=ids)).select_related("control").order_by("pk")):
        step = step_of(mail.control.kind)
        if step is None or step.template is None:
            continue
        event = try_event(step, mail, now=now, using=using) or frozen_event(mail)
        if event is None:
            continue
        [message] = make_messages(step, [event], fold_local_part=conf().FOLD_LOCAL_PART, using=using)
        if unmade(rows.filter(pk=mail.pk)).update(**values_of(message, step)):
            made += message.state == MailState.QUEUED
            add_task(message, mail, using=using)
    return made


def add_task(message: Message, mail: MailQueue, *, using: str) -> None:
    """Make the event's task, which could not be made with its mail; a digest has several mails and one task."""
    tasks = TaskQueue.objects.using(using)
    if message.title and not tasks.filter(control=mail.control).exists():
        tasks.create(control=mail.control, pass_id=mail.pass_id, **values_of_task(message))


def values_of_task(message: Message) -> dict[str, object]:
    """Return what a task's row gets from a message."""
    row = task_row(message, 0)._asdict() | {"payload": json.loads(message.payload)}
    del row["control_id"]
    return row


def values_of(message: Message, step: Step) -> dict[str, object]:
    """Return what a mail's row gets from a message; what could not be made again says why."""
    if not message.subject:
        return {"problem": message.problem, "notes": as_data(message.notes)}
    notes = message.notes or (note("made_anew"),)
    return {
        "template": step.template,
        "subject": message.subject,
        "recipients": list(message.recipients),
        "language": message.language,
        "payload": json.loads(message.payload),
        "tenant": message.tenant,
        "problem": problem_text(notes),
        "notes": as_data(notes),
    }


def try_event(step: Step, mail: MailQueue, *, now: datetime, using: str) -> Event | None:
    """Return the event as the step's query gives it now; None when it does not, or cannot be read."""
    try:
        found = step.keyed_events(Scope(now=now), using=using)
        names = reading_order(columns_of(found))
        control = mail.control
        asked = step.only(found, key=control.key, key2=control.key2, original_key=control.original_key)
        if step.coalesce:
            covered = Control.objects.using(using).filter(Q(pk=control.pk) | Q(covered_by=control)).values("key2")
            asked = found.filter(key=control.key, key2__in=list(covered.values_list("key2", flat=True)))
            asked = asked.order_by("event_at", "key2")
        rows = list(asked.values_list(*names)[:EVENTS_MAX])
        events = [event_reader(step.kind, names)(row) for row in rows]
        event = (coalesce(events) if step.coalesce else events[0]) if events else None
    except Exception:  # a step that fails must not keep the mails of others from being released
        logger.exception("the event of mail %s cannot be read", mail.pk)
        return None
    # What a person has corrected stays so, and in a digest each of an event's mails is one recipient's.
    is_settled = mail.recipients and (mail.operator or step.digest)
    return event._replace(recipients=mail.recipients) if event and is_settled else event


def frozen_event(mail: MailQueue) -> Event | None:
    """Return the event of the values frozen then; None when none could be."""
    if not isinstance(mail.payload, dict) or not mail.payload:
        return None
    control = mail.control
    language = supported_language(mail.language)
    return Event(
        control.kind,
        control.key,
        control.key2,
        mail.recipients,
        language,
        values=thaw(mail.payload),
        tenant=mail.tenant,
        original_key=control.original_key,
    )
