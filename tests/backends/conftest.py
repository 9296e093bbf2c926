"""The room of the tested database."""

from typing import Any

import pytest
from django.db import connection

from notify.backends import room_for


@pytest.fixture
def room() -> Any:
    """Return notify's room."""
    return room_for(connection)
