"""Finds the fastest way to insert many rows; the only place of this app that asks which database it is."""

from importlib import import_module
from typing import cast

from django.db.backends.base.base import BaseDatabaseWrapper

from . import generic
from .generic import Room

ROOMS = ("sqlite", "postgresql", "microsoft")


def dialect_of(connection: BaseDatabaseWrapper) -> Room:
    """Return the room of this connection's database; the one that every database can do when it has none."""
    if connection.vendor not in ROOMS:
        return cast(Room, generic)
    return cast(Room, import_module(f".{connection.vendor}", __package__))
