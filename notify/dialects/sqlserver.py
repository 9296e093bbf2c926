"""What a pass and delivery do on SQL Server."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

from kwit.db.dialect import COMPATIBILITY_LEVEL_MIN, ENGLISH, SqlServerDialect

from ..notes import Note, note
from .base import (
    BUSY,
    ROW_LOCK_WAIT_MS,
    ControlRow,
    LockAnswer,
    MailRow,
    NotifyDialect,
    TaskRow,
    Weakness,
    gathered,
    in_slices,
)

#: Rows of one chunk. A row costs up to two locks on one index (its key and, for HOLDLOCK, the range before the next),
#: and a statement that takes 5,000 on one index locks the whole table instead (lock escalation).
CHUNK_ROWS_MAX = 2000

#: What looking for candidates waits for rows that somebody has open, where READ_COMMITTED_SNAPSHOT is off and a reader
#: has to wait; whole milliseconds. Longer than a write of ours: nobody waits for a reader, and its step would fail.
READ_WAIT_MS = 30_000

#: No limit, as TOP writes it: the largest int.
ROWS_MAX = 2**31 - 1

_numbers = itertools.count(1)

#: The application lock's name; compared case-sensitively, in the scope of one database and one database principal.
LOCK = "kwit.notify.pass"

# Neither has SET NOCOUNT ON: without parameters it would stay for the session, and take every row count away.
TRY_LOCK = f"""
DECLARE @code int;
IF APPLOCK_MODE(N'public', N'{LOCK}', N'Session') = N'NoLock'
    EXEC @code = sp_getapplock
        @Resource = N'{LOCK}', @LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 0;
SELECT @code, @@SPID;
"""
IS_LOCKED = f"SELECT APPLOCK_MODE(N'public', N'{LOCK}', N'Session'), @@SPID"
# APPLOCK_TEST says 1 also to the session that holds the lock.
IS_FREE = f"""
SELECT CASE WHEN APPLOCK_MODE(N'public', N'{LOCK}', N'Session') <> N'NoLock' THEN 0
            ELSE APPLOCK_TEST(N'public', N'{LOCK}', N'Exclusive', N'Session') END
"""
UNLOCK = f"""
IF APPLOCK_MODE(N'public', N'{LOCK}', N'Session') <> N'NoLock'
    EXEC sp_releaseapplock @Resource = N'{LOCK}', @LockOwner = N'Session';
"""
STANDING = """
SELECT d.compatibility_level, d.is_read_committed_snapshot_on, @@LANGUAGE
FROM sys.databases AS d WHERE d.database_id = DB_ID()
"""
# Tables with a filter of an enabled security policy, and how many rows they have before it.
FILTERED = """
SELECT OBJECT_NAME(f.target_object_id), (
    SELECT SUM(p.rows) FROM sys.partitions AS p WHERE p.object_id = f.target_object_id AND p.index_id IN (0, 1)
)
FROM sys.security_predicates AS f JOIN sys.security_policies AS s ON s.object_id = f.object_id
WHERE s.is_enabled = 1 AND f.predicate_type_desc = N'FILTER'
ORDER BY 1
"""
# Only the first 32 characters of an application lock's name can be read in sys.dm_tran_locks.
HOLDER = f"""
SELECT s.session_id, s.program_name, s.host_name, s.host_process_id, s.login_time
FROM sys.dm_tran_locks AS l JOIN sys.dm_exec_sessions AS s ON s.session_id = l.request_session_id
WHERE l.resource_type = N'APPLICATION' AND l.request_status = N'GRANT' AND l.resource_database_id = DB_ID()
  AND l.resource_description LIKE N'%[[]{LOCK}]%'
