"""What a room is, and the one for every database: Django's own way, within the database's limits."""

from collections.abc import Sequence
from typing import Any, Protocol

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper


class Room(Protocol):
    """One database's way of doing it."""

    def insert(
        self,
        connection: BaseDatabaseWrapper,
        model: type[models.Model],
        names: Sequence[str],
        rows: Sequence[tuple[Any, ...]],
    ) -> list[int]:
        """
        Insert rows, whose values stand in the order of ``names`` (attribute names), and return their ids in order.

        Transaction: the caller's, which must be open.
        """


def insert(
    connection: BaseDatabaseWrapper, model: type[models.Model], names: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> list[int]:
    made = [model(**dict(zip(names, row, strict=True))) for row in rows]
    return [row.pk for row in model._default_manager.using(connection.alias).bulk_create(made, batch_size=len(made))]
