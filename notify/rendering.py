"""Event -> message; the only reader of mail templates."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.template import Context, Template, TemplateDoesNotExist
from django.template.loader import get_template
from django.utils import translation
from django.utils.safestring import mark_safe

from .addresses import Recipients, parse_recipients
from .models import SUBJECT_UNITS_MAX, MailState
from .steps import Event, Step
from .texts import clean, one_line, shorten

#: Characters of a problem text, so that a row stays readable in a list.
PROBLEM_CHARS_MAX = 1000
NO_RECIPIENT = "no recipient"


@dataclass(frozen=True)
class Message:
    """What one event becomes: subject and frozen values, or (state ``blocked``) the reason why not."""

    event: Event
    language: str
    recipients: tuple[str, ...]
    subject: str = ""
    title: str = ""
    payload: str = "{}"
    state: MailState = MailState.QUEUED
    problem: str = ""


def make_messages(step: Step, events: Iterable[Event], *, fold_local_part: bool = True) -> Iterator[Message]:
    """Make each event's message; one that cannot be made is ``blocked`` with its reason, the others go on."""
    by_language = sorted(events, key=lambda event: event.language)
    for language, group in groupby(by_language, key=lambda event: event.language):
        with translation.override(language):
            for event in group:
                try:
                    yield make_message(step, event, fold_local_part=fold_local_part)
                except Exception as error:  # one bad event must not stop the ninety-nine others
                    yield blocked(event, f"cannot be made: {type(error).__name__}: {error}")


def make_message(step: Step, event: Event, *, fold_local_part: bool = True) -> Message:
    """Make one event's message in the active language. Raises: whatever a template or a value raises."""
    recipients = parse_recipients(event.recipients, fold_local_part=fold_local_part)
    subject = render_line(f"notify/mail/{step.template}.subject.txt", event.values) if step.template else ""
    title = render_line(f"notify/task/{step.task}.title.txt", event.values) if step.task else ""
    is_blocked = step.template is not None and not (recipients.good and subject)
    return Message(
        event=event,
        language=event.language,
        recipients=recipients.good,
        subject=subject,
        title=title,
        payload=freeze(event.values),
        state=MailState.BLOCKED if is_blocked else MailState.QUEUED,
        problem=describe(recipients, subject) if step.template else "",
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


def blocked(event: Event, reason: str) -> Message:
    """Return the visible stand-in of a message that cannot be made."""
    return Message(
        event=event,
        language=event.language,
        recipients=(),
        state=MailState.BLOCKED,
        problem=shorten(one_line(reason), PROBLEM_CHARS_MAX),
    )


def render_line(name: str, values: Mapping[str, Any]) -> str:
    """Render a text template of one line, shortened at a whole character."""
    # Plain text: a "<" in an order note is a "<" in the subject.
    return shorten(one_line(template(name).render(Context(dict(values), autoescape=False))), SUBJECT_UNITS_MAX)


@dataclass(frozen=True)
class Body:
    """The two bodies of a mail; ``html`` is empty for a kind without an HTML template."""

    text: str
    html: str


def render_body(name: str, values: Mapping[str, Any], *, language: str) -> Body:
    """
    Render ``notify/mail/<name>.body.txt`` and, where there is one, ``.body.html`` in a language.

    Raises: whatever a template or a value raises.
    """
    with translation.override(language or settings.LANGUAGE_CODE):
        text = template(f"notify/mail/{name}.body.txt").render(Context(dict(values), autoescape=False))
        found = try_template(f"notify/mail/{name}.body.html")
        html = found.render(Context(dict(values))) if found else ""
    return Body(text.strip() + "\n", html.strip() + "\n" if html else "")


@dataclass(frozen=True)
class DigestItem:
    """One mail inside a digest."""

    subject: str
    text: str
    html: str


def render_digest(items: Sequence[tuple[str, Body]], *, name: str, language: str) -> tuple[str, Body]:
    """Render several mails as one; return its subject and bodies. A kind may have digest templates of its own."""
    own = f"{name}.digest" if try_template(f"notify/mail/{name}.digest.body.txt") else "digest"
    shown = [DigestItem(subject, body.text, mark_safe(body.html)) for subject, body in items]  # noqa: S308 - rendered
    values = {"items": shown, "count": len(shown)}
    with translation.override(language or settings.LANGUAGE_CODE):
        subject = render_line(f"notify/mail/{own}.subject.txt", values)
    return subject, render_body(own, values, language=language)


@lru_cache(maxsize=256)
def cached_template(name: str) -> Template:
    """Return a compiled template."""
    compiled: Template = get_template(name).template  # type: ignore[attr-defined]
    return compiled


@lru_cache(maxsize=256)
def is_template(name: str) -> bool:
    """Whether there is a template of that name."""
    try:
        template(name)
    except TemplateDoesNotExist as error:
        if error.args[:1] == (name,):
            return False
        raise  # it is there, but what it extends or includes is not
    return True


def try_template(name: str) -> Template | None:
    """Return a compiled template, None when there is none of that name."""
    known = is_template.__wrapped__(name) if settings.DEBUG else is_template(name)
    return template(name) if known else None


def template(name: str) -> Template:
    """Return a compiled template, read anew each time while DEBUG is on."""
    return cached_template.__wrapped__(name) if settings.DEBUG else cached_template(name)


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
