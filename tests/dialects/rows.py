"""The smallest rows that a dialect takes."""

from typing import Any

from django.db import connection

from notify.dialects.base import ControlRow


def rows_for(keys: list[int]) -> list[ControlRow]:
    return [ControlRow(key, 0, "en", f"{key}@example.org") for key in keys]


def control_id(dialect: Any) -> int:
    ((_, pk),) = dialect.insert_controls(connection, "queue", rows_for([1])).items()
    return int(pk)
