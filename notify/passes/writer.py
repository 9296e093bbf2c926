"""
Control and queue rows, written together; the only writer of both.

A step's candidates are found once, in one statement, then written in chunks: control rows first, and a queue row only
for a control row that this very transaction has made. The unique constraint decides every race.
"""

import gc
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any, TypeVar, cast
from uuid import UUID

from django.db import DatabaseError, connections, transaction
from django.db.models import Count, Min, QuerySet

from ..conf import Conf, as_moment
from ..dialects import dialect_of
from ..dialects.base import NotifyDialect
from ..messages.builder import Message, blocked, make_messages, reads_event_at, silent
from ..models import MailState
from ..steps import Event, FlaggedStep, Scope, Step, columns_of, event_reader, is_parent, reading_order
from .reader import Part, Unreadable, as_events, read
from .rows import control_row, has_task, mail_count, mail_rows, task_rows

#: How often a chunk is tried when another transaction was in the way. With the pauses below about three seconds.
CHUNK_TRIES_MAX = 6
#: Seconds before the second try; doubled each time, and up to as much again at random, so that two fall out of step.
PAUSE_S = 0.05
#: How often a step with a circuit breaker looks for groups to take the places of those that the database refuses.
ROUNDS_MAX = 10
#: How many keys a warning names before it only counts.
NAMED_MAX = 5
#: Statements of one marking; 1,000 of 2,000 rows are more than a pass prepares. What is left, the next pass marks.
MARK_ROUNDS_MAX = 1000
#: How many messages a dry run lists; beyond that it only counts.
LISTED_MAX = 1000

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the pass tells each step: where, as whom, how, and how to know whether to go on."""

    using: str
    pass_id: UUID
    conf: Conf
    now: datetime
    is_full: bool = False
    is_baseline: bool = False
    is_dry_run: bool = False
    #: Whether the pass lock keeps every other pass out.
    is_alone: bool = False
    #: Called inside each transaction before its first write; raises LockLost to stop the pass.
    guard: Callable[[], None] = lambda: None
    #: Whether the pass has been asked to stop after the chunk in hand.
    is_stopping: Callable[[], bool] = lambda: False
    random: Random = field(default_factory=Random)

    @property
    def dialect(self) -> NotifyDialect:
        """The dialect of the pass's database."""
        return dialect_of(connections[self.using])


@dataclass
class Tally:
    """What came of a step's candidates so far."""

    candidates: int = 0
    mails: int = 0
    tasks: int = 0
    blocked: int = 0
    repeated: int = 0
    #: Events whose language the site has not, nor its parent.
    unspoken: int = 0
    repaired: int = 0
    failed: int = 0
    warnings: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    listed: list[Message] = field(default_factory=list)
    is_complete: bool = True
    named: dict[str, list[str]] = field(default_factory=dict)

    def name(self, what: str, text: str) -> None:
        """Remember one of the first few to be named in the warning."""
        names = self.named.setdefault(what, [])
        if len(names) < NAMED_MAX:
            names.append(text)

    def names(self, what: str, count: int) -> str:
        """Return the remembered names, saying when there are more."""
        names = self.named.get(what, [])
        return ", ".join(names) + (", …" if count > len(names) else "")


def prepare(step: Step, job: Job, tally: Tally) -> None:
    """
    Prepare every candidate of a step: its control row and its messages, exactly once; count in ``tally``.

    Transaction: its own, durable, one per chunk; what is committed stays when a later chunk fails.
    Raises: LockLost; DatabaseError when a chunk failed for a reason that repeating does not cure.
    """
    try:
        if isinstance(step, FlaggedStep) and not job.is_dry_run:
            repair(step, job, tally)
        prepare_candidates(step, job, tally)
        if isinstance(step, FlaggedStep) and not job.is_dry_run:
            mark(step, job)
    finally:
        note_oddities(tally)


