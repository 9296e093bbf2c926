"""The room for SQL Server 2017 to 2025 (mssql-django 2 with mssql-python)."""

import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import DatabaseError, DataError, IntegrityError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

from ..notes import Note, note
from . import generic
from .base import BUSY, ROW_LOCK_WAIT_MS, AttemptRow, Change, ControlRow, LockAnswer, MailRow, TaskRow, Weakness
from .tsql import (
    CLAIM_MAILS,
    HOLDER,
    INSERT_CONTROLS,
    INSERT_MAILS,
    INSERT_TASKS,
    IS_LOCKED,
    SESSION,
    SESSION_BEFORE,
    STANDING,
    TRY_LOCK,
    UNLOCK,
)

#: Rows of one chunk. A row costs up to two locks on one index (its key and, for HOLDLOCK, the range before the next),
#: and a statement that takes 5,000 on one index locks the whole table instead (lock escalation).
CHUNK_ROWS_MAX = 2000

#: What looking for candidates waits for rows that somebody has open, where READ_COMMITTED_SNAPSHOT is off and a reader
#: has to wait; whole milliseconds. Longer than a write of ours: nobody waits for a reader, and its step would fail.
READ_WAIT_MS = 30_000

#: The compatibility level of SQL Server 2016; a database keeps the one of the server that it was made on.
LEVEL_MIN = 130
#: The languages whose messages are English.
ENGLISH = ("us_english", "British")

#: No limit, as TOP writes it: the largest int.
ROWS_MAX = 2**31 - 1

#: Deadlock victim, lock request timeout, snapshot update conflict, snapshot invalidated by a change of the schema.
TRANSIENT = (1205, 1222, 3960, 3961)
#: A text too long for its column (8152 before SQL Server 2019), which the driver takes for an error of syntax: SQLSTATE
#: 42000. And the trigger's own ROLLBACK; what a trigger raises itself has a number from 50000.
REFUSED = (2628, 3609, 8152)
RAISED_MIN = 50000
#: What ``telling`` makes of them, so that neither the session's language nor the driver hides the number.
TRANSIENT_TEXT = "kwit: to be repeated"
REFUSAL_TEXT = "kwit: refused"
#: The same for statements that the ORM wrote, which nothing of ours is wrapped around: SQLSTATE 40001 and HYT00 as
#: mssql-python words them, the number as pyodbc appends it, SQL Server's own words in English.
TRANSIENT_MARKS = (
    TRANSIENT_TEXT,
    "Serialization failure",
    "Timeout expired",
    *(f"({number})" for number in TRANSIENT),
    "deadlock victim",
    "Lock request time out period exceeded",
    "Snapshot isolation transaction",
)

_numbers = itertools.count(1)


class Session(NamedTuple):
    """What a session had set before a pass."""

    xact_abort: str
    lock_timeout_ms: int
    deadlock_priority: int


def telling(sql: str) -> str:
    """Return a batch whose error says by itself whether it may be repeated, or is a refusal of what is in a row."""
    transient, refused = (", ".join(map(str, numbers)) for numbers in (TRANSIENT, REFUSED))
    return f"""
SET NOCOUNT ON;
BEGIN TRY
{sql.strip()}
END TRY
BEGIN CATCH
    DECLARE @number int = ERROR_NUMBER(), @told nvarchar(2048);
    SET @told = CASE
        WHEN @number IN ({transient}) THEN N'{TRANSIENT_TEXT}'
        WHEN @number >= {RAISED_MIN} OR @number IN ({refused}) THEN N'{REFUSAL_TEXT}'
    END;
    IF @told IS NULL
    BEGIN;
        THROW;
    END;
    SET @told = CONCAT(@told, N': error ', @number, N': ', ERROR_MESSAGE());
    THROW 51205, @told, 1;
END CATCH;
"""


