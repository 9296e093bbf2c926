"""
Plans that take a change back: each a new plan, with an approval of its own, that sets what was there before.

It is of a kind that nobody declares, ``undo_<kind>``: it compares every field that the change has left and sets those
that the change has set. A compared revision is not put back, it grows once more.
"""

from collections.abc import Mapping
from typing import Any

from django.db import router

from .approvals import store_plan
from .change_types import KIND_CHARS_MAX, SET, ChangeType, get_kind
from .errors import Flaw, InvalidPlan, Stale, Words
from .models import Change, StoredPlan
from .people import Person
from .plans.canonical import FieldTarget
from .plans.model import CHANGE_ID_CHARS_MAX
from .previews import preview_change
from .receipt import AuditRow, inspect_change


def revert_plan(
    *,
    change_id: str,
    author: str | Person,
    new_change_id: str = "",
    reason: str = "",
    tenant: str | None = None,
    using: str | None = None,
) -> StoredPlan:
    """
    Draft the plan that would put the rows of a receipt back as they were; another person approves it.

    Refused where a row has changed since: what would be put back is then not what the approver of the change saw.

    Raises: LookupError without a receipt; Stale with the rows that have changed; InvalidPlan; UnknownKind.
    """
    alias = using or router.db_for_write(Change)
    receipt = inspect_change(change_id=change_id, tenant=tenant, using=alias)
    if receipt is None:
        raise LookupError(f"no receipt of {change_id!r}")
    kind = get_kind(receipt.kind)
    if len(kind.undo.name) > KIND_CHARS_MAX or receipt.problems:
        text = Words("cannot be taken back: its kind has too long a name, or receipt and audit rows disagree")
        raise InvalidPlan([Flaw(change_id, text)])
    targets = [undo_target(kind, row) for row in receipt.audit]
    found = preview_change(kind=kind.undo.name, tenant=receipt.tenant, targets=targets, using=alias)
    if found.failing:
        raise Stale([row.as_problem() for row in found.failing])
    return store_plan(
        kind=kind.undo.name,
        change_id=new_change_id or f"UNDO-{change_id}"[:CHANGE_ID_CHARS_MAX],
        tenant=receipt.tenant,
        targets=targets,
        author=author,
        reason=reason or f"takes back {change_id}",
        is_reverting=True,
        using=alias,
    )


def undo_target(kind: ChangeType, row: AuditRow) -> FieldTarget:
    """Return the target that puts one row back."""
    fields = audited_fields(kind, row)
    compared = {name: fields[name]["after"] for name in kind.undo.compared}
    return FieldTarget(
        row.target_id, compared | {f"{SET}{name}": fields[name]["before"] for name in kind.undo.settable}
    )


def audited_fields(kind: ChangeType, row: AuditRow) -> Mapping[str, Mapping[str, Any]]:
    """Return before and after of each recorded field; of a plain kind from the columns of its audit rows."""
    if row.fields:
        return row.fields
    return {
        kind.revision_field: {"before": row.revision_before, "after": row.revision_after},
        kind.qty_field: {"before": row.qty, "after": row.qty},
        kind.state_field: {"before": row.state_before, "after": row.state_after},
    }