def prepare_candidates(step: Step, job: Job, tally: Tally) -> None:
    """Find the candidates once and write them chunk by chunk; warn when the circuit breaker leaves some waiting."""
    found = step.candidates(scope_of(step, job), not_before=not_before_of(step, job), using=job.using)
    limit = breaker_of(step, job)
    if limit is None:
        write_found(found, step, job, tally)
        return
    offset, places = 0, limit
    for _ in range(ROUNDS_MAX):
        failed_before = tally.failed
        is_going_on = write_found(found[offset : offset + places], step, job, tally)
        # Groups that the database refuses outright are found again, the oldest first; they must not keep the places of
        # those behind them. In a dry run all are found again.
        places = tally.failed - failed_before
        offset = tally.candidates if job.is_dry_run else tally.failed
        if not places or not is_going_on:
            break
    if tally.candidates >= limit:
        note_waiting(found[offset:] if job.is_dry_run else found.order_by(), limit, tally)


def write_found(found: QuerySet[Any, Any], step: Step, job: Job, tally: Tally) -> bool:
    """Run the candidate query once and write its rows chunk by chunk; return False when asked to stop half-way."""
    names = reading_order(name for name in columns_of(found) if name != "event_at" or reads_event_at(step))
    as_event = event_reader(step.kind, names)
    parts = read(found, names=names, rows=job.conf.CHUNK_ROWS, dialect=job.dialect)
    with closing(cast(Generator[Part], parts)) as read_parts:
        for rows, unreadable in read_parts:
            if job.is_stopping():
                tally.is_complete = False
                tally.warnings.append(f"stopped on request after {tally.candidates} candidates")
                return False
            with uncollected():
                events, faulty = as_events(rows, names, as_event)
                write_events(events, step, job, tally)
            write_unreadable([*unreadable, *faulty], step, job, tally)
    return True


