"""
deliver_due: from the queue to each recipient.

One thread claims, writes and decides; lanes plan and send. Short transactions, and no network inside any of them: a
claim leases some mails; what came of the last mails and the start of the next ones are written together, for all lanes
at once; then those go over the wire. A crash therefore leaves doubt about one mail per lane, and the lease says when to
call it so.
"""

import contextlib
import logging
import os
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue
from random import Random, SystemRandom
from typing import Any

from django.db import connections, router, transaction
from django.db.transaction import TransactionManagementError

from ..conf import Conf, conf
from ..dialects import dialect_of
from ..errors import ChannelDown, TooManyConnections
from ..models import TOKEN_LENGTH, AttemptOutcome, MailQueue, MailState
from ..transports.base import Transport, VerdictUnclear
from ..transports.factory import find_transport
from .channels import get_pause, pause_channel, record_success, reserve_times
from .claims import (
    Claim,
    claim_due,
    give_back,
    is_same_digest,
    joining_mails,
    load_claims,
    may_collect,
    suppressed_among,
    take_over,
)
from .epoch import try_begin_delivery
from .lanes import Begin, Finished, Job, Lane
from .planner import Block, Hold, Send, Withdraw
from .recovery import rescue
from .results import (
    DeliveryReport,
    Settlement,
    Try,
    as_attempts,
    block_values,
    conclude,
    gone_mailboxes,
    hold_values,
    withdraw_values,
)
from .run_log import DeliveryLog
from .writer import LOSSES, Writer

logger = logging.getLogger(__name__)

#: Marks what the report says, too, for whoever prints the report where the log goes.
IN_REPORT = {"is_in_report": True}

#: Seconds between two checks for a request to stop, when nothing else happens.
SLICE_S = 0.2
#: Claimed mails beyond those that the lanes have: few, so that another worker finds some, and enough for one claim to
#: serve several commits.
CLAIM_ROWS_MIN = 10
CLAIMS_PER_LANE = 2
#: Seconds to wait for the lanes to say goodbye to their server.
JOIN_S = 5.0
JOIN_SLICE_S = 0.02


@dataclass(kw_only=True)
class DeliveryRun:
    """One delivery: database, worker, settings, and its counts so far."""

    using: str
    worker: str
    conf: Conf
    lanes_max: int
    make_transport: Callable[[], Transport]
    random: Random
    is_stopping: Callable[[], bool]
    limit: int | None
    channel: str
    report: DeliveryReport = field(default_factory=DeliveryReport)
    jobs: "SimpleQueue[Job | None]" = field(default_factory=SimpleQueue)
    events: "SimpleQueue[Begin | Finished]" = field(default_factory=SimpleQueue)
    lanes: list[Lane] = field(default_factory=list)
    threads: list[Any] = field(default_factory=list)
    #: Lanes that have ended, because they got no connection.
    lanes_over: int = 0
    #: Claimed mails that no lane has been given yet.
    waiting: "deque[Claim]" = field(default_factory=deque)
    #: Mails that lanes have, by id.
    in_hand: dict[int, Claim] = field(default_factory=dict)
    #: Lanes that wait for an answer, by the mail they ask for.
    asking: dict[int, Begin] = field(default_factory=dict)
    #: Ids of mails that go as part of a digest.
    joined: set[int] = field(default_factory=set)
    suppressed: frozenset[tuple[str, str]] = frozenset()
    #: Mails that were deferred for what may be the channel's trouble, until another mail says which, and their errors.
    suspects: dict[int, Claim] = field(default_factory=dict)
    #: With NOTIFY_RATE: the moments at which the next mails may go.
    times: "deque[datetime]" = field(default_factory=deque)
    #: How often the channel has failed in a row, until a mail gets through.
    failures: int = 0
    #: Whether a mail has got through in this run.
    has_passed: bool = False
    #: Whether another claim may find something.
    may_find: bool = True
    #: Why no further mail begins; the channel's trouble.
    down: ChannelDown | None = None
    #: Whether this run ends, for whatever reason.
    is_over: bool = False
    _read: tuple[datetime, float] | None = None

    def __post_init__(self) -> None:
        self.log = DeliveryLog(using=self.using, worker=self.worker, lanes=self.lanes_max, conf=self.conf)
        self.writer = Writer(
            using=self.using,
            worker=self.worker,
            conf=self.conf,
            now=self.now,
            random=self.random,
            is_stopping=self.is_stopping,
        )

    def now(self) -> datetime:
        """Return the database's clock, read once per claim and carried on by the monotonic clock."""
        at, mark = self._read or self.read_clock()
        return at + timedelta(seconds=time.monotonic() - mark)

    def read_clock(self) -> tuple[datetime, float]:
        """Read the database's clock again."""
        connection = connections[self.using]
        self._read = dialect_of(connection).now(connection), time.monotonic()
        return self._read

    @property
    def is_ending(self) -> bool:
        """Whether no further mail is to begin."""
        return self.is_over or self.down is not None or self.is_stopping()


