"""Event -> message."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, NamedTuple

from django.core.serializers.json import DjangoJSONEncoder
from django.utils import translation

from .addresses import Recipients, parse_recipients, shown
from .models import MailState
from .steps import Event, Step
from .subjects import Lines
from .texts import TENANT_UNITS_MAX, clean, is_tenant, one_line, shorten

#: Characters of a problem text, so that a row stays readable in a list.
PROBLEM_CHARS_MAX = 1000
NO_RECIPIENT = "no recipient"
#: Begins the problem of a message that raised.
UNMADE = "cannot be made"


class Message(NamedTuple):
    """What one event becomes: subject and frozen values, or (state ``blocked``) the reason why not."""

    event: Event
    language: str
    recipients: tuple[str, ...]
    subject: str = ""
    title: str = ""
    payload: str = "{}"
    state: MailState = MailState.QUEUED
    problem: str = ""
    tenant: str = ""


def make_messages(step: Step, events: Sequence[Event], *, fold_local_part: bool = True) -> list[Message]:
    """Make each event's message, in order; one that cannot be made is ``blocked`` with its reason, the others go on."""
    made: dict[int, Message] = {}
    # Language by language, because changing it takes longer than making a message.
    by_language = sorted(range(len(events)), key=lambda place: events[place].language)
    for language, places in groupby(by_language, key=lambda place: events[place].language):
        with translation.override(language):
            lines = Lines()
            for place in places:
                try:
                    made[place] = make_message(step, events[place], fold_local_part=fold_local_part, lines=lines)
                except Exception as error:  # one bad event must not stop the ninety-nine others
                    made[place] = unmade(events[place], error, fold_local_part=fold_local_part)
    return [made[place] for place in range(len(events))]


def make_message(step: Step, event: Event, *, fold_local_part: bool = True, lines: Lines | None = None) -> Message:
    """
    Make one event's message in the active language. Raises: whatever a template or a value raises.

    ``lines`` is shared by the messages of one language.
    """
    if event.tenant != "" and not is_tenant(event.tenant):
        return blocked(event, describe_tenant(event.tenant))
    lines = lines or Lines()
    recipients = parse_recipients(event.recipients, fold_local_part=fold_local_part)
    subject = lines.render(f"notify/mail/{step.template}.subject.txt", event.values) if step.template else ""
    title = lines.render(f"notify/task/{step.task}.title.txt", event.values) if step.task else ""
    is_blocked = step.template is not None and not (recipients.good and subject)
    is_sound = step.template is None or not (is_blocked or recipients.bad)
    return Message(
        event=event,
        language=event.language,
        recipients=recipients.good,
        subject=subject,
        title=title,
        payload=freeze(event.values),
        state=MailState.BLOCKED if is_blocked else MailState.QUEUED,
        problem="" if is_sound else describe(recipients, subject),
        tenant=event.tenant,
    )


def describe(recipients: Recipients, subject: str) -> str:
    """Say what is wrong with a message; an empty text when nothing is."""
    problems = []
    if not recipients.good:
        problems.append(NO_RECIPIENT)
    if recipients.bad:
        problems.append("not an address: " + ", ".join(recipients.bad))
    if not subject:
        problems.append("the subject is empty")
    return shorten("; ".join(problems), PROBLEM_CHARS_MAX)


def describe_tenant(given: Any) -> str:
    """Say why a value is no tenant."""
    told = shown(given) if isinstance(given, str) else f"of type {type(given).__name__}"
    return (
        f"the tenant, {told}, is not a text of at most {TENANT_UNITS_MAX} characters without control characters and "
        f"without a blank at an end"
    )


def blocked(event: Event, reason: str) -> Message:
    """Return the visible stand-in of a message that cannot be made."""
    return silent(event)._replace(
        language=event.language, state=MailState.BLOCKED, problem=shorten(one_line(reason), PROBLEM_CHARS_MAX)
    )


def unmade(event: Event, error: Exception, *, fold_local_part: bool) -> Message:
    """Return the stand-in of a message that raised, with what can be kept, so that it can be made anew later."""
    message = blocked(event, f"{UNMADE}: {type(error).__name__}: {error}")
    # One of the two may be what has raised.
    with suppress(Exception):
        message = message._replace(recipients=parse_recipients(event.recipients, fold_local_part=fold_local_part).good)
    with suppress(Exception):
        message = message._replace(payload=freeze(event.values))
    return message


def silent(event: Event) -> Message:
    """Return what stands for an event when nobody is told; without a good tenant it is nobody's."""
    return Message(event=event, language="", recipients=(), tenant=event.tenant if is_tenant(event.tenant) else "")


def freeze(values: Mapping[str, Any]) -> str:
    """Return the values as JSON text that every database can store. Raises: TypeError, ValueError."""
    text = ENCODER.encode(values)
    if "\\u0000" in text or not is_storable(text):
        return ENCODER.encode(cleaned(json.loads(text)))
    return text


#: Dates, decimals and UUIDs become texts; NaN, which no database takes as JSON, is refused.
ENCODER = DjangoJSONEncoder(ensure_ascii=False, allow_nan=False)


def is_storable(text: str) -> bool:
    """Whether a text has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def cleaned(value: Any) -> Any:
    """Clean every text inside a JSON value."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [cleaned(item) for item in value]
    if isinstance(value, dict):
        return {clean(name): cleaned(item) for name, item in value.items()}
    return value
