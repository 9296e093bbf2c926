"""
claim_due, deliver_due: from the queue to each recipient.

Three short transactions and no network inside any of them: the claim leases some mails; what came of the last one and
the start of the next one are written together; then that one goes over the wire. A crash therefore leaves doubt about
one mail per worker, and the lease says when to call it so.
"""

import logging
import os
import socket
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random, SystemRandom
from typing import Any

from django.db import DatabaseError, connections, router, transaction
from django.db.transaction import TransactionManagementError

from ..conf import Conf, conf
from ..dialects import dialect_of
from ..dialects.base import Change
from ..errors import ChannelDown, ClaimLost
from ..models import MailQueue, MailState, Suppression
from ..transports.base import Transport
from ..transports.factory import find_transport
from .channels import get_pause, pause_channel, record_success
from .email import key_of, recipients_of
from .planner import Flight, Ground
from .prefetch import Draft, Drafts, make_draft
from .recovery import final_outcomes, rescue, settle
from .results import DeliveryReport, Settlement, as_attempts, conclude, gone_mailboxes, record_unexpected
from .suppressions import suppress

logger = logging.getLogger(__name__)

#: How often a short transaction is tried when another one was in the way, and the pause in between.
TRIES_MAX = 5
PAUSE_S = 0.05
#: Below the 2,100 parameters of SQL Server.
ADDRESSES_PER_QUERY = 1000


@dataclass(kw_only=True)
class Round:
    """One run of delivery: where, as whom, how, and what came of it so far."""

    using: str
    worker: str
    conf: Conf
    transport: Transport
    random: Random
    is_stopping: Callable[[], bool]
    #: Begins with the next mail, for the time that the database takes with this one.
    look_ahead: Callable[[], None] = lambda: None
    report: DeliveryReport = field(default_factory=DeliveryReport)
    #: What came of the last mail and is not yet written.
    pending: list[Settlement] = field(default_factory=list)
    #: Ids of mails that went as part of a digest in this run.
    taken: set[int] = field(default_factory=set)
    #: Which addresses of the claimed mails are suppressed; asked once per claim.
    suppressed: frozenset[str] = frozenset()
    #: How often the channel has failed in a row, until a mail gets through.
    failures: int = 0
    _read: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        """Return the database's clock, read once per claim and carried on by the monotonic clock."""
        if self._read is None:
            return self.read_clock()
        at, mark = self._read
        return at + timedelta(seconds=time.monotonic() - mark)

    def read_clock(self) -> datetime:
        """Ask the database's clock anew."""
        connection = connections[self.using]
        at = dialect_of(connection).now(connection)
        self._read = (at, time.monotonic())
        return at

    @property
    def ground(self) -> Ground:
        """What planning a mail has to know."""
        return Ground(using=self.using, conf=self.conf, now=self.now(), worker=self.worker, suppressed=self.suppressed)


def make_worker() -> str:
    """Return a name for this run that no other run has."""
    return f"{socket.gethostname()[:253]}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def deliver_due(
    *,
    using: str | None = None,
    limit: int | None = None,
    only: tuple[str, Sequence[int]] | None = None,
    transport: Transport | None = None,
    worker: str = "",
    random: Random | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> DeliveryReport:
    """
    Send what is due, at most ``limit`` mails; return what came of it.

    ``only`` is a portion that a sink has claimed for this call, as (name, ids). A mail that fails is marked and the
    others go on; trouble of the channel pauses it for everybody and costs no mail an attempt.

    Transaction: its own, durable, many short ones; refused inside another.
    Raises: ImproperlyConfigured, TransactionManagementError; DatabaseError when what happened cannot be written: the
    mail in hand is then found by ``rescue``.
    """
    using = using or router.db_for_write(MailQueue)
    connection = connections[using]
    if connection.in_atomic_block or not connection.get_autocommit():
        raise TransactionManagementError("deliver_due commits by itself and cannot run inside a transaction")
    settings = conf()
    run = Round(
        using=using,
        worker=worker or make_worker(),
        conf=settings,
        transport=transport or find_transport(settings),
        random=random or SystemRandom(),
        is_stopping=is_stopping,
    )
    run.report.uncertain += rescue(using=using, now=run.read_clock(), conf=settings)
    try:
        deliver_all(run, limit, None if only is None else take_over(run, *only))
    except (KeyboardInterrupt, SystemExit):
        # Perhaps in the middle of a statement: that session takes no other, and its error would hide why we stop.
        connection.close()
        raise
    finally:
        try:
            commit(run)
            give_back(run)
        finally:
            run.transport.close()
    return run.report