def make_worker() -> str:
    """Return a name for this run that no other run has."""
    return f"{socket.gethostname()[:253]}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def deliver_due(
    *,
    using: str | None = None,
    limit: int | None = None,
    only: tuple[str, Sequence[int]] | None = None,
    lanes: int | None = None,
    transport: Transport | None = None,
    make_transport: Callable[[], Transport] | None = None,
    worker: str = "",
    random: Random | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> DeliveryReport:
    """
    Send what is due, at most ``limit`` mails; return what came of it.

    ``only`` is a portion that a sink has claimed for this call, as (name, ids). ``lanes`` connections are busy at once
    (NOTIFY_LANES by default); ``transport`` is one connection and therefore one lane. A mail that fails is marked and
    the others go on; trouble of the channel pauses it for everybody and costs no mail an attempt.

    Transaction: its own, durable, many short ones; refused inside another.
    Raises: ImproperlyConfigured, TransactionManagementError; DatabaseError; OutcomeNotWritten, when the database went
    away with mails on the wire and stayed away: ``rescue`` finds them.
    """
    using = using or router.db_for_write(MailQueue)
    connection = connections[using]
    if connection.in_atomic_block or not connection.get_autocommit():
        raise TransactionManagementError(
            "deliver_due commits by itself and cannot run inside a transaction; in a test take a TransactionTestCase"
        )
    settings = conf()
    first = transport or (make_transport or (lambda: find_transport(settings)))()
    run = DeliveryRun(
        using=using,
        worker=worker or make_worker(),
        conf=settings,
        lanes_max=1 if transport else lanes or settings.LANES,
        make_transport=(lambda: first) if transport else make_transport or (lambda: find_transport(settings)),
        random=random or SystemRandom(),
        is_stopping=is_stopping,
        limit=limit,
        channel=first.name,
    )
    run.read_clock()
    rescued = rescue(using=using, now=run.now(), conf=settings)
    run.report.uncertain += rescued.uncertain
    run.writer.refused += rescued.refused
    if waiting := try_begin_delivery(using=using, now=run.now(), settings=settings):
        run.report.error = waiting.english
        return run.report
    try:
        if not begin_portion(run, only):
            deliver_all(run)
    except (KeyboardInterrupt, SystemExit):
        # Perhaps in the middle of a statement: that session takes no other, and its error would hide why we stop.
        run.writer.is_repeated = True
        connection.close()
        raise
    finally:
        end_run(run)
    return run.report


def begin_portion(run: DeliveryRun, only: tuple[str, Sequence[int]] | None) -> bool:
    """Take over a sink's portion when there is one; return whether the channel pauses, so that nothing is sent."""
    if only is not None:
        run.limit = 0
        add_claims(run, take_over(*only, using=run.using, worker=run.worker, now=run.now(), conf=run.conf))
    pause = get_pause(run.channel, now=run.now(), using=run.using)
    run.failures = pause.failures
    run.report.paused_until, run.report.pause_reason = pause.until, pause.reason
    return not pause.is_over


def deliver_all(run: DeliveryRun) -> None:
    """Claim, hand out, and write what comes back, until nothing is due, the channel is down or we are to stop."""
    while not run.is_ending:
        has_more = bool(run.waiting)
        has_more = refill(run) or has_more
        dispatch(run)
        if not run.in_hand and not run.waiting:
            if has_more:
                continue
            return
        receive(run)
        commit(run)
        run.log.beat(run.report, now=run.now())


