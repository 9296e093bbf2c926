"""What a pass and delivery do on SQLite."""

import contextlib
import itertools
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Any
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

from kwit.db.dialect import SqliteDialect

from ..errors import LockUnusable
from ..notes import Note, note
from .base import BUSY, GRANTED, ControlRow, LockAnswer, MailRow, NotifyDialect, TaskRow, gathered, in_slices

#: Bytes of the lock file that are read: a process id and a host name of at most 255.
HOLDER_BYTES_MAX = 300

#: Databases in memory have no file to put a lock beside; they belong to one process, which can remember the token of
#: each one's holder. A plain mutex would not do: it cannot say whose it is.
_memory_holders: dict[str, object] = {}
_memory_guard = threading.Lock()
_numbers = itertools.count(1)


def memory_name(connection: BaseDatabaseWrapper) -> str:
    """Return what is the same for every thread's connection to a database in memory."""
    return str(connection.settings_dict["NAME"])


if sys.platform == "win32":
    import msvcrt

    #: What a lock raises that somebody else has.
    BLOCKED: type[OSError] = PermissionError

    def lock_file(handle: IO[bytes], *, is_shared: bool = False) -> None:
        """Lock an open file at once or not at all. Raises: BLOCKED, or OSError where files cannot be locked."""
        handle.seek(0)
        msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    #: What a lock raises that somebody else has.
    BLOCKED: type[OSError] = BlockingIOError

    def lock_file(handle: IO[bytes], *, is_shared: bool = False) -> None:
        """Lock an open file at once or not at all. Raises: BLOCKED, or OSError where files cannot be locked."""
        fcntl.flock(handle, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def write_holder(handle: IO[bytes]) -> None:
    """Write into the lock file who holds the lock, for whoever finds it busy."""
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


def elements(row: type[ControlRow | MailRow | TaskRow]) -> str:
    """Return the SQL that takes one JSON array apart into a row's columns."""
    return ", ".join(f"json_extract(value, '$[{place}]')" for place in range(len(row._fields)))


class NotifySqlite(SqliteDialect, NotifyDialect):
    """SQLite: the pass lock is a lock on a file beside the database; rows travel as one JSON text."""

    def lock_path(self, connection: BaseDatabaseWrapper) -> Path | None:
        """Return the lock file beside the database's own file (links resolved); None for a database in memory."""
        path = self.file_of(connection)
        return None if path is None else path.with_name(path.name + ".pass-lock")

    def try_lock(self, connection: BaseDatabaseWrapper) -> LockAnswer:
        path = self.lock_path(connection)
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
                lock_file(handle)
            except BLOCKED:
                holder = read_holder(handle)
                handle.close()
                return LockAnswer(BUSY, holder=holder)
            except OSError as error:
                # A file system without locks is an error, not a busy lock: no pass could ever acquire it.
                handle.close()
                raise LockUnusable(f"the lock file {path} cannot be locked: {error}") from error
            if is_same_file(handle, path):
                write_holder(handle)
                return LockAnswer(GRANTED, token=handle)
            # The file was deleted between open and lock: our lock protects nothing. Lock the new file.
            handle.close()

    def is_locked(self, connection: BaseDatabaseWrapper, token: Any) -> bool:
        path = self.lock_path(connection)
        if path is None:
            return _memory_holders.get(memory_name(connection)) is token
        # A deleted lock file lets a second holder in; then we are the one that stops.
        return not token.closed and is_same_file(token, path)

    def is_lock_free(self, connection: BaseDatabaseWrapper) -> bool:
        path = self.lock_path(connection)
        if path is None:
            return memory_name(connection) not in _memory_holders
        try:
            # Opened for reading, which no pass does; shared and for an instant, because no system tells otherwise.
            with path.open("rb") as handle:
                lock_file(handle, is_shared=True)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def unlock(self, connection: BaseDatabaseWrapper, token: Any) -> None:
        if self.lock_path(connection) is None:
            with _memory_guard:
                if _memory_holders.get(memory_name(connection)) is token:
                    del _memory_holders[memory_name(connection)]
            return
        # Closing the file releases it. The file stays: deleting it would open the race that is_same_file closes.
        token.close()

    def stream(
        self, queryset: QuerySet[Any, Mapping[str, Any]], *, names: Sequence[str], rows: int
    ) -> Iterator[list[tuple[Any, ...]]]:
        # A cursor left open over our commits would keep its read snapshot, and the next BEGIN IMMEDIATE would fail as
        # soon as anybody else had written. A temporary table holds the result of one moment on the disk instead.
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

                yield from gathered(fetch, rows)
            finally:
                cursor.execute(f"DROP TABLE IF EXISTS temp.{table}")

    def insert_controls(
        self, connection: BaseDatabaseWrapper, kind: str, rows: Sequence[ControlRow]
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

    def insert_rows(
        self,
        connection: BaseDatabaseWrapper,
        table: str,
        row: type[MailRow | TaskRow],
        pass_id: UUID,
        rows: Sequence[MailRow | TaskRow],
    ) -> None:
        """Insert rows of one shape, each slice from one JSON parameter: half the time of the plain way."""
        with connection.cursor() as cursor:
            for some in in_slices(rows):
                cursor.execute(
                    f"INSERT INTO {table} (pass_id, {', '.join(row._fields)}) "  # noqa: S608 - names of ours
                    f"SELECT %s, {elements(row)} FROM json_each(%s)",
                    [pass_id.hex, json.dumps(some, ensure_ascii=False)],
                )

    def claim_mails(
        self, connection: BaseDatabaseWrapper, *, worker: str, now: datetime, lease_until: datetime, limit: int
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
