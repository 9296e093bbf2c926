"""
What every room does in the same words; the rooms hand on to it.

These statements run once or twice per mail. The ORM could say them, at several times their cost: building and
compiling a queryset takes longer than the database needs to answer (docs/decisions/024-plain-updates-per-mail.md).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, TypeVar

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from .base import AttemptRow, Change

#: Characters of the texts in one list of rows. A pass needs about twenty times as much memory at its highest: the rows,
#: their messages, and the statement in which they travel. A usual event has 300, so that 5,000 of them fit.
LIST_CHARS_MAX = 4 * 2**20
#: Rows of the first fetch, when nobody knows how long they are, and of any; it grows fourfold at most in between.
FETCH_ROWS_FIRST = 16
FETCH_ROWS_MAX = 250

#: 12 parameters each: below the 2,100 parameters of SQL Server.
ATTEMPTS_PER_STATEMENT = 100
Row = TypeVar("Row", bound="tuple[Any, ...]")

#: A claim that still holds, and one whose end may still be told.
IS_OURS = "worker = %s AND lease_until > %s AND state IN ('queued', 'sending') AND digest_of_id IS NULL"
IS_OPEN = "worker = %s AND state IN ('queued', 'sending', 'uncertain')"


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


def adapted(connection: BaseDatabaseWrapper, value: Any) -> Any:
    """Return a parameter as the driver takes it; psycopg would take a member of an enumeration for its name."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    return connection.ops.adapt_datetimefield_value(value) if isinstance(value, datetime) else value


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


def run(connection: BaseDatabaseWrapper, sql: str, params: Sequence[Any]) -> int:
    """Execute a statement; return how many rows it met."""
    with connection.cursor() as cursor:
        cursor.execute(sql, [adapted(connection, value) for value in params])
        return int(cursor.rowcount)


#: A room whose driver counts otherwise hands in its own way to ``run`` a statement.
Run = Callable[[BaseDatabaseWrapper, str, Sequence[Any]], int]


def insert_attempts(connection: BaseDatabaseWrapper, rows: Sequence[AttemptRow], *, run: Run = run) -> None:
    for start in range(0, len(rows), ATTEMPTS_PER_STATEMENT):
        run(connection, *insertion(rows[start : start + ATTEMPTS_PER_STATEMENT]))


def try_begin_mail(
    connection: BaseDatabaseWrapper,
    mail_id: int,
    *,
    worker: str,
    now: datetime,
    values: Mapping[str, Any],
    run: Run = run,
) -> bool:
    return run(connection, *beginning(Change(mail_id, values), worker=worker, now=now)) == 1


def try_settle_mail(
    connection: BaseDatabaseWrapper, mail_id: int, *, worker: str, values: Mapping[str, Any], run: Run = run
) -> bool:
    return run(connection, *settling(Change(mail_id, values), worker=worker)) == 1


def try_go_on(
    connection: BaseDatabaseWrapper,
    *,
    worker: str,
    now: datetime,
    attempts: Sequence[AttemptRow],
    settled: Change | None,
    begun: Change | None,
    run: Run = run,
) -> bool:
    with transaction.atomic(using=connection.alias, durable=True):
        if attempts:
            insert_attempts(connection, attempts, run=run)
        if settled is not None:
            run(connection, *settling(settled, worker=worker))
        return begun is None or run(connection, *beginning(begun, worker=worker, now=now)) == 1
