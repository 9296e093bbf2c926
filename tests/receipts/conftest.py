"""Fixtures of the receipts' tests: levels of isolation, and people who are signed in."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.backends.signals import connection_created
from django.test import Client

from tests.babelfish import is_stand_in
from tests.receipts.kept import ALL, WORK, make_person

SET_LEVEL = {"postgresql": "SET SESSION CHARACTERISTICS AS", "microsoft": "SET"}
LEVELS = ("read committed", "repeatable read", "serializable")


@pytest.fixture(params=LEVELS)
def isolation(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[str]:
    """Give every connection of the test this isolation level; SQLite has but one."""
    level: str = request.param
    if connection.vendor == "sqlite":
        if level != "serializable":
            pytest.skip("SQLite is serializable always")
        yield level
        return

    if level != "read committed" and is_stand_in():
        pytest.skip("the stand-in knows READ COMMITTED and SNAPSHOT only")

    def set_level(connection: Any, **kwargs: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"{SET_LEVEL[connection.vendor]} TRANSACTION ISOLATION LEVEL {level}")

    connection.close()
    connection_created.connect(set_level)
    yield level
    connection_created.disconnect(set_level)
    connection.close()


@pytest.fixture
def root(client: Client) -> Client:
    """Sign in somebody who may do all of it for all tenants."""
    client.force_login(make_person("root", *WORK, ALL, "receipts.view_storedplan"))
    return client


@pytest.fixture
def ann(client: Client) -> Client:
    """Sign in somebody who may do all of it for acme."""
    client.force_login(make_person("ann", *WORK, tenants=["acme"]))
    return client
