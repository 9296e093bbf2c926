"""
Changes of kinds that name their fields: any compared field, and values that the plan itself sets.

The rows are locked and read, compared, changed by one UPDATE that compares them again, and read once more: what is
audited is what the rows hold, whatever triggers made of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connections

from . import values
from .change_types import SET, ChangeType
from .dialects import dialect_of
from .errors import NotWritten, Problem
from .plans.canonical import FieldTarget, Target, canonical_json


@dataclass(frozen=True)
class FieldRow:
    """How a row stands: its recorded fields, in the form in which plans and receipts keep values."""

    id: int
    fields: dict[str, Any]


@dataclass(frozen=True)
class ComparedFields:
    """One target beside its row, None when the tenant has none; ``problem`` is empty when it is as approved."""

    target: Target
    row: FieldRow | None
    problem: str

    def as_problem(self) -> Problem:
        """Return it as a refused attempt names it."""
        current = self.row.fields if self.row is not None else None
        approved = {name: value for name, value in self.target._asdict().items() if name != "id"}
        return Problem(id=self.target.id, problem=self.problem, approved=approved, current=current)


def tenant_value(kind: ChangeType, tenant: str) -> Any:
    """Return what the tenant's column holds for a tenant; None when it can hold no such."""
    if kind.tenant_field is None:
        return tenant
    try:
        return values.value_field(kind.field(kind.tenant_field)).to_python(tenant)
    except ValidationError:
        return None


def read_rows(
    kind: ChangeType, tenant: str, ids: Sequence[int], *, alias: str, is_locked: bool = False
) -> dict[int, FieldRow]:
    """Read how rows stand, by id; locked in the order of their keys if asked to."""
    connection = connections[alias]
    belongs = tenant_value(kind, tenant)
    if belongs is None:
        return {}
    shape, dialect = kind.field_shape(connection), dialect_of(connection)
    found = dialect.read_fields(connection, shape, belongs, sorted(ids), is_locked=is_locked)
    read = [values.reader(kind.field(name), connection) for name in kind.recorded]
    return {
        row[0]: FieldRow(row[0], {name: get(raw) for name, get, raw in zip(kind.recorded, read, row[1:], strict=True)})
        for row in found
    }


def compare_rows(kind: ChangeType, targets: Sequence[Target], rows: dict[int, FieldRow]) -> list[ComparedFields]:
    """Compare targets with their rows, in the order of the targets."""
    return [ComparedFields(target, row := rows.get(target.id), first_problem(kind, target, row)) for target in targets]


def first_problem(kind: ChangeType, target: Target, row: FieldRow | None) -> str:
    """Name the first thing that is not as approved; empty when all is."""
    if row is None:
        return "missing"
    approved = target.values if isinstance(target, FieldTarget) else target._asdict()
    for name in kind.compared:
        if row.fields[name] != approved[name]:
            return f"{name}_differs"
    if kind.required_state is not None and row.fields[kind.state_field] != kind.required_state:
        return kind.stale_problem
    return ""


def change_fields(
    kind: ChangeType, tenant: str, targets: Sequence[Target], *, alias: str, change_id: str = ""
) -> list[ComparedFields]:
    """
    Change all rows and write their audit rows; return those that are not as approved, and then nothing was changed.

    Without a change_id no audit row is written. Raises: NotWritten.
    """
    connection = connections[alias]
    ids = [target.id for target in targets]
    before = read_rows(kind, tenant, ids, alias=alias, is_locked=True)
    if stale := [one for one in compare_rows(kind, targets, before) if one.problem]:
        return stale
    shape, dialect = kind.field_shape(connection), dialect_of(connection)
    changed = dialect.change_fields(connection, shape, tenant_value(kind, tenant), wire_rows(kind, targets, alias))
    if changed != len(targets):
        raise NotWritten(
            f"all {len(targets)} rows were as approved, but the database changed {changed}; "
            f"look for triggers, rules and row security on {shape.table}"
        )
    after = read_rows(kind, tenant, ids, alias=alias)
    check_written(kind, targets, before, after)
    if change_id:
        rows = [audit_row(kind, before[pk].fields, after[pk].fields, pk) for pk in sorted(ids)]
        dialect.audit_fields(connection, change_id, rows)
    return []


def wire_rows(kind: ChangeType, targets: Sequence[Target], alias: str) -> list[dict[str, Any]]:
    """Return targets as they travel: an id and a value for each column of the shape."""
    connection = connections[alias]
    columns = [(f"c{at}", name, kind.field(name)) for at, name in enumerate(kind.compared)]
    columns += [(f"s{at}", f"{SET}{name}", kind.field(name)) for at, name in enumerate(kind.settable)]
    writers = [(short, name, values.writer(field, connection)) for short, name, field in columns]
    return [
        {"id": target.id} | {short: put(target._asdict()[name]) for short, name, put in writers} for target in targets
    ]


def check_written(
    kind: ChangeType, targets: Sequence[Target], before: dict[int, FieldRow], after: dict[int, FieldRow]
) -> None:
    """Refuse rows that do not hold what was set: a trigger has written something else. Raises: NotWritten."""
    fixed = {
        name: values.canonical_value(kind.field(name), value)
        for name, value in kind.sets.items()
        if not hasattr(value, "resolve_expression")
    }
    for target in targets:
        row = after.get(target.id)
        planned = target._asdict()
        wanted = fixed | {name: planned[f"{SET}{name}"] for name in kind.settable}
        differs = row is None or any(row.fields[name] != value for name, value in wanted.items())
        if row is not None and kind.has_revision:
            name = kind.revision_field
            differs = differs or not row.fields[name] > before[target.id].fields[name]
        if differs:
            raise NotWritten(f"row {target.id} was changed, but does not hold what was set; look for triggers")


def audit_row(kind: ChangeType, before: dict[str, Any], after: dict[str, Any], pk: int) -> list[Any]:
    """Return an audit row: the columns that every receipt has, as far as this kind has them, and all fields."""
    revision = (before[kind.revision_field], after[kind.revision_field]) if kind.has_revision else (None, None)
    qty = before.get(kind.qty_field) if kind.qty_field in kind.compared else None
    has_state = kind.required_state is not None
    state = (before[kind.state_field], after[kind.state_field]) if has_state else ("", "")
    fields = {name: {"before": before[name], "after": after[name]} for name in kind.recorded}
    return [pk, *revision, qty if isinstance(qty, int) else None, *state, canonical_json(fields)]
