"""Operations that a pass and delivery do differently on each database, and their defaults."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

from kwit.db.dialect import Dialect

from ..notes import Note

#: The codes are those of sp_getapplock, on every database: 0 and above granted, below 0 refused.
GRANTED = 0
BUSY = -1

#: What a pass waits for another session's row lock before it gives way and repeats its chunk; whole milliseconds.
#: Below PostgreSQL's deadlock_timeout (1 s), so that in a deadlock the pass gives way before the other is chosen.
ROW_LOCK_WAIT_MS = 500

#: 11 parameters each: below the 2,100 parameters of SQL Server.
ROWS_PER_STATEMENT = 100

#: After what the server ends a transaction of a pass whose process is stopped, so that the rows it has locked are free
#: again; whole milliseconds. Between two of its statements a pass only makes the next one, which takes far less.
STOPPED_WAIT_MS = 10_000

#: Characters of the texts in one list of rows. A pass needs about twenty times as much memory at its highest: the rows,
#: their messages, and the statement in which they travel. A usual event has 300, so that 5,000 of them fit.
LIST_CHARS_MAX = 4 * 2**20
#: Rows of the first fetch, while their length is unknown, and of any; it grows fourfold at most in between.
FETCH_ROWS_FIRST = 16
FETCH_ROWS_MAX = 250

#: 12 parameters each: below the 2,100 parameters of SQL Server.
ATTEMPTS_PER_STATEMENT = 100

Row = TypeVar("Row", bound="tuple[Any, ...]")

#: A claim that is still valid, and one whose result may still be written.
IS_OURS = "worker = %s AND lease_until > %s AND state IN ('queued', 'sending') AND digest_of_id IS NULL"
IS_OPEN = "worker = %s AND state IN ('queued', 'sending', 'uncertain')"


@dataclass(frozen=True)
class LockAnswer:
    """
    What the database said when asked for the pass lock.

    ``token`` is the dialect's own proof of ownership, to be handed back to ``is_locked`` and ``unlock``.
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
    original_key: str = ""


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


