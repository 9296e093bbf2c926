"""Finds the room of a connection's database."""

from django.db import NotSupportedError
from django.db.backends.base.base import BaseDatabaseWrapper

from . import microsoft, postgresql, sqlite
from .base import Room

ROOMS: dict[str, Room] = {"sqlite": sqlite, "postgresql": postgresql, "microsoft": microsoft}


def get_room(connection: BaseDatabaseWrapper) -> Room:
    """Return the room for this connection's database, or raise NotSupportedError."""
    try:
        return ROOMS[connection.vendor]
    except KeyError:
        raise NotSupportedError(f"receipts has no room for {connection.vendor}; it knows {', '.join(ROOMS)}") from None
