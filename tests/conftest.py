"""Fixtures for every test."""

from collections.abc import Iterator

import pytest
from django.db import connections

from tests.babelfish import is_stand_in


@pytest.fixture(autouse=True)
def _fresh_session_on_a_stand_in(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give a stand-in a new session after each test that used the database for real: it ends with the fifth refusal."""
    yield
    marker = request.node.get_closest_marker("django_db")
    if marker is not None and marker.kwargs.get("transaction") and is_stand_in():
        connections.close_all()
