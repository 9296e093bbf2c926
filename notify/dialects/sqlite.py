"""The room for SQLite 3.35 and newer, as Python brings it."""

import contextlib
import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, cast
from uuid import UUID

import portalocker
from django.core.exceptions import EmptyResultSet
from django.db import DataError, IntegrityError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

from ..errors import LockUnusable
from ..notes import Note, note
from . import generic
from .base import BUSY, GRANTED, AttemptRow, Change, ControlRow, LockAnswer, MailRow, TaskRow, Weakness

#: SQLITE_BUSY and SQLITE_LOCKED as texts; Python 3.11 also has codes, but Django's wrapper keeps the text.
TRANSIENT = ("database is locked", "database table is locked", "database schema is locked")

#: Bytes of the lock file that are read: a process id and a host name of at most 255.
HOLDER_BYTES_MAX = 300

#: Databases in memory have no file to put a lock beside; they belong to one process, which can remember the token of
#: each one's holder. A plain mutex would not do: it cannot say whose it is.
_memory_holders: dict[str, object] = {}
_memory_guard = threading.Lock()
_numbers = itertools.count(1)


def now(connection: BaseDatabaseWrapper) -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')")
        return datetime.fromisoformat(cursor.fetchone()[0]).replace(tzinfo=UTC)


def check_session(connection: BaseDatabaseWrapper) -> None:
    """Nothing can be between us and a file."""


def lock_path(connection: BaseDatabaseWrapper) -> Path | None:
    """Return the lock file beside the database's own file (links resolved); None for a database in memory."""
    if cast(Any, connection).is_in_memory_db():
        return None
    path = Path(connection.settings_dict["NAME"]).resolve()
    return path.with_name(path.name + ".pass-lock")


def memory_name(connection: BaseDatabaseWrapper) -> str:
    """Return what is the same for every thread's connection to a database in memory."""
    return str(connection.settings_dict["NAME"])


def weaknesses(connection: BaseDatabaseWrapper) -> list[Weakness]:
    """Nothing: receipts look whether the file waits for the disk."""
    return []


def try_lock(connection: BaseDatabaseWrapper) -> LockAnswer:
    path = lock_path(connection)
    if path is None:
        token = object()
        with _memory_guard:
            is_granted = _memory_holders.setdefault(memory_name(connection), token) is token
        return LockAnswer(GRANTED, token=token) if is_granted else LockAnswer(BUSY)
    while True:
        # An operating-system lock dies with its process; a new open file each time, so that it also holds against
        # another thread and against ourselves.
        # Unbuffered, so that closing it has nothing left to write on a full disk.
        try:
            handle = path.open("a+b", buffering=0)
        except OSError as error:
            raise LockUnusable(f"the lock file beside the database cannot be opened: {error}") from error
        try:
            portalocker.lock(handle, portalocker.LOCK_EX | portalocker.LOCK_NB)
        except portalocker.AlreadyLocked:
            holder = read_holder(handle)
            handle.close()
            return LockAnswer(BUSY, holder=holder)
        except portalocker.LockException as error:
            # A file system without locks is not a busy one: nobody would ever get it.
            handle.close()
            raise LockUnusable(f"the lock file {path} cannot be locked: {error}") from error
        if is_same_file(handle, path):
            write_holder(handle)
            return LockAnswer(GRANTED, token=handle)
        # Somebody deleted the file between open and lock: what we hold is nobody's lock. Take the new file's.
        handle.close()


def write_holder(handle: IO[bytes]) -> None:
    """Say in the lock file who holds the lock, for whoever finds it busy."""
    # It only informs: a full disk must not keep the pass from trying.
    with contextlib.suppress(OSError):
        handle.truncate(0)
        handle.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())


def read_holder(handle: IO[bytes]) -> Note | None:
    """Return what the holder has written; None when it cannot be read (Windows locks the bytes as well)."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        handle.seek(0)
        found = json.loads(handle.read(HOLDER_BYTES_MAX))
        return note("holder_process", pid=found["pid"], host=found["host"])
    return None


def is_same_file(handle: IO[bytes], path: Path) -> bool:
    """Whether the open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(handle.fileno()), path.stat())
    except FileNotFoundError:
        return False


def is_locked(connection: BaseDatabaseWrapper, token: Any) -> bool:
    path = lock_path(connection)
    if path is None:
        return _memory_holders.get(memory_name(connection)) is token
    # A deleted lock file lets a second holder in; then we are the one that stops.
    return not token.closed and is_same_file(token, path)


def unlock(connection: BaseDatabaseWrapper, token: Any) -> None:
    if lock_path(connection) is None:
        with _memory_guard:
            if _memory_holders.get(memory_name(connection)) is token:
                del _memory_holders[memory_name(connection)]
        return
    # Closing the file releases it. The file stays: deleting it would open the race that is_same_file closes.
    token.close()


def enter_pass(connection: BaseDatabaseWrapper) -> Any:
    """Nothing is set for longer than a transaction."""


def leave_pass(connection: BaseDatabaseWrapper, before: Any) -> None:
    """Nothing was set for longer than a transaction."""


def yield_to_others(connection: BaseDatabaseWrapper) -> None:
    """There is one writer at a time, and the busy timeout makes the others wait for their turn."""


def is_transient(error: Exception) -> bool:
    return any(text in str(error) for text in TRANSIENT)


def is_refusal(error: Exception) -> bool:
    return isinstance(error, DataError | IntegrityError)


