"""Fixtures for every test."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.backends.base.operations import BaseDatabaseOperations

from receipts.backends import get_room
from receipts.models import Change
from tests.babelfish import is_stand_in


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
        room = get_room(connection)
        with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
            for statement in room.unguard(connection):
                cursor.execute(statement)
            plain(self, sql_list)
            for statement in room.guard(connection):
                cursor.execute(statement)

    BaseDatabaseOperations.execute_sql_flush = execute_sql_flush
    yield
    BaseDatabaseOperations.execute_sql_flush = plain


@pytest.fixture(autouse=True)
def _fresh_session_on_a_stand_in(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give a stand-in a new session after each test that used the database for real: it ends with the fifth refusal."""
    yield
    marker = request.node.get_closest_marker("django_db")
    if marker is not None and marker.kwargs.get("transaction") and is_stand_in():
        connections.close_all()
