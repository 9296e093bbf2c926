"""What a pass and delivery do on PostgreSQL."""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, cast
from uuid import UUID
from weakref import WeakSet

import psycopg
from django.core.exceptions import EmptyResultSet
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

from kwit.db.dialect import PostgresqlDialect

from ..errors import LockUnusable
from ..notes import note
from .base import (
    BUSY,
    GRANTED,
    ROW_LOCK_WAIT_MS,
    STOPPED_WAIT_MS,
    AttemptRow,
    Change,
    ControlRow,
    LockAnswer,
    MailRow,
    NotifyDialect,
    TaskRow,
    gathered,
)
from .pooler import PoolMode, pool_mode

#: The two halves of the advisory lock's number: the first four bytes of SHA-256("kwit") and of SHA-256("notify.pass"),
#: as signed 32-bit integers. Advisory locks belong to one database, so two sites on one server do not meet.
LOCK_CLASS, LOCK_OBJECT = 5877668, -1143023510

#: What a site's own trigger may notify as well, to have a pass at once: ``NOTIFY kwit``.
WAKE_CHANNEL = "kwit"

#: How long and how often to look for the server session on which a pooler has left the lock.
UNLOCK_WAIT_S, UNLOCK_POLL_S = 2.0, 0.02

#: The driver's connections that have taken the lock and not given it back.
_holders: WeakSet[psycopg.Connection[Any]] = WeakSet()

