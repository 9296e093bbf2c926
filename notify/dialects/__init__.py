"""Finds the room of a connection's database; the only place of this app that asks which database it is."""

from functools import cache
from importlib import import_module
from typing import cast

from django.core.exceptions import ImproperlyConfigured
from django.db.backends.base.base import BaseDatabaseWrapper

from .base import Room

#: By Django's name of the database, the module.
ROOMS = {"sqlite": "sqlite", "postgresql": "postgresql", "microsoft": "sqlserver"}


def dialect_of(connection: BaseDatabaseWrapper) -> Room:
    """Return the room of this connection's database. Raises: ImproperlyConfigured when there is none."""
    if connection.vendor not in ROOMS:
        raise ImproperlyConfigured(f"notify has no room for {connection.vendor}; it has {', '.join(ROOMS)}")
    return room_named(connection.vendor)


@cache
def room_named(vendor: str) -> Room:
    """Return the room of this name; cached, because delivery asks several times a mail."""
    return cast(Room, import_module(f".{ROOMS[vendor]}", __package__))
