"""
What the suite leaves out when the server is Babelfish, the stand-in for SQL Server of those who have none.

Babelfish speaks T-SQL but has faults of its own; ``docs/sql-server.md`` lists them. Nothing outside tests knows of it.
"""

import contextlib
import re
from collections.abc import Callable
from functools import cache
from graphlib import TopologicalSorter
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.core.management.commands import flush
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.introspection import TableInfo
from django.db.backends.signals import connection_created

from kwit.db.dialect import SqlServerDialect
from notify.dialects import sqlserver


@cache
def is_stand_in() -> bool:
    """Whether the tested server is Babelfish; asked on a connection of its own, past Django and pytest-django."""
    if settings.DATABASES[DEFAULT_DB_ALIAS]["ENGINE"] != "mssql":
        return False
    wrapper = connections.create_connection(DEFAULT_DB_ALIAS)
    raw = wrapper.get_new_connection({**wrapper.get_connection_params(), "NAME": "master"})
    try:
        return is_babelfish(raw.cursor())
    finally:
        raw.close()


#: How often this process has asked for the pass lock since its connection was new: the fifth refusal ends the server.
lock_calls = [0]
LOCK_CALLS_MAX = 3


def renew_session() -> None:
    """Take a new session before the server ends."""
    if lock_calls[0] > LOCK_CALLS_MAX:
        lock_calls[0] = 0
        connections.close_all()


def is_babelfish(cursor: Any) -> bool:
    """Ask the server."""
    cursor.execute("SELECT @@VERSION")
    return "Babelfish" in cursor.fetchone()[0]


#: Whose migrations are run.
OURS = ("kwit", "notify", "portal", "receipts")


def watch_for_it() -> None:
    """Work around Babelfish's faults in this process as soon as a connection turns out to be one."""
    connection_created.connect(work_around, dispatch_uid="babelfish")


def work_around(connection: Any, **kwargs: Any) -> None:
    """Make up for what Babelfish cannot and SQL Server can."""
    if connection.vendor != "microsoft":
        return
    connection_created.disconnect(dispatch_uid="babelfish")
    with connection.cursor() as cursor:
        if not is_babelfish(cursor):
            return
        wrapper = type(cursor.cursor)
    know_temporary_names(connection)
    connection_created.connect(know_temporary_names, dispatch_uid="babelfish's names")
    # Its errors are PostgreSQL's in PostgreSQL's words.
    SqlServerDialect.TRANSIENT_MARKS += ("deadlock detected", "lock timeout")
    # Others' tables as they are today: their migrations need ALTER COLUMN … NULL, or names of more than 63 characters.
    settings.MIGRATION_MODULES = {app.label: None for app in apps.get_app_configs() if app.label not in OURS}
    introspection = type(connection.introspection)
    introspection.get_table_list = get_table_list
    introspection.get_constraints = naming_indexes(introspection.get_constraints)
    type(connection.ops).sql_flush = sql_flush
    type(connection.creation)._destroy_test_db = drop
    # Content types and permissions are kept by that flush, and asking for each of them takes seconds there.
    flush.__dict__["emit_post_migrate_signal"] = lambda *args, **kwargs: None
    execute = wrapper.execute

    def execute_with_nulls_written_out(self: Any, sql: str, params: Any = None) -> Any:
        if sqlserver.LOCK in sql:
            lock_calls[0] += 1
            # Busy is -999 there, and application locks belong to the whole server: suites on two databases would meet.
            sql = sql.replace("SELECT @code,", "SELECT CASE @code WHEN -999 THEN -1 ELSE @code END,")
            sql = sql.replace(f"N'{sqlserver.LOCK}'", f"N'{sqlserver.LOCK} {self.connection.settings_dict['NAME']}'")
        if sql.startswith("SET IDENTITY_INSERT") and RETURNED in sql:
            # No id may be given there to a row that OUTPUT puts into a table: read it from its own table instead.
            sql = re.sub(r"SET NOCOUNT ON; .*?; INSERT INTO", "SET NOCOUNT ON; INSERT INTO", sql, count=1)
            sql = re.sub(rf" OUTPUT .* INTO {RETURNED} VALUES", " VALUES", sql, count=1)
            table = sql.split()[2]
            sql = sql.replace(f"{RETURNED}; DROP TABLE {RETURNED};", f"{table} WHERE [id] = SCOPE_IDENTITY();")
        sql = PAGED.sub(cut_from_front, sql)
        # Always 120 there, and OPENJSON works.
        sql = sql.replace("d.compatibility_level", "150")
        # A parameter that is NULL has the type varchar there, which is not converted to datetimeoffset.
        if params and None in params:
            sql = sql % tuple("NULL" if param is None else "%s" for param in params)
            params = tuple(param for param in params if param is not None)
        return execute(self, sql, params)

    wrapper.execute = execute_with_nulls_written_out


