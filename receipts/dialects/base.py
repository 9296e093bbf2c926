"""Operations that receipts do differently on each database, and their defaults."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper

from kwit.db.dialect import Dialect

from ..plans.canonical import Target

#: Tables whose rows are never changed and never deleted.
GUARDED_TABLES = ("receipts_changes", "receipts_audit", "receipts_leaf", "receipts_checkpoint")
#: Columns of an audit row besides its change, in the order of `audit_fields`.
AUDIT_COLUMNS = ("target_id", "revision_before", "revision_after", "qty", "state_before", "state_after", "fields")
#: What the sealer's lock is called on a server; its number is the first eight bytes of the name's SHA-256, signed.
SEAL_LOCK = "receipts_seal"
SEAL_LOCK_NUMBER = int.from_bytes(hashlib.sha256(SEAL_LOCK.encode()).digest()[:8], signed=True)
#: After what the server ends a transaction of ours whose process is stopped, so that the rows it has locked are free
#: again; whole milliseconds. Between two of its statements an apply only makes the next one, which takes far less.
STOPPED_WAIT_MS = 10_000


@dataclass(frozen=True)
class Shape:
    """
    A kind of change as SQL: quoted names, and what is set. ``assignments`` takes ``set_params``.

    ``table`` names the table in expressions, ``source`` in FROM and UPDATE.
    """

    table: str
    source: str
    id: str
    tenant: str
    revision: str
    qty: str
    state: str
    required_state: str
    assignments: str
    set_params: tuple[Any, ...]


@dataclass(frozen=True)
class FieldColumn:
    """A column that a kind compares, sets or records: its name in the rows that travel, in SQL, and its type."""

    alias: str
    column: str
    type: str
    is_text: bool


@dataclass(frozen=True)
class FieldShape:
    """
    A kind of change that names its fields, as SQL: quoted names, and what is set.

    ``tenant`` and ``revision`` are empty and ``state`` is None where the kind compares none. Each of ``assignments``
    is ``column = …`` and takes its part of ``set_params``.
    """

    table: str
    source: str
    id: str
    tenant: str
    compared: tuple[FieldColumn, ...]
    settable: tuple[FieldColumn, ...]
    recorded: tuple[FieldColumn, ...]
    revision: str
    state: FieldColumn | None
    required_state: str
    assignments: tuple[str, ...]
    set_params: tuple[Any, ...]

    def set_clause(self, approved: str) -> str:
        """Return what stands behind SET, the plan's values coming from that table."""
        settable = [f"{one.column} = {approved}.{one.alias}" for one in self.settable]
        bumped = [f"{self.revision} = {self.table}.{self.revision} + 1"] if self.revision else []
        return ", ".join([*self.assignments, *settable, *bumped])

    def where_clause(self, approved: str, same: str) -> str:
        """Return the comparison with a table of approved rows; ``same`` compares two values, NULL with NULL as well."""
        parts = [f"{self.table}.{self.id} = {approved}.id"]
        parts += [f"{self.table}.{self.tenant} = %s"] if self.tenant else []
        parts += [same.format(f"{self.table}.{one.column}", f"{approved}.{one.alias}") for one in self.compared]
        parts += [f"{self.table}.{self.state.column} = %s"] if self.state else []
        return " AND ".join(parts)

    def params(self, tenant: Any) -> list[Any]:
        """Return the parameters of the UPDATE in their order, without those of the approved rows."""
        return [*self.set_params, *self.where_params(tenant)]

    def where_params(self, tenant: Any) -> list[Any]:
        """Return the parameters of the comparison."""
        return [*([tenant] if self.tenant else []), *([self.required_state] if self.state else [])]

    def row_columns(self, table: str) -> str:
        """Return the columns that `read_fields` reads: id and the recorded ones."""
        return ", ".join([f"{table}.{self.id}", *(f"{table}.{one.column}" for one in self.recorded)])


class Standing(NamedTuple):
    """How one row stands now; ``found`` is False when this tenant has no such row."""

    id: int
    found: bool
    revision: int | None
    qty: int | None
    state: str | None


class Weakness(NamedTuple):
    """A setting of the database that breaks a guarantee of Kwit."""

    id: str
    is_error: bool
    about: str
    what_to_do: str


class GuardFlaw(NamedTuple):
    """A trigger that differs from the one that the migration created, and the statement that repairs it."""

    name: str
    about: str
    mend: str