def refill(run: DeliveryRun) -> bool:
    """Claim mails when few are waiting, at the end once more for what has become due; return whether there were any."""
    is_last_look = not run.in_hand and not run.waiting
    if not is_last_look and (not run.may_find or len(run.waiting) >= run.lanes_max):
        return False
    size = min(run.conf.CLAIM_BATCH, max(CLAIM_ROWS_MIN, CLAIMS_PER_LANE * run.lanes_max))
    if run.conf.RATE is not None:
        # No more than can go before the lease runs out.
        size = max(1, min(size, int(run.conf.RATE * run.conf.LEASE.total_seconds() / 4)))
    size = size if run.limit is None else min(run.limit, size)
    if size <= 0:
        run.may_find = False
        return False
    run.read_clock()
    ids = claim_due(using=run.using, worker=run.worker, now=run.now(), conf=run.conf, limit=size)
    run.may_find = len(ids) == size
    if run.limit is not None:
        run.limit -= len(ids)
    add_claims(run, ids)
    return bool(ids)


def add_claims(run: DeliveryRun, ids: Sequence[int]) -> None:
    """Load claimed mails, in their order."""
    if not ids:
        return
    run.log.beat(run.report, now=run.now())
    mails = MailQueue.objects.using(run.using).filter(pk__in=ids, worker=run.worker).select_related("control")
    place = {pk: number for number, pk in enumerate(ids)}
    found = sorted(mails, key=lambda mail: place[mail.pk])
    claims = load_claims(found, using=run.using, conf=run.conf, now=run.now())
    run.suppressed |= suppressed_among(claims, using=run.using, conf=run.conf)
    run.waiting.extend(claims)


def dispatch(run: DeliveryRun) -> None:
    """Hand waiting mails to the lanes, and one ahead for each, so that none of them waits for this thread."""
    passed_over: list[Claim] = []
    # At a rate, none ahead: a lane that has waited would send too many at once.
    ahead = 2 if run.conf.RATE is None else 1
    while run.waiting and len(run.in_hand) < ahead * (run.lanes_max - run.lanes_over) and is_time(run):
        claim = run.waiting.popleft()
        if claim.mail.pk in run.joined:
            continue
        if may_collect(claim.mail, run.conf, run.now()):
            if any(is_same_digest(claim.mail, other.mail) for other in run.in_hand.values()):
                # It may join that one's digest; whether it has is known when that one is done.
                passed_over.append(claim)
                continue
            joining = joining_mails(claim.mail, using=run.using, worker=run.worker, now=run.now(), conf=run.conf)
            claim = replace(claim, joining=joining)
        run.in_hand[claim.mail.pk] = claim
        if run.times:
            run.times.popleft()
        token = f"{run.random.getrandbits(4 * TOKEN_LENGTH):0{TOKEN_LENGTH}x}"
        run.jobs.put(Job(claim=claim, suppressed=run.suppressed, token=token))
        start_lane(run)
    run.waiting.extendleft(reversed(passed_over))


def is_time(run: DeliveryRun) -> bool:
    """Whether NOTIFY_RATE allows another mail now; reserves the times of a second's mails, or of one."""
    rate, now = run.conf.RATE, run.now()
    if rate is None:
        return True
    if not run.times:
        count = max(1, min(len(run.waiting), int(rate)))
        run.times.extend(reserve_times(run.channel, count=count, rate=rate, now=now, using=run.using))
    return run.times[0] <= now


def start_lane(run: DeliveryRun) -> None:
    """Start another lane when there is a mail for it. Raises: RuntimeError, when not even one can be started."""
    busy = len(run.lanes) - run.lanes_over
    if len(run.lanes) >= run.lanes_max or busy >= len(run.in_hand):
        return
    lane = Lane(
        number=len(run.lanes) + 1,
        transport=run.make_transport(),
        conf=run.conf,
        now=run.now,
        jobs=run.jobs,
        events=run.events,
    )
    try:
        run.threads.append(lane.start())
    except RuntimeError as error:  # the machine has no more threads: the lanes that run do with less
        if not busy:
            raise
        logger.warning("only %s lanes: %s", busy, error)
        run.lanes_max = len(run.lanes)
        return
    run.lanes.append(lane)


