"""
Control and queue rows, written together; the only writer of both.

A step's candidates are found once, in one statement, then written in chunks: control rows first, and a queue row only
for a control row that this very transaction has made. The unique constraint decides every race.
"""

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, cast

from django.db import DatabaseError, connections, transaction
from django.db.models import Count, Min, QuerySet

from ..messages.builder import Message, blocked, make_messages, reads_event_at, silent
from ..messages.coalesce import coalesce, coalesce_groups, split_last_key
from ..models import Control, MailQueue, MailState, TaskQueue
from ..notes import note
from ..steps import (
    Event,
    FlaggedStep,
    Scope,
    Step,
    breaker_of,
    columns_of,
    event_reader,
    is_parent,
    not_before_of,
    reading_order,
)
from ..text import one_line
from .context import PassContext, StepProgress
from .flags import raise_flags, repair_flags
from .gc_pause import gc_paused
from .reader import Part, Unreadable, as_events, read
from .retry import with_retry
from .rows import control_rows, events_of, has_task, mail_count, mail_rows, task_rows

#: How often a step with a circuit breaker looks for groups to take the places of those that the database refuses.
ROUNDS_MAX = 10
#: How many messages a dry run lists; beyond that it only counts.
LISTED_MAX = 1000
#: Keys per statement, below the 2,100 parameters of SQL Server.
KEYS_PER_STATEMENT = 1000
#: Three parameters each.
COVERED_PER_STATEMENT = 500

Key = tuple[int, int]


def prepare(step: Step, context: PassContext, progress: StepProgress) -> None:
    """
    Prepare every candidate of a step: its control row and its messages, exactly once; count in ``progress``.

    Transaction: its own, durable, one per chunk; what is committed stays when a later chunk fails.
    Raises: LockLost; DatabaseError when a chunk failed for a reason that repeating does not cure.
    """
    try:
        if isinstance(step, FlaggedStep) and not context.is_dry_run:
            repair_flags(step, context, progress)
        prepare_candidates(step, context, progress)
        if isinstance(step, FlaggedStep) and not context.is_dry_run:
            raise_flags(step, context)
    finally:
        progress.add_counted_notes()


def prepare_candidates(step: Step, context: PassContext, progress: StepProgress) -> None:
    """Find the candidates once and write them chunk by chunk; warn when the circuit breaker leaves some waiting."""
    # A baseline marks all events, also those that are never notified.
    not_before = None if context.is_baseline else not_before_of(step, context.conf)
    found = step.candidates(scope_of(step, context), not_before=not_before, using=context.using)
    limit = None if context.is_baseline else breaker_of(step, context.conf)
    if step.coalesce and not context.is_baseline:
        if not write_groups(found, step, context, progress, groups_max=limit):
            rest = found[progress.candidates :] if context.is_dry_run else found.order_by()
            add_waiting_note(rest, limit or 0, progress)
        return
    if limit is None:
        write_found(found, step, context, progress)
        return
    offset, places = 0, limit
    for _ in range(ROUNDS_MAX):
        failed_before = progress.failed
        is_going_on = write_found(found[offset : offset + places], step, context, progress)
        # Groups that the database refuses outright are found again, the oldest first; they must not keep the places of
        # those behind them. In a dry run all are found again.
        places = progress.failed - failed_before
        offset = progress.candidates if context.is_dry_run else progress.failed
        if not places or not is_going_on:
            break
    if progress.candidates >= limit:
        add_waiting_note(found[offset:] if context.is_dry_run else found.order_by(), limit, progress)


def write_found(found: QuerySet[Any, Any], step: Step, context: PassContext, progress: StepProgress) -> bool:
    """Run the candidate query once and write its rows chunk by chunk; return False when asked to stop half-way."""
    names = reading_order(
        name for name in columns_of(found) if name != "event_at" or reads_event_at(step, using=context.using)
    )
    as_event = event_reader(step.kind, names)
    parts = read(found, names=names, rows=context.conf.CHUNK_ROWS, dialect=context.dialect)
    with closing(cast(Generator[Part], parts)) as read_parts:
        for rows, unreadable in read_parts:
            if has_to_stop(context, progress):
                return False
            with gc_paused():
                events, faulty = as_events(rows, names, as_event)
                write_events(events, step, context, progress)
            write_unreadable([*unreadable, *faulty], step, context, progress)
    return True


def write_groups(
    found: QuerySet[Any, Any], step: Step, context: PassContext, progress: StepProgress, *, groups_max: int | None
) -> bool:
    """
    Run the candidate query once and write its rows chunk by chunk, those of one key as one message.

    Return False when ``groups_max`` messages were reached and there may be more.
    """
    names = reading_order(columns_of(found))
    as_event = event_reader(step.kind, names)
    parts = read(found, names=names, rows=context.conf.CHUNK_ROWS, dialect=context.dialect)
    with closing(cast(Generator[Part], parts)) as read_parts:
        held: list[Event] = []
        for rows, unreadable in read_parts:
            if has_to_stop(context, progress):
                return True
            events, faulty = as_events(rows, names, as_event)
            known = {key_of(event) for event in held}
            # After a row that cannot be read, reading restarts with what has not been written.
            whole, held = split_last_key([*held, *(event for event in events if key_of(event) not in known)])
            if not write_limited(whole, step, context, progress, groups_max=groups_max):
                return False
            write_unreadable([*unreadable, *faulty], step, context, progress)
        return has_to_stop(context, progress) or write_limited(held, step, context, progress, groups_max=groups_max)