def stream(
    queryset: QuerySet[Any, Mapping[str, Any]], *, names: Sequence[str], rows: int
) -> Iterator[list[tuple[Any, ...]]]:
    # A cursor left open over our commits would keep its read snapshot, and the next BEGIN IMMEDIATE would fail as soon
    # as anybody else had written. A temporary table holds the result of one moment on the disk instead.
    connection = connections[queryset.db]
    compiler = queryset.values_list(*names).query.get_compiler(using=queryset.db)
    try:
        sql, params = compiler.as_sql()
    except EmptyResultSet:  # Django knows without asking that there are no rows
        return
    table = f"kwit_candidates_{next(_numbers)}"
    # A value of the step may have the name that SQLite gives the row's number; it has three of them.
    taken = {name.lower() for name in names}
    number = next(name for name in ("rowid", "_rowid_", "oid") if name not in taken)
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE {table} AS {sql}", params)
        try:
            last = 0

            def fetch(asked: int) -> list[tuple[Any, ...]]:
                nonlocal last
                cursor.execute(
                    f"SELECT {number}, * FROM {table} WHERE {number} > %s ORDER BY {number} LIMIT %s",  # noqa: S608
                    [last, asked],
                )
                fetched = cursor.fetchall()
                last = fetched[-1][0] if fetched else last
                return list(compiler.results_iter(results=[[row[1:] for row in fetched]], tuple_expected=True))

            yield from generic.gathered(fetch, rows)
        finally:
            cursor.execute(f"DROP TABLE IF EXISTS temp.{table}")


def insert_controls(
    connection: BaseDatabaseWrapper, kind: str, rows: Sequence[ControlRow]
) -> dict[tuple[int, int], int]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            INSERT INTO notify_control (kind, {", ".join(ControlRow._fields)})
            SELECT %s, {elements(ControlRow)} FROM json_each(%s) WHERE true
            ON CONFLICT (kind, key, key2) DO NOTHING
            RETURNING key, key2, id
            """,  # noqa: S608 - built from field names of ours
            [kind, json.dumps(sorted(rows), ensure_ascii=False)],
        )
        return {(key, key2): pk for key, key2, pk in cursor.fetchall()}


def elements(row: type[ControlRow | MailRow | TaskRow]) -> str:
    """Return the SQL that takes one JSON array apart into a row's columns."""
    return ", ".join(f"json_extract(value, '$[{place}]')" for place in range(len(row._fields)))


def insert_mails(connection: BaseDatabaseWrapper, pass_id: UUID, rows: Sequence[MailRow]) -> None:
    insert_rows(connection, "notify_mail_queue", MailRow, pass_id, rows)


def insert_tasks(connection: BaseDatabaseWrapper, pass_id: UUID, rows: Sequence[TaskRow]) -> None:
    insert_rows(connection, "notify_task_queue", TaskRow, pass_id, rows)


def insert_rows(
    connection: BaseDatabaseWrapper,
    table: str,
    row: type[MailRow | TaskRow],
    pass_id: UUID,
    rows: Sequence[MailRow | TaskRow],
) -> None:
    """Insert rows of one shape, each slice from one JSON parameter."""
    with connection.cursor() as cursor:
        for some in generic.in_slices(rows):
            cursor.execute(
                f"INSERT INTO {table} (pass_id, {', '.join(row._fields)}) "  # noqa: S608 - names of ours
                f"SELECT %s, {elements(row)} FROM json_each(%s)",
                [pass_id.hex, json.dumps(some, ensure_ascii=False)],
            )


def claim_mails(
    connection: BaseDatabaseWrapper, *, worker: str, now: datetime, lease_until: datetime, limit: int
) -> list[int]:
    at, until = (connection.ops.adapt_datetimefield_value(moment) for moment in (now, lease_until))
    # IMMEDIATE: there is one writer at a time, so what the sub-select sees is what the UPDATE changes.
    with transaction.atomic(using=connection.alias, durable=True), connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE notify_mail_queue SET worker = %s, lease_until = %s
            WHERE id IN (
                SELECT id FROM notify_mail_queue
                WHERE state = 'queued' AND due_at <= %s AND digest_of_id IS NULL
                  AND (lease_until IS NULL OR lease_until < %s)
                ORDER BY due_at, id LIMIT %s
            )
            RETURNING due_at, id
            """,
            [worker, until, at, at, limit],
        )
        return [pk for _, pk in sorted(cursor.fetchall())]


def insert_attempts(connection: BaseDatabaseWrapper, rows: Sequence[AttemptRow]) -> None:
    generic.insert_attempts(connection, rows)


def try_begin_mail(
    connection: BaseDatabaseWrapper, mail_id: int, *, worker: str, now: datetime, values: Mapping[str, Any]
) -> bool:
    return generic.try_begin_mail(connection, mail_id, worker=worker, now=now, values=values)


def try_settle_mail(connection: BaseDatabaseWrapper, mail_id: int, *, worker: str, values: Mapping[str, Any]) -> bool:
    return generic.try_settle_mail(connection, mail_id, worker=worker, values=values)


def try_go_on(
    connection: BaseDatabaseWrapper,
    *,
    worker: str,
    now: datetime,
    attempts: Sequence[AttemptRow],
    settled: Change | None,
    begun: Change | None,
) -> bool:
    return generic.try_go_on(connection, worker=worker, now=now, attempts=attempts, settled=settled, begun=begun)


def announce(connection: BaseDatabaseWrapper) -> None:
    """Nobody listens: SQLite has no such thing, so ``wait`` only waits."""


def wait(connection: BaseDatabaseWrapper, seconds: float) -> bool:
    time.sleep(seconds)
    return False