@contextmanager
def uncollected() -> Iterator[None]:
    """Put the garbage collector off for a chunk: it would look through its events again and again, and find nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def write_unreadable(rows: Sequence[Unreadable], step: Step, job: Job, tally: Tally) -> None:
    """Write the control row and a visible stand-in of each candidate that cannot be read."""
    tally.candidates += len(rows)
    events = [(Event(step.kind, row.key, row.key2), row.error) for row in rows if has_key(row, tally)]
    messages = [blocked(event, f"cannot be read: {error}") for event, error in events]
    for part, new in write_isolating(messages, step, job, tally) if messages else ():
        count_written(part, new, step, job, tally)


def scope_of(step: Step, job: Job) -> Scope:
    """Return the window of this step in this pass."""
    is_whole = job.is_full or job.is_baseline or not step.is_windowed
    return Scope(now=job.now, since=None if is_whole else job.now - job.conf.LOOKBACK)


def not_before_of(step: Step, job: Job) -> datetime | None:
    """Return the moment before which events are never notified; a baseline marks them like all others."""
    moments = [moment for moment in (as_moment(step.not_before), job.conf.NOT_BEFORE) if moment is not None]
    return None if job.is_baseline else max(moments, default=None)


def breaker_of(step: Step, job: Job) -> int | None:
    """Return the most groups of this step in this pass; None for no limit."""
    if not step.breaker or job.is_baseline:
        return None
    return job.conf.BREAKER if step.breaker is True else step.breaker


def write_events(events: Sequence[Event], step: Step, job: Job, tally: Tally) -> None:
    """Write one chunk of events and count what came of it."""
    tally.candidates += len(events)
    unique: dict[tuple[int, int], Event] = {}
    for event in events:
        if has_key(event, tally) and unique.setdefault((event.key, event.key2), event) is not event:
            note_repeated(event, tally)
    if job.is_baseline:
        messages = [silent(event) for event in unique.values()]
    else:
        messages = make_messages(step, [*unique.values()], fold_local_part=job.conf.FOLD_LOCAL_PART)
    for part, new in write_isolating(messages, step, job, tally):
        count_written(part, new, step, job, tally)


def has_key(found: Event | Unreadable, tally: Tally) -> bool:
    """Whether a candidate has a key that can be stored; one that has none is counted as failed."""
    if is_key(found.key) and is_key(found.key2):
        return True
    # SQLite would store any of it, a text that stands for many events as well.
    tally.failed += 1
    tally.name("failed", f"{found.key!r}/{found.key2!r}: not two 64-bit integers")
    return False


def is_key(value: Any) -> bool:
    """Whether a value can be stored as a key."""
    return type(value) is int and -(2**63) <= value < 2**63


def note_repeated(event: Event, tally: Tally) -> None:
    """Remember a key that the candidate query gave twice."""
    tally.repeated += 1
    tally.name("repeated", f"{event.key}/{event.key2}" if event.key2 else str(event.key))


Written = tuple[Sequence[Message], set[tuple[int, int]]]


def write_isolating(messages: Sequence[Message], step: Step, job: Job, tally: Tally) -> Iterator[Written]:
    """
    Write messages whole; when the database refuses one of them, find it by halving and let it stand as ``blocked``.

    Yields the messages of each committed transaction with the (key, key2) that were new.
    """
    try:
        yield messages, repeating(lambda: write(messages, step, job), job)
    except DatabaseError as error:
        if not job.dialect.is_refusal(error):
            raise
        if len(messages) > 1:
            middle = len(messages) // 2
            for half in (messages[:middle], messages[middle:]):
                yield from write_isolating(half, step, job, tally)
            return
        stand_in = [blocked(messages[0].event, f"refused by the database: {error}")]
        try:
            yield stand_in, repeating(lambda: write(stand_in, step, job), job)
        except DatabaseError as again:
            if not job.dialect.is_refusal(again):
                raise
            # Not even its control row is accepted, so it stays a candidate; the pass says so and goes on.
            tally.failed += 1
            tally.name("failed", f"{messages[0].event.key}: {again}")


def repeating(work: Callable[[], Result], job: Job) -> Result:
    """Do a transaction's work, again when another transaction was in the way, a bounded number of times."""
    for tried in range(1, CHUNK_TRIES_MAX + 1):
        try:
            return work()
        except DatabaseError as error:
            if tried == CHUNK_TRIES_MAX or not job.dialect.is_transient(error):
                raise
            pause = PAUSE_S * 2 ** (tried - 1)
            time.sleep(pause + job.random.uniform(0, pause))
    raise AssertionError("unreachable: the last try returns or raises")


def write(messages: Sequence[Message], step: Step, job: Job) -> set[tuple[int, int]]:
    """
    Write control rows, then the queue rows of those that are new.

    Transaction: its own, durable; rolled back at its end in a dry run.
    """
    connection, dialect = connections[job.using], job.dialect
    with transaction.atomic(using=job.using, durable=True):
        dialect.yield_to_others(connection)
        job.guard()
        new = dialect.insert_controls(connection, step.kind, [control_row(message) for message in messages])
        fresh = [message for message in messages if (message.event.key, message.event.key2) in new]
        if not job.is_baseline:
            ids = [new[message.event.key, message.event.key2] for message in fresh]
            mails = mail_rows(fresh, step, ids)
            tasks = task_rows(fresh, step, ids)
            if mails:
                dialect.insert_mails(connection, job.pass_id, mails)
                dialect.announce(connection)
            if tasks:
                dialect.insert_tasks(connection, job.pass_id, tasks)
        if job.is_dry_run:
            transaction.set_rollback(True, using=job.using)
    return set(new)