def deliver_all(run: Round, limit: int | None, portion: Sequence[int] | None) -> None:
    """Claim and deliver until nothing is due, the limit is reached, the channel pauses or we are asked to stop."""
    left = limit
    while not run.is_stopping() and (left is None or left > 0):
        commit(run)
        pause = get_pause(run.transport.name, now=run.read_clock(), using=run.using)
        run.failures = pause.failures
        if not pause.is_over:
            run.report.paused_until, run.report.pause_reason = pause.until, pause.reason
            return
        size = run.conf.CLAIM_BATCH if left is None else min(left, run.conf.CLAIM_BATCH)
        ids = claim_due(run, size) if portion is None else portion
        if not ids or not deliver_batch(run, ids) or portion is not None:
            return
        if left is not None:
            left -= len(ids)


def claim_due(run: Round, limit: int) -> list[int]:
    """Lease some due mails to this worker; return their ids. Transaction: its own."""
    connection, now = connections[run.using], run.now()
    lease_until = now + run.conf.LEASE
    return dialect_of(connection).claim_mails(
        connection, worker=run.worker, now=now, lease_until=lease_until, limit=limit
    )


def take_over(run: Round, name: str, ids: Sequence[int]) -> list[int]:
    """
    Make a portion's claim this run's own; return the ids of what is left of it.

    An engine may run a portion twice, even at once: the second run finds nothing under the portion's name, and what the
    first one has on the wire is not begun again. Transaction: its own.
    """
    now = run.now()
    with transaction.atomic(using=run.using, durable=True):
        mails = MailQueue.objects.using(run.using)
        left = mails.filter(pk__in=ids, worker=name, state=MailState.QUEUED, lease_until__gt=now)
        left.update(worker=run.worker, lease_until=now + run.conf.LEASE)
        return list(mails.filter(pk__in=ids, worker=run.worker).order_by("due_at", "pk").values_list("pk", flat=True))


def deliver_batch(run: Round, ids: Sequence[int]) -> bool:
    """Deliver claimed mails one after another; return False when the channel is down."""
    try:
        run.transport.open()
    except ChannelDown as error:
        pause(run, error)
        return False
    mails = MailQueue.objects.using(run.using).filter(pk__in=ids, worker=run.worker).select_related("control")
    place = {pk: number for number, pk in enumerate(ids)}
    found = sorted(mails, key=lambda mail: place[mail.pk])
    run.suppressed = suppressed_among(found, run)
    final = final_outcomes(found, conf=run.conf, using=run.using)

    def make(mail: MailQueue, is_ahead: bool) -> Draft:
        return make_draft(mail, final.get(mail.pk, {}), run.ground, run.transport, is_ahead=is_ahead)

    with Drafts(found, make=make, conf=run.conf) as drafts:
        run.look_ahead = drafts.look_ahead
        for mail in found:
            if run.is_stopping():
                # Now, and not when the draft is made that nobody waits for any more: whoever asks soon loses patience.
                commit(run)
                return True
            if mail.pk in run.taken:
                continue
            try:
                deliver(run, drafts.take(mail))
            except ClaimLost:
                logger.info("mail %s went to another worker before it was sent", mail.pk)
            except ChannelDown as error:
                pause(run, error)
                return False
    return True


def suppressed_among(mails: Iterable[MailQueue], run: Round) -> frozenset[str]:
    """Return which addresses of these mails are on the suppression list now."""
    asked = sorted({key_of(a, run.conf) for mail in mails for a in recipients_of(mail, run.conf).good})
    rows, found = Suppression.objects.using(run.using), set[str]()
    for start in range(0, len(asked), ADDRESSES_PER_QUERY):
        found |= rows.among(asked[start : start + ADDRESSES_PER_QUERY])
    return frozenset(found)


def deliver(run: Round, draft: Draft) -> None:
    """
    Deliver one mail, part by part; whatever unexpected it does is marked on it.

    Raises: ChannelDown, ClaimLost; DatabaseError.
    """
    settlement, mail = draft.settlement, draft.settlement.mail
    try:
        for flight, packed in draft.flights():
            fly(run, flight, packed, settlement)
    except ChannelDown:
        run.pending.append(settlement.put_back())
        raise
    except (ClaimLost, DatabaseError):
        raise
    except Exception as error:  # one bad mail must not stop the ninety-nine others
        logger.exception("mail %s", mail.pk)
        record_unexpected(settlement, error, traceback.format_exc(), at=run.now())
    run.pending.append(conclude(settlement, conf=run.conf, now=run.now(), random=run.random))
    run.report.count(settlement)
    if run.failures and settlement.has_passed:
        record_success(run.transport.name, using=run.using)
        run.failures = 0


