"""The public names."""

from .apply import (
    Outcome,
    apply_change,
    apply_plan,
    apply_surely,
    approve_plan,
    cancel_many,
    cancel_one,
    edit_plan,
    rehearse_change,
    store_plan,
)
from .canonical import Target
from .errors import Conflict, InvalidPlan, NotApproved, NotWritten, OutcomeUnknown, ReceiptsError, UnknownKind
from .reconcile import inspect_change, reconcile, record_reconciliation

__all__ = [
    "Conflict",
    "InvalidPlan",
    "NotApproved",
    "NotWritten",
    "Outcome",
    "OutcomeUnknown",
    "ReceiptsError",
    "Target",
    "UnknownKind",
    "apply_change",
    "apply_plan",
    "apply_surely",
    "approve_plan",
    "cancel_many",
    "cancel_one",
    "edit_plan",
    "inspect_change",
    "reconcile",
    "record_reconciliation",
    "rehearse_change",
    "store_plan",
]
