"""Finds the room of a connection's database."""

from django.db import NotSupportedError
from django.db.backends.base.base import BaseDatabaseWrapper

from . import postgresql, sqlite
from . import sqlserver as microsoft
from .base import Room

ROOMS: dict[str, Room] = {"sqlite": sqlite, "postgresql": postgresql, "microsoft": microsoft}


def dialect_of(connection: BaseDatabaseWrapper) -> Room:
    """Return the room for this connection's database, or raise NotSupportedError."""
    try:
        return ROOMS[connection.vendor]
    except KeyError:
        raise NotSupportedError(f"receipts has no room for {connection.vendor}; it knows {', '.join(ROOMS)}") from None
