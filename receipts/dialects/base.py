"""
What a database's room must be able to do.

A room is a module named by Django's vendor string, with these functions in this order. Rows travel to it as arrays or
as one JSON text, never as one parameter each. The conformance suite ``tests/dialects/test_receipts_room.py`` runs in
every database's job.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from django.db.backends.base.base import BaseDatabaseWrapper

from ..plans.canonical import Target

#: Tables whose rows are never changed and never deleted.
GUARDED_TABLES = ("receipts_changes", "receipts_audit")


@dataclass(frozen=True)
class Shape:
    """A kind of change as SQL: quoted names, and what is set. ``assignments`` takes ``set_params``."""

    table: str
    id: str
    tenant: str
    revision: str
    qty: str
    state: str
    required_state: str
    assignments: str
    set_params: tuple[Any, ...]


class Standing(NamedTuple):
    """How one row stands now; ``found`` is False when this tenant has no such row."""

    id: int
    found: bool
    revision: int | None
    qty: int | None
    state: str | None


class Weakness(NamedTuple):
    """A setting of the database on which a promise rests, and which does not bear it."""

    id: str
    is_error: bool
    about: str
    what_to_do: str


class Room(Protocol):
    """The functions of one room."""

    def stale_rows(
        self, connection: BaseDatabaseWrapper, shape: Shape, tenant: str, targets: Sequence[Target]
    ) -> list[Standing]:
        """Lock the rows in key order, in one statement; return those that are not as approved, in key order."""
        ...

    def standing_rows(
        self, connection: BaseDatabaseWrapper, shape: Shape, tenant: str, ids: Sequence[int]
    ) -> list[Standing]:
        """Return how these rows stand now, without a lock, in key order, in one statement; leave missing ones out."""
        ...

    def change_rows(
        self, connection: BaseDatabaseWrapper, shape: Shape, tenant: str, targets: Sequence[Target], change_id: str
    ) -> int:
        """
        Change every row that is as approved, and write its audit row from what the UPDATE returned; return how many.

        The UPDATE compares id, tenant, revision, qty and state itself, although the rows are locked: what was locked is
        an optimisation, what the UPDATE compares is the promise.
        """
        ...

    def change_row(self, connection: BaseDatabaseWrapper, shape: Shape, tenant: str, target: Target) -> Standing | None:
        """Change one row if it is as approved, in one statement; return it as the UPDATE left it."""
        ...

    def is_collision(self, error: BaseException) -> bool:
        """Whether the database gave up this transaction for another one's sake, so that repeating it may succeed."""
        ...

    def is_lost(self, error: BaseException) -> bool:
        """Whether the connection is gone, so that nobody knows what became of the last statement."""
        ...

    def has_lost_transaction(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether the database has ended the whole transaction of its own accord, not only the last savepoint."""
        ...

    def guard(self, connection: BaseDatabaseWrapper) -> list[str]:
        """Return the statements that make the guarded tables append-only."""
        ...

    def unguard(self, connection: BaseDatabaseWrapper) -> list[str]:
        """Return the statements that take the guard away; each may be repeated."""
        ...

    def missing_guards(self, connection: BaseDatabaseWrapper) -> list[str]:
        """Return the names of triggers that are missing or switched off."""
        ...

    def weaknesses(self, connection: BaseDatabaseWrapper) -> list[Weakness]:
        """Return what about this server or file does not bear the promise that a committed receipt stays."""
        ...