#: How a pass keeps a slice of the candidates.
PAGED = re.compile(
    r"INSERT INTO (#kwit_candidates_\d+) SELECT( DISTINCT)?(.*) OFFSET (\d+) ROWS FETCH FIRST (\d+) ROWS ONLY;$", re.S
)


def cut_from_front(found: re.Match[str]) -> str:
    """Insert the rows before the slice as well and delete them: OFFSET is a syntax error there in an INSERT."""
    table, distinct, rest, offset, rows = found.groups(default="")
    top = f"TOP {int(offset) + int(rows)}"
    return f"INSERT INTO {table} SELECT{distinct} {top}{rest}; DELETE FROM {table} WHERE place <= {offset};"


def know_temporary_names(connection: Any, **kwargs: Any) -> None:
    """Have the session look up temporary names from its start: it cannot look up a foreign key again once it begins."""
    if connection.vendor == "microsoft":
        # Past Django, so that nobody counts it among the statements of a test.
        with contextlib.closing(connection.connection.cursor()) as cursor:
            cursor.execute("DECLARE @first TABLE (id int); INSERT INTO @first (id) VALUES (1);")


def drop(self: Any, test_database_name: str, verbosity: int) -> None:
    """Drop the test database without ALTER DATABASE … SINGLE_USER."""
    with self.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {self.connection.ops.quote_name(test_database_name)}")


def get_table_list(self: Any, cursor: Any) -> list[TableInfo]:
    """List the tables without their comments, for which Babelfish takes ten times as long; each flush asks."""
    cursor.execute("SELECT TABLE_NAME, TABLE_TYPE FROM INFORMATION_SCHEMA.TABLES WHERE TABLE_SCHEMA = SCHEMA_NAME()")
    kinds = {"BASE TABLE": "t", "VIEW": "v"}
    return [TableInfo(name, kinds[kind]) for name, kind in cursor.fetchall()]


def naming_indexes(get_constraints: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Give indexes the names that they were made with; there they end with a part of the table's and 32 digits."""

    def named(self: Any, cursor: Any, table: str) -> dict[str, Any]:
        found = get_constraints(self, cursor, table)
        return {original(name or "", table): constraint for name, constraint in found.items()}

    def original(name: str, table: str) -> str:
        if not re.search(r"[0-9a-f]{32}$", name):
            return name
        longest = next(end for end in range(len(table), -1, -1) if name[:-32].endswith(table[:end]))
        return name[: -32 - longest]

    return named


#: Where mssql-django has the database put what an INSERT returns.
RETURNED = "#django_returning_insert"
#: Left as they are by the flush, which would have them made again.
KEPT = ("django_content_type", "auth_permission")


def sql_flush(self: Any, style: Any, tables: Any, **kwargs: Any) -> list[str]:
    """Empty the tables that have rows, those that refer to others first: constraints cannot be switched off there."""
    refers: dict[str, set[str]] = {}
    for model in apps.get_models(include_auto_created=True):
        related: list[Any] = [field.related_model for field in model._meta.concrete_fields if field.is_relation]
        refers[model._meta.db_table] = {target._meta.db_table for target in related} - {model._meta.db_table}
    order = [table for table in reversed([*TopologicalSorter(refers).static_order()]) if table in tables]
    asked = " UNION ALL ".join(f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM {table})" for table in order)
    with self.connection.cursor() as cursor:
        cursor.execute(asked)
        filled = {table for (table,) in cursor.fetchall()}
    return [f"DELETE FROM {self.quote_name(table)};" for table in order if table in filled and table not in KEPT]


def stand_in_cannot(reason: str) -> pytest.MarkDecorator:
    """Mark a test that Babelfish cannot pass and SQL Server must; the reason stands in ``docs/sql-server.md``."""
    return pytest.mark.skipif(
        "__import__('tests.babelfish', fromlist=['*']).is_stand_in()", reason=f"the stand-in: {reason}"
    )
