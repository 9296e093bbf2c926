"""Event -> message."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from django.utils import translation

from ..addresses import Recipients, parse_recipients, shown
from ..conf import conf
from ..errors import UnusableOption
from ..models import MailState, Wording
from ..notes import Note, english, note
from ..steps import Event, Step, is_parent
from ..text import TENANT_UNITS_MAX, is_tenant, one_line, shorten
from .coalesce import as_coalesced
from .columns import roundtrip_all
from .names import is_used
from .options import NONE, Options, has_options, read_options
from .subjects import Lines
from .values import LANGUAGE, MAIL, WORDING, CannotFreeze, add_own, freeze, template_values
from .wordings import current_wording, has_wording, source_of

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


def reads_event_at(step: Step, *, using: str) -> bool:
    """Whether a step's messages show when the event happened: psycopg takes longer to read a moment than all else."""
    return has_options(step) or is_used("event_at", step.templates) or has_wording(step.kind, using=using)


def make_messages(
    step: Step,
    events: Sequence[Event],
    *,
    fold_local_part: bool = True,
    using: str | None = None,
    is_file: bool = False,
) -> list[Message]:
    """
    Make each event's message, in order; one that cannot be made is ``blocked`` with its reason, the others go on.

    With ``using`` the wordings of that database count, unless ``is_file``; one query per language.
    """
    if step.coalesce:
        events = [as_coalesced(event) for event in events]
    made: dict[int, Message] = {}
    # Language by language, because changing it takes longer than making a message.
    by_language: dict[str, list[int]] = {}
    for place, event in enumerate(events):
        by_language.setdefault(event.language, []).append(place)
    for language, places in by_language.items():
        alike = [events[place] for place in places]
        is_worded = using is not None and step.template is not None and not is_file
        wording = current_wording(step.kind, language, using=using) if is_worded else None
        with translation.override(language):
            try:
                messages = make_alike(step, alike, fold_local_part=fold_local_part, wording=wording)
            except Exception:  # one bad event must not stop the others: find out which one it is
                messages = make_singly(step, alike, fold_local_part=fold_local_part, wording=wording)
        made.update(zip(places, messages, strict=True))
    return [made[place] for place in range(len(events))]


def make_singly(
    step: Step, events: Sequence[Event], *, fold_local_part: bool, wording: Wording | None = None
) -> list[Message]:
    """Make messages in the active language, each by itself, blocking those that cannot be made."""
    messages = []
    for event in events:
        try:
            messages += make_alike(step, [event], fold_local_part=fold_local_part, wording=wording)
        except Exception as error:  # an error in a template or a value is stored in the row
            messages.append(unmade(event, error, fold_local_part=fold_local_part))
    return messages


def make_alike(
    step: Step, events: Sequence[Event], *, fold_local_part: bool, wording: Wording | None = None
) -> list[Message]:
    """Make messages in the active language, all or none. Raises: whatever a template or a value raises."""
    lines, frozen = Lines(), roundtrip_all([event.values for event in events])
    site_url, options = conf().SITE_URL.rstrip("/"), [NONE] * len(events)
    if has_options(step):
        options = [
            read_options(step, event._replace(values=thawed), fold_local_part=fold_local_part)
            for event, (_text, thawed) in zip(events, frozen, strict=True)
        ]
    # What is rendered is what the body will be rendered from: the values as they come out of the row.
    values = [
        template_values(
            thawed,
            kind=event.kind,
            key=event.original_key or event.key,
            key2=event.key2,
            site_url=option.frozen.get("site_url", site_url),
        )
        for event, (_text, thawed), option in zip(events, frozen, options, strict=True)
    ]
    nothing = [""] * len(events)
    subjects, name = nothing, f"notify/mail/{step.template}.subject.txt"
    if step.template:
        subjects = lines.render_all(name, values, source=source_of(wording))
    titles = lines.render_all(f"notify/task/{step.task}.title.txt", values) if step.task else nothing
    people = [parse_recipients(event.recipients, fold_local_part=fold_local_part) for event in events]
    texts = [
        add_own(text, own_of(event, option, wording))
        for event, (text, _thawed), option in zip(events, frozen, options, strict=True)
    ]
    return [finished(step, *parts) for parts in zip(events, people, subjects, titles, texts, options, strict=True)]


def finished(
    step: Step, event: Event, recipients: Recipients, subject: str, title: str, payload: str, options: Options = NONE
) -> Message:
    """Return the message of these parts, or what is wrong with it."""
    if not is_tenant(event.tenant):
        return blocked(event, describe_tenant(event.tenant))
    is_blocked = step.template is not None and not (recipients.good and subject)
    is_sound = (step.template is None or not (is_blocked or recipients.bad)) and not event.asked_language
    is_sound = is_sound and not options.notes
    # By place: the names would take longer than all else here.
    return Message(
        event,
        event.language,
        recipients.good,
        subject,
        title,
        payload,
        BLOCKED if is_blocked else QUEUED,
        () if is_sound else (*describe(step, event, recipients, subject), *options.notes),
        event.tenant,
    )


def describe(step: Step, event: Event, recipients: Recipients, subject: str) -> tuple[Note, ...]:
    """Return the problem of a message."""
    problems = []
    if step.template is not None:
        if not recipients.good:
            problems.append(note("no_recipient"))
        if recipients.bad:
            problems.append(note("not_an_address", addresses=", ".join(recipients.bad)))
        if not subject:
            problems.append(note("empty_subject"))
    if event.asked_language and not is_parent(event.language, event.asked_language):
        problems.append(note("language_missing", asked=shown(event.asked_language), used=event.language))
    return tuple(problems)


def own_of(event: Event, options: Options, wording: Wording | None) -> dict[str, Any]:
    """Return what a payload says of the message itself."""
    own: dict[str, Any] = {LANGUAGE: event.asked_language} if event.asked_language else {}
    if options.frozen:
        own[MAIL] = dict(options.frozen)
    if wording is not None:
        own[WORDING] = wording.pk
    return own


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


def describe_error(error: Exception) -> str:
    """Say what a template or a value has raised."""
    return str(error) if isinstance(error, CannotFreeze) else f"{type(error).__name__}: {error}"


def unmade(event: Event, error: Exception, *, fold_local_part: bool) -> Message:
    """Return the placeholder of a message that raised, with what can be stored to build it again later."""
    if isinstance(error, UnusableOption):
        message = blocked(event, error.note)
    else:
        message = blocked(event, note("cannot_be_made", error=one_line(describe_error(error))))
    # One of the two may be what has raised.
    with suppress(Exception):
        message = message._replace(recipients=parse_recipients(event.recipients, fold_local_part=fold_local_part).good)
    with suppress(Exception):
        message = message._replace(payload=freeze(event.values))
    return message


def silent(event: Event) -> Message:
    """Return the control row of an event without message; an invalid tenant is stored as none."""
    return Message(event=event, language="", recipients=(), tenant=event.tenant if is_tenant(event.tenant) else "")