def has_to_stop(context: PassContext, progress: StepProgress) -> bool:
    """Whether the pass was asked to stop; logged."""
    if not context.is_stopping():
        return False
    progress.is_complete = False
    progress.warnings.append(note("stopped_after", count=progress.candidates))
    return True


def write_limited(
    events: Sequence[Event], step: Step, context: PassContext, progress: StepProgress, *, groups_max: int | None
) -> bool:
    """Write events of whole keys as one message each; return False when the circuit breaker left some of them."""
    groups = coalesce_groups([event for event in events if has_key(event, progress)])
    while groups:
        places = len(groups) if groups_max is None else groups_max - progress.messages
        if places <= 0:
            return False
        with gc_paused():
            write_prepared(groups[:places], step, context, progress)
        groups = groups[places:]
    return True


def write_prepared(events: Sequence[Event], step: Step, context: PassContext, progress: StepProgress) -> None:
    """Write coalesced events, and count the results."""
    progress.candidates += sum(len(event.members) for event in events)
    messages = make_messages(step, events, fold_local_part=context.conf.FOLD_LOCAL_PART, using=context.using)
    for part, new in write_isolating(messages, step, context, progress):
        count_written(part, new, step, context, progress)


def write_unreadable(rows: Sequence[Unreadable], step: Step, context: PassContext, progress: StepProgress) -> None:
    """Write the control row and a visible stand-in of each candidate that cannot be read."""
    progress.candidates += len(rows)
    events = [(Event(step.kind, row.key, row.key2), row.error) for row in rows if has_key(row, progress)]
    messages = [blocked(event, note("cannot_be_read", error=one_line(error))) for event, error in events]
    for part, new in write_isolating(messages, step, context, progress) if messages else ():
        count_written(part, new, step, context, progress)


def scope_of(step: Step, context: PassContext) -> Scope:
    """Return the window of this step in this pass."""
    if context.baseline_since is not None:
        return Scope(now=context.now, since=context.baseline_since)
    is_whole = context.is_full or context.is_baseline or not step.is_windowed
    return Scope(now=context.now, since=None if is_whole else context.now - context.conf.LOOKBACK)


def write_events(events: Sequence[Event], step: Step, context: PassContext, progress: StepProgress) -> None:
    """Write one chunk of events and count the results."""
    progress.candidates += len(events)
    unique: dict[Key, Event] = {}
    for event in events:
        if has_key(event, progress) and unique.setdefault(key_of(event), event) is not event:
            count_repeated(event, progress)
    if context.is_baseline:
        messages = [silent(event) for event in unique.values()]
    else:
        messages = make_messages(
            step, [*unique.values()], fold_local_part=context.conf.FOLD_LOCAL_PART, using=context.using
        )
    for part, new in write_isolating(messages, step, context, progress):
        count_written(part, new, step, context, progress)


def has_key(found: Event | Unreadable, progress: StepProgress) -> bool:
    """Whether a candidate has a key that can be stored; one that has none is counted as failed."""
    if is_key(found.key) and is_key(found.key2):
        return True
    # SQLite would store any of it, a text that stands for many events as well.
    progress.failed += 1
    progress.add_name("failed", f"{found.key!r}/{found.key2!r}: not two 64-bit integers")
    return False


def is_key(value: Any) -> bool:
    """Whether a value can be stored as a key."""
    return type(value) is int and -(2**63) <= value < 2**63


def count_repeated(event: Event, progress: StepProgress) -> None:
    """Count a key that the candidate query gave twice."""
    progress.repeated += 1
    progress.add_name("repeated", f"{event.key}/{event.key2}" if event.key2 else str(event.key))


Written = tuple[Sequence[Message], set[Key]]


def write_isolating(
    messages: Sequence[Message], step: Step, context: PassContext, progress: StepProgress
) -> Iterator[Written]:
    """
    Write messages whole; when the database refuses one of them, find it by halving and let it stand as ``blocked``.

    A statement that takes longer than the site allows (statement_timeout) is tried with half as many messages.

    Yields the messages of each committed transaction with the (key, key2) that were new.
    """
    try:
        yield messages, with_retry(lambda: write(messages, step, context), context)
    except DatabaseError as error:
        is_timeout = context.dialect.is_timeout(error)
        if not (is_timeout or context.dialect.is_refusal(error)) or (is_timeout and len(messages) == 1):
            raise
        if len(messages) > 1:
            middle = len(messages) // 2
            for half in (messages[:middle], messages[middle:]):
                yield from write_isolating(half, step, context, progress)
            return
        stand_in = [blocked(messages[0].event, note("refused_by_database", error=one_line(str(error))))]
        try:
            yield stand_in, with_retry(lambda: write(stand_in, step, context), context)
        except DatabaseError as again:
            if not context.dialect.is_refusal(again):
                raise
            # Not even its control row is accepted, so it stays a candidate; the pass says so and goes on.
            progress.failed += 1
            progress.add_name("failed", f"{messages[0].event.key}: {again}")