def receive(run: DeliveryRun) -> None:
    """Wait for what lanes have to say, and take all of it."""
    try:
        wait_s = SLICE_S if not run.times else (run.times[0] - run.now()).total_seconds()
        take(run, run.events.get(timeout=min(SLICE_S, max(wait_s, 0.001))))
        while True:
            take(run, run.events.get_nowait())
    except Empty:
        pass


def take(run: DeliveryRun, event: Begin | Finished) -> None:
    """Note what a lane asks or reports."""
    if isinstance(event, Finished):
        finish_mail(run, event)
        return
    run.asking[event.claim.mail.pk] = event
    if event.tries:
        run.writer.settlements.append(settlement_of(run, event.claim, event.tries, {}, ()))


def commit(run: DeliveryRun) -> None:
    """Write results of mails and the start of others; then answer the lanes that asked."""
    if run.is_ending:
        for pk, begin in list(run.asking.items()):
            if begin.is_first:
                refuse(run, pk)
    run.writer.begins = [begin.envelope for begin in run.asking.values()]
    for pk, answer in run.writer.commit().items():
        begin = run.asking.pop(pk)
        if answer is True:
            run.joined.update(begin.envelope.joining)
        begin.answer.put(answer)
    if run.down is not None and not run.report.error:
        pause(run, run.down)


def refuse(run: DeliveryRun, pk: int) -> None:
    """Tell a lane that its mail is not to begin."""
    run.asking.pop(pk).answer.put(False)
    if run.writer.is_repeated:
        # A session whose answer never came may have committed that it began; it never will.
        run.writer.settlements.append(Settlement(mail_id=pk, values={"state": MailState.QUEUED}))


def finish_mail(run: DeliveryRun, finished: Finished) -> None:
    """Decide what becomes of a mail that a lane is done with."""
    claim, plan, tries = run.in_hand.pop(finished.claim.mail.pk), finished.plan, finished.tries
    run.report.letters += finished.sent
    settle_rate(run, finished.sent)
    run.lanes_over += finished.is_lane_over
    if finished.trouble is not None and (values := meet_trouble(run, finished, finished.trouble)) is not None:
        if finished.is_begun:
            fresh = finished.tries[finished.written :]
            run.writer.settlements.append(settlement_of(run, claim, fresh, values, ()))
            run.may_find = True
        elif run.down is None:
            run.waiting.appendleft(claim)
        return
    if finished.is_lost:
        logger.info("mail %s was not begun: it went to another worker, or delivery ends", claim.mail.pk)
        return
    if finished.problem:
        values = block_values(finished.problem)
    elif isinstance(plan, Hold):
        values = hold_values(plan.reason, plan.until)
    elif isinstance(plan, Block):
        values = block_values(*plan.problem)
    elif isinstance(plan, Withdraw):
        values = withdraw_values(plan.reason)
    else:
        values = conclude(claim, tries, conf=run.conf, now=run.now(), random=run.random)
    followers = plan.followers if isinstance(plan, Send) else ()
    settlement = settlement_of(run, claim, tries[finished.written :], values, followers)
    run.writer.settlements.append(settlement)
    run.report.count(settlement)
    # What is tried again at once is due now.
    run.may_find = run.may_find or (values["state"] == MailState.QUEUED and "due_at" not in values)
    if finished.trouble is None and any(each.result.reply.code or is_sent(each) for each in tries if each.part >= 0):
        run.suspects.clear()
    if any(map(is_sent, tries)):
        run.has_passed = True
        if run.failures and run.down is None:
            record_success(run.channel, using=run.using)
            run.failures = 0


def settle_rate(run: DeliveryRun, sent: int) -> None:
    """Take the times of a mail's further parts, or give back that of a mail that was not sent."""
    if run.conf.RATE is None or sent == 1:
        return
    if sent == 0:
        run.times.appendleft(run.now())
    else:
        reserve_times(run.channel, count=sent - 1, rate=run.conf.RATE, now=run.now(), using=run.using)


