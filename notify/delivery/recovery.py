"""Rescue: find mails whose worker died while sending them, or that a wrong clock has delayed."""

import logging
from dataclasses import dataclass
from datetime import datetime
from random import SystemRandom

from django.db import DatabaseError, connections, transaction

from ..conf import Conf
from ..dialects import dialect_of
from ..models import MailQueue, MailState
from .claims import Claim, load_claims
from .planner import has_other_open_parts, lost_results
from .results import Settlement, as_attempts, as_tries, conclude, reduce
from .writer import settle_alone

logger = logging.getLogger(__name__)

#: Below the 2,100 parameters of SQL Server.
MAILS_PER_STATEMENT = 1000


@dataclass(frozen=True)
class Rescued:
    """How many mails are uncertain now, and what the database refused to record, one line each."""

    uncertain: int
    refused: tuple[str, ...] = ()


def undo_misdating(*, using: str, now: datetime) -> int:
    """
    Make due what a clock that was ahead has put off, or claimed for longer than any lease; return how many mails.

    Transaction: its own, one per thousand mails.
    """
    mails, undone = MailQueue.objects.using(using), 0
    ids = list(mails.misdated(now).order_by("pk").values_list("pk", flat=True))
    for start in range(0, len(ids), MAILS_PER_STATEMENT):
        with transaction.atomic(using=using, durable=True):
            some = mails.filter(pk__in=ids[start : start + MAILS_PER_STATEMENT], state=MailState.QUEUED)
            undone += some.update(due_at=now, worker="", lease_until=None)
    return undone


def rescue(*, using: str, now: datetime, conf: Conf) -> Rescued:
    """
    Find mails whose worker went silent while they were on the wire, and say so on each.

    One that the database refuses does not stop the others. Transaction: its own, one per mail.
    Raises: DatabaseError, when it is about no row.
    """
    undo_misdating(using=using, now=now)
    lost = list(MailQueue.objects.using(using).lost(now).select_related("control"))
    uncertain, refused = 0, []
    for claim in load_claims(lost, using=using, conf=conf):
        settlement = settlement_of_lost(claim, using=using, now=now, conf=conf)
        try:
            is_ours = try_rescue(claim.mail, settlement, using=using, now=now)
            uncertain += is_ours and settlement.values["state"] == MailState.UNCERTAIN
        except DatabaseError as error:
            dialect = dialect_of(connections[using])
            if dialect.is_transient(error) or dialect.is_lost(error):
                raise
            reason = " ".join(str(error).split())
            logger.error("mail %s cannot be recorded as lost: %s", claim.mail.pk, reason)
            if not any(try_less(claim.mail, less, using=using, now=now) for less in reduce(settlement, reason)):
                refused.append(f"mail {claim.mail.pk}: {reason}")
    return Rescued(uncertain, tuple(refused))


def settlement_of_lost(claim: Claim, *, using: str, now: datetime, conf: Conf) -> Settlement:
    """Return the changes to write for a mail whose worker was lost."""
    mail = claim.mail
    tries = as_tries(mail.flight or 0, lost_results(claim, conf), at=now)
    values = conclude(claim, tries, conf=conf, now=now, random=SystemRandom())
    if has_other_open_parts(claim, conf):
        values["state"] = MailState.QUEUED
    elif values["state"] == MailState.UNCERTAIN:
        # The name stays: if the lost worker is still alive, it may still write the result of the mail.
        values["worker"] = mail.worker
    return Settlement(
        mail_id=mail.pk,
        attempts=as_attempts(claim, tries, worker=mail.worker, channel=""),
        values=values,
        followers=tuple(MailQueue.objects.using(using).filter(digest_of=mail.pk).values_list("pk", flat=True)),
    )


def try_rescue(mail: MailQueue, settlement: Settlement, *, using: str, now: datetime) -> bool:
    """Write the result of a lost mail; return False when another worker was faster. Transaction: its own."""
    with transaction.atomic(using=using, durable=True):
        # Another worker's rescue, or the silent worker has spoken in the meantime.
        if not MailQueue.objects.using(using).lost(now).filter(pk=mail.pk).select_for_update().exists():
            return False
        settle_alone(settlement, using=using, worker=mail.worker)
        return True


def try_less(mail: MailQueue, settlement: Settlement, *, using: str, now: datetime) -> bool:
    """Write a reduced result of a lost mail; return False when the database refuses that as well."""
    try:
        try_rescue(mail, settlement, using=using, now=now)
    except DatabaseError:
        return False
    return True
