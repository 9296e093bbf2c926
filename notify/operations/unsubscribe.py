"""What a recipient may do by the link in a mail: leave the kinds of this site and come back to them."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from django.db import router, transaction

from ..addresses import mailbox_key, spellings
from ..delivery.suppressions import suppress
from ..models import Suppression, SuppressionCause
from ..steps import registered, step_of

REASON = "unsubscribed by link"


class KindChoice(NamedTuple):
    """One kind of mail of this site, and whether a recipient gets it."""

    kind: str
    label: str
    is_on: bool
    is_mandatory: bool


def leave_kind(address: str, kind: str, *, using: str | None = None) -> bool:
    """
    Unsubscribe an address from a kind; return False when it is mandatory, or was left before.

    Transaction: its own.
    """
    step = step_of(kind)
    if step is not None and step.mandatory:
        return False
    return suppress(address, reason=REASON, kind=kind, cause=SuppressionCause.LINK, using=using)


def choose_kinds(address: str, kinds: Collection[str], *, using: str | None = None) -> None:
    """
    Let an address get these kinds and no others; what is not by its own link stays as it is. Transaction: its own.
    """
    using = using or router.db_for_write(Suppression)
    with transaction.atomic(using=using):
        mine = Suppression.objects.using(using).filter(address__in=spellings(address), cause=SuppressionCause.LINK)
        mine.filter(kind__in=list(kinds)).exclude(kind="").delete()
        for choice in kind_choices(address, using=using):
            if choice.is_on and choice.kind not in kinds:
                leave_kind(address, choice.kind, using=using)


def kind_choices(address: str, *, using: str | None = None) -> Iterator[KindChoice]:
    """Yield the kinds of mail of this site, and which of them an address gets."""
    using = using or router.db_for_read(Suppression)
    left = {kind for _key, kind in Suppression.objects.using(using).among([mailbox_key(address, True)])}
    steps = {step.kind: step for step in registered() if step.template is not None}
    for kind, step in sorted(steps.items()):
        yield KindChoice(kind, str(step.label or kind), step.mandatory or kind not in left, step.mandatory)
