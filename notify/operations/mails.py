"""What a person may do with mails: hold, release, retry, confirm, correct; each verb names who did it."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from django.db import connections, router, transaction
from django.db.models import QuerySet

from ..addresses import parse_recipients
from ..conf import conf
from ..delivery.recovery import rescue
from ..dialects import dialect_of
from ..errors import UnknownMail, WrongAddress
from ..messages.builder import problem_text
from ..models import SUBJECT_UNITS_MAX, Attempt, AttemptOutcome, MailQueue, MailState
from ..notes import as_data, note
from ..text import one_line, shorten
from .rebuild import remake_mails

#: Mails per statement, below the 2,100 parameters of SQL Server.
INTERVENTION_ROWS = 1000
#: After these a retry makes sense: everything that has been tried and was not sent to everybody.
RETRIED_STATES = (MailState.FAILED, MailState.PARTIAL)
#: What a release lets go: held by a person, blocked by what has been put right since, or in doubt.
RELEASED_STATES = (MailState.BLOCKED, MailState.UNCERTAIN)


def retry_mails(mails: QuerySet[MailQueue], *, actor: str, using: str | None = None) -> int:
    """
    Try again whoever of these failed or partial mails has not got it, with all attempts anew; return how many mails.

    Who got it does not get it twice; who was refused is asked again.
    """
    return reopen(mails, RETRIED_STATES, (AttemptOutcome.REFUSED, AttemptOutcome.SUPPRESSED), actor=actor, using=using)


def release_mails(mails: QuerySet[MailQueue], *, actor: str, using: str | None = None) -> int:
    """
    Let blocked, withdrawn and uncertain mails of these go; return how many.

    One whose message could not be made is made anew first; when that fails again, it stays blocked and says why. A
    blocked one whose fault is still there is blocked again by the next delivery. An uncertain one is sent again, with
    the same Message-ID: whoever has it already may get it twice.
    """
    using = using or router.db_for_write(MailQueue)
    overruled = (AttemptOutcome.UNCERTAIN, AttemptOutcome.SUPPRESSED)
    remake_mails(list(mails.using(using).values_list("pk", flat=True)), using=using)
    made = mails.exclude(state=MailState.BLOCKED, subject="")
    # A withdrawn one goes although its event is gone, and says so.
    gone = [note("released_though_gone", person=actor)]
    said = {"problem": problem_text(gone), "notes": as_data(gone)}
    withdrawn = reopen(made, (MailState.WITHDRAWN,), overruled, actor=actor, using=using, said=said)
    return withdrawn + reopen(made, RELEASED_STATES, overruled, actor=actor, using=using)


def reopen(
    mails: QuerySet[MailQueue],
    states: tuple[MailState, ...],
    overruled: tuple[AttemptOutcome, ...],
    *,
    actor: str,
    using: str | None,
    said: Mapping[str, Any] = MappingProxyType({}),
) -> int:
    """Queue mails in these states again and overrule these outcomes. Transaction: its own, one per thousand mails."""
    using = using or router.db_for_write(MailQueue)
    # What a dead worker or a wrong clock holds is first what it really is: in doubt, or due.
    now, chosen = clock(using), mails.using(using).order_by("pk")
    misdated = MailQueue.objects.using(using).misdated(now).values("pk")
    reopened = chosen.filter(pk__in=misdated).count()
    lost = MailQueue.objects.using(using).lost(now).values("pk")
    if reopened or chosen.filter(pk__in=lost).exists():
        rescue(using=using, now=now, conf=conf())
    chosen = chosen.filter(state__in=states, digest_of__isnull=True)
    values = {"state": MailState.QUEUED, "attempts": 0, "problem": "", "notes": None, "held_for": "", "operator": actor}
    values |= said
    ids = list(chosen.values_list("pk", flat=True))
    for start in range(0, len(ids), INTERVENTION_ROWS):
        some = ids[start : start + INTERVENTION_ROWS]
        with transaction.atomic(using=using, durable=True):
            now = clock(using)
            rows = MailQueue.objects.using(using)
            reopened += rows.filter(pk__in=some, state__in=states).update(
                **values, due_at=now, operated_at=now, worker="", lease_until=None, flight=None
            )
            rows.filter(digest_of__in=some).update(**values, operated_at=now)
            Attempt.objects.using(using).filter(mail__in=some, outcome__in=overruled).update(is_overruled=True)
            dialect_of(connections[using]).announce(connections[using])
    return reopened


def hold_mails(mails: QuerySet[MailQueue], *, actor: str, reason: str = "", using: str | None = None) -> int:
    """
    Keep queued mails of these from going out until they are released; return how many.

    One that is on the wire at this moment is not held; one that a worker has only claimed is.
    """
    using = using or router.db_for_write(MailQueue)
    ids = list(mails.using(using).filter(state=MailState.QUEUED).order_by("pk").values_list("pk", flat=True))
    why = note("held_by_because", person=actor, reason=one_line(reason)) if reason else note("held_by", person=actor)
    held = 0
    for start in range(0, len(ids), INTERVENTION_ROWS):
        with transaction.atomic(using=using, durable=True):
            rows = MailQueue.objects.using(using).filter(pk__in=ids[start : start + INTERVENTION_ROWS])
            held += rows.filter(state=MailState.QUEUED, digest_of__isnull=True).update(
                state=MailState.BLOCKED,
                problem=problem_text([why]),
                notes=as_data([why]),
                operator=actor,
                operated_at=clock(using),
                worker="",
                lease_until=None,
            )
    return held


def confirm_mails(mails: QuerySet[MailQueue], *, actor: str, using: str | None = None) -> int:
    """
    Take uncertain mails of these as sent, on a person's word; return how many.

    Transaction: its own, one per mail.
    """
    using = using or router.db_for_write(MailQueue)
    chosen, confirmed = mails.using(using).filter(state=MailState.UNCERTAIN).order_by("pk"), 0
    for mail in list(chosen):
        with transaction.atomic(using=using, durable=True):
            tries = Attempt.objects.using(using).filter(mail=mail, is_overruled=False)
            others = tries.filter(outcome__in=(AttemptOutcome.REFUSED, AttemptOutcome.SUPPRESSED)).exists()
            state = MailState.PARTIAL if others else MailState.SENT
            now, rows = clock(using), MailQueue.objects.using(using)
            values = {"state": state, "sent_at": now, "operator": actor, "operated_at": now, "worker": ""}
            if rows.filter(pk=mail.pk, state=MailState.UNCERTAIN).update(**values) != 1:
                continue  # somebody else has just decided
            rows.filter(digest_of=mail.pk).update(**values)
            doubtful = list(tries.filter(outcome=AttemptOutcome.UNCERTAIN))
            tries.filter(outcome=AttemptOutcome.UNCERTAIN).update(is_overruled=True)
            Attempt.objects.using(using).bulk_create(confirmation(each, actor, now) for each in doubtful)
            confirmed += 1
    return confirmed


def confirmation(doubtful: Attempt, actor: str, now: datetime) -> Attempt:
    """Return the row that says that a person is sure."""
    sure = note("confirmed_by", person=actor)
    return Attempt(
        mail_id=doubtful.mail_id,
        number=doubtful.number,
        part=doubtful.part,
        recipient=doubtful.recipient,
        outcome=AttemptOutcome.SENT,
        text=sure.english,
        notes=as_data([sure]),
        at=now,
        is_overruled=False,
        code=None,
        enhanced="",
        worker="",
        channel="",
    )


def correct_mail(
    mail_id: int,
    *,
    actor: str,
    recipients: str | None = None,
    subject: str | None = None,
    using: str | None = None,
) -> tuple[str, ...]:
    """
    Put right whom a mail goes to, or its subject; return the recipients. It stays where it is until it is released.

    Who got it already does not get it again, also under the new list.

    Transaction: its own.
    Raises: UnknownMail, when it is not there or on the wire; WrongAddress, naming what is nobody's address.
    """
    using = using or router.db_for_write(MailQueue)
    values: dict[str, Any] = {}
    if recipients is not None:
        values["recipients"] = list(checked(recipients))
    if subject is not None:
        values["subject"] = shorten(one_line(subject), SUBJECT_UNITS_MAX)
    with transaction.atomic(using=using, durable=True):
        rows = MailQueue.objects.using(using).filter(pk=mail_id, digest_of__isnull=True)
        rows = rows.exclude(state__in=(MailState.SENDING, MailState.SENT))
        # The claim goes: a worker that has read the old address must not begin with it.
        values |= {"operator": actor, "operated_at": clock(using), "worker": "", "lease_until": None}
        if rows.update(**values) != 1:
            raise UnknownMail(
                f"there is no mail {mail_id} that could be corrected: it is sent, on the wire, or not there"
            )
        return tuple(rows.values_list("recipients", flat=True).get())


def checked(recipients: str) -> tuple[str, ...]:
    """Return the addresses of a text. Raises: WrongAddress."""
    found = parse_recipients(recipients, fold_local_part=conf().FOLD_LOCAL_PART)
    if found.bad or not found.good:
        raise WrongAddress("not an address: " + (", ".join(found.bad) or "nothing was given"))
    return found.good


def clock(using: str) -> datetime:
    """Return the database's clock."""
    return dialect_of(connections[using]).now(connections[using])
