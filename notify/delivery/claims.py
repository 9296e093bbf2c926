"""Claim due mails and load the data for planning each; release mails that were not started."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db import connections, transaction
from django.db.models import Q, TextField
from django.db.models.functions import Cast, Lower

from ..addresses import Recipients, spellings
from ..conf import Conf
from ..dialects import dialect_of
from ..messages.wordings import load_wordings
from ..models import Attempt, MailQueue, MailState, Suppression
from ..notes import Note
from ..steps import step_of
from .email import key_of, recipients_of
from .recheck import recheck
from .schedule import digest_window

#: Most mails in one digest, to keep it readable; the rest goes into the next one.
DIGEST_MAILS_MAX = 100


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One mail with everything that planning it has to know of the database."""

    mail: MailQueue
    #: Parsed once, here.
    recipients: Recipients
    #: What became of those that earlier attempts have done with, by the identity of their address.
    final: Mapping[str, str] = field(default_factory=dict)
    #: The number of its last attempt.
    number_last: int = 0
    #: The mails that have travelled in this one before, as a digest.
    companions: tuple[MailQueue, ...] = ()
    #: The mails that could join its digest now, asked when it is handed to a lane.
    joining: tuple[MailQueue, ...] = ()
    #: Why it is not to be sent: its event is gone, or that cannot be checked.
    gone: Note | None = None


def claim_due(*, using: str, worker: str, now: datetime, conf: Conf, limit: int) -> list[int]:
    """Lease some due mails to this worker; return their ids. Transaction: its own."""
    connection = connections[using]
    return dialect_of(connection).claim_mails(
        connection, worker=worker, now=now, lease_until=now + conf.LEASE, limit=limit
    )


def take_over(name: str, ids: Sequence[int], *, using: str, worker: str, now: datetime, conf: Conf) -> list[int]:
    """
    Make a portion's claim this worker's own; return the ids of what is left of it.

    An engine may run a portion twice, even at once: the second run finds nothing under the portion's name, and what the
    first one has on the wire is not begun again. Transaction: its own.
    """
    with transaction.atomic(using=using, durable=True):
        mails = MailQueue.objects.using(using)
        left = mails.filter(pk__in=ids, worker=name, state=MailState.QUEUED, lease_until__gt=now)
        left.update(worker=worker, lease_until=now + conf.LEASE)
        return list(mails.filter(pk__in=ids, worker=worker).order_by("due_at", "pk").values_list("pk", flat=True))


def give_back(*, using: str, worker: str) -> None:
    """Release claimed mails that were not started. Transaction: its own."""
    with transaction.atomic(using=using, durable=True):
        claimed = MailQueue.objects.using(using).filter(worker=worker, state=MailState.QUEUED)
        claimed.update(worker="", lease_until=None)


def load_claims(mails: Iterable[MailQueue], *, using: str, conf: Conf, now: datetime | None = None) -> list[Claim]:
    """
    Return mails with what the database knows of them, in at most three queries.

    With ``now`` they are about to be sent: one query more for each kind with ``recheck``.
    """
    found = list(mails)
    gone = recheck(found, using=using, now=now) if now is not None else {}
    load_wordings(found)
    final, numbers = attempts_of(found, using=using, conf=conf)
    travelled = companions_of(found, using=using, conf=conf)
    return [
        Claim(
            mail=mail,
            recipients=recipients_of(mail, conf),
            final=final.get(mail.pk, {}),
            number_last=numbers.get(mail.pk, 0),
            companions=tuple(travelled.get(mail.pk, ())),
            gone=gone.get(mail.pk),
        )
        for mail in found
    ]


def attempts_of(
    mails: Sequence[MailQueue], *, using: str, conf: Conf
) -> tuple[dict[int, dict[str, str]], dict[int, int]]:
    """Return, per mail, the recipients that are done with and how, and the number of the last attempt."""
    # A mail that was never tried, released or rescued has no attempts: most have not, and cost no query.
    tried = [mail.pk for mail in mails if mail.attempts or mail.message_text or mail.operator]
    final: dict[int, dict[str, str]] = {}
    numbers: dict[int, int] = {}
    if not tried:
        return final, numbers
    rows = Attempt.objects.using(using).filter(mail__in=tried).order_by("pk")
    is_final = Attempt.objects.using(using).final().filter(mail__in=tried)
    if conf.ON_UNCERTAIN == "resend":
        is_final = is_final.exclude(outcome="uncertain")
    ids = set(is_final.values_list("pk", flat=True))
    for pk, mail_id, recipient, outcome, number in rows.values_list("pk", "mail_id", "recipient", "outcome", "number"):
        numbers[mail_id] = max(numbers.get(mail_id, 0), number)
        if pk in ids:
            final.setdefault(mail_id, {})[key_of(recipient, conf)] = outcome
    return final, numbers


