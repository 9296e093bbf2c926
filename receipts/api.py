"""The public names."""

from .apply import Outcome, apply_change, apply_surely, cancel_many, cancel_one, rehearse_change
from .approvals import apply_plan, apply_plan_surely, approve_plan, edit_plan, get_plan, list_plans, store_plan
from .errors import Conflict, InvalidPlan, NotApproved, NotWritten, OutcomeUnknown, ReceiptsError, UnknownKind
from .plans.canonical import Target
from .previews import preview_change
from .receipt import inspect_change
from .reconcile import reconcile, record_reconciliation

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
    "apply_plan_surely",
    "apply_surely",
    "approve_plan",
    "cancel_many",
    "cancel_one",
    "edit_plan",
    "get_plan",
    "inspect_change",
    "list_plans",
    "preview_change",
    "reconcile",
    "record_reconciliation",
    "rehearse_change",
    "store_plan",
]