def fly(run: Round, flight: Flight, packed: Any, settlement: Settlement) -> None:
    """Begin one flight, send it, and note what became of each recipient."""
    # Before the commit goes only what no mail can come of; the server takes it in while the database writes.
    run.transport.announce(flight.letter, packed)
    run.look_ahead()
    commit(run, flight)
    run.taken.update(flight.taken)
    settlement.airborne = flight.part, flight.letter.recipients
    give_up_at = time.monotonic() + run.conf.LEASE.total_seconds() / 2
    results = run.transport.send(flight.letter, packed, give_up_at=give_up_at)
    run.report.letters += 1
    settlement.add(flight.part, results, at=run.now())
    if not flight.is_last:
        run.pending.append(settlement.parted())


def commit(run: Round, flight: Flight | None = None) -> None:
    """
    Write what came of the last mail and, with it, that the next one is on the wire; again if another is in the way.

    Raises: ClaimLost when the next one is not ours any more; what came of the last one is written all the same.
    """
    for tried in range(1, TRIES_MAX + 1):
        try:
            is_won = write(run, flight)
            break
        except DatabaseError as error:
            if tried == TRIES_MAX or not dialect_of(connections[run.using]).is_transient(error):
                raise
            time.sleep(PAUSE_S * 2 ** (tried - 1) * (1 + run.random.random()))
    settled, run.pending = run.pending, []
    if run.conf.SUPPRESS_REFUSED:
        for settlement in settled:
            for address, reason in gone_mailboxes(settlement):
                suppress(address, reason=reason, using=run.using)
    if flight is not None and not is_won:
        raise ClaimLost(f"mail {flight.mail.pk}")


def write(run: Round, flight: Flight | None) -> bool:
    """Settle what is pending and begin the next flight; return whether that one is ours. Transaction: its own."""
    if not run.pending and flight is None:
        return True
    if not is_plain(run.pending, flight):
        with transaction.atomic(using=run.using, durable=True):
            for settlement in run.pending:
                settle(settlement, using=run.using, worker=run.worker)
            return flight is None or begin(flight, run)
    connection, last = connections[run.using], run.pending[0] if run.pending else None
    now = run.now()
    return dialect_of(connection).try_go_on(
        connection,
        worker=run.worker,
        now=now,
        attempts=list(as_attempts(last, worker=run.worker)) if last else [],
        settled=Change(last.mail.pk, last.values) if last and last.values else None,
        begun=Change(flight.mail.pk, begin_values(flight, run, now)) if flight else None,
    )


def is_plain(pending: Sequence[Settlement], flight: Flight | None) -> bool:
    """Whether there is one mail to settle and one to begin, at most, and no digest: nearly always."""
    if len(pending) > 1 or (pending and pending[0].followers) or (flight and flight.taken):
        return False
    return not (pending and pending[0].values and flight and pending[0].mail.pk == flight.mail.pk)


def begin_values(flight: Flight, run: Round, now: datetime) -> dict[str, Any]:
    """Return what the row of a mail gets that goes on the wire."""
    return {"lease_until": now + run.conf.LEASE, "flight": flight.part, **flight.values}


def begin(flight: Flight, run: Round) -> bool:
    """Mark a mail as on the wire, with what is about to be sent; return False when it is not ours any more."""
    connection, now, pk = connections[run.using], run.now(), flight.mail.pk
    values = begin_values(flight, run, now)
    if not flight.taken:
        return dialect_of(connection).try_begin_mail(connection, pk, worker=run.worker, now=now, values=values)
    try:
        with transaction.atomic(using=run.using):
            mails = MailQueue.objects.using(run.using)
            if not mails.try_take(flight.taken, worker=run.worker, now=now, digest_of=pk):
                raise ClaimLost("another worker has one of the digest's mails")
            return dialect_of(connection).try_begin_mail(connection, pk, worker=run.worker, now=now, values=values)
    except ClaimLost:
        return False


def pause(run: Round, error: ChannelDown) -> None:
    """Pause the channel and say so, once for the run."""
    logger.error("%s", error)
    commit(run)
    rest = pause_channel(run.transport.name, reason=str(error), now=run.now(), conf=run.conf, using=run.using)
    run.report.error = str(error)
    run.report.paused_until, run.report.pause_reason = rest.until, rest.reason


def give_back(run: Round) -> None:
    """Free what was claimed and not begun. Transaction: its own."""
    with transaction.atomic(using=run.using, durable=True):
        claimed = MailQueue.objects.using(run.using).filter(worker=run.worker, state=MailState.QUEUED)
        claimed.update(worker="", lease_until=None)
