"""What a receipt and a stored reconciliation hold, row by row: each page one query, a range of one index."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kwit.admin.filters import INT64_MAX

from ..models import Audit, Change, Reconciliation
from ..plans.canonical import Target
from ..receipt import WHOLE_PROBLEMS, AuditRow, Disagreement, Receipt, readable_targets
from ..reconcile import FieldValues, Item, Row

#: Rows of one page.
ROWS_SHOWN = 100
#: Below every id.
FIRST = 0


def place_of(text: str) -> int | None:
    """Return the id after which a page begins; None for the first page, also when the text is no id."""
    is_id = text.isascii() and text.isdigit() and len(text) <= 19
    return int(text) if is_id and int(text) <= INT64_MAX else None


@dataclass(frozen=True)
class Line:
    """One id of a receipt: what was approved, and what was committed; one of them is None in a receipt not genuine."""

    id: int
    approved: Target | None
    audit: AuditRow | None


def targets_of(change: Change) -> tuple[Target, ...] | None:
    """Return a receipt's targets; None when plain SQL has written there what is none."""
    return readable_targets(change.targets)


def receipt_of(change: Change, *, is_whole: bool = True) -> Receipt | None:
    """Return a receipt, without its audit rows unless ``is_whole``; None when its targets are none."""
    targets = targets_of(change)
    if targets is None:
        return None
    names = ("change_id", "kind", "tenant", "digest", "actor", "author", "approver", "reason", "created_at")
    audit = tuple(AuditRow(*row) for row in audit_of(change.pk)) if is_whole else ()
    return Receipt(**{name: getattr(change, name) for name in names}, targets=targets, audit=audit)


def audit_of(change_id: str, *, after: int | None = None) -> Any:
    """Return the audit rows of a receipt in the order of their ids."""
    rows = Audit.objects.filter(change_id=change_id)
    return (
        (rows if after is None else rows.filter(target_id__gt=after))
        .order_by("target_id")
        .values_list(*AuditRow._fields)
    )


def lines_after(change: Change, after: int | None, *, limit: int) -> list[Line]:
    """Return the lines of a receipt after an id; one query."""
    targets = sorted(targets_of(change) or ())
    start = 0 if after is None else bisect_right(targets, after, key=lambda target: target.id)
    approved = {target.id: target for target in targets[start : start + limit]}
    audit = {row[0]: AuditRow(*row) for row in audit_of(change.pk, after=after)[:limit]}
    ids = sorted({*approved, *audit})[:limit]
    return [Line(pk, approved.get(pk), audit.get(pk)) for pk in ids]


def stored_items(kept: Reconciliation) -> dict[int, Item]:
    """Return the stored items by id: those that differ."""
    found = {}
    for one in kept.items if isinstance(kept.items, list) else ():
        try:
            recorded, current = row_of(one["recorded"] or None), row_of(one["current"] or None)
            also_in = tuple(one.get("also_in", ()))
            item = Item(one["id"], one["category"], recorded, current, one.get("problem", ""), also_in)
        except (KeyError, TypeError):
            continue  # plain SQL has written it; the counts still say that something is there
        found[item.id] = item
    return found


def row_of(values: Mapping[str, Any] | None) -> Any:
    """Return a stored row, None for none."""
    if values is None:
        return None
    is_plain = values.keys() == set(Row._fields)
    return Row(values["revision"], values["qty"], values["state"]) if is_plain else FieldValues(values)


def items_after(kept: Reconciliation, category: str, after: int | None, *, limit: int | None = None) -> list[Item]:
    """
    Return the targets of a stored reconciliation after an id, all or those of one category; one query.

    What matched is not stored: it stood then as the receipt records it, and the receipt is never changed.
    """
    differing = stored_items(kept)
    if category in ("changed", "missing", "broken"):
        chosen = sorted(pk for pk, item in differing.items() if item.category == category and pk > (after or FIRST - 1))
        return [differing[pk] for pk in chosen[:limit]]
    audit = audit_of(kept.change_id, after=after)
    # So many are enough, however many of them differ.
    rows = audit if limit is None else audit[: limit + (len(differing) if category == "match" else 0)]
    items = [differing.get(row[0]) or matching(AuditRow(*row)) for row in rows]
    # A target without an audit row is stored only.
    known = {item.id for item in items}
    absent = [
        item
        for pk, item in differing.items()
        if pk not in known and item.recorded is None and pk > (after or FIRST - 1)
    ]
    items = sorted([*items, *absent], key=lambda item: item.id) if absent else items
    if category == "match":
        items = [item for item in items if item.category == "match"]
    return items[:limit]


def matching(audit: AuditRow) -> Item:
    """Return the item of a row that stood as recorded."""
    if audit.fields:
        values = FieldValues({name: one["after"] for name, one in audit.fields.items()})
        return Item(audit.target_id, "match", values, values)
    row = Row(audit.revision_after, audit.qty, audit.state_after)
    return Item(audit.target_id, "match", row, row)


def as_json(kept: Reconciliation, items: Sequence[Item]) -> dict[str, Any]:
    """Return a stored reconciliation as ``manage.py reconcile --json`` has printed it then."""
    counts = {name: getattr(kept, name) for name in ("change_id", "match", "changed", "missing", "broken")}
    whole = dict.fromkeys(item.problem for item in items if item.problem in WHOLE_PROBLEMS)
    problems = [Disagreement(None, problem) for problem in whole]
    problems += [Disagreement(one.id, one.problem) for one in items if one.problem and one.problem not in whole]
    named = {"problems": [one._asdict() for one in problems], "items": [item.as_json() for item in items]}
    return {"changes": [counts | named]}
