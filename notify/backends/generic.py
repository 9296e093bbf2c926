"""
What every room does in the same words; the rooms hand on to it.

These statements run once or twice per mail. The ORM could say them, at several times their cost: building and
compiling a queryset takes longer than the database needs to answer (docs/decisions/024-plain-updates-per-mail.md).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from .base import AttemptRow

INSERT_ATTEMPT = f"""
    INSERT INTO notify_attempt ({", ".join(AttemptRow._fields)}) VALUES ({", ".join(["%s"] * len(AttemptRow._fields))})
"""  # noqa: S608 - names of ours


def adapted(connection: BaseDatabaseWrapper, value: Any) -> Any:
    """Return a parameter as the driver takes it; psycopg would take a member of an enumeration for its name."""
    if isinstance(value, Enum):
        return value.value
    return connection.ops.adapt_datetimefield_value(value) if isinstance(value, datetime) else value


def insert_attempts(connection: BaseDatabaseWrapper, rows: Sequence[AttemptRow]) -> None:
    with connection.cursor() as cursor:
        params = [[adapted(connection, value) for value in row] for row in rows]
        if len(params) == 1:
            cursor.execute(INSERT_ATTEMPT, params[0])
        else:
            cursor.executemany(INSERT_ATTEMPT, params)


def try_begin_mail(
    connection: BaseDatabaseWrapper, mail_id: int, *, worker: str, now: datetime, values: Mapping[str, Any]
) -> bool:
    condition = "worker = %s AND lease_until > %s AND state IN ('queued', 'sending') AND digest_of_id IS NULL"
    return update_mail(connection, mail_id, {"state": "sending", **values}, condition, [worker, now]) == 1


def try_settle_mail(connection: BaseDatabaseWrapper, mail_id: int, *, worker: str, values: Mapping[str, Any]) -> bool:
    condition = "worker = %s AND state IN ('queued', 'sending', 'uncertain')"
    cleared = {"worker": "", "lease_until": None, "flight": None, **values}
    return update_mail(connection, mail_id, cleared, condition, [worker]) == 1


def update_mail(
    connection: BaseDatabaseWrapper, mail_id: int, values: Mapping[str, Any], condition: str, params: Sequence[Any]
) -> int:
    """Update one row of the mail queue on a condition; return how many it met."""
    columns = ", ".join(f"{name} = %s" for name in values)
    given = [adapted(connection, value) for value in (*values.values(), mail_id, *params)]
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE notify_mail_queue SET {columns} WHERE id = %s AND {condition}", given)  # noqa: S608
        return int(cursor.rowcount)
