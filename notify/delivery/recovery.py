"""rescue: find mails whose worker went silent while they were on the wire, or that a wrong clock has put off."""

from datetime import datetime
from random import SystemRandom

from django.db import connections, transaction

from ..conf import Conf
from ..dialects import dialect_of
from ..models import MailQueue, MailState
from .claims import load_claims
from .planner import has_other_open_parts, lost_results
from .results import Settlement, as_attempts, as_tries, conclude

#: Below the 2,100 parameters of SQL Server.
MAILS_PER_STATEMENT = 1000


def settle(settlement: Settlement, *, using: str, worker: str) -> None:
    """Write one mail's attempts and state. Transaction: the caller's."""
    connection, values = connections[using], settlement.values
    dialect = dialect_of(connection)
    if settlement.attempts:
        dialect.insert_attempts(connection, settlement.attempts)
    if not values:
        return
    # Lost when somebody else has it by now: a person, or a worker after our lease. The attempts stay true.
    dialect.try_settle_mail(connection, settlement.mail_id, worker=worker, values=values)
    if settlement.followers:
        mails = MailQueue.objects.using(using)
        shared = {name: values[name] for name in ("state", "sent_at", "problem", "notes", "attempts") if name in values}
        mails.filter(digest_of=settlement.mail_id).update(**shared)


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


def rescue(*, using: str, now: datetime, conf: Conf) -> int:
    """
    Find mails whose worker went silent while they were on the wire; return how many are uncertain now.

    Transaction: its own, one per mail.
    """
    mails, found = MailQueue.objects.using(using), 0
    undo_misdating(using=using, now=now)
    lost = list(mails.lost(now).select_related("control"))
    for claim in load_claims(lost, using=using, conf=conf):
        mail = claim.mail
        tries = as_tries(mail.flight or 0, lost_results(claim, conf), at=now)
        values = conclude(claim, tries, conf=conf, now=now, random=SystemRandom())
        if has_other_open_parts(claim, conf):
            values["state"] = MailState.QUEUED
        elif values["state"] == MailState.UNCERTAIN:
            # The name stays: should the silent worker speak after all, it may still say what became of the mail.
            values["worker"] = mail.worker
        settlement = Settlement(
            mail_id=mail.pk,
            attempts=as_attempts(claim, tries, worker=mail.worker, channel=""),
            values=values,
            followers=tuple(mails.filter(digest_of=mail.pk).values_list("pk", flat=True)),
        )
        with transaction.atomic(using=using, durable=True):
            # Another worker's rescue may have been faster, or the silent worker has spoken in the meantime.
            if mails.lost(now).filter(pk=mail.pk).select_for_update().exists():
                settle(settlement, using=using, worker=mail.worker)
                found += values["state"] == MailState.UNCERTAIN
    return found