def one_blank(sql: str) -> str:
    """Return a statement with one blank between its words, to be compared with what the database has kept of it."""
    return " ".join(sql.split())


class ReceiptsDialect(Dialect):
    """
    What a database does for a change and for its receipt; ``tests/dialects`` has the conformance tests.

    Rows travel as arrays or as one JSON text, never as one parameter each.
    """

    def source_of(self, connection: BaseDatabaseWrapper, table: str) -> str:
        """Return a table for FROM and UPDATE, so that it means the rows of this table and of no other."""
        return table

    def stale_rows(
        self, connection: BaseDatabaseWrapper, shape: Shape, tenant: str, targets: Sequence[Target]
    ) -> list[Standing]:
        """Lock the rows in key order, in one statement; return those that are not as approved, in key order."""
        raise NotImplementedError

    def standing_rows(
        self, connection: BaseDatabaseWrapper, shape: Shape, tenant: str, ids: Sequence[int]
    ) -> list[Standing]:
        """Return how these rows stand now, without a lock, in key order, in one statement; leave missing ones out."""
        raise NotImplementedError

    def change_rows(
        self, connection: BaseDatabaseWrapper, shape: Shape, tenant: str, targets: Sequence[Target], change_id: str
    ) -> int:
        """
        Change every row that is as approved, and write its audit row from what the UPDATE returned; return how many.

        The UPDATE compares id, tenant, revision, qty and state itself, although the rows are locked: what was locked is
        an optimisation, what the UPDATE compares is the promise.
        """
        raise NotImplementedError

    def change_row(self, connection: BaseDatabaseWrapper, shape: Shape, tenant: str, target: Target) -> Standing | None:
        """Change one row if it is as approved, in one statement; return it as the UPDATE left it."""
        raise NotImplementedError

    def read_fields(
        self, connection: BaseDatabaseWrapper, shape: FieldShape, tenant: Any, ids: Sequence[int], *, is_locked: bool
    ) -> list[tuple[Any, ...]]:
        """Return id and recorded columns of these rows as the driver gives them, in key order; locked in that order."""
        raise NotImplementedError

    def change_fields(
        self, connection: BaseDatabaseWrapper, shape: FieldShape, tenant: Any, rows: Sequence[dict[str, Any]]
    ) -> int:
        """
        Change every row that is as approved, in one statement; return how many.

        ``rows`` have an id and a value for each alias, as `values.wire_value` makes it.
        """
        raise NotImplementedError

    def audit_fields(self, connection: BaseDatabaseWrapper, change_id: str, rows: Sequence[Sequence[Any]]) -> None:
        """
        Write audit rows in one statement.

        A row is target_id, revision before and after, qty, state before and after, and the fields as canonical JSON.
        """
        raise NotImplementedError

    def is_collision(self, error: BaseException) -> bool:
        """Whether the database gave up this transaction for another one's sake, so that repeating it may succeed."""
        return False

    def end_when_stopped(self, connection: BaseDatabaseWrapper) -> None:
        """
        Let the server end the open transaction when its process is stopped (``STOPPED_WAIT_MS``) and holds its rows.

        On SQLite others wait for the file as long as their own timeout says; SQL Server has no such limit.
        """

    def try_seal_lock(self, connection: BaseDatabaseWrapper) -> bool:
        """
        Take the sealer's lock until the transaction ends; return False when another session has it.

        It saves work only: the constraints of ``receipts_leaf`` decide. Bound to the transaction, it needs no session
        of its own behind a pooler, and a killed sealer leaves none behind.
        """
        return True  # where a transaction that writes is the only one

    def guard(self, connection: BaseDatabaseWrapper) -> list[str]:
        """Return the statements that make the guarded tables append-only."""
        raise NotImplementedError

    def unguard(self, connection: BaseDatabaseWrapper) -> list[str]:
        """Return the statements that take the guard away; each may be repeated."""
        raise NotImplementedError

    def guard_flaws(self, connection: BaseDatabaseWrapper) -> list[GuardFlaw]:
        """Compare body, timing, condition and state of each part of the guard with what ``guard`` makes."""
        raise NotImplementedError

    def weaknesses(self, connection: BaseDatabaseWrapper) -> list[Weakness]:
        """Return the settings of this server or file that endanger committed receipts."""
        raise NotImplementedError
