"""
What a database must be able to do for a pass and for delivery.

Each room is a module with these functions in this order.

Raw SQL stands in the rooms only, and only where the ORM cannot say it or not set-based.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

from ..notes import Note

#: The codes are those of sp_getapplock, on every database: 0 and above granted, below 0 refused.
GRANTED = 0
BUSY = -1

#: What a pass waits for another session's row lock before it gives way and repeats its chunk; whole milliseconds.
#: Below PostgreSQL's deadlock_timeout (1 s), so that in a deadlock the pass gives way before the other is chosen.
ROW_LOCK_WAIT_MS = 500


@dataclass(frozen=True)
class LockAnswer:
    """
    What the database said when asked for the pass lock.

    ``token`` is the room's own proof of ownership, to be handed back to ``is_locked`` and ``unlock``.
    ``holder`` is what the database itself knows of the session that has it; None when it knows nothing.
    """

    code: int
    token: Any = None
    holder: Note | None = None

    @property
    def is_granted(self) -> bool:
        """Whether the lock is ours."""
        return self.code >= GRANTED


class ControlRow(NamedTuple):
    """What a new row of the control table gets from us."""

    key: int
    key2: int
    language: str
    recipients: str
    tenant: str = ""


class MailRow(NamedTuple):
    """What a new row of the mail queue gets from us; ``recipients``, ``payload`` and ``notes`` are JSON texts."""

    control_id: int
    template: str
    subject: str
    recipients: str
    language: str
    payload: str
    state: str
    problem: str
    tenant: str = ""
    notes: str | None = None


class TaskRow(NamedTuple):
    """What a new row of the task queue gets from us; ``payload`` is a JSON text."""

    control_id: int
    title: str
    assignee: str
    language: str
    payload: str
    tenant: str = ""


class AttemptRow(NamedTuple):
    """What a new row of the attempts gets from us."""

    mail_id: int
    number: int
    part: int
    recipient: str
    outcome: str
    code: int | None
    enhanced: str
    text: str
    at: datetime
    worker: str
    channel: str
    notes: list[dict[str, Any]] | None = None


class Change(NamedTuple):
    """What one row of the mail queue gets from us, by column."""

    mail_id: int
    values: Mapping[str, Any]


class Weakness(NamedTuple):
    """A setting of the database that a pass would suffer from; the letter of its id says how much."""

    id: str
    about: str
    what_to_do: str


class Room(Protocol):
    """One database's way of doing it."""

    def now(self, connection: BaseDatabaseWrapper) -> datetime:
        """Return the database's clock, aware, to the microsecond or as fine as it goes."""

    def check_session(self, connection: BaseDatabaseWrapper) -> None:
        """Make sure that a session lock can hold on this connection. Raises: LockUnusable, naming what is between."""

    def weaknesses(self, connection: BaseDatabaseWrapper) -> list[Weakness]:
        """Return what of the database's settings a site should know of."""

    def try_lock(self, connection: BaseDatabaseWrapper) -> LockAnswer:
        """Take the pass lock at once or not at all; refused as well when this very session has it."""

    def is_locked(self, connection: BaseDatabaseWrapper, token: Any) -> bool:
        """Whether the lock that was granted with ``token`` is still ours, on this very session."""

    def unlock(self, connection: BaseDatabaseWrapper, token: Any) -> None:
        """Give the lock back; a lock that is already gone is no error."""

    def enter_pass(self, connection: BaseDatabaseWrapper) -> Any:
        """Return what ``leave_pass`` needs to give the connection back as it was."""

    def leave_pass(self, connection: BaseDatabaseWrapper, before: Any) -> None:
        """Undo what ``yield_to_others`` has set for longer than a transaction."""

    def yield_to_others(self, connection: BaseDatabaseWrapper) -> None:
        """Make the open transaction the one that gives way when it meets another; ends with it, or with the pass."""

    def is_transient(self, error: Exception) -> bool:
        """Whether the same statements may well succeed when repeated: deadlock, serialization, lock wait."""

    def is_refusal(self, error: Exception) -> bool:
        """Whether the database refused a row for what is in it (a rule, a trigger): another row may well do."""

    def stream(
        self, queryset: QuerySet[Any, Mapping[str, Any]], *, names: Sequence[str], rows: int
    ) -> Iterator[list[tuple[Any, ...]]]:
        """
        Run the query once and yield its rows in lists of at most ``rows``, with flat memory: a list of long texts is
        shorter (``generic.LIST_CHARS_MAX``).

        The result is that of one moment, and the caller may commit on the same connection between two lists.
        ``names`` are the columns, in the order of each tuple.
        """

    def insert_controls(
        self, connection: BaseDatabaseWrapper, kind: str, rows: Sequence[ControlRow]
    ) -> dict[tuple[int, int], int]:
        """Insert those that are not there yet, in key order, in one statement; return {(key, key2): id} of the new."""

    def insert_mails(self, connection: BaseDatabaseWrapper, pass_id: UUID, rows: Sequence[MailRow]) -> None:
        """Insert queue rows, in one statement unless their texts are very long."""

    def insert_tasks(self, connection: BaseDatabaseWrapper, pass_id: UUID, rows: Sequence[TaskRow]) -> None:
        """Insert task rows, in one statement unless their texts are very long."""

    def claim_mails(
        self, connection: BaseDatabaseWrapper, *, worker: str, now: datetime, lease_until: datetime, limit: int
    ) -> list[int]:
        """
        Lease up to ``limit`` due mails to a worker, the longest due first; return their ids in that order.

        Due: ``queued``, ``due_at`` not after ``now``, no ``digest_of``, no lease or one that ran out before ``now``.
        No mail goes to two workers, and no worker waits for another. Transaction: its own, one statement.
        """

    def insert_attempts(self, connection: BaseDatabaseWrapper, rows: Sequence[AttemptRow]) -> None:
        """Insert what became of one mail's recipients. Transaction: the caller's."""

    def try_begin_mail(
        self, connection: BaseDatabaseWrapper, mail_id: int, *, worker: str, now: datetime, values: Mapping[str, Any]
    ) -> bool:
        """
        Mark a claimed mail as on the wire; return False when the claim was lost.

        Lost: the lease ran out before ``now``, a person held it, or a digest took it along. Transaction: the caller's.
        """

    def try_settle_mail(
        self, connection: BaseDatabaseWrapper, mail_id: int, *, worker: str, values: Mapping[str, Any]
    ) -> bool:
        """
        Write what a worker says came of a mail and end its claim; return False when somebody else has it.

        ``uncertain`` is one of the states it may be in: the lease ran out, but now we do know. ``values`` may keep the
        worker's name. Transaction: the caller's.
        """

    def try_go_on(
        self,
        connection: BaseDatabaseWrapper,
        *,
        worker: str,
        now: datetime,
        attempts: Sequence[AttemptRow],
        settled: Change | None,
        begun: Change | None,
    ) -> bool:
        """
        Write what came of one mail and that the next one is on the wire, as the functions above do, both or neither.

        Return False when the next one is not ours any more; what came of the last one is written all the same. The two
        are different mails. Transaction: its own, durable.
        """

    def announce(self, connection: BaseDatabaseWrapper) -> None:
        """Wake whoever is in ``wait``, when the open transaction commits; nothing where a database cannot."""

    def wait(self, connection: BaseDatabaseWrapper, seconds: float) -> bool:
        """Wait until somebody announces, but not longer; return whether somebody did. Never inside a transaction."""
