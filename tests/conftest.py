"""Fixtures for every test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.backends.base.operations import BaseDatabaseOperations
from django.utils import translation
from hypothesis import HealthCheck, settings

from receipts.dialects import dialect_of
from receipts.models import Change
from tests.babelfish import is_stand_in, renew_session

# Two shared cores, and a whole run that stays short: more examples with ``--hypothesis-profile=long``.
settings.register_profile("short", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("short")

#: A trigger that refuses each row whose column has a value: what to do, what to undo.
TRIGGERS = {
    "sqlite": (
        "CREATE TRIGGER kwit_refuses BEFORE INSERT ON {table} WHEN CAST(NEW.{column} AS TEXT) = '{value}' "
        "BEGIN SELECT RAISE(ABORT, 'refused by a trigger'); END",
        "DROP TRIGGER kwit_refuses",
    ),
    "postgresql": (
        "CREATE FUNCTION kwit_refuses() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'refused by a trigger'; END $$; "
        "CREATE TRIGGER kwit_refuses BEFORE INSERT ON {table} FOR EACH ROW "
        "WHEN (NEW.{column}::text = '{value}') EXECUTE FUNCTION kwit_refuses()",
        "DROP FUNCTION kwit_refuses() CASCADE",
    ),
    "microsoft": (
        "CREATE TRIGGER kwit_refuses ON {table} AFTER INSERT AS "
        "IF EXISTS (SELECT 1 FROM inserted WHERE {column} = N'{value}') THROW 51000, N'refused by a trigger', 1;",
        "DROP TRIGGER kwit_refuses",
    ),
}


@pytest.fixture(autouse=True, scope="session")
def flush_may_empty_receipts() -> Iterator[None]:
    """
    Let the flush after a test that commits empty the append-only tables, which refuse it like any other DELETE.

    The guard is put back in the same transaction, so that every test finds it.
    """
    plain = BaseDatabaseOperations.execute_sql_flush

    def execute_sql_flush(self: Any, sql_list: list[str]) -> None:
        connection = self.connection
        if not any(Change._meta.db_table in sql for sql in sql_list):
            return plain(self, sql_list)
        dialect = dialect_of(connection)
        with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
            for statement in dialect.unguard(connection):
                cursor.execute(statement)
            plain(self, sql_list)
            for statement in dialect.guard(connection):
                cursor.execute(statement)

    BaseDatabaseOperations.execute_sql_flush = execute_sql_flush
    yield
    BaseDatabaseOperations.execute_sql_flush = plain


@pytest.fixture(autouse=True)
def _the_site_s_own_language() -> Iterator[None]:
    """Forget the language of the last request, which its thread keeps until the next one."""
    yield
    translation.deactivate()


@pytest.fixture(autouse=True)
def _fresh_session_on_a_stand_in(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give a stand-in a new session before it ends of too many refusals."""
    yield
    marker = request.node.get_closest_marker("django_db")
    if marker is not None and marker.kwargs.get("transaction") and is_stand_in():
        renew_session()


@pytest.fixture
def refusing_trigger(transactional_db: None) -> Iterator[Callable[[str, str, object], None]]:
    """Return a function that makes a table refuse the rows whose column has this value, until the test ends."""
    create, drop = TRIGGERS[connection.vendor]
    with ExitStack() as undo:

        def refuse(table: str, column: str, value: object) -> None:
            with connection.cursor() as cursor:
                cursor.execute(create.format(table=table, column=connection.ops.quote_name(column), value=value))
            undo.callback(execute, drop)

        yield refuse


def execute(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)