def fetch(connection: BaseDatabaseWrapper, sql: str, params: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
    """Run one batch to its very end, for an unread rest leaves the connection busy; return its first rows."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        rows: list[tuple[Any, ...]] | None = None
        while True:
            if rows is None and cursor.description is not None:
                rows = cursor.fetchall()
            if not cursor.nextset():
                return rows or []


def plain(value: Any) -> Any:
    """Return a parameter as its column has it: a time as UTC without an offset, a member of an enumeration as text."""
    if isinstance(value, Enum):
        return value.value
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value


def changed(connection: BaseDatabaseWrapper, sql: str, params: Sequence[Any]) -> int:
    """
    Execute a statement; return how many rows it met.

    The driver's own count is none while NOCOUNT is ON (a server may have it so for everybody), and that of the first
    statement of a trigger that does not set it.
    """
    # The driver would ask the server what type each NULL has, which takes longer than the statement.
    written = sql % tuple("NULL" if value is None else "%s" for value in params)
    given = [plain(value) for value in params if value is not None]
    return int(fetch(connection, telling(f"{written};\nSELECT @@ROWCOUNT;"), given)[0][0])


def now(connection: BaseDatabaseWrapper) -> datetime:
    moment: datetime = fetch(connection, "SELECT CAST(SYSUTCDATETIME() AS datetime2(6))")[0][0]
    return moment.replace(tzinfo=UTC)


def check_session(connection: BaseDatabaseWrapper) -> None:
    """Nothing can lend an open connection to somebody else; a driver that reconnects by itself is seen by is_locked."""


def weaknesses(connection: BaseDatabaseWrapper) -> list[Weakness]:
    level, has_row_versions, language = fetch(connection, STANDING)[0]
    found = []
    if level < LEVEL_MIN:
        about = f"the compatibility level is {level}: OPENJSON, in which rows travel, needs {LEVEL_MIN}"
        found.append(Weakness("notify.E023", about, "ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = 140"))
    if language not in ENGLISH:
        about = f"this login speaks {language}: what may be repeated is recognised in English"
        found.append(Weakness("notify.W007", about, "ALTER LOGIN … WITH DEFAULT_LANGUAGE = us_english"))
    if not has_row_versions:
        about = "READ_COMMITTED_SNAPSHOT is off: looking for events waits for rows that somebody has open"
        how = "ALTER DATABASE CURRENT SET READ_COMMITTED_SNAPSHOT ON WITH ROLLBACK IMMEDIATE"
        found.append(Weakness("notify.I001", about, how))
    return found


def try_lock(connection: BaseDatabaseWrapper) -> LockAnswer:
    # SQL Server would grant it to its own session again and again, each to be released; Kwit does not.
    code, session = fetch(connection, TRY_LOCK)[0]
    if code is None:
        return LockAnswer(BUSY, holder=note("holder_this_session"))
    answer = LockAnswer(code, token=session)
    return answer if answer.is_granted else LockAnswer(code, holder=holder(connection))


def holder(connection: BaseDatabaseWrapper) -> Note | None:
    """Return what the server shows of the session that has the lock, to those with VIEW SERVER STATE."""
    try:
        found = fetch(connection, HOLDER)
    except DatabaseError:
        return None
    for session, program, host, pid, since in found:
        named, address = f"{session} ({program})", f"{host}, process {pid}"
        return note("holder_session", session=named, address=address, since=since)
    return None


def is_locked(connection: BaseDatabaseWrapper, token: Any) -> bool:
    mode, session = fetch(connection, IS_LOCKED)[0]
    return bool(mode == "Exclusive" and session == token)


def unlock(connection: BaseDatabaseWrapper, token: Any) -> None:
    if connection.connection is not None:
        fetch(connection, UNLOCK)


def enter_pass(connection: BaseDatabaseWrapper) -> Any:
    return Session(*fetch(connection, SESSION_BEFORE)[0])


def leave_pass(connection: BaseDatabaseWrapper, before: Any) -> None:
    # A session that is gone took its settings along.
    if connection.connection is not None:
        fetch(connection, SESSION.format(*before))


def yield_to_others(connection: BaseDatabaseWrapper) -> None:
    # For the session, because SQL Server has no such setting for a transaction; leave_pass takes it back. XACT_ABORT:
    # an error must never leave half a transaction open for the next statement.
    fetch(connection, SESSION.format("ON", ROW_LOCK_WAIT_MS, "LOW"))


def is_transient(error: Exception) -> bool:
    return any(mark in str(error) for mark in TRANSIENT_MARKS)


def is_refusal(error: Exception) -> bool:
    return isinstance(error, DataError | IntegrityError) or REFUSAL_TEXT in str(error)


def stream(
    queryset: QuerySet[Any, Mapping[str, Any]], *, names: Sequence[str], rows: int
) -> Iterator[list[tuple[Any, ...]]]:
    # One connection has one open result (mssql-python knows no MARS), and a second connection would wait for the rows
    # that this one has locked. A temporary table holds the result of one statement on the server instead.
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
    ((wait_ms,),) = fetch(connection, created(table, [column_type(connection, field[0]) for field in compiler.select]))
    try:
        fetch(connection, f"SET LOCK_TIMEOUT {READ_WAIT_MS:d};\nINSERT INTO {table} {sql};", params)
        last = 0

        def fetch_page(asked: int) -> list[tuple[Any, ...]]:
            nonlocal last
            fetched = fetch(connection, page(table, asked, last, wait_ms))
            last = fetched[-1][0] if fetched else last
            return list(compiler.results_iter(results=[[row[1:] for row in fetched]], tuple_expected=True))

        yield from generic.gathered(fetch_page, min(rows, CHUNK_ROWS_MAX))
    finally:
        if connection.connection is not None and not connection.needs_rollback:
            # Also when filling it failed, before a page could set the waiting back.
            fetch(connection, f"SET LOCK_TIMEOUT {wait_ms:d};\nDROP TABLE IF EXISTS {table};")


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


def insert_controls(
    connection: BaseDatabaseWrapper, kind: str, rows: Sequence[ControlRow]
) -> dict[tuple[int, int], int]:
    # NOT EXISTS under UPDLOCK and HOLDLOCK: of two that insert the same key, the second waits for the first to commit
    # and then finds the row. The unique constraint would only tell after the fact, and for the statement as a whole.
    new = fetch(connection, telling(INSERT_CONTROLS), [kind, as_json(sorted(rows))])
    return {(key, key2): pk for key, key2, pk in new}


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


def insert_mails(connection: BaseDatabaseWrapper, pass_id: UUID, rows: Sequence[MailRow]) -> None:
    nested = [MailRow._fields.index(name) for name in ("recipients", "payload")]
    for some in generic.in_slices(rows):
        fetch(connection, telling(INSERT_MAILS), [pass_id.hex, as_json(some, nested=nested)])


def insert_tasks(connection: BaseDatabaseWrapper, pass_id: UUID, rows: Sequence[TaskRow]) -> None:
    nested = [TaskRow._fields.index("payload")]
    for some in generic.in_slices(rows):
        fetch(connection, telling(INSERT_TASKS), [pass_id.hex, as_json(some, nested=nested)])


def claim_mails(
    connection: BaseDatabaseWrapper, *, worker: str, now: datetime, lease_until: datetime, limit: int
) -> list[int]:
    params = [plain(now), worker, plain(lease_until), limit]
    return [pk for (pk,) in fetch(connection, telling(CLAIM_MAILS), params)]


def insert_attempts(connection: BaseDatabaseWrapper, rows: Sequence[AttemptRow]) -> None:
    generic.insert_attempts(connection, rows, run=changed)


def try_begin_mail(
    connection: BaseDatabaseWrapper, mail_id: int, *, worker: str, now: datetime, values: Mapping[str, Any]
) -> bool:
    return generic.try_begin_mail(connection, mail_id, worker=worker, now=now, values=values, run=changed)


def try_settle_mail(connection: BaseDatabaseWrapper, mail_id: int, *, worker: str, values: Mapping[str, Any]) -> bool:
    return generic.try_settle_mail(connection, mail_id, worker=worker, values=values, run=changed)


def try_go_on(
    connection: BaseDatabaseWrapper,
    *,
    worker: str,
    now: datetime,
    attempts: Sequence[AttemptRow],
    settled: Change | None,
    begun: Change | None,
) -> bool:
    return generic.try_go_on(
        connection, worker=worker, now=now, attempts=attempts, settled=settled, begun=begun, run=changed
    )


def announce(connection: BaseDatabaseWrapper) -> None:
    """Nobody listens: Service Broker could wake a worker, but is off in most databases, so ``wait`` only waits."""


def wait(connection: BaseDatabaseWrapper, seconds: float) -> bool:
    time.sleep(seconds)
    return False
