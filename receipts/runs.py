"""
Runs of ``reconcile --all``: requested by a person, carried out by a process of its own, observed through one row.

A unique constraint allows one running run per scope, and each update of its row repeats that it is running. The
heartbeat of a process that was killed stops; the next request closes its row.
"""

import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta

from django.db import DatabaseError, IntegrityError, connections, router, transaction

from kwit.db.fields import UtcNow

from .errors import UnknownKind
from .models import ReconciliationRun
from .querysets import RunOutcome
from .reconcile import compare_receipt, count_receipts, read_headers, record_reconciliation

#: Seconds between two heartbeats of a run; a page that shows it needs no more.
BEAT_S = 1.0
#: After this long without a beat its process is taken for dead: longer than SQLite's busy timeout, and than any lock
#: that one receipt may wait for. One that wakes up later finds its row closed, and stops.
DIED_AFTER = timedelta(seconds=120)
#: Characters of an error that are kept.
ERROR_CHARS_MAX = 2000


@dataclass
class Tally:
    """How far a run has come."""

    done: int = 0
    differing: int = 0
    undeclared: int = 0


def scope_of(tenants: Collection[str] | None) -> str:
    """Return what stands for exactly these tenants; empty for all."""
    if tenants is None:
        return ""
    return hashlib.sha256(json.dumps(sorted(tenants)).encode()).hexdigest()


def ask_for_run(
    *, tenants: Collection[str] | None, actor: str, using: str | None = None
) -> tuple[ReconciliationRun, bool]:
    """
    Ask for a comparison of all receipts of these tenants; return the run, and whether it is a new one.

    When one is under way for the same tenants, that is returned; one whose process has died is closed first.

    Transaction: none of its own; each write is committed at once when the caller is in none.
    """
    alias, scope = using or router.db_for_write(ReconciliationRun), scope_of(tenants)
    runs = ReconciliationRun.objects.using(alias)
    values = {"scope": scope, "tenants": None if tenants is None else sorted(tenants), "actor": actor}
    while True:
        try:
            with transaction.atomic(using=alias):
                return runs.create(**values), True
        except IntegrityError:
            running = runs.filter(scope=scope, outcome=RunOutcome.RUNNING).first()
            if running is None:
                continue  # it has ended since
            if not has_died(running) or not runs.try_close_dead(running.pk, beat_at=running.beat_at):
                return running, False


def has_died(run: ReconciliationRun) -> bool:
    """Whether the process of a run that is under way has not been heard of for long, by the database's clock."""
    alias = run._state.db or router.db_for_read(ReconciliationRun)
    found = ReconciliationRun.objects.using(alias).filter(pk=run.pk, outcome=RunOutcome.RUNNING)
    row = found.values_list("beat_at", UtcNow()).first()
    return row is not None and row[1] - row[0] > DIED_AFTER


def carry_out(
    pk: int,
    *,
    using: str | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> ReconciliationRun:
    """
    Compare every receipt of a run that was asked for, keep each result, and close the run; return it.

    A receipt of a kind that nobody declares is counted and passed over. Asked to stop, it finishes the receipt in hand.

    Transaction: one for each receipt.
    Raises: LookupError when there is no such run to begin.
    """
    alias = using or router.db_for_write(ReconciliationRun)
    runs = ReconciliationRun.objects.using(alias)
    run = runs.filter(pk=pk).first()
    if run is None:
        raise LookupError(f"no run {pk} was asked for")
    total = count_receipts(tenants=run.tenants, using=alias)
    if not runs.try_begin(pk, host=socket.gethostname(), pid=os.getpid(), total=total):
        raise LookupError(f"run {pk} has begun or ended already")
    tally = Tally()
    try:
        outcome = compare_all(run, tally, alias=alias, is_stopping=is_stopping, clock=clock)
    except Exception as error:
        close_failed(pk, tally, error, alias)
        raise
    runs.try_beat(pk, **vars(tally))
    runs.try_end(pk, outcome=outcome)
    ended: ReconciliationRun = runs.get(pk=pk)
    return ended


def compare_all(
    run: ReconciliationRun,
    tally: Tally,
    *,
    alias: str,
    is_stopping: Callable[[], bool],
    clock: Callable[[], float],
) -> RunOutcome:
    """Compare receipt by receipt; return how it ended."""
    runs, next_beat = ReconciliationRun.objects.using(alias), clock() + BEAT_S
    for change_id, kind, tenant in read_headers(tenants=run.tenants, using=alias):
        if is_stopping():
            return RunOutcome.STOPPED
        try:
            result = compare_receipt(change_id, kind, tenant, alias)
        except UnknownKind:
            tally.undeclared += 1
        else:
            record_reconciliation(result, actor=run.actor, using=alias)
            tally.differing += not result.is_match
        tally.done += 1
        if clock() >= next_beat:
            if not runs.try_beat(run.pk, **vars(tally)):
                return RunOutcome.DIED  # somebody has closed it, for want of beats
            next_beat = clock() + BEAT_S
    return RunOutcome.DONE


def close_failed(pk: int, tally: Tally, error: Exception, alias: str) -> None:
    """Write down that a run has failed, if the database still lets us: else it is found dead later."""
    text = f"{type(error).__name__}: {error}".replace("\x00", "")[:ERROR_CHARS_MAX]
    runs = ReconciliationRun.objects.using(alias)
    try:
        runs.try_beat(pk, **vars(tally))
        runs.try_end(pk, outcome=RunOutcome.FAILED, error=text)
    except DatabaseError:
        connections[alias].close()