def write(messages: Sequence[Message], step: Step, context: PassContext) -> set[Key]:
    """
    Write control rows, then the queue rows of those that are new.

    Transaction: its own, durable; rolled back at its end in a dry run.
    """
    connection, dialect = connections[context.using], context.dialect
    with transaction.atomic(using=context.using, durable=context.is_durable):
        dialect.yield_to_others(connection)
        context.guard()
        new = dialect.insert_controls(connection, step.kind, control_rows(messages))
        fresh = [found for message in messages if (found := only_new(message, new, step, context)) is not None]
        if not context.is_baseline:
            ids = [new[key_of(message.event)] for message in fresh]
            record_covered(fresh, new, context)
            mails = mail_rows(fresh, step, ids)
            tasks = task_rows(fresh, step, ids)
            if mails:
                dialect.insert_mails(connection, context.pass_id, mails)
                dialect.announce(connection)
            if tasks:
                dialect.insert_tasks(connection, context.pass_id, tasks)
        if context.is_dry_run:
            transaction.set_rollback(True, using=context.using)
    return set(new)


def only_new(message: Message, new: Mapping[Key, int], step: Step, context: PassContext) -> Message | None:
    """Return a message of those of its events that are new: itself if all are, None if none is."""
    events = events_of(message)
    fresh = [event for event in events if key_of(event) in new]
    if len(fresh) == len(events):
        return message
    if not fresh:
        return None
    # Another pass was faster with some of a key's events: the others make a message of their own.
    [rest] = make_messages(step, [coalesce(fresh)], fold_local_part=context.conf.FOLD_LOCAL_PART, using=context.using)
    return rest


def record_covered(messages: Sequence[Message], new: Mapping[Key, int], context: PassContext) -> None:
    """Write on the control rows of events that have no message of their own which one tells of them."""
    rows = [
        Control(pk=new[key_of(event)], covered_by_id=new[key_of(message.event)])
        for message in messages
        for event in message.event.members[:-1]
    ]
    if rows:
        Control._base_manager.using(context.using).bulk_update(rows, ["covered_by"], batch_size=COVERED_PER_STATEMENT)


def count_written(
    messages: Sequence[Message], new: Collection[Key], step: Step, context: PassContext, progress: StepProgress
) -> None:
    """Add one committed transaction to the progress."""
    known = [event for message in messages for event in events_of(message) if key_of(event) not in new]
    # Another pass got there first, which is normal, or the candidate query has given the key in two chunks.
    ours = written_by_this_pass(known, step, context) if known and not context.is_baseline else ()
    for event in known:
        if key_of(event) in ours:
            count_repeated(event, progress)
    if context.is_baseline:
        return
    for message in messages:
        if not any(key_of(event) in new for event in events_of(message)):
            continue
        progress.messages += 1
        if message.event.asked_language:
            count_language(message.event, progress)
        if message.state == MailState.BLOCKED:
            progress.blocked += 1
            progress.add_name("blocked", f"{message.event.key} ({message.problem})")
        else:
            progress.mails += mail_count(message, step)
        progress.tasks += has_task(message, step)
        if context.is_dry_run and len(progress.listed) < LISTED_MAX:
            progress.listed.append(message)


def count_language(event: Event, progress: StepProgress) -> None:
    """Count an event whose language the site does not have, nor its parent; name each language once."""
    if not is_parent(event.language, event.asked_language):
        progress.unspoken += 1
        if event.asked_language not in progress.named.get("unspoken", []):
            progress.add_name("unspoken", event.asked_language)


def key_of(event: Event) -> Key:
    """Return what identifies an event within its kind."""
    return event.key, event.key2


def written_by_this_pass(events: Sequence[Event], step: Step, context: PassContext) -> set[Key]:
    """Return the keys of those of these events whose message this very pass has queued."""
    queue = (MailQueue if step.template else TaskQueue)._base_manager.using(context.using)
    rows, found = queue.filter(pass_id=context.pass_id, control__kind=step.kind), set[Key]()
    for start in range(0, len(events), KEYS_PER_STATEMENT):
        keys = [event.key for event in events[start : start + KEYS_PER_STATEMENT]]
        found.update(rows.filter(control__key__in=keys).values_list("control__key", "control__key2"))
    return found


def add_waiting_note(rest: QuerySet[Any, Any], limit: int, progress: StepProgress) -> None:
    """Warn that the circuit breaker was reached, with how many wait and since when."""
    waiting = rest.aggregate(count=Count("key"), oldest=Min("event_at"))
    if waiting["count"]:
        progress.is_complete = False
        oldest = waiting["oldest"] or "an unknown time"
        progress.warnings.append(note("breaker", prepared=limit, waiting=waiting["count"], oldest=oldest))
