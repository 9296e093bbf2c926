"""Blocked mails whose message could not be made: made anew, when a person has put right what was wrong."""

import json
from collections.abc import Collection
from datetime import datetime

from django.db import DatabaseError, connections
from django.db.models import QuerySet, Value
from django.db.models.fields import BigIntegerField

from .backends import room_for
from .conf import conf
from .models import MailQueue, MailState
from .rendering import Message, make_messages
from .steps import Event, Scope, Step, columns_of, event_reader, reading_order, step_of, supported_language


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
    now, made = room_for(connections[using]).now(connections[using]), 0
    rows = MailQueue.objects.using(using)
    for mail in list(unmade(rows.filter(pk__in=ids)).select_related("control").order_by("pk")):
        step = step_of(mail.control.kind)
        if step is None or step.template is None:
            continue
        event = try_event(step, mail, now=now, using=using) or frozen_event(mail)
        if event is None:
            continue
        [message] = make_messages(step, [event], fold_local_part=conf().FOLD_LOCAL_PART)
        won = unmade(rows.filter(pk=mail.pk)).update(**values_of(message, step))
        made += won and message.state == MailState.QUEUED
    return made


def values_of(message: Message, step: Step) -> dict[str, object]:
    """Return what a mail's row gets from a message; what could not be made again says why."""
    if not message.subject:
        return {"problem": message.problem}
    return {
        "template": step.template,
        "subject": message.subject,
        "recipients": list(message.recipients),
        "language": message.language,
        "payload": json.loads(message.payload),
        "tenant": message.tenant,
        "problem": message.problem or "made anew; not yet released",
    }


def try_event(step: Step, mail: MailQueue, *, now: datetime, using: str) -> Event | None:
    """Return the event as the step's query gives it now; None when it does not, or cannot be read."""
    found = step.events(Scope(now=now)).using(using)
    if "key2" not in columns_of(found):
        found = found.annotate(key2=Value(0, BigIntegerField()))
    names = reading_order(columns_of(found))
    try:
        row = found.filter(key=mail.control.key, key2=mail.control.key2).values_list(*names).first()
    except (DatabaseError, ValueError, OverflowError):
        return None
    if row is None:
        return None
    event = event_reader(step.kind, names)(row)
    # What a person has corrected stays so.
    return event._replace(recipients=mail.recipients) if mail.operator and mail.recipients else event


def frozen_event(mail: MailQueue) -> Event | None:
    """Return the event of the values frozen then; None when none could be."""
    if not isinstance(mail.payload, dict) or not mail.payload:
        return None
    control = mail.control
    language = supported_language(mail.language)
    return Event(control.kind, control.key, control.key2, mail.recipients, language, "", mail.payload, mail.tenant)
