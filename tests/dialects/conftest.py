"""The room of the tested database."""

from typing import Any

import pytest
from django.db import connection

from notify.dialects import dialect_of


@pytest.fixture
def room() -> Any:
    """Return notify's room."""
    return dialect_of(connection)