OURS = """
    SELECT EXISTS (
        SELECT 1 FROM pg_locks
        WHERE locktype = 'advisory' AND classid::bigint = %s AND objid::bigint = %s AND objsubid = 2 AND granted
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid = pg_backend_pid()
    )
"""
TRY_LOCK = f"""
    SELECT is_ours, CASE WHEN NOT is_ours THEN pg_try_advisory_lock(%s, %s) END, pg_backend_pid()
    FROM (SELECT ({OURS}) AS is_ours OFFSET 0) AS asked
"""  # noqa: S608 - a constant
#: Whether a session holds the lock, and whether this one, if it is that session, has given it back.
UNLOCK = f"""
    SELECT is_held, CASE WHEN is_held AND pg_backend_pid() = %s THEN pg_advisory_unlock(%s, %s) END
    FROM (SELECT ({OURS.replace("pid = pg_backend_pid()", "pid = %s")}) AS is_held OFFSET 0) AS asked
"""  # noqa: S608 - a constant
#: Releases the lock if this session holds it, even if another client of the pool acquired it.
UNLOCK_OURS = f"""
    SELECT CASE WHEN is_ours THEN pg_advisory_unlock(%s, %s) END FROM (SELECT ({OURS}) AS is_ours OFFSET 0) AS asked
"""  # noqa: S608 - a constant
#: Tables whose policies apply to this role, and whether they have pages on the disk.
FILTERED = """
    SELECT c.relname, pg_relation_size(c.oid) > 0 FROM pg_class c
    WHERE c.oid IN (SELECT to_regclass(quote_ident(name)) FROM unnest(%s::text[]) AS name)
      AND c.relrowsecurity AND row_security_active(c.oid)
    ORDER BY c.relname
"""
HOLDER = """
    SELECT a.pid, a.application_name,
           CASE WHEN a.backend_start IS NULL THEN 'another role' ELSE coalesce(host(a.client_addr), 'local') END,
           a.backend_start
    FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.classid::bigint = %s AND l.objid::bigint = %s AND l.objsubid = 2 AND l.granted
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
#: pg_locks shows both halves as unsigned numbers.
LOCK_SHOWN = [LOCK_CLASS % 2**32, LOCK_OBJECT % 2**32]


def text_array(texts: Sequence[str]) -> str:
    """
    Return texts, of which there is at least one, as PostgreSQL writes an array of them.

    psycopg would make the array itself; by hand the control rows of 5,000 events take a sixth less, 0.16 s.
    """
    joined = '","'.join(texts)
    if "\\" in joined or joined.count('"') > 2 * (len(texts) - 1):
        joined = '","'.join(text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return f'{{"{joined}"}}'


#: The columns that `write_progress` sets, with their types; one that a row does not name stays as it is.
ATTEMPT_TYPES = {
    "mail_id": "bigint",
    "number": "integer",
    "part": "integer",
    "recipient": "text",
    "outcome": "text",
    "code": "integer",
    "enhanced": "text",
    "text": "text",
    "at": "timestamptz",
    "worker": "text",
    "channel": "text",
    "notes": "jsonb",
}
SETTLED_TYPES = {
    "id": "bigint",
    "state": "text",
    "attempts": "bigint",
    "due_at": "timestamptz",
    "sent_at": "timestamptz",
    "problem": "text",
    "notes": "jsonb",
    "held_for": "text",
    "worker": "text",
}
BEGUN_TYPES = {
    "id": "bigint",
    "lease_until": "timestamptz",
    "flight": "integer",
    "message_text": "text",
    "message_html": "text",
    "message_token": "text",
}


def arrays(rows: Sequence[Mapping[str, Any]], types: Mapping[str, str]) -> list[list[Any]]:
    """Return rows column by column, None where a row does not name the column."""
    if unknown := {name for row in rows for name in row} - set(types):
        raise ValueError(f"write_progress knows no columns {sorted(unknown)}")
    return [[plain(row.get(name)) for row in rows] for name in types]


def plain(value: Any) -> Any:
    """Return a value as psycopg takes it: a member of an enumeration would be its name, a list part of the array."""
    if isinstance(value, Enum):
        return value.value
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value


def table_of(types: Mapping[str, str]) -> str:
    """Return the SQL of a table made of one array per column."""
    return f"unnest({', '.join(f'%s::{declared}[]' for declared in types.values())}) AS v ({', '.join(types)})"


def assignments(types: Mapping[str, str], **fixed: str) -> str:
    """Return the SQL that sets the columns of ``m`` to those of ``v`` where it has a value, and others as given."""
    names = [name for name in types if name not in ("id", *fixed)]
    given = {name: f"coalesce(v.{name}, m.{name})" for name in names} | fixed
    return ", ".join(f"{name} = {value}" for name, value in given.items())


WRITE_PROGRESS = f"""
WITH tried AS (
    INSERT INTO notify_attempt ({", ".join(ATTEMPT_TYPES)})
    SELECT {", ".join(ATTEMPT_TYPES)} FROM {table_of(ATTEMPT_TYPES)}
), settled AS (
    UPDATE notify_mail_queue AS m
    SET {assignments(SETTLED_TYPES, worker="coalesce(v.worker, '')", lease_until="NULL", flight="NULL")}
    FROM {table_of(SETTLED_TYPES)} WHERE m.id = v.id AND m.worker = %s AND m.state IN ('queued', 'sending', 'uncertain')
), begun AS (
    UPDATE notify_mail_queue AS m SET {assignments(BEGUN_TYPES, state="'sending'")}
    FROM {table_of(BEGUN_TYPES)} WHERE m.id = v.id AND m.worker = %s AND m.lease_until > %s
      AND m.state IN ('queued', 'sending') AND m.digest_of_id IS NULL
    RETURNING m.id
)
SELECT id FROM begun
"""  # noqa: S608 - built from names of ours


class NotifyPostgresql(PostgresqlDialect, NotifyDialect):
    """PostgreSQL: the pass lock is an advisory lock of the session; rows travel as arrays and by COPY."""

    def check_session(self, connection: BaseDatabaseWrapper) -> None:
        if (mode := pool_mode(connection)) in ("transaction", "statement"):
            # A pass that slipped past this probe and died has left its lock on a session of the pool.
            with connection.cursor() as cursor:
                cursor.execute(UNLOCK_OURS, [LOCK_CLASS, LOCK_OBJECT, *LOCK_SHOWN])
            raise LockUnusable(
                f"a pooler in {mode} mode (PgBouncer, pool_mode={mode}) is between Kwit and "
                "PostgreSQL: a session lock cannot hold there. Give Kwit a connection to the server itself, or to a "
                "pool with pool_mode=session."
            )

    def filtered_tables(self, connection: BaseDatabaseWrapper, tables: Sequence[str]) -> list[tuple[str, bool]]:
        quote = connection.ops.quote_name
        with connection.cursor() as cursor:
            cursor.execute(FILTERED, [list(tables)])
            found = cursor.fetchall()
            hidden = []
            for name, has_pages in found:
                cursor.execute(f"SELECT EXISTS (SELECT 1 FROM {quote(name)})")  # noqa: S608 - a table of ours or a step
                hidden.append((name, has_pages and not cursor.fetchone()[0]))
        return hidden

    def pool_mode(self, connection: BaseDatabaseWrapper) -> PoolMode:
        return pool_mode(connection)

    def try_lock(self, connection: BaseDatabaseWrapper) -> LockAnswer:
        with connection.cursor() as cursor:
            # PostgreSQL would grant it to its own session again and again; Kwit does not. Each question is one
            # statement, so that also behind a pooler it is answered by one session.
            cursor.execute(TRY_LOCK, [LOCK_CLASS, LOCK_OBJECT, *LOCK_SHOWN])
            is_ours, is_granted, pid = cursor.fetchone()
            if is_ours and connection.connection not in _holders and pool_mode(connection) == "session":
                # A client of the pool has died, and the pooler, which lends the session to us alone, cleans up nothing
                # behind it (server_reset_query).
                self.unlock_session(connection, pid)
                cursor.execute(TRY_LOCK, [LOCK_CLASS, LOCK_OBJECT, *LOCK_SHOWN])
                is_ours, is_granted, pid = cursor.fetchone()
            if is_ours:
                return LockAnswer(BUSY, holder=note("holder_this_session"))
            if is_granted:
                _holders.add(connection.connection)
                return LockAnswer(GRANTED, token=pid)
            cursor.execute(HOLDER, LOCK_SHOWN)
            found = cursor.fetchone()
        if found is None:
            return LockAnswer(BUSY)
        backend, application, address, since = found
        named = f" ({application})" if application else ""
        if since is None:
            # Sessions of other roles show themselves to members of pg_read_all_stats only.
            return LockAnswer(BUSY, holder=note("holder_other_role", session=f"{backend}{named}"))
        return LockAnswer(
            BUSY,
            holder=note("holder_session", session=f"{backend}{named}", address=address, since=since),
        )

    def is_locked(self, connection: BaseDatabaseWrapper, token: Any) -> bool:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT pg_backend_pid() = %s AND ({OURS})", [token, *LOCK_SHOWN])
            return bool(cursor.fetchone()[0])

    def is_lock_free(self, connection: BaseDatabaseWrapper) -> bool:
        with connection.cursor() as cursor:
            cursor.execute(HOLDER, LOCK_SHOWN)
            return cursor.fetchone() is None

    def unlock(self, connection: BaseDatabaseWrapper, token: Any) -> None:
        if connection.connection is None:
            return
        _holders.discard(connection.connection)
        deadline = time.monotonic() + UNLOCK_WAIT_S
        while not self.unlock_session(connection, token):
            # A pooler has given us another session. Its next answer may come from the right one; if none does, that
            # one is ended while it is idle: a lock that stays would block every pass.
            if time.monotonic() > deadline:
                return self.end_session(connection, token)
            time.sleep(UNLOCK_POLL_S)

    def unlock_session(self, connection: BaseDatabaseWrapper, token: Any) -> bool:
        """Give the lock back if this is the session that holds it; return whether that session holds it no more."""
        with connection.cursor() as cursor:
            cursor.execute(UNLOCK, [token, LOCK_CLASS, LOCK_OBJECT, *LOCK_SHOWN, token])
            is_held, was_unlocked = cursor.fetchone()
            return not is_held or bool(was_unlocked)

    def end_session(self, connection: BaseDatabaseWrapper, token: Any) -> None:
        """End an idle session that holds the lock. Raises: OperationalError when it cannot be ended."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(%s) FROM pg_stat_activity WHERE pid = %s AND state = 'idle'", [token] * 2
            )
            if cursor.fetchone() != (True,):
                raise OperationalError(f"a pooler's server session {token} still holds the lock of passes")

    def yield_to_others(self, connection: BaseDatabaseWrapper) -> None:
        # Shorter than deadlock_timeout: the other session keeps its locks, the pass repeats its chunk.
        with connection.cursor() as cursor:
            cursor.execute(
                f"SET LOCAL lock_timeout = {ROW_LOCK_WAIT_MS:d};"
                f" SET LOCAL idle_in_transaction_session_timeout = {STOPPED_WAIT_MS:d}"
            )

    def stream(
        self, queryset: QuerySet[Any, Mapping[str, Any]], *, names: Sequence[str], rows: int
    ) -> Iterator[list[tuple[Any, ...]]]:
        connection = connections[queryset.db]
        compiler = queryset.values_list(*names).query.get_compiler(using=queryset.db)
        try:
            sql, params = compiler.as_sql()
        except EmptyResultSet:  # Django knows without asking that there are no rows
            return
        # Outside a transaction Django declares the cursor WITH HOLD: the server keeps the result over our commits.
        is_held = not connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS")
        with contextlib.closing(connection.chunked_cursor() if is_held else connection.cursor()) as cursor:
            cursor.execute(sql, params)

            def fetch(asked: int) -> list[tuple[Any, ...]]:
                return list(compiler.results_iter(results=[cursor.fetchmany(asked)], tuple_expected=True))

            yield from gathered(fetch, rows)

    def insert_controls(
        self, connection: BaseDatabaseWrapper, kind: str, rows: Sequence[ControlRow]
    ) -> dict[tuple[int, int], int]:
        if not rows:
            return {}
        keys, key2s, *texts = zip(*sorted(rows), strict=True)
        with connection.cursor() as cursor:
            cursor.execute(
                """
                INSERT INTO notify_control (kind, key, key2, language, recipients, tenant, original_key)
                SELECT %s, given.*
                FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[]) AS given
                ON CONFLICT (kind, key, key2) DO NOTHING
                RETURNING key, key2, id
                """,
                # psycopg makes arrays in Python, which takes five times as long.
                [
                    kind,
                    f"{{{','.join(map(str, keys))}}}",
                    f"{{{','.join(map(str, key2s))}}}",
                    *map(text_array, texts),
                ],
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
        """Insert rows of one shape by COPY: 5,000 mails of a pass take 0.2 s instead of 1.1 s the plain way."""
        connection.validate_no_broken_transaction()
        statement = f"COPY {table} (pass_id, {', '.join(row._fields)}) FROM STDIN"
        # Django does not translate the errors of a COPY by itself.
        with connection.wrap_database_errors, connection.cursor() as cursor, cursor.copy(statement) as copy:
            told = str(pass_id)  # once, where psycopg would do it for each row
            for each in rows:
                copy.write_row((told, *each))

    def claim_mails(
        self, connection: BaseDatabaseWrapper, *, worker: str, now: datetime, lease_until: datetime, limit: int
    ) -> list[int]:
        with connection.cursor() as cursor:
            # MATERIALIZED: inside IN (…) the planner may run the locking query again and again, and claim more each
            # time.
            cursor.execute(
                """
                WITH due AS MATERIALIZED (
                    SELECT id, due_at FROM notify_mail_queue
                    WHERE state = 'queued' AND due_at <= %s AND digest_of_id IS NULL
                      AND (lease_until IS NULL OR lease_until < %s)
                    ORDER BY due_at, id LIMIT %s
                    FOR UPDATE SKIP LOCKED
                ), claimed AS (
                    UPDATE notify_mail_queue m SET worker = %s, lease_until = %s FROM due WHERE m.id = due.id
                    RETURNING m.id, due.due_at
                )
                SELECT id FROM claimed ORDER BY due_at, id
                """,
                [now, now, limit, worker, lease_until],
            )
            return [pk for (pk,) in cursor.fetchall()]

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
        # One statement is its own transaction and one round trip, however many mails it is about. Its parts see the
        # same rows as they were before it, so each row may occur in one of them only.
        params = [
            *arrays([row._asdict() for row in attempts], ATTEMPT_TYPES),
            *arrays([{"id": change.mail_id, **change.values} for change in settled], SETTLED_TYPES),
            worker,
            *arrays([{"id": change.mail_id, **change.values} for change in begun], BEGUN_TYPES),
            worker,
            now,
        ]
        with self.server_binding_cursor(connection) as cursor:
            cursor.execute(WRITE_PROGRESS, params)
            return {pk for (pk,) in cursor.fetchall()}

    def server_binding_cursor(self, connection: BaseDatabaseWrapper) -> Any:
        """Return a cursor that sends parameters apart from the SQL: two bodies a mail need no quoting and parsing."""
        connection.ensure_connection()
        make = connection.make_debug_cursor if connection.queries_logged else connection.make_cursor
        return make(cast(Any, psycopg.Cursor(connection.connection)))

    def announce(self, connection: BaseDatabaseWrapper) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"NOTIFY {WAKE_CHANNEL}")

    def wait(self, connection: BaseDatabaseWrapper, seconds: float) -> bool:
        with connection.cursor() as cursor:
            cursor.execute(f"LISTEN {WAKE_CHANNEL}")
        with connection.wrap_database_errors:
            return any(True for _ in connection.connection.notifies(timeout=seconds, stop_after=1))
