"""run_pass: lock, open the log row, steps, prune, close."""

import contextlib
import logging
import os
import socket
import time
import traceback
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import DatabaseError, Error, connections, router
from django.db.models import Case, F, Value, When
from django.db.transaction import TransactionManagementError

from ..checks import faults_of, is_storable_kind
from ..conf import conf
from ..dialects import dialect_of
from ..dialects.base import LockAnswer
from ..errors import LockLost, LockUnusable, PassKnown
from ..messages.builder import Message
from ..models import ERROR_CHARS_MAX, KIND_LENGTH_MAX, Outcome, RunLog
from ..steps import Step, steps_of
from ..text import stored
from .lock import PassLock, describe_holder
from .writer import Job, Tally, prepare

logger = logging.getLogger(__name__)

#: Rows per statement when the run log is pruned: below SQL Server's 5,000 for lock escalation, a short wait anywhere.
PRUNE_ROWS = 2000


@dataclass(frozen=True)
class StepReport:
    """What one step did."""

    step: str
    outcome: Outcome
    candidates: int
    mails: int
    tasks: int
    ms: int
    error: str | None


@dataclass(frozen=True)
class PassReport:
    """What one pass did; ``listed`` is what a dry run would have queued."""

    pass_id: UUID
    outcome: Outcome
    ms: int
    steps: tuple[StepReport, ...] = ()
    error: str | None = None
    listed: tuple[Message, ...] = ()


@dataclass
class Run:
    """A pass under way."""

    job: Job
    started: float
    started_at: datetime
    reports: list[StepReport] = field(default_factory=list)
    listed: list[Message] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    #: When each row of the log was opened, by its step.
    opened_at: dict[str, datetime] = field(default_factory=dict)

    def elapsed_ms(self, since: float | None = None) -> int:
        """Return the milliseconds since a reading of the monotonic clock; never negative."""
        return round((time.monotonic() - (self.started if since is None else since)) * 1000)


def run_pass(
    *,
    using: str | None = None,
    kinds: Iterable[str] | None = None,
    wait_s: float = 0,
    is_full: bool = False,
    is_dry_run: bool = False,
    is_baseline: bool = False,
    is_locking: bool = True,
    is_stopping: Callable[[], bool] = lambda: False,
    now: datetime | None = None,
    pass_id: UUID | None = None,
) -> PassReport:
    """
    Run the steps of these kinds (all for None) once, under the pass lock, and log what happened.

    A step that fails is logged and does not stop the others. ``now`` is the database's clock unless given.
    ``is_locking`` False leaves the lock alone: each event still has exactly one message, only work may be done twice.

    Transaction: its own, durable, many short ones; refused inside another.
    Raises: UnknownStep, PassKnown, ImproperlyConfigured, TransactionManagementError; DatabaseError when not even the
    log can be written.
    """
    using = using or router.db_for_write(RunLog)
    connection = connections[using]
    if connection.in_atomic_block or not connection.get_autocommit():
        raise TransactionManagementError("run_pass commits by itself and cannot run inside a transaction")
    settings, steps = conf(), steps_of(kinds)
    started = time.monotonic()
    started_at = now or dialect_of(connection).now(connection)
    if pass_id is not None and RunLog.objects.using(using).filter(pass_id=pass_id).exists():
        raise PassKnown(f"pass {pass_id} is in the run log already; a pass has an id of its own")
    pass_id = pass_id or uuid.uuid4()
    lock = PassLock(using=using) if is_locking else None
    job = Job(
        using=using,
        pass_id=pass_id,
        conf=settings,
        now=started_at,
        is_full=is_full,
        is_dry_run=is_dry_run,
        is_baseline=is_baseline,
        guard=(lambda: None) if lock is None or is_dry_run else (lambda: lock.check(pass_id)),
        is_alone=lock is not None,
        is_stopping=is_stopping,
    )
    run = Run(job=job, started=started, started_at=started_at)
    before = job.dialect.enter_pass(connection)
    try:
        return run_steps(run, steps) if lock is None else run_locked(run, steps, lock, wait_s=wait_s)
    finally:
        # A session that is gone took its settings along.
        with contextlib.suppress(Error):
            job.dialect.leave_pass(connection, before)


def run_locked(run: Run, steps: Iterable[Step], lock: PassLock, *, wait_s: float) -> PassReport:
    """Run the steps under the pass lock, or log why not."""
    try:
        answer = lock.acquire(wait_s=wait_s, is_stopping=run.job.is_stopping)
    except LockUnusable as error:
        return refuse(run, Outcome.ERROR, f"{error}")
    if not answer.is_granted:
        return refuse(run, Outcome.SKIPPED, skipped_text(answer, using=run.job.using))
    try:
        try:
            if not run.job.is_dry_run:
                close_dead(run)
        except Error as error:
            drop_ended_session(run.job.using)
            return refuse(run, Outcome.ERROR, f"the rows of dead passes could not be closed: {error}")
        return run_steps(run, steps)
    finally:
        if problem := lock.release():
            note_release(run, problem)


