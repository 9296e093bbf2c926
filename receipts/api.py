"""The public names."""

from .apply import Outcome, apply_change, apply_one, apply_with_reconnect, rehearse_change
from .approvals import (
    apply_plan,
    apply_plan_with_reconnect,
    approve_plan,
    edit_plan,
    expire_plans,
    get_plan,
    list_plans,
    reject_plan,
    store_plan,
    withdraw_plan,
)
from .cancelling import cancel_many, cancel_one
from .errors import Conflict, InvalidPlan, NotApproved, NotWritten, OutcomeUnknown, ReceiptsError, UnknownKind
from .people import Person, person_of
from .plans.canonical import Target
from .previews import preview_change
from .receipt import inspect_change
from .reconcile import reconcile, record_reconciliation
from .reverting import revert_plan

__all__ = [
    "Conflict",
    "InvalidPlan",
    "NotApproved",
    "NotWritten",
    "Outcome",
    "OutcomeUnknown",
    "Person",
    "ReceiptsError",
    "Target",
    "UnknownKind",
    "apply_change",
    "apply_one",
    "apply_plan",
    "apply_plan_with_reconnect",
    "apply_with_reconnect",
    "approve_plan",
    "cancel_many",
    "cancel_one",
    "edit_plan",
    "expire_plans",
    "get_plan",
    "inspect_change",
    "list_plans",
    "person_of",
    "preview_change",
    "reconcile",
    "record_reconciliation",
    "rehearse_change",
    "reject_plan",
    "revert_plan",
    "store_plan",
    "withdraw_plan",
]
