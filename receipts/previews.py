"""A plan against the rows of now: what would fail today, and why. Reads only, without a lock."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from operator import itemgetter

from django.db import connections, router
from django.utils import timezone

from .apply import as_problem, first_problem
from .change_types import SET, ChangeType, get_kind
from .dialects import dialect_of
from .dialects.base import Standing
from .errors import Problem
from .field_changes import ComparedFields, compare_rows, read_rows
from .models import Change
from .plans.canonical import FieldTarget, Target
from .plans.model import QTY_MAX, REVISION_MAX


@dataclass(frozen=True)
class Compared:
    """One target beside its row; ``problem`` is empty when the row is as approved."""

    target: Target
    standing: Standing
    problem: str = ""

    def as_problem(self) -> Problem:
        """Return it as a refused attempt would name it."""
        return as_problem(self.problem, self.target, self.standing)


@dataclass(frozen=True)
class Preview:
    """All targets of a plan beside their rows, as of one moment."""

    as_of: datetime
    rows: tuple[Compared | ComparedFields, ...]

    @cached_property
    def failing(self) -> tuple[Compared | ComparedFields, ...]:
        """The targets for which it would be refused."""
        return tuple(row for row in self.rows if row.problem)


@dataclass(frozen=True)
class Renewed:
    """Rows as targets with the values of now, and those that cannot be targets, with the reason."""

    targets: tuple[Target, ...]
    left_out: tuple[tuple[int, str], ...]


def preview_change(*, kind: str, tenant: str, targets: Sequence[Target], using: str | None = None) -> Preview:
    """
    Compare a plan's targets with the rows of now; it waits for nobody, and nobody for it.

    It says what would happen at that moment. The decision is taken by `apply_change`, which looks again.

    Transaction: one statement. Raises: UnknownKind.
    """
    declared, as_of = get_kind(kind), timezone.now()
    if not declared.is_plain:
        ordered = sorted(targets, key=itemgetter(0))
        alias = using or router.db_for_write(Change)
        there = read_rows(declared, tenant, [target.id for target in ordered], alias=alias)
        return Preview(as_of, tuple(compare_rows(declared, ordered, there)))
    found = standings(declared, tenant, [target.id for target in targets], using=using)
    rows = [(target, found.get(target.id, Standing(target.id, False, None, None, None))) for target in sorted(targets)]
    compared = [Compared(target, row, problem_of(declared, target, row)) for target, row in rows]
    return Preview(as_of, tuple(compared))


def renew_targets(*, kind: str, tenant: str, ids: Iterable[int], using: str | None = None) -> Renewed:
    """
    Read rows as targets: their revision and qty of now.

    Left out is what could not be changed today: a row that this tenant has not, that is not in the required state, or
    whose revision or qty no plan can have.

    Transaction: one statement. Raises: UnknownKind.
    """
    declared, asked = get_kind(kind), sorted(set(ids))
    if not declared.is_plain:
        return renew_fields(declared, tenant, asked, alias=using or router.db_for_write(Change))
    found = standings(declared, tenant, asked, using=using)
    targets, left_out = [], []
    for pk in asked:
        row = found.get(pk)
        if row is None:
            left_out.append((pk, "missing"))
        elif row.state != declared.required_state:
            left_out.append((pk, declared.stale_problem))
        elif row.revision is None or not 0 <= row.revision <= REVISION_MAX:
            left_out.append((pk, "revision_impossible"))
        elif row.qty is None or not 0 <= row.qty <= QTY_MAX:
            left_out.append((pk, "qty_impossible"))
        else:
            targets.append(Target(pk, row.revision, row.qty))
    return Renewed(tuple(targets), tuple(left_out))


def renew_fields(kind: ChangeType, tenant: str, ids: Sequence[int], *, alias: str) -> Renewed:
    """Read rows as targets of a kind that names its fields; what the plan sets stands there as it is now."""
    found = read_rows(kind, tenant, ids, alias=alias)
    targets: list[Target] = []
    left_out = []
    for pk in ids:
        row = found.get(pk)
        if row is None:
            left_out.append((pk, "missing"))
        elif kind.required_state is not None and row.fields[kind.state_field] != kind.required_state:
            left_out.append((pk, kind.stale_problem))
        else:
            settable = {f"{SET}{name}": row.fields[name] for name in kind.settable}
            targets.append(FieldTarget(pk, {name: row.fields[name] for name in kind.compared} | settable))
    return Renewed(tuple(targets), tuple(left_out))


def standings(kind: ChangeType, tenant: str, ids: Sequence[int], *, using: str | None) -> dict[int, Standing]:
    """Read how rows stand now, by id."""
    connection = connections[using or router.db_for_write(Change)]
    rows = dialect_of(connection).standing_rows(connection, kind.shape(connection), tenant, ids)
    return {row.id: row for row in rows}


def problem_of(kind: ChangeType, target: Target, row: Standing) -> str:
    """Name what is wrong with a row, nothing when it is as approved."""
    is_as_approved = (row.revision, row.qty, row.state) == (target.revision, target.qty, kind.required_state)
    return "" if row.found and is_as_approved else first_problem(kind, target, row)