def skipped_text(answer: LockAnswer, *, using: str) -> str:
    """Return what the log says of a pass that found the lock busy."""
    return f"SKIPPED: lock code {answer.code}, held by {describe_holder(answer, using=using)}"


def refuse(run: Run, outcome: Outcome, text: str) -> PassReport:
    """Log a pass that did not start."""
    if outcome == Outcome.ERROR:
        logger.error("pass %s: %s", run.job.pass_id, text)
    if not run.job.is_dry_run:
        # One statement: a row that says running, if only for a moment, would be taken for the holder of the lock.
        ms = run.elapsed_ms()
        ended_at = run.started_at + timedelta(milliseconds=ms)
        open_row(run, RunLog.WHOLE, outcome=outcome, ms=ms, ended_at=ended_at, error=stored(text, ERROR_CHARS_MAX))
    return PassReport(run.job.pass_id, outcome, run.elapsed_ms(), error=text)


def close_dead(run: Run) -> None:
    """Close the rows of passes that ended without a word: we hold the lock, so none of them is running."""
    RunLog.objects.using(run.job.using).running().exclude(pass_id=run.job.pass_id).update(
        outcome=Outcome.ERROR,
        # A clock that was set back must not make a duration negative.
        ended_at=Case(When(started_at__gt=run.started_at, then=F("started_at")), default=Value(run.started_at)),
        error="died: the process ended without closing its pass",
    )


def run_steps(run: Run, steps: Iterable[Step]) -> PassReport:
    """Run steps and prune, each failing alone; close the pass."""
    try:
        if not run.job.is_dry_run:
            open_row(run, RunLog.WHOLE)
        for step in steps:
            if run.job.is_stopping():
                run.warnings.append(f"stopped on request before step {step.kind}")
                break
            if not run_step(run, step):
                break
        else:
            prune(run)
        return close_pass(run)
    except (KeyboardInterrupt, SystemExit) as interruption:
        note_interrupted(run, type(interruption).__name__)
        raise


def note_interrupted(run: Run, name: str) -> None:
    """Close the rows of a pass that is interrupted in the middle: they must not say running until the next pass."""
    closed = {report.step for report in run.reports}
    # Should the session have gone, too, the next pass finds them.
    with contextlib.suppress(Error):
        drop_ended_session(run.job.using)
        for step in [step for step in run.opened_at if step not in closed]:
            since = run.opened_at[step] - run.started_at
            ms = run.elapsed_ms() - since // timedelta(milliseconds=1)
            close_row(run, step, outcome=Outcome.ERROR, ms=ms, error=f"interrupted: {name}")


def run_step(run: Run, step: Step) -> bool:
    """Run one step and log it; return whether the pass may go on."""
    job, started, name = run.job, time.monotonic(), logged_name(step)
    tally, may_go_on, is_full = Tally(), True, False
    try:
        is_full = job.is_full or job.is_baseline or is_full_due(run, name)
        if not job.is_dry_run:
            open_row(run, name)
        tally.errors += faults_of(step)
        if not tally.errors:
            prepare(step, replace(job, is_full=is_full), tally)
    except LockLost as error:
        may_go_on = note_lost(run, tally, error)
    except Exception as error:  # a step that fails must not keep the others from running
        tally.errors.append(failure_text(error))
        may_go_on = is_still_ours(run, tally)
    report = StepReport(
        step=name,
        outcome=Outcome.ERROR if tally.errors else Outcome.WARNING if tally.warnings else Outcome.OK,
        candidates=tally.candidates,
        mails=tally.mails,
        tasks=tally.tasks,
        ms=run.elapsed_ms(started),
        error=stored("; ".join(tally.errors + tally.warnings), ERROR_CHARS_MAX) or None,
    )
    run.reports.append(report)
    run.listed += tally.listed
    if not job.is_dry_run:
        # Only a step that really looked at all may push the next full look away.
        close_row(
            run,
            name,
            outcome=report.outcome,
            ms=report.ms,
            error=report.error,
            candidates=report.candidates,
            mails=report.mails,
            tasks=report.tasks,
            is_full=is_full and tally.is_complete and not tally.errors,
        )
    return may_go_on


def logged_name(step: Step) -> str:
    """
    Return the name of a step in the log: its kind, or for a kind that cannot be stored what the class is called.

    Under the kind ``pass`` it would close the row of the pass itself.
    """
    return step.kind if is_storable_kind(step.kind) else f"?{type(step).__name__}"[:KIND_LENGTH_MAX]


def is_still_ours(run: Run, tally: Tally) -> bool:
    """Get a session that works after a failure; return whether the pass still has its lock and may go on."""
    drop_ended_session(run.job.using)
    try:
        run.job.guard()
    except LockLost as error:
        return note_lost(run, tally, error)
    return True


def note_lost(run: Run, tally: Tally, error: LockLost) -> bool:
    """Say in the step and in the pass that the lock was lost; return False: the pass must stop."""
    tally.errors.insert(0, str(error))
    run.errors.append(str(error))
    return False