def count_written(messages: Iterable[Message], new: set[tuple[int, int]], step: Step, job: Job, tally: Tally) -> None:
    """Add one committed transaction to the tally."""
    for message in messages:
        if (message.event.key, message.event.key2) not in new:
            # Another pass got there first, which is normal. While we hold the lock there is no other pass: then the
            # candidate query has given the key in two chunks.
            if job.is_alone:
                note_repeated(message.event, tally)
            continue
        if job.is_baseline:
            continue
        if message.event.asked_language:
            note_language(message.event, tally)
        if message.state == MailState.BLOCKED:
            tally.blocked += 1
            tally.name("blocked", f"{message.event.key} ({message.problem})")
        else:
            tally.mails += mail_count(message, step)
        tally.tasks += has_task(message, step)
        if job.is_dry_run and len(tally.listed) < LISTED_MAX:
            tally.listed.append(message)


def note_language(event: Event, tally: Tally) -> None:
    """Remember a language that the site does not have, once, unless it has its parent."""
    if not is_parent(event.language, event.asked_language):
        tally.unspoken += 1
        if event.asked_language not in tally.named.get("unspoken", []):
            tally.name("unspoken", event.asked_language)


def repair(step: FlaggedStep, job: Job, tally: Tally) -> None:
    """Raise the flags that an earlier pass left down; rows that others hold must not keep new events waiting."""
    try:
        tally.repaired = mark(step, job)
    except DatabaseError as error:
        if not job.dialect.is_transient(error):
            raise
        tally.warnings.append(f"rows that an earlier pass left could not be marked yet: {error}")


def mark(step: FlaggedStep, job: Job) -> int:
    """
    Raise the flag of rows whose event has had its message; return how many.

    Transaction: one per statement of at most MARK_BATCH rows, outside that of the messages.
    """
    marked = 0
    # Bounded, lest something that takes the flag back keeps the pass, and its lock, for ever.
    for _ in range(MARK_ROUNDS_MAX):
        changed = repeating(lambda: mark_batch(step, job), job)
        marked += changed
        if changed < job.conf.MARK_BATCH or job.is_stopping():
            break
    return marked


def mark_batch(step: FlaggedStep, job: Job) -> int:
    """
    Raise the flag of one batch; return how many rows it had.

    Transaction: its own, durable.
    """
    # The business writes these rows too, in primary-key order like us; the outer UPDATE alone would lock them in the
    # order of its plan.
    rows = step.left_behind(using=job.using).select_for_update().values("pk")
    with transaction.atomic(using=job.using, durable=True):
        job.dialect.yield_to_others(connections[job.using])
        job.guard()
        batch = step.flagged().using(job.using).filter(pk__in=rows[: job.conf.MARK_BATCH])
        return batch.update(**{step.flag: True})


def note_waiting(rest: QuerySet[Any, Any], limit: int, tally: Tally) -> None:
    """Warn that the circuit breaker was reached, with how many wait and since when."""
    waiting = rest.aggregate(count=Count("key"), oldest=Min("event_at"))
    if waiting["count"]:
        tally.is_complete = False
        tally.warnings.append(
            f"circuit breaker: {limit} prepared, {waiting['count']} wait, the oldest since {shown(waiting['oldest'])}"
        )


def shown(moment: datetime | None) -> str:
    """Return a moment for people; events without a time of their own have none."""
    return f"{moment:%Y-%m-%dT%H:%M:%S%z}" if moment else "an unknown time"


def note_oddities(tally: Tally) -> None:
    """Turn what was counted on the way into warnings and errors."""
    if tally.repeated:
        tally.warnings.append(
            f"the candidate query gave {tally.repeated} keys more than once: {tally.names('repeated', tally.repeated)}"
        )
    if tally.unspoken:
        tally.warnings.append(
            f"{tally.unspoken} asked for a language that this site does not have: {', '.join(tally.named['unspoken'])}"
        )
    if tally.blocked:
        tally.warnings.append(f"{tally.blocked} blocked: {tally.names('blocked', tally.blocked)}")
    if tally.repaired:
        tally.warnings.append(f"repaired: {tally.repaired} rows marked whose event already had its message")
    if tally.failed:
        tally.errors.append(f"{tally.failed} not prepared: {tally.names('failed', tally.failed)}")
