"""A message as rows of the control table and the queues; pure."""

from functools import lru_cache

from .backends.base import ControlRow, MailRow, TaskRow
from .rendering import ENCODER, Message
from .steps import Step


def control_row(message: Message) -> ControlRow:
    """Return the control row of a message."""
    key, key2 = message.event.key, message.event.key2
    return ControlRow(key, key2, message.language, ", ".join(message.recipients), message.tenant)


def mail_rows(message: Message, step: Step, control_id: int) -> list[MailRow]:
    """Return the queue rows of a message: none, one, or for a digest one per recipient, who has a digest of his own."""
    if mail_count(message, step) < 2:
        return [mail_row(message, step, control_id)] if step.template else []
    return [mail_row(message._replace(recipients=(each,)), step, control_id) for each in message.recipients]


def mail_count(message: Message, step: Step) -> int:
    """Return how many mails a message becomes."""
    if not step.template:
        return 0
    return max(1, len(message.recipients)) if step.digest else 1


def mail_row(message: Message, step: Step, control_id: int) -> MailRow:
    """Return the queue row of a message."""
    return MailRow(
        control_id=control_id,
        template=step.template or "",
        subject=message.subject,
        recipients=json_array(message.recipients),
        language=message.language,
        payload=message.payload,
        state=message.state.value,
        problem=message.problem,
        tenant=message.tenant,
    )


@lru_cache(maxsize=20_000)
def json_array(recipients: tuple[str, ...]) -> str:
    """Return addresses as JSON text; cached, because a pass meets the same few people again and again."""
    return ENCODER.encode(recipients)


def task_row(message: Message, control_id: int) -> TaskRow:
    """Return the task row of a message."""
    return TaskRow(
        control_id=control_id,
        title=message.title,
        assignee=message.event.assignee,
        language=message.language,
        payload=message.payload,
        tenant=message.tenant,
    )
