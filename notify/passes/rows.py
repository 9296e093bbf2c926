"""A message as rows of the control table and the queues; pure."""

from collections.abc import Sequence
from functools import lru_cache

from ..dialects.base import ControlRow, MailRow, TaskRow
from ..messages.builder import BLOCKED, QUEUED, Message, problem_text
from ..messages.values import ENCODER
from ..models import SUBJECT_UNITS_MAX
from ..notes import as_text
from ..steps import Event, Step
from ..text import shorten

#: What a pass writes, as plain texts: psycopg would take a member of an enumeration for its name.
STATES = (QUEUED.value, BLOCKED.value)


def control_row(message: Message) -> ControlRow:
    """Return the control row of a message."""
    return control_row_of(message.event, message)


def control_row_of(event: Event, message: Message) -> ControlRow:
    """Return the control row of one of the events that a message stands for."""
    people = ", ".join(message.recipients)
    return ControlRow(event.key, event.key2, message.language, people, message.tenant, event.original_key)


def control_rows(messages: Sequence[Message]) -> list[ControlRow]:
    """Return the control rows of messages: one per event."""
    return [control_row_of(event, message) for message in messages for event in events_of(message)]


def events_of(message: Message) -> tuple[Event, ...]:
    """Return the events that a message stands for."""
    return message.event.members or (message.event,)


def mail_rows(messages: Sequence[Message], step: Step, control_ids: Sequence[int]) -> list[MailRow]:
    """Return the queue rows of messages: none, one, or for a digest one per recipient, who has a digest of his own."""
    if not step.template:
        return []
    if step.digest:
        several = [apart(message) for message in messages]
        control_ids = [pk for pk, parts in zip(control_ids, several, strict=True) for _ in parts]
        messages = [part for parts in several for part in parts]
    template = step.template
    return [
        # By place, as in ``finished``.
        MailRow(
            pk,
            template,
            subject,
            json_array(recipients),
            language,
            payload,
            STATES[state is BLOCKED],
            problem_text(notes),
            tenant,
            as_text(notes),
        )
        for pk, (_event, language, recipients, subject, _title, payload, state, notes, tenant) in zip(
            control_ids, messages, strict=True
        )
    ]


def apart(message: Message) -> list[Message]:
    """Return a message for each of the recipients; one without recipients is unchanged."""
    return [message._replace(recipients=(each,)) for each in message.recipients] or [message]


def mail_count(message: Message, step: Step) -> int:
    """Return how many mails a message becomes."""
    if not step.template:
        return 0
    return max(1, len(message.recipients)) if step.digest else 1


@lru_cache(maxsize=20_000)
def json_array(recipients: tuple[str, ...]) -> str:
    """Return addresses as JSON text; cached, because a pass meets the same few people again and again."""
    return ENCODER.encode(recipients)


def task_rows(messages: Sequence[Message], step: Step, control_ids: Sequence[int]) -> list[TaskRow]:
    """Return the task rows of messages."""
    pairs = zip(messages, control_ids, strict=True)
    return [task_row(message, pk) for message, pk in pairs if has_task(message, step)] if step.task else []


def has_task(message: Message, step: Step) -> bool:
    """Whether a message becomes a task: without a mail that would say so, also one that could not be made."""
    return bool(message.title) or (step.task is not None and step.template is None and message.state is BLOCKED)


def task_row(message: Message, control_id: int) -> TaskRow:
    """Return the task row of a message; for want of a title it says why there is none."""
    return TaskRow(
        control_id=control_id,
        title=message.title or shorten(message.problem, SUBJECT_UNITS_MAX),
        assignee=message.event.assignee,
        language=message.language,
        payload=message.payload,
        tenant=message.tenant,
    )
