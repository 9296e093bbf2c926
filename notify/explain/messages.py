"""Recorded codes as sentences in the reader's language; texts of other origin are unchanged."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.utils import timezone

from ..models import Attempt, MailQueue, RunLog
from ..notes import Note, from_data, say, try_find

#: Parameters that are moments; stored in UTC, shown by the reader's clock.
MOMENTS = ("since", "oldest")


def localized(notes: Sequence[Note]) -> list[Note]:
    """Return notes with their moments by the reader's clock."""
    return [Note(one.code, {name: localized_param(name, value) for name, value in one.params.items()}) for one in notes]


def localized_param(name: str, value: Any) -> Any:
    """Return one parameter by the reader's clock."""
    if isinstance(value, list) and value and isinstance(value[0], Note):
        return localized(value)
    if name not in MOMENTS or not isinstance(value, str):
        return value
    try:
        return f"{timezone.localtime(datetime.fromisoformat(value)):%Y-%m-%d %H:%M:%S%z}"
    except ValueError:  # no moment, or one without an offset
        return value


def say_notes(stored: Any, text: str | None) -> str:
    """Return what a row's notes say; its text as it stands when it has none (plain SQL may have written it)."""
    notes = from_data(stored)
    return say(localized(notes)) if notes else text or ""


def say_logged(row: RunLog) -> str:
    """Return what a row of the run log says."""
    return say_notes(row.notes, row.error)


def say_problem(mail: MailQueue) -> str:
    """Return what is wrong with a mail."""
    return say_notes(mail.notes, mail.problem)


def say_attempt(attempt: Attempt) -> str:
    """Return what Kwit or the server said of an attempt."""
    return say_notes(attempt.notes, attempt.text)


def holders_in(row: RunLog) -> list[Note]:
    """Return who held the lock when a pass was skipped."""
    found = try_find(row.notes, "skipped")
    return list(found.params["holder"]) if found else []


def say_holder(row: RunLog) -> str:
    """Return who held the lock when a pass was skipped; the whole text of a row written by plain SQL."""
    return say(localized(holders_in(row))) or row.error or ""


def say_first_holder(row: RunLog) -> str:
    """Return the same in short: by the run log, or by the database."""
    return say(localized(holders_in(row)[:1])) or row.error or ""


def lock_code_of(row: RunLog) -> str:
    """Return the code with which the lock was refused."""
    found = try_find(row.notes, "skipped")
    return str(found.params["code"]) if found else "?"
