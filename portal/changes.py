"""The kinds of change that may be made to order lines and prices."""

from kwit.db.fields import UtcNow
from receipts.change_types import ChangeType, register

from .models import LineState, OrderLine, Price

CANCEL = register(
    ChangeType(
        name="cancel",
        model=OrderLine,
        required_state=LineState.PENDING.value,
        sets={"state": LineState.CANCELLED.value},
    )
)

ACCEPT = register(
    ChangeType(
        name="accept",
        model=OrderLine,
        required_state=LineState.PENDING.value,
        sets={"state": LineState.ACCEPTED.value},
    )
)

#: A price list: each row with the price that was looked at and the one that it gets.
REPRICE = register(
    ChangeType(
        name="reprice",
        model=Price,
        compares=("price", "currency"),
        settable=("price", "valid_from"),
        sets={"changed_at": UtcNow()},
        label="article",
    )
)
