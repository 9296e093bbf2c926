"""The smallest lawful rows of the queues and of the run log."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from django.db import DEFAULT_DB_ALIAS, connections

from notify.models import Control, MailQueue, RunLog
from notify.notes import Note
from notify.passes.run_log import text_of

#: Long past, so that a mail made by a test is due.
PAST = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)
_numbers = count(1_000_000)
COMMENT = {"author": "Aiko", "body": "When will it ship?", "item": "Bolt M8", "number": "PO-4711"}


def make_mail(
    *,
    to: Any = ("ann@example.org",),
    kind: str = "comment",
    key: int | None = None,
    using: str | None = None,
    **fields: Any,
) -> MailQueue:
    """Make a queued mail with its control row; due at once."""
    features = connections[using or DEFAULT_DB_ALIAS].features
    if not (isinstance(to, tuple | list | dict) or features.supports_primitives_in_json_field):
        pytest.skip("SQL Server keeps such recipients out itself: ISJSON is 1 for lists and objects only")
    key = key or next(_numbers)
    control = Control.objects.using(using).create(kind=kind, key=key, key2=0)
    values = {
        "template": "comment",
        "subject": f"Subject {key}",
        "recipients": list(to) if isinstance(to, tuple) else to,
        "language": "en",
        "payload": COMMENT,
        "due_at": PAST,
        "created_at": PAST,
    }
    mail = MailQueue.objects.using(using).create(control=control, **values | fields)
    return MailQueue.objects.using(using).get(pk=mail.pk)


def outcomes(mail: MailQueue) -> list[tuple[str, str, int | None]]:
    """Return (recipient, outcome, code) of a mail's attempts, in order."""
    return list(mail.tries.order_by("pk").values_list("recipient", "outcome", "code"))


def state(mail: MailQueue) -> str:
    """Return a mail's state as it is now."""
    return MailQueue.objects.values_list("state", flat=True).get(pk=mail.pk)


def log(
    step: str = RunLog.WHOLE, *, pass_id: Any = None, minute: int = 0, said: Sequence[Note] = (), **fields: Any
) -> RunLog:
    """Make the row of a pass, or of a step, that has ended well so many minutes after PAST; ``said`` is its text."""
    at = PAST + timedelta(minutes=minute)
    values = {"started_at": at, "ended_at": at, "ms": 5, "outcome": "ok", **text_of(said)} | fields
    return RunLog.objects.create(pass_id=pass_id or uuid4(), step=step, **values)
