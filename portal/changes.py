"""The kinds of change that may be made to order lines."""

from receipts.change_types import ChangeKind, register

from .models import LineState, OrderLine

CANCEL = register(
    ChangeKind(
        name="cancel",
        model=OrderLine,
        required_state=LineState.PENDING.value,
        sets={"state": LineState.CANCELLED.value},
    )
)

ACCEPT = register(
    ChangeKind(
        name="accept",
        model=OrderLine,
        required_state=LineState.PENDING.value,
        sets={"state": LineState.ACCEPTED.value},
    )
)
