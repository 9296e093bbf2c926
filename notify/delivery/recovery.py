"""settle, rescue: what came of a mail is written, by its worker or by whoever finds that the worker went silent."""

from collections.abc import Iterable
from datetime import datetime
from random import SystemRandom

from django.db import connections, transaction

from ..conf import Conf
from ..dialects import dialect_of
from ..models import Attempt, AttemptOutcome, MailQueue, MailState
from .planner import has_open, lost_results
from .results import Settlement, as_attempts, conclude


def final_outcomes(mails: Iterable[MailQueue], *, conf: Conf, using: str) -> dict[int, dict[str, str]]:
    """Return, per mail, the recipients that are done with and how."""
    # A mail that was never tried, released or rescued has no attempts: most have not, and cost no query.
    tried = [mail.pk for mail in mails if mail.attempts or mail.message_text or mail.operator]
    found: dict[int, dict[str, str]] = {}
    if tried:
        rows = Attempt.objects.using(using).final().filter(mail__in=tried).order_by("pk")
        if conf.ON_UNCERTAIN == "resend":
            rows = rows.exclude(outcome=AttemptOutcome.UNCERTAIN)
        for pk, recipient, outcome in rows.values_list("mail_id", "recipient", "outcome"):
            found.setdefault(pk, {})[recipient] = outcome
    return found


def settle(settlement: Settlement, *, using: str, worker: str) -> None:
    """Write one mail's attempts and state. Transaction: the caller's."""
    connection, values = connections[using], settlement.values
    dialect = dialect_of(connection)
    if attempts := list(as_attempts(settlement, worker=worker)):
        dialect.insert_attempts(connection, attempts)
    if not values:
        return
    # Lost when somebody else has it by now: a person, or a worker after our lease. The attempts stay true.
    dialect.try_settle_mail(connection, settlement.mail.pk, worker=worker, values=values)
    if settlement.followers:
        mails = MailQueue.objects.using(using)
        shared = {name: values[name] for name in ("state", "sent_at", "problem", "attempts") if name in values}
        mails.filter(digest_of=settlement.mail.pk).update(**shared)


def rescue(*, using: str, now: datetime, conf: Conf) -> int:
    """
    Find mails whose worker went silent while they were on the wire; return how many are uncertain now.

    Transaction: its own, one per mail.
    """
    mails, found = MailQueue.objects.using(using), 0
    for mail in list(mails.lost(now).select_related("control")):
        settlement = Settlement(mail, final=final_outcomes([mail], conf=conf, using=using).get(mail.pk, {}))
        settlement.add(mail.flight or 0, lost_results(mail, settlement, conf), at=now)
        has_more = has_open(mail, settlement, conf)
        conclude(settlement, conf=conf, now=now, random=SystemRandom())
        if has_more:
            settlement.values |= {"state": MailState.QUEUED}
        elif settlement.values["state"] == MailState.UNCERTAIN:
            # The name stays: should the silent worker speak after all, it may still say what became of the mail.
            settlement.values["worker"] = mail.worker
        settlement.followers = tuple(mails.filter(digest_of=mail.pk).values_list("pk", flat=True))
        with transaction.atomic(using=using, durable=True):
            # Another worker's rescue may have been faster, or the silent worker has spoken in the meantime.
            if mails.lost(now).filter(pk=mail.pk).select_for_update().exists():
                settle(settlement, using=using, worker=mail.worker)
                found += settlement.values["state"] == MailState.UNCERTAIN
    return found
