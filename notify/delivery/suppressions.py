"""Addresses that get no mail, whatever happens."""

from collections.abc import Iterable

from django.db import IntegrityError, router, transaction

from ..addresses import mailbox_key, parse_recipients, spellings
from ..errors import WrongAddress
from ..models import ERROR_CHARS_MAX, Suppression, SuppressionCause
from ..text import stored


def suppress(
    address: str,
    *,
    reason: str,
    kind: str = "",
    cause: SuppressionCause = SuppressionCause.MANUAL,
    using: str | None = None,
) -> bool:
    """
    Put an address on the suppression list, for one kind or for all; return False when it was on it.

    Transaction: its own.
    Raises: WrongAddress.
    """
    using = using or router.db_for_write(Suppression)
    row = Suppression(address=normal(address), kind=kind, cause=cause, reason=stored(reason, ERROR_CHARS_MAX))
    try:
        with transaction.atomic(using=using):
            row.save(using=using, force_insert=True)
    except IntegrityError:
        return False  # somebody was faster, or it has been there for long
    return True


def unsuppress(addresses: Iterable[str], *, using: str | None = None) -> int:
    """Take addresses off the list; return how many were on it. What was settled because of it stays settled."""
    using = using or router.db_for_write(Suppression)
    with transaction.atomic(using=using):
        rows = Suppression.objects.using(using).filter(
            address__in=[each for address in addresses for each in spellings(address)]
        )
        return rows.delete()[0]


def normal(address: str) -> str:
    """Return an address as the list keeps it. Raises: WrongAddress."""
    found = parse_recipients(address)
    if len(found.good) != 1 or found.bad:
        raise WrongAddress(f"{address!r} is not one mail address")
    return mailbox_key(found.good[0], fold_local_part=True)
