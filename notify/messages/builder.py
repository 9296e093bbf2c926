"""Event -> message."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from django.core.serializers.json import DjangoJSONEncoder
from django.utils import translation

from ..addresses import Recipients, parse_recipients, shown
from ..models import MailState
from ..notes import Note, english, note
from ..steps import Event, Step
from ..text import TENANT_UNITS_MAX, clean, is_tenant, one_line, shorten
from .subjects import Lines

#: Characters of a problem text, so that a row stays readable in a list.
PROBLEM_CHARS_MAX = 1000
QUEUED, BLOCKED = MailState.QUEUED, MailState.BLOCKED


class Message(NamedTuple):
    """What one event becomes: subject and frozen values, or (state ``blocked``) the reason why not."""

    event: Event
    language: str
    recipients: tuple[str, ...]
    subject: str = ""
    title: str = ""
    payload: str = "{}"
    state: MailState = MailState.QUEUED
    #: What is wrong with it.
    notes: tuple[Note, ...] = ()
    tenant: str = ""

    @property
    def problem(self) -> str:
        """What is wrong with it, as the queue's row says it."""
        return problem_text(self.notes)


def make_messages(step: Step, events: Sequence[Event], *, fold_local_part: bool = True) -> list[Message]:
    """Make each event's message, in order; one that cannot be made is ``blocked`` with its reason, the others go on."""
    made: dict[int, Message] = {}
    # Language by language, because changing it takes longer than making a message.
    by_language: dict[str, list[int]] = {}
    for place, event in enumerate(events):
        by_language.setdefault(event.language, []).append(place)
    for language, places in by_language.items():
        alike = [events[place] for place in places]
        with translation.override(language):
            try:
                messages = make_alike(step, alike, fold_local_part=fold_local_part)
            except Exception:  # one bad event must not stop the ninety-nine others: look which one it is
                messages = make_singly(step, alike, fold_local_part=fold_local_part)
        made.update(zip(places, messages, strict=True))
    return [made[place] for place in range(len(events))]


def make_singly(step: Step, events: Sequence[Event], *, fold_local_part: bool) -> list[Message]:
    """Make messages in the active language, each by itself, blocking those that cannot be made."""
    messages = []
    for event in events:
        try:
            messages += make_alike(step, [event], fold_local_part=fold_local_part)
        except Exception as error:  # what a template or a value raises is told in the row
            messages.append(unmade(event, error, fold_local_part=fold_local_part))
    return messages


def make_alike(step: Step, events: Sequence[Event], *, fold_local_part: bool) -> list[Message]:
    """Make messages in the active language, all or none. Raises: whatever a template or a value raises."""
    lines, values = Lines(), [event.values for event in events]
    nothing = [""] * len(events)
    subjects = lines.render_all(f"notify/mail/{step.template}.subject.txt", values) if step.template else nothing
    titles = lines.render_all(f"notify/task/{step.task}.title.txt", values) if step.task else nothing
    people = [parse_recipients(event.recipients, fold_local_part=fold_local_part) for event in events]
    return [finished(step, *parts) for parts in zip(events, people, subjects, titles, freeze_all(values), strict=True)]


def finished(step: Step, event: Event, recipients: Recipients, subject: str, title: str, payload: str) -> Message:
    """Return the message of these parts, or what is wrong with it."""
    if not is_tenant(event.tenant):
        return blocked(event, describe_tenant(event.tenant))
    is_blocked = step.template is not None and not (recipients.good and subject)
    is_sound = step.template is None or not (is_blocked or recipients.bad)
    # By place: the names would take longer than all else here.
    return Message(
        event,
        event.language,
        recipients.good,
        subject,
        title,
        payload,
        BLOCKED if is_blocked else QUEUED,
        () if is_sound else describe(recipients, subject),
        event.tenant,
    )


def describe(recipients: Recipients, subject: str) -> tuple[Note, ...]:
    """Return what is wrong with a message."""
    problems = []
    if not recipients.good:
        problems.append(note("no_recipient"))
    if recipients.bad:
        problems.append(note("not_an_address", addresses=", ".join(recipients.bad)))
    if not subject:
        problems.append(note("empty_subject"))
    return tuple(problems)


def describe_tenant(given: Any) -> Note:
    """Return why a value is no tenant."""
    described = shown(given) if isinstance(given, str) else f"of type {type(given).__name__}"
    return note("wrong_tenant", given=described, max=TENANT_UNITS_MAX)


def problem_text(notes: Sequence[Note]) -> str:
    """Return notes as the ``problem`` of a mail: one line of limited length."""
    return shorten(one_line(english(notes)), PROBLEM_CHARS_MAX) if notes else ""


def blocked(event: Event, reason: Note) -> Message:
    """Return the visible stand-in of a message that cannot be made."""
    return silent(event)._replace(language=event.language, state=MailState.BLOCKED, notes=(reason,))


def unmade(event: Event, error: Exception, *, fold_local_part: bool) -> Message:
    """Return the stand-in of a message that raised, with what can be kept, so that it can be made anew later."""
    message = blocked(event, note("cannot_be_made", error=one_line(f"{type(error).__name__}: {error}")))
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
    return freeze_all([values])[0]


def freeze_all(several: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return values as JSON texts that every database can store, column by column. Raises: TypeError, ValueError."""
    names = several[0].keys() if several else ()
    if any(values.keys() != names for values in several):
        return [freeze(values) for values in several]
    columns = [map(frozen, column) for column in zip(*[values.values() for values in several], strict=True)]
    # What ENCODER makes of each, in a fraction of its time, most of which it takes to get ready.
    texts = [frame(tuple(names)) % parts for parts in zip(*columns, strict=True)] if columns else ["{}"] * len(several)
    whole = "".join(texts)
    return texts if is_storable(whole) else [mended(text) for text in texts]


def frozen(value: Any) -> str:
    """Return one value as JSON text."""
    return encode_basestring(value) if type(value) is str else ENCODER.encode(value)


@lru_cache(maxsize=256)
def frame(names: tuple[str, ...]) -> str:
    """Return a JSON object with these names and a place for each value."""
    pairs = (f"{encode_basestring(name)}: ".replace("%", "%%") + "%s" for name in names)
    return "{" + ", ".join(pairs) + "}"


def mended(text: str) -> str:
    """Return a JSON text that every database can store."""
    return text if is_storable(text) else ENCODER.encode(cleaned(json.loads(text)))


#: Dates, decimals and UUIDs become texts; NaN, which no database takes as JSON, is refused.
ENCODER = DjangoJSONEncoder(ensure_ascii=False, allow_nan=False)


def is_storable(text: str) -> bool:
    """Whether a JSON text has neither NUL nor a lone surrogate."""
    if "\\u0000" in text:
        return False
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