"""  # noqa: S608 - a constant
SESSION_BEFORE = """
SELECT CASE WHEN @@OPTIONS & 16384 = 0 THEN N'OFF' ELSE N'ON' END, @@LOCK_TIMEOUT, s.deadlock_priority
FROM sys.dm_exec_sessions AS s WHERE s.session_id = @@SPID
"""
# Without parameters, and so it must stay: what sp_executesql sets ends with it.
SESSION = "SET XACT_ABORT {}; SET LOCK_TIMEOUT {:d}; SET DEADLOCK_PRIORITY {};"

# LOOP JOIN: a scan under HOLDLOCK would lock the whole kind, and all of it at once.
INSERT_CONTROLS = """
DECLARE @kind nvarchar(4000) = %s, @rows nvarchar(max) = %s;
DECLARE @new TABLE ([key] bigint NOT NULL, key2 bigint NOT NULL, id bigint NOT NULL);
INSERT INTO notify_control (kind, [key], key2, language, recipients, tenant, original_key)
OUTPUT inserted.[key], inserted.key2, inserted.id INTO @new ([key], key2, id)
SELECT @kind, r.[key], r.key2, r.language, r.recipients, r.tenant, r.original_key
FROM OPENJSON(@rows) WITH (
    [key] bigint '$[0]', key2 bigint '$[1]', language nvarchar(max) '$[2]', recipients nvarchar(max) '$[3]',
    tenant nvarchar(max) '$[4]', original_key nvarchar(max) '$[5]'
) AS r
WHERE NOT EXISTS (
    SELECT 1 FROM notify_control AS c WITH (UPDLOCK, HOLDLOCK)
    WHERE c.kind = @kind AND c.[key] = r.[key] AND c.key2 = r.key2
)
ORDER BY r.[key], r.key2
OPTION (LOOP JOIN);
SELECT [key], key2, id FROM @new;
"""
INSERT_MAILS = """
INSERT INTO notify_mail_queue
       (pass_id, control_id, template, subject, recipients, language, payload, state, problem, tenant, notes)
SELECT %s, r.control_id, r.template, r.subject, r.recipients, r.language, r.payload, r.state, r.problem, r.tenant,
       r.notes
FROM OPENJSON(%s) WITH (
    control_id bigint '$[0]', template nvarchar(max) '$[1]', subject nvarchar(max) '$[2]',
    recipients nvarchar(max) '$[3]' AS JSON, language nvarchar(max) '$[4]', payload nvarchar(max) '$[5]' AS JSON,
    state nvarchar(max) '$[6]', problem nvarchar(max) '$[7]', tenant nvarchar(max) '$[8]',
    notes nvarchar(max) '$[9]'
) AS r;
"""
INSERT_TASKS = """
INSERT INTO notify_task_queue (pass_id, control_id, title, assignee, language, payload, tenant)
SELECT %s, r.control_id, r.title, r.assignee, r.language, r.payload, r.tenant
FROM OPENJSON(%s) WITH (
    control_id bigint '$[0]', title nvarchar(max) '$[1]', assignee nvarchar(max) '$[2]',
    language nvarchar(max) '$[3]', payload nvarchar(max) '$[4]' AS JSON, tenant nvarchar(max) '$[5]'
) AS r;
"""
# READCOMMITTEDLOCK: Microsoft asks for it beside READPAST where READ_COMMITTED_SNAPSHOT is on (error 650). LOOP JOIN:
# the rows that were locked are looked up by their ids, in whatever plan; a scan would wait for the rows of the other
# workers. The hints only save waiting; what decides between two workers is the condition that the UPDATE repeats.
CLAIM_MAILS = """
DECLARE @now datetime2(6) = %s;
DECLARE @claimed TABLE (id bigint NOT NULL PRIMARY KEY, due_at datetime2(6) NOT NULL);
UPDATE m SET worker = %s, lease_until = %s
OUTPUT inserted.id, inserted.due_at INTO @claimed (id, due_at)
FROM (
    SELECT TOP (%s) q.id FROM notify_mail_queue AS q WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE q.state = N'queued' AND q.due_at <= @now AND q.digest_of_id IS NULL
      AND (q.lease_until IS NULL OR q.lease_until < @now)
    ORDER BY q.due_at, q.id
) AS due
INNER LOOP JOIN notify_mail_queue AS m ON m.id = due.id
WHERE m.state = N'queued' AND m.digest_of_id IS NULL AND (m.lease_until IS NULL OR m.lease_until < @now);
SELECT id FROM @claimed ORDER BY due_at, id;
"""


class Session(NamedTuple):
    """What a session had set before a pass."""

    xact_abort: str
    lock_timeout_ms: int
    deadlock_priority: int


def plain(value: Any) -> Any:
    """Return a parameter as its column has it: a time as UTC without an offset, an enumeration or a list as text."""
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Enum):
        return value.value
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value


def created(table: str, types: Sequence[str]) -> str:
    """Return the SQL that makes a temporary table for rows of these types; it answers what the session waits."""
    columns = ", ".join(f"c{place} {declared}" for place, declared in enumerate(types))
    return f"SELECT @@LOCK_TIMEOUT;\nCREATE TABLE {table} (place bigint IDENTITY (1, 1) PRIMARY KEY, {columns});"


def page(table: str, rows: int, last: int, wait_ms: int) -> str:
    """Return the SQL that reads on in a temporary table, and lets the session wait as it did before that was filled."""
    read = f"SELECT TOP ({rows:d}) * FROM {table} WHERE place > {last:d} ORDER BY place;"  # noqa: S608
    return f"SET LOCK_TIMEOUT {wait_ms:d};\n{read}"


def column_type(connection: BaseDatabaseWrapper, expression: Any) -> str:
    """Return the type of a temporary column that holds an expression's values."""
    declared: str = expression.output_field.cast_db_type(connection)
    if "None" in declared:
        # A sum of decimals has no digits of its own.
        declared = "numeric(38, 10)"
    # The text columns of tempdb would otherwise have the collation of the server, not of this database.
    return f"{declared} COLLATE DATABASE_DEFAULT NULL" if "char" in declared else f"{declared} NULL"


