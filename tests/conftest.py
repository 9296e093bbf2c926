"""Fixtures for every test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from django.db import connection

#: A trigger that refuses each row whose column has a value: what to do, what to undo.
TRIGGERS = {
    "sqlite": (
        "CREATE TRIGGER kwit_refuses BEFORE INSERT ON {table} WHEN NEW.{column} = '{value}' "
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
}


@pytest.fixture
def refusing_trigger(transactional_db: None) -> Iterator[Callable[[str, str, object], None]]:
    """Return a function that makes a table refuse the rows whose column has this value, until the test ends."""
    create, drop = TRIGGERS[connection.vendor]
    with ExitStack() as undo:

        def refuse(table: str, column: str, value: object) -> None:
            with connection.cursor() as cursor:
                cursor.execute(create.format(table=table, column=column, value=value))
            undo.callback(execute, drop)

        yield refuse


def execute(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)
