"""The dialect of the tested database."""

from typing import Any

import pytest
from django.db import connection

from notify.dialects import dialect_of


@pytest.fixture
def dialect() -> Any:
    """Return notify's dialect."""
    return dialect_of(connection)