def as_json(rows: Sequence[tuple[Any, ...]], *, nested: Sequence[int] = ()) -> str:
    """
    Return rows as one parameter: neither 2,100 parameters nor 1,000 rows of VALUES are the limit then.

    ``nested`` are the places of JSON texts, which become parts of the whole instead of texts in it.
    """
    encode = json.JSONEncoder(ensure_ascii=False).encode
    if not nested:
        return encode(rows)
    lines = (", ".join(value if place in nested else encode(value) for place, value in enumerate(row)) for row in rows)
    return f"[{', '.join(f'[{line}]' for line in lines)}]"


class NotifySqlServer(SqlServerDialect, NotifyDialect):
    """SQL Server: the pass lock is an application lock of the session; rows travel as one JSON text."""

    def execute(self, connection: BaseDatabaseWrapper, sql: str, params: Sequence[Any]) -> int:
        """
        Execute a statement; return how many rows it met.

        The driver's own count is none while NOCOUNT is ON (a server may have it so for everybody), and that of the
        first statement of a trigger that does not set it.
        """
        # The driver would ask the server what type each NULL has, which takes longer than the statement.
        written = sql % tuple("NULL" if value is None else "%s" for value in params)
        given = [plain(value) for value in params if value is not None]
        return int(self.fetch(connection, self.guarded(f"{written};\nSELECT @@ROWCOUNT;"), given)[0][0])

    def filtered_tables(self, connection: BaseDatabaseWrapper, tables: Sequence[str]) -> list[tuple[str, bool]]:
        hidden = []
        for name, rows in self.fetch(connection, FILTERED):
            if name in tables:
                table = connection.ops.quote_name(name)
                found = self.fetch(connection, f"SELECT TOP (1) 1 AS one FROM {table}")  # noqa: S608 - a table of ours
                hidden.append((name, bool(rows and not found)))
        return hidden

    def weaknesses(self, connection: BaseDatabaseWrapper) -> list[Weakness]:
        level, has_row_versions, language = self.fetch(connection, STANDING)[0]
        found = []
        if level < COMPATIBILITY_LEVEL_MIN:
            about = (
                f"the compatibility level is {level}: OPENJSON, in which rows travel, needs {COMPATIBILITY_LEVEL_MIN}"
            )
            found.append(Weakness("notify.E023", about, "ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = 140"))
        if language not in ENGLISH:
            about = f"this login speaks {language}: what may be repeated is recognised in English"
            found.append(Weakness("notify.W007", about, "ALTER LOGIN … WITH DEFAULT_LANGUAGE = us_english"))
        if not has_row_versions:
            about = "READ_COMMITTED_SNAPSHOT is off: looking for events waits for rows that somebody has open"
            how = "ALTER DATABASE CURRENT SET READ_COMMITTED_SNAPSHOT ON WITH ROLLBACK IMMEDIATE"
            found.append(Weakness("notify.I001", about, how))
        return found

    def try_lock(self, connection: BaseDatabaseWrapper) -> LockAnswer:
        # SQL Server would grant it to its own session again and again, each to be released; Kwit does not.
        code, session = self.fetch(connection, TRY_LOCK)[0]
        if code is None:
            return LockAnswer(BUSY, holder=note("holder_this_session"))
        answer = LockAnswer(code, token=session)
        return answer if answer.is_granted else LockAnswer(code, holder=self.holder(connection))

    def holder(self, connection: BaseDatabaseWrapper) -> Note | None:
        """Return what the server shows of the session that has the lock, to those with VIEW SERVER STATE."""
        try:
            found = self.fetch(connection, HOLDER)
        except DatabaseError:
            return None
        for session, program, host, pid, since in found:
            named, address = f"{session} ({program})", f"{host}, process {pid}"
            return note("holder_session", session=named, address=address, since=since)
        return None

    def is_locked(self, connection: BaseDatabaseWrapper, token: Any) -> bool:
        mode, session = self.fetch(connection, IS_LOCKED)[0]
        return bool(mode == "Exclusive" and session == token)

    def is_lock_free(self, connection: BaseDatabaseWrapper) -> bool:
        return bool(self.fetch(connection, IS_FREE)[0][0])

    def unlock(self, connection: BaseDatabaseWrapper, token: Any) -> None:
        if connection.connection is not None:
            self.fetch(connection, UNLOCK)

    def enter_pass(self, connection: BaseDatabaseWrapper) -> Any:
        return Session(*self.fetch(connection, SESSION_BEFORE)[0])

    def leave_pass(self, connection: BaseDatabaseWrapper, before: Any) -> None:
        # A session that is gone took its settings along.
        if connection.connection is not None:
            self.fetch(connection, SESSION.format(*before))

    def yield_to_others(self, connection: BaseDatabaseWrapper) -> None:
        # For the session, because SQL Server has no such setting for a transaction; leave_pass takes it back.
        # XACT_ABORT: an error must never leave half a transaction open for the next statement.
        self.fetch(connection, SESSION.format("ON", ROW_LOCK_WAIT_MS, "LOW"))

    def stream(
        self, queryset: QuerySet[Any, Mapping[str, Any]], *, names: Sequence[str], rows: int
    ) -> Iterator[list[tuple[Any, ...]]]:
        # One connection has one open result (mssql-python knows no MARS), and a second connection would wait for the
        # rows that this one has locked. A temporary table holds the result of one statement on the server instead.
        connection = connections[queryset.db]
        query = queryset.values_list(*names).query.clone()
        if query.high_mark is None:
            # INSERT numbers rows in the order of the SELECT, which is only sorted where TOP says so.
            query.set_limits(high=ROWS_MAX)
        compiler = query.get_compiler(using=queryset.db)
        try:
            sql, params = compiler.as_sql()
        except EmptyResultSet:  # Django knows without asking that there are no rows
            return
        table = f"#kwit_candidates_{next(_numbers)}"
        # Created without parameters: what sp_executesql creates ends with it.
        ((wait_ms,),) = self.fetch(
            connection, created(table, [column_type(connection, field[0]) for field in compiler.select])
        )
        try:
            self.fetch(connection, f"SET LOCK_TIMEOUT {READ_WAIT_MS:d};\nINSERT INTO {table} {sql};", params)
            last = 0

            def fetch_page(asked: int) -> list[tuple[Any, ...]]:
                nonlocal last
                fetched = self.fetch(connection, page(table, asked, last, wait_ms))
                last = fetched[-1][0] if fetched else last
                return list(compiler.results_iter(results=[[row[1:] for row in fetched]], tuple_expected=True))

            yield from gathered(fetch_page, min(rows, CHUNK_ROWS_MAX))
        finally:
            if connection.connection is not None and not connection.needs_rollback:
                # Also when filling it failed, before a page could set the waiting back.
                self.fetch(connection, f"SET LOCK_TIMEOUT {wait_ms:d};\nDROP TABLE IF EXISTS {table};")

    def insert_controls(
        self, connection: BaseDatabaseWrapper, kind: str, rows: Sequence[ControlRow]
    ) -> dict[tuple[int, int], int]:
        # NOT EXISTS under UPDLOCK and HOLDLOCK: of two that insert the same key, the second waits for the first to
        # commit and then finds the row. The unique constraint would only tell after the fact, and for the statement as
        # a whole.
        new = self.fetch(connection, self.guarded(INSERT_CONTROLS), [kind, as_json(sorted(rows))])
        return {(key, key2): pk for key, key2, pk in new}

    def insert_mails(self, connection: BaseDatabaseWrapper, pass_id: UUID, rows: Sequence[MailRow]) -> None:
        nested = [MailRow._fields.index(name) for name in ("recipients", "payload")]
        for some in in_slices(rows):
            self.fetch(connection, self.guarded(INSERT_MAILS), [pass_id.hex, as_json(some, nested=nested)])

    def insert_tasks(self, connection: BaseDatabaseWrapper, pass_id: UUID, rows: Sequence[TaskRow]) -> None:
        nested = [TaskRow._fields.index("payload")]
        for some in in_slices(rows):
            self.fetch(connection, self.guarded(INSERT_TASKS), [pass_id.hex, as_json(some, nested=nested)])

    def claim_mails(
        self, connection: BaseDatabaseWrapper, *, worker: str, now: datetime, lease_until: datetime, limit: int
    ) -> list[int]:
        params = [plain(now), worker, plain(lease_until), limit]
        return [pk for (pk,) in self.fetch(connection, self.guarded(CLAIM_MAILS), params)]
