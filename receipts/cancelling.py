"""The kind ``cancel`` by name: what the contract calls cancelling is the one change that most sites begin with."""

from collections.abc import Iterable

from .apply import apply_change, apply_one
from .plans.canonical import Target

CANCEL = "cancel"


def cancel_one(*, tenant: str, target: Target, using: str | None = None) -> Target:
    """
    Cancel one row if it still is as approved; return it as it is now. It leaves no receipt.

    Transaction: its own, or a savepoint in the caller's.
    Raises: InvalidPlan, Conflict.
    """
    return apply_one(kind=CANCEL, tenant=tenant, target=target, using=using)


def cancel_many(
    *,
    change_id: str,
    tenant: str,
    targets: Iterable[Target],
    actor: str = "",
    reason: str = "",
    using: str | None = None,
) -> bool:
    """
    Cancel every target or none; return False if this very change was applied before.

    Transaction: its own, or a savepoint in the caller's.
    Raises: InvalidPlan, Conflict.
    """
    return apply_change(
        kind=CANCEL, change_id=change_id, tenant=tenant, targets=targets, actor=actor, reason=reason, using=using
    )