def is_sent(tried: Try) -> bool:
    """Whether the channel has taken it."""
    return tried.result.outcome == AttemptOutcome.SENT


def meet_trouble(run: DeliveryRun, finished: Finished, trouble: ChannelDown) -> dict[str, Any] | None:
    """
    Return what the row of a mail gets whose trouble is the channel's or its connection's; None when it is its own.

    A refusal that may be either is taken for the mail's until another mail meets the same before any gets through.
    """
    pk, put_back = finished.claim.mail.pk, {"state": MailState.QUEUED, "due_at": run.now()}
    if isinstance(trouble, VerdictUnclear):
        if not any(other != pk for other in run.suspects) and run.down is None:
            run.suspects[pk] = finished.claim
            return None
        run.down = run.down or trouble
        return put_back
    others = len(run.lanes) - run.lanes_over
    if others and (isinstance(trouble, TooManyConnections) or run.has_passed):
        logger.warning("a lane of %s ends, %s go on: %s", run.channel, others, trouble)
        return put_back
    run.down = run.down or trouble
    return put_back


def settlement_of(
    run: DeliveryRun, claim: Claim, tries: Iterable[Try], values: dict[str, Any], followers: tuple[int, ...]
) -> Settlement:
    """Return the changes to write for one mail."""
    tries = list(tries)
    return Settlement(
        mail_id=claim.mail.pk,
        attempts=as_attempts(claim, tries, worker=run.worker, channel=run.channel),
        values=values,
        followers=followers,
        gone=tuple(gone_mailboxes(tries)),
    )


def pause(run: DeliveryRun, error: ChannelDown) -> None:
    """Pause the channel and log it, once per run; suspected mails lose no attempt."""
    logger.error("%s", error, extra=IN_REPORT)
    run.report.error = str(error)
    refund(run)
    rest = pause_channel(run.channel, reason=str(error), now=run.now(), conf=run.conf, using=run.using)
    run.report.paused_until, run.report.pause_reason = rest.until, rest.reason


def refund(run: DeliveryRun) -> None:
    """Restore the attempt of suspected mails and requeue them after the due ones. Transaction: its own."""
    mails = MailQueue.objects.using(run.using)
    with transaction.atomic(using=run.using, durable=True):
        for pk, claim in run.suspects.items():
            # One that has met this as often as it may be tried ends as its own attempts do.
            if claim.number_last < run.conf.ATTEMPTS_MAX:
                deferred = mails.whole(pk).filter(state=MailState.QUEUED, attempts=claim.mail.attempts + 1)
                deferred.update(attempts=claim.mail.attempts, due_at=run.now())
    run.suspects.clear()


def end_run(run: DeliveryRun) -> None:
    """Let each lane finish its mail, write the results, and release mails that were not started."""
    try:
        run.is_over = True
        withdraw(run)
        commit(run)
        while run.in_hand:
            receive(run)
            commit(run)
    finally:
        dismiss_lanes(run)
        if run.writer.refused and not run.report.error:
            run.report.error = f"the database refuses to record {'; '.join(run.writer.refused)}"
        try:
            give_back(using=run.using, worker=run.worker)
        except LOSSES as error:
            # Their lease frees them, too.
            logger.warning("claimed mails could not be given back: %s", error)
        run.log.close(run.report, now=run.now())


def dismiss_lanes(run: DeliveryRun) -> None:
    """Wait for the lanes to say goodbye to their server; when the database is away, some still ask."""
    for begin in run.asking.values():
        begin.answer.put(False)
    for _ in range(len(run.lanes) - run.lanes_over):
        run.jobs.put(None)
    deadline = time.monotonic() + JOIN_S
    while any(thread.is_alive() for thread in run.threads) and time.monotonic() < deadline:
        with contextlib.suppress(Empty):
            event = run.events.get(timeout=JOIN_SLICE_S)
            if isinstance(event, Begin):
                event.answer.put(False)


def withdraw(run: DeliveryRun) -> None:
    """Take back what no lane has begun with."""
    try:
        while (job := run.jobs.get_nowait()) is not None:
            run.in_hand.pop(job.claim.mail.pk)
    except Empty:
        pass
