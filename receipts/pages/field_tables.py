"""Tables of kinds that name their fields: each field by its name, before and after, approved and current."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.db import router
from django.utils.translation import gettext as _

from kwit.admin.components import NONE, Badge, Cell, Row, Table

from ..change_types import SET, ChangeType, get_kind
from ..errors import UnknownKind
from ..models import Change
from ..plans.canonical import FieldTarget, Target
from ..receipt import AuditRow
from ..reconcile import FieldValues, Item
from .plan_badges import problem_badge


def value_text(value: Any) -> str:
    """Return a value that is kept, as a cell shows it."""
    return NONE if value is None or value == "" else str(value)


def labels_of(kind_name: str, targets: Sequence[Target]) -> dict[int, str]:
    """Return what people call the rows of a page of targets; one query, or none where nobody declares the kind."""
    try:
        kind = get_kind(kind_name)
    except UnknownKind:
        return {}
    if kind.is_plain and not kind.label:
        return {}
    rows = kind.model._base_manager.using(router.db_for_write(Change)).in_bulk([target.id for target in targets])
    return {pk: kind.label_of(row) for pk, row in rows.items()}


def plan_table(
    lines: Sequence[Any], *, kind: str, labels: Mapping[int, str], is_compared: bool, url: Callable[[int], str]
) -> Table:
    """Return targets with what was approved, how the row stands now, and what is to be set."""
    names = columns_of([line.approved for line in lines])
    compared = [name for name in names if not name.startswith(SET)]
    settable = [name.removeprefix(SET) for name in names if name.startswith(SET)]
    state = state_of(kind)
    head = [_("id"), _("row"), *([_("how it stands")] if is_compared else [])]
    head += [_("%s approved") % name for name in compared]
    head += [_("%s: now → new") % name for name in settable]
    rows = []
    for line in lines:
        now = line.current if isinstance(line.current, dict) else None
        approved = line.approved.values if isinstance(line.approved, FieldTarget) else line.approved._asdict()
        cells = [Cell(text=line.id, url=url(line.id), is_number=True), Cell(text=labels.get(line.id, NONE))]
        cells += [Cell(badge=problem_badge(line.problem))] if is_compared else []
        cells += [compared_cell(approved.get(name), now, name) for name in compared]
        for name in settable:
            before = value_text(now.get(name)) if now is not None else "?"
            cells.append(Cell(text=f"{before} → {value_text(approved.get(SET + name))}"))
        rows.append(Row(cells=cells))
    if state and is_compared:
        head.append(_("current state"))
        for line, row in zip(lines, rows, strict=True):
            now = line.current if isinstance(line.current, dict) else {}
            row.cells.append(Cell(text=value_text((now or {}).get(state))))  # type: ignore[attr-defined]
    return Table(head=head, rows=rows, numbers=frozenset({0}))


def compared_cell(approved: Any, now: Mapping[str, Any] | None, name: str) -> Cell:
    """Return an approved value; beside it the one of now where that differs."""
    if now is None or name not in now or now[name] == approved:
        return Cell(text=value_text(approved))
    return Cell(badge=Badge(f"{value_text(approved)} ≠ {value_text(now[name])}", "", "bad"))


def columns_of(targets: Sequence[Target]) -> list[str]:
    """Return the columns of targets: what is compared, then what is set; a stored plan does not keep their order."""
    if not any(isinstance(target, FieldTarget) for target in targets):
        return ["revision", "qty"]
    found = {name for target in targets for name in target._asdict() if name != "id"}
    return sorted(found, key=lambda name: (name.startswith(SET), name))


def state_of(kind: str) -> str:
    """Return the field that must have a state; empty for none."""
    try:
        declared: ChangeType = get_kind(kind)
    except UnknownKind:
        return ""
    return declared.state_field if declared.required_state is not None else ""


def audit_table(rows: Sequence[AuditRow]) -> Table:
    """Return audit rows with before and after of each field."""
    names = sorted({name for row in rows for name in row.fields or {}})
    head = [_("id"), *(_("%s: before → after") % name for name in names)]
    lines = [
        Row(cells=[Cell(text=row.target_id, is_number=True), *(change_cell(row.fields or {}, name) for name in names)])
        for row in rows
    ]
    return Table(head=head, rows=lines, numbers=frozenset({0}))


def change_cell(fields: Mapping[str, Any], name: str) -> Cell:
    """Return before and after of a field, or the one value that stayed."""
    one = fields.get(name)
    if not isinstance(one, dict):
        return Cell(text=NONE)
    before, after = value_text(one.get("before")), value_text(one.get("after"))
    return Cell(text=before) if before == after else Cell(text=f"{before} → {after}")


def item_cells(item: Item) -> list[Cell]:
    """Return the recorded fields of a reconciled target in one cell, and those that differ in another."""
    recorded = item.recorded._asdict() if item.recorded is not None else {}
    current = item.current._asdict() if item.current is not None else {}
    shown = ", ".join(f"{name} {value_text(value)}" for name, value in recorded.items())
    differing = ", ".join(f"{name} {value_text(current.get(name))}" for name in item.fields)
    return [Cell(text=shown or NONE), Cell(text=differing or NONE, is_marked=bool(differing) or item.current is None)]


def has_fields(items: Sequence[Item]) -> bool:
    """Whether a page of items is of a kind that names its fields."""
    return any(isinstance(item.recorded, FieldValues) for item in items)