def is_untried(mail: MailQueue) -> bool:
    """Whether a mail has never been on the wire, so that its digest may still grow."""
    return not (mail.attempts or mail.message_text)


def may_collect(mail: MailQueue, conf: Conf, now: datetime) -> bool:
    """Whether a mail leads a digest that begins now."""
    window = digest_window(step_of(mail.control.kind), conf)
    return window is not None and is_untried(mail) and mail.created_at + window <= now


def is_same_digest(mail: MailQueue, other: MailQueue) -> bool:
    """Whether two mails go into one digest."""
    names = ("template", "language", "recipients", "tenant")
    return mail.control.kind == other.control.kind and all(getattr(mail, n) == getattr(other, n) for n in names)


def companions_of(mails: Sequence[MailQueue], *, using: str, conf: Conf) -> dict[int, list[MailQueue]]:
    """Return, per mail, the mails that have travelled in it before."""
    leaders = [
        mail.pk
        for mail in mails
        if not is_untried(mail) and digest_window(step_of(mail.control.kind), conf) is not None
    ]
    found: dict[int, list[MailQueue]] = {}
    if leaders:
        rows = MailQueue.objects.using(using).select_related("control").filter(digest_of__in=leaders)
        for mail in rows.order_by("pk"):
            found.setdefault(mail.digest_of_id or 0, []).append(mail)
    return found


def joining_mails(mail: MailQueue, *, using: str, worker: str, now: datetime, conf: Conf) -> tuple[MailQueue, ...]:
    """Return the mails that could join this one in a digest now: to the same mailbox, however it is spelled."""
    mails, keys = MailQueue.objects.using(using).select_related("control"), mailboxes_of(mail, conf)
    joining = (
        mails.alias(to=Lower(Cast("recipients", TextField())))
        .free_for(worker, now)
        .filter(
            Q(recipients=mail.recipients) | Q(to__in=stored_spellings(keys)),
            control__kind=mail.control.kind,
            template=mail.template,
            language=mail.language,
            # Who may see one tenant's mails would else read another's in the digest.
            tenant=mail.tenant,
            state=MailState.QUEUED,
            attempts=0,
            message_text="",
            digest_of__isnull=True,
        )
    )
    rows = joining.exclude(pk=mail.pk).exclude(subject="").order_by("pk")[: DIGEST_MAILS_MAX - 1]
    found = [other for other in rows if mailboxes_of(other, conf) == keys]
    # One whose event is gone is withdrawn by itself when its own turn comes.
    gone = recheck(found, using=using, now=now)
    load_wordings(found)
    return tuple(other for other in found if other.pk not in gone)


def mailboxes_of(mail: MailQueue, conf: Conf) -> frozenset[str]:
    """Return the keys of a mail's recipients; a text that is not an address is returned unchanged."""
    people = recipients_of(mail, conf)
    return frozenset([*(key_of(address, conf) for address in people.good), *people.bad])


def stored_spellings(keys: Collection[str]) -> list[str]:
    """Return how a list of one recipient may stand in the database, in lower case; of several, only as it does."""
    # PostgreSQL keeps letters, the others keep what Python's encoder wrote.
    return [
        json.dumps([spelling], ensure_ascii=is_ascii)
        for key in keys
        if len(keys) == 1
        for spelling in spellings(key)
        for is_ascii in (True, False)
    ]


def suppressed_among(claims: Iterable[Claim], *, using: str, conf: Conf) -> frozenset[tuple[str, str]]:
    """Return which addresses of these mails are on the suppression list now, and for which kind."""
    asked = {key_of(address, conf) for claim in claims for address in claim.recipients.good}
    return frozenset(Suppression.objects.using(using).among(asked))