class NotifyDialect(Dialect):
    """
    What a database does for a pass and for delivery; ``tests/dialects`` has the conformance tests of each operation.

    Raw SQL stands in the dialects only, and only where the ORM cannot say it, not set-based, or at several times the
    cost: the statements that run once or twice per mail are plain SQL, because building and compiling a queryset takes
    longer than the database needs to answer (docs/decisions/024-plain-updates-per-mail.md).
    """

    def check_session(self, connection: BaseDatabaseWrapper) -> None:
        """
        Check that a session lock can hold on this connection. Raises: LockUnusable, naming what is between.

        By default nothing can be between Kwit and its database.
        """

    def pool_mode(self, connection: BaseDatabaseWrapper) -> str:
        """Return the mode of a connection pooler (session, transaction, statement); empty without one."""
        return ""

    def filtered_tables(self, connection: BaseDatabaseWrapper, tables: Sequence[str]) -> list[tuple[str, bool]]:
        """
        Return the tables of which row-level security shows this login a part only.

        With whether it shows no row although there are some, as far as the database's own statistics know.
        """
        return []

    def weaknesses(self, connection: BaseDatabaseWrapper) -> list[Weakness]:
        """Return what of the database's settings a site should know of."""
        return []

    def try_lock(self, connection: BaseDatabaseWrapper) -> LockAnswer:
        """Try to acquire the pass lock without waiting; also refused when this session already holds it."""
        raise NotImplementedError

    def is_locked(self, connection: BaseDatabaseWrapper, token: Any) -> bool:
        """Whether the lock that was granted with ``token`` is still ours, on this very session."""
        raise NotImplementedError

    def is_lock_free(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether the pass lock is free, without acquiring it."""
        raise NotImplementedError

    def unlock(self, connection: BaseDatabaseWrapper, token: Any) -> None:
        """Release the lock; a lock that no longer exists is not an error."""
        raise NotImplementedError

    def enter_pass(self, connection: BaseDatabaseWrapper) -> Any:
        """Return what ``leave_pass`` needs to give the connection back as it was."""

    def leave_pass(self, connection: BaseDatabaseWrapper, before: Any) -> None:
        """Undo what ``yield_to_others`` has set for longer than a transaction."""

    def yield_to_others(self, connection: BaseDatabaseWrapper) -> None:
        """
        Make the open transaction the one that gives way when it meets another; ends with it, or with the pass.

        Where the server can, it also ends the transaction of a process that has been stopped (``STOPPED_WAIT_MS``). On
        SQLite others wait for the file as long as their own timeout says; SQL Server has no such limit.
        """

    def stream(
        self, queryset: QuerySet[Any, Mapping[str, Any]], *, names: Sequence[str], rows: int
    ) -> Iterator[list[tuple[Any, ...]]]:
        """
        Run the query once and yield its rows in lists of at most ``rows``, with flat memory: a list of long texts is
        shorter (``LIST_CHARS_MAX``).

        The result is that of one moment, and the caller may commit on the same connection between two lists.
        ``names`` are the columns, in the order of each tuple.
        """
        raise NotImplementedError

    def insert_controls(
        self, connection: BaseDatabaseWrapper, kind: str, rows: Sequence[ControlRow]
    ) -> dict[tuple[int, int], int]:
        """Insert missing control rows in key order in one statement; return {(key, key2): id} of the new ones."""
        raise NotImplementedError

    def insert_mails(self, connection: BaseDatabaseWrapper, pass_id: UUID, rows: Sequence[MailRow]) -> None:
        """Insert queue rows, in one statement unless their texts are very long. Transaction: the caller's."""
        self.insert_rows(connection, "notify_mail_queue", MailRow, pass_id, rows)

    def insert_tasks(self, connection: BaseDatabaseWrapper, pass_id: UUID, rows: Sequence[TaskRow]) -> None:
        """Insert task rows, in one statement unless their texts are very long. Transaction: the caller's."""
        self.insert_rows(connection, "notify_task_queue", TaskRow, pass_id, rows)

    def insert_rows(
        self,
        connection: BaseDatabaseWrapper,
        table: str,
        row: type[MailRow | TaskRow],
        pass_id: UUID,
        rows: Sequence[MailRow | TaskRow],
    ) -> None:
        """
        Insert rows of one shape, a parameter for each value: the plain way.

        Each database has a faster one, which ``tests/dialects/test_notify_rows.py`` compares with this.
        """
        told = pass_id if connection.features.has_native_uuid_field else pass_id.hex
        marks = f"({', '.join(['%s'] * (len(row._fields) + 1))})"
        insert = f"INSERT INTO {table} (pass_id, {', '.join(row._fields)}) VALUES "  # noqa: S608 - names of ours
        with connection.cursor() as cursor:
            for start in range(0, len(rows), ROWS_PER_STATEMENT):
                some = rows[start : start + ROWS_PER_STATEMENT]
                cursor.execute(
                    insert + ", ".join([marks] * len(some)), [value for one in some for value in (told, *one)]
                )

    def claim_mails(
        self, connection: BaseDatabaseWrapper, *, worker: str, now: datetime, lease_until: datetime, limit: int
    ) -> list[int]:
        """
        Lease up to ``limit`` due mails to a worker, the longest due first; return their ids in that order.

        Due: ``queued``, ``due_at`` not after ``now``, no ``digest_of``, no lease or one that ran out before ``now``.
        No mail goes to two workers, and no worker waits for another. Transaction: its own, one statement.
        """
        raise NotImplementedError

    def insert_attempts(self, connection: BaseDatabaseWrapper, rows: Sequence[AttemptRow]) -> None:
        """Insert the results of one mail's recipients. Transaction: the caller's."""
        for start in range(0, len(rows), ATTEMPTS_PER_STATEMENT):
            self.execute(connection, *insertion(rows[start : start + ATTEMPTS_PER_STATEMENT]))

    def try_begin_mail(
        self, connection: BaseDatabaseWrapper, mail_id: int, *, worker: str, now: datetime, values: Mapping[str, Any]
    ) -> bool:
        """
        Mark a claimed mail as on the wire; return False when the claim was lost.

        Lost: the lease ran out before ``now``, a person held it, or a digest took it along. Transaction: the caller's.
        """
        return self.execute(connection, *beginning(Change(mail_id, values), worker=worker, now=now)) == 1

    def try_settle_mail(
        self, connection: BaseDatabaseWrapper, mail_id: int, *, worker: str, values: Mapping[str, Any]
    ) -> bool:
        """
        Write what a worker says came of a mail and end its claim; return False when somebody else has it.

        ``uncertain`` is one of the states it may be in: the lease ran out, but now we do know. ``values`` may keep the
        worker's name. Transaction: the caller's.
        """
        return self.execute(connection, *settling(Change(mail_id, values), worker=worker)) == 1

    def write_progress(
        self,
        connection: BaseDatabaseWrapper,
        *,
        worker: str,
        now: datetime,
        attempts: Sequence[AttemptRow] = (),
        settled: Sequence[Change] = (),
        begun: Sequence[Change] = (),
    ) -> set[int]:
        """
        Write what came of some mails and that others are on the wire, as the functions above do: all or nothing.

        Return the ids of those that are on the wire now; one that is not ours any more is none of them, and the rest is
        written all the same. No mail is both settled and begun. Transaction: its own, durable.
        """
        with transaction.atomic(using=connection.alias, durable=True):
            self.insert_attempts(connection, attempts)
            for change in settled:
                self.try_settle_mail(connection, change.mail_id, worker=worker, values=change.values)
            return {
                change.mail_id
                for change in begun
                if self.try_begin_mail(connection, change.mail_id, worker=worker, now=now, values=change.values)
            }

    def announce(self, connection: BaseDatabaseWrapper) -> None:
        """Wake workers in ``wait`` when the open transaction commits; does nothing where a database cannot."""

    def wait(self, connection: BaseDatabaseWrapper, seconds: float) -> bool:
        """Wait until somebody announces, but not longer; return whether somebody did. Never inside a transaction."""
        time.sleep(seconds)
        return False

    def adapt(self, connection: BaseDatabaseWrapper, value: Any) -> Any:
        """Return a parameter as the driver takes it; psycopg would take a member of an enumeration for its name."""
        if isinstance(value, Enum):
            return value.value
        if isinstance(value, list):
            return json.dumps(value, ensure_ascii=False)
        return connection.ops.adapt_datetimefield_value(value) if isinstance(value, datetime) else value

    def execute(self, connection: BaseDatabaseWrapper, sql: str, params: Sequence[Any]) -> int:
        """Execute a statement; return how many rows it met."""
        with connection.cursor() as cursor:
            cursor.execute(sql, [self.adapt(connection, value) for value in params])
            return int(cursor.rowcount)


def gathered(fetch: Callable[[int], list[tuple[Any, ...]]], rows: int) -> Iterator[list[tuple[Any, ...]]]:
    """
    Yield lists of at most ``rows`` rows and little more than LIST_CHARS_MAX characters.

    ``fetch`` returns the next rows, at most as many as it is asked for; none at the end.
    """
    gathered: list[tuple[Any, ...]] = []
    chars, asked = 0, FETCH_ROWS_FIRST
    while fetched := fetch(min(asked, rows - len(gathered))):
        gathered += fetched
        found = chars_in(fetched)
        chars += found
        if len(gathered) >= rows or chars >= LIST_CHARS_MAX:
            yield gathered
            gathered, chars = [], 0
        fitting = (LIST_CHARS_MAX - chars) * len(fetched) // max(found, 1)
        asked = max(1, min(fitting, asked * 4, FETCH_ROWS_MAX))
    if gathered:
        yield gathered


def chars_in(rows: Sequence[Sequence[Any]]) -> int:
    """Return about how much text rows hold, column by column, because that is fast."""
    return sum(chars_of(column) for column in zip(*rows, strict=True))


def chars_of(column: Sequence[Any]) -> int:
    """Return about how much text a column holds, which is no reason to fail for what cannot be measured."""
    try:
        return measured(column)
    except Exception:  # whatever a value of a field of the site's own raises; its event says so later
        return 8 * len(column)


def measured(column: Sequence[Any]) -> int:
    """Return about how much text a column holds; what is no text counts little, what holds others as it is written."""
    some = next(filter(None, column), None)
    try:
        if isinstance(some, str | bytes):
            return sum(map(len, filter(None, column)))
    except TypeError:
        pass  # SQLite may have texts and numbers in one column
    else:
        if not isinstance(some, list | dict):
            return 8 * len(column)
    return sum(len(str(value)) for value in column)


def in_slices(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Yield rows in slices of about LIST_CHARS_MAX characters: an event with a digest may make very many."""
    if rows and chars_in(rows) < LIST_CHARS_MAX:
        yield rows
        return
    start, chars = 0, 0
    for place in range(len(rows)):
        chars += chars_in(rows[place : place + 1])
        if chars >= LIST_CHARS_MAX:
            yield rows[start : place + 1]
            start, chars = place + 1, 0
    if start < len(rows):
        yield rows[start:]


def insertion(rows: Sequence[AttemptRow]) -> tuple[str, list[Any]]:
    """Return the statement, and its parameters, that inserts attempts."""
    marks = f"({', '.join(['%s'] * len(AttemptRow._fields))})"
    sql = f"INSERT INTO notify_attempt ({', '.join(AttemptRow._fields)}) VALUES {', '.join([marks] * len(rows))}"  # noqa: S608
    return sql, [value for row in rows for value in row]


def beginning(change: Change, *, worker: str, now: datetime) -> tuple[str, list[Any]]:
    """Return the statement, and its parameters, that marks a claimed mail as on the wire."""
    return updating(change.mail_id, {"state": "sending", **change.values}, IS_OURS, [worker, now])


def settling(change: Change, *, worker: str) -> tuple[str, list[Any]]:
    """Return the statement, and its parameters, that ends a claim."""
    cleared = {"worker": "", "lease_until": None, "flight": None, **change.values}
    return updating(change.mail_id, cleared, IS_OPEN, [worker])


def updating(mail_id: int, values: Mapping[str, Any], condition: str, params: Sequence[Any]) -> tuple[str, list[Any]]:
    """Return the statement, and its parameters, that changes one row of the mail queue on a condition."""
    columns = ", ".join(f"{name} = %s" for name in values)
    sql = f"UPDATE notify_mail_queue SET {columns} WHERE id = %s AND {condition}"  # noqa: S608 - names of ours
    return sql, [*values.values(), mail_id, *params]