def is_full_due(run: Run, step: str) -> bool:
    """Whether the step last looked at all events longer ago than FULL_EVERY, or never."""
    since = run.started_at - run.job.conf.FULL_EVERY
    # A row from the future (the clock was set back) says nothing: believing it would put the next full look off.
    return not RunLog.objects.using(run.job.using).full_between(step, since, run.started_at).exists()


def failure_text(error: Exception) -> str:
    """Return what the log says of a failed step: what, then where."""
    return f"{type(error).__name__}: {error}\n{''.join(traceback.format_exception(error))}"


def open_row(run: Run, step: str, *, outcome: Outcome = Outcome.RUNNING, **closed: Any) -> None:
    """Write a row with who runs it; it says running unless all that closes it is given."""
    since = 0 if step == RunLog.WHOLE else run.elapsed_ms()
    run.opened_at[step] = run.started_at + timedelta(milliseconds=since)
    log_surely(
        run,
        lambda: RunLog.objects.using(run.job.using).create(
            pass_id=run.job.pass_id,
            step=step,
            started_at=run.opened_at[step],
            outcome=outcome,
            **closed,
            host=socket.gethostname(),
            pid=os.getpid(),
        ),
    )


def close_row(run: Run, step: str, *, outcome: Outcome, ms: int, error: str | None, **counts: Any) -> None:
    """Close a row, even one that another pass has closed because it took us for dead."""
    # Reckoned here: mssql-django adds a duration to a column in whole seconds.
    ended_at = run.opened_at.get(step, run.started_at) + timedelta(milliseconds=ms)
    rows = RunLog.objects.using(run.job.using).filter(pass_id=run.job.pass_id, step=step)
    log_surely(
        run,
        lambda: rows.update(
            outcome=outcome,
            ms=ms,
            ended_at=ended_at,
            error=None if error is None else stored(error, ERROR_CHARS_MAX),
            **counts,
        ),
    )


def log_surely(run: Run, write: Callable[[], object]) -> None:
    """Write to the log; once more on a new session when the old one has ended, for that is what the log must tell."""
    try:
        write()
    except Error:
        if not drop_ended_session(run.job.using):
            raise
        write()


def drop_ended_session(using: str) -> bool:
    """Close the connection if its session has ended; return whether it had, and a new one will be opened."""
    connection = connections[using]
    # Not close_if_unusable_or_obsolete(): with CONN_MAX_AGE 0 every session is obsolete, and the lock goes with it.
    if connection.connection is None or not connection.is_usable():
        connection.close()
        return True
    return False


def prune(run: Run) -> None:
    """Delete expired run-log rows, a bounded number, in short statements by key range."""
    job = run.job
    if job.is_dry_run or job.is_stopping():
        return
    log, left = RunLog.objects.using(job.using), job.conf.LOG_PRUNE_BATCH
    cutoff = run.started_at - timedelta(days=job.conf.LOG_RETENTION_DAYS)
    try:
        while left > 0:
            # Also the last look at the lock: whether it was ours until the end.
            job.guard()
            ids = sorted(log.expired(cutoff).values_list("pk", flat=True)[: min(PRUNE_ROWS, left)])
            if not ids:
                return
            rows = log.filter(pk__gte=ids[0], pk__lte=ids[-1])
            if ids[-1] - ids[0] + 1 > len(ids):
                rows = rows.filter(pk__in=ids)
            rows.delete()
            left -= len(ids)
    except LockLost as error:
        run.errors.append(str(error))
    except DatabaseError as error:
        run.warnings.append(f"the run log was not pruned: {error}")


def close_pass(run: Run) -> PassReport:
    """Close the pass by what its steps say."""
    errors = run.errors + [f"step {r.step} failed" for r in run.reports if r.outcome == Outcome.ERROR]
    warnings = run.warnings + [f"step {r.step} has warnings" for r in run.reports if r.outcome == Outcome.WARNING]
    outcome = Outcome.ERROR if errors else Outcome.WARNING if warnings else Outcome.OK
    ms, text = run.elapsed_ms(), "; ".join(errors + warnings) or None
    if not run.job.is_dry_run:
        counts = {name: sum(getattr(r, name) for r in run.reports) for name in ("candidates", "mails", "tasks")}
        close_row(run, RunLog.WHOLE, outcome=outcome, ms=ms, error=text, **counts)
    return PassReport(run.job.pass_id, outcome, ms, tuple(run.reports), text, tuple(run.listed))


def note_release(run: Run, problem: str) -> None:
    """Say that the lock could not be released, without hiding an earlier error."""
    logger.warning("pass %s: %s", run.job.pass_id, problem)
    with contextlib.suppress(DatabaseError):
        rows = RunLog.objects.using(run.job.using).filter(pass_id=run.job.pass_id, step=RunLog.WHOLE)
        rows.filter(error__isnull=True).update(error=problem, outcome=Outcome.WARNING)
