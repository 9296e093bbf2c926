"""run_pass: take the lock, open the log, run the steps, prune, close."""

import contextlib
import logging
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from django.db import DatabaseError, Error, connections, router, transaction
from django.db.transaction import TransactionManagementError

from ..checks import faults_of, is_storable_kind
from ..conf import conf
from ..dialects import dialect_of
from ..errors import LockLost, LockUnusable, PassKnown
from ..messages.builder import Message
from ..models import ERROR_CHARS_MAX, KIND_LENGTH_MAX, Outcome, RunLog
from ..notes import Note, english, note
from ..retention import prune_mails
from ..steps import Step, steps_of
from ..text import stored
from .context import PassContext, StepProgress
from .lock import PassLock, holders_of
from .ping import FAIL, START, SUCCESS, ping
from .run_log import PassLog, drop_ended_session
from .writer import prepare

logger = logging.getLogger(__name__)


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
    notes: tuple[Note, ...] = ()


@dataclass
class RunningPass:
    """A pass under way."""

    context: PassContext
    log: PassLog
    reports: list[StepReport] = field(default_factory=list)
    listed: list[Message] = field(default_factory=list)
    errors: list[Note] = field(default_factory=list)
    warnings: list[Note] = field(default_factory=list)

    def report(self, outcome: Outcome, notes: Sequence[Note]) -> PassReport:
        """Return what the pass did."""
        return PassReport(
            pass_id=self.context.pass_id,
            outcome=outcome,
            ms=self.log.elapsed_ms(),
            steps=tuple(self.reports),
            error=english(notes) or None,
            listed=tuple(self.listed),
            notes=tuple(notes),
        )


def run_pass(
    *,
    using: str | None = None,
    kinds: Iterable[str] | None = None,
    wait_s: float = 0,
    is_full: bool = False,
    is_dry_run: bool = False,
    is_baseline: bool = False,
    baseline_since: datetime | None = None,
    is_locking: bool = True,
    is_stopping: Callable[[], bool] = lambda: False,
    now: datetime | None = None,
    pass_id: UUID | None = None,
    atomic: bool = False,
) -> PassReport:
    """
    Run the steps of these kinds (all for None) once, under the pass lock, and log what happened.

    A step that fails is logged and does not stop the others. ``now`` is the database's clock unless given.
    ``baseline_since`` is a baseline of the events since a moment, for a database that was restored.
    ``is_locking`` False leaves the lock alone: each event still has exactly one message, only work may be done twice.

    Transaction: its own, durable, many short ones; refused inside another. With ``atomic`` the caller's instead, as in
    a ``TestCase``: without the pass lock, and nothing is committed before the caller commits.
    Raises: UnknownStep, PassKnown, ImproperlyConfigured, TransactionManagementError; DatabaseError when not even the
    log can be written.
    """
    using = using or router.db_for_write(RunLog)
    connection = connections[using]
    if not atomic and (connection.in_atomic_block or not connection.get_autocommit()):
        raise TransactionManagementError(
            "run_pass commits by itself and cannot run inside a transaction; in a test take a TransactionTestCase, "
            "or pass atomic=True to run in the test's own transaction"
        )
    settings, steps = conf(), steps_of(kinds)
    started = time.monotonic()
    started_at = now or dialect_of(connection).now(connection)
    if pass_id is not None and RunLog.objects.using(using).filter(pass_id=pass_id).exists():
        raise PassKnown(f"pass {pass_id} is in the run log already; a pass has an id of its own")
    pass_id = pass_id or uuid.uuid4()
    lock = PassLock(using=using) if is_locking and not atomic else None
    context = PassContext(
        using=using,
        pass_id=pass_id,
        conf=settings,
        now=started_at,
        is_full=is_full,
        is_dry_run=is_dry_run,
        is_durable=not atomic,
        is_baseline=is_baseline or baseline_since is not None,
        baseline_since=baseline_since,
        guard=(lambda: None) if lock is None or is_dry_run else (lambda: lock.check(pass_id)),
        is_stopping=is_stopping,
    )
    running = RunningPass(context, PassLog(context, started, started_at))
    if atomic:
        with transaction.atomic(using=using):
            return run_steps(running, steps)
    with pinging(context) as pinged:
        before = context.dialect.enter_pass(connection)
        try:
            report = run_steps(running, steps) if lock is None else run_locked(running, steps, lock, wait_s=wait_s)
        finally:
            # A session that has ended took its settings along.
            with contextlib.suppress(Error):
                context.dialect.leave_pass(connection, before)
        pinged.append(report)
    return report


@contextlib.contextmanager
def pinging(context: PassContext) -> Iterator[list[PassReport]]:
    """Tell NOTIFY_PING_URL of a pass and how it ended; a skipped one is neither success nor failure."""
    url, reports = "" if context.is_dry_run else context.conf.PING_URL, list[PassReport]()
    ping(url, START, pass_id=context.pass_id)
    try:
        yield reports
    except BaseException as error:
        ping(url, FAIL, pass_id=context.pass_id, text=type(error).__name__)
        raise
    for report in reports:
        if report.outcome != Outcome.SKIPPED:
            signal = FAIL if report.outcome == Outcome.ERROR else SUCCESS
            ping(url, signal, pass_id=context.pass_id, text=report.outcome.value)


def run_locked(running: RunningPass, steps: Iterable[Step], lock: PassLock, *, wait_s: float) -> PassReport:
    """Run the steps under the pass lock, or log why not."""
    context = running.context
    try:
        answer = lock.acquire(wait_s=wait_s, is_stopping=context.is_stopping)
    except LockUnusable as error:
        return refuse(running, Outcome.ERROR, note("text", text=error))
    if not answer.is_granted:
        holders = holders_of(answer, using=context.using)
        return refuse(running, Outcome.SKIPPED, note("skipped", code=answer.code, holder=holders))
    try:
        try:
            if not context.is_dry_run:
                running.log.close_dead()
        except Error as error:
            drop_ended_session(context.using)
            return refuse(running, Outcome.ERROR, note("dead_not_closed", error=error))
        return run_steps(running, steps)
    finally:
        if warning := lock.release():
            logger.warning("pass %s: %s", context.pass_id, warning.english)
            running.log.add_warning(warning)


def refuse(running: RunningPass, outcome: Outcome, why: Note) -> PassReport:
    """Log a pass that did not start."""
    if outcome == Outcome.ERROR:
        logger.error("pass %s: %s", running.context.pass_id, why.english)
    if not running.context.is_dry_run:
        running.log.write_refused(outcome, [why])
    return running.report(outcome, [why])


def run_steps(running: RunningPass, steps: Iterable[Step]) -> PassReport:
    """Run steps and prune, each failing alone; close the pass."""
    try:
        if not running.context.is_dry_run:
            running.log.open_row(RunLog.WHOLE)
        for step in steps:
            if running.context.is_stopping():
                running.warnings.append(note("stopped_before", step=step.kind))
                break
            if not run_step(running, step):
                break
        else:
            prune(running)
        return close_pass(running)
    except (KeyboardInterrupt, SystemExit) as interruption:
        running.log.close_interrupted(type(interruption).__name__)
        raise


def run_step(running: RunningPass, step: Step) -> bool:
    """Run one step and log it; return whether the pass may go on."""
    context, log = running.context, running.log
    started, name = time.monotonic(), logged_name(step)
    progress, may_go_on, is_full = StepProgress(), True, False
    try:
        is_full = context.baseline_since is None and (
            context.is_full or context.is_baseline or log.is_full_scan_due(name)
        )
        if not context.is_dry_run:
            log.open_row(name)
        progress.errors += [note("text", text=fault) for fault in faults_of(step)]
        if not progress.errors:
            prepare(step, replace(context, is_full=is_full), progress)
    except LockLost as error:
        may_go_on = record_lost_lock(running, progress, error)
    except Exception as error:  # a step that fails must not keep the others from running
        progress.errors.append(exception_note(error))
        may_go_on = is_lock_still_ours(running, progress)
    notes = progress.errors + progress.warnings
    report = StepReport(
        step=name,
        outcome=Outcome.ERROR if progress.errors else Outcome.WARNING if progress.warnings else Outcome.OK,
        candidates=progress.candidates,
        mails=progress.mails,
        tasks=progress.tasks,
        ms=log.elapsed_ms(started),
        error=stored(english(notes), ERROR_CHARS_MAX) or None,
    )
    running.reports.append(report)
    running.listed += progress.listed
    if not context.is_dry_run:
        log.close_row(
            name,
            outcome=report.outcome,
            ms=report.ms,
            notes=notes,
            candidates=report.candidates,
            mails=report.mails,
            tasks=report.tasks,
            # Only a step that really scanned all events may put the next full scan off.
            is_full=is_full and progress.is_complete and not progress.errors,
        )
    return may_go_on


def logged_name(step: Step) -> str:
    """
    Return the name of a step in the log: its kind, or for a kind that cannot be stored what the class is called.

    Under the kind ``pass`` it would close the row of the pass itself.
    """
    return step.kind if is_storable_kind(step.kind) else f"?{type(step).__name__}"[:KIND_LENGTH_MAX]


def is_lock_still_ours(running: RunningPass, progress: StepProgress) -> bool:
    """Get a working session after a failure; return whether the pass still holds its lock and may continue."""
    drop_ended_session(running.context.using)
    try:
        running.context.guard()
    except LockLost as error:
        return record_lost_lock(running, progress, error)
    return True


def record_lost_lock(running: RunningPass, progress: StepProgress, error: LockLost) -> bool:
    """Say in the step and in the pass that the lock was lost; return False: the pass must stop."""
    progress.errors.insert(0, error.note)
    running.errors.append(error.note)
    return False


def exception_note(error: Exception) -> Note:
    """Return what the log says of a failed step: what, then where."""
    return note("exception", error=f"{type(error).__name__}: {error}", trace="".join(traceback.format_exception(error)))


def prune(running: RunningPass) -> None:
    """Prune the run log and a bounded part of the old mails; that this failed is a warning."""
    if running.context.is_dry_run or running.context.is_stopping():
        return
    settings = running.context.conf
    try:
        running.log.prune()
        if settings.MAIL_RETENTION_DAYS is not None:
            prune_mails(
                now=running.log.started_at,
                days=settings.MAIL_RETENTION_DAYS,
                limit=settings.MAIL_PRUNE_BATCH,
                using=running.context.using,
            )
    except LockLost as error:
        running.errors.append(error.note)
    except DatabaseError as error:
        running.warnings.append(note("not_pruned", error=error))


def baseline_notes(context: PassContext) -> list[Note]:
    """Return what the history says of a baseline, which queues nothing although it finds events."""
    if context.baseline_since is not None:
        return [note("baseline_since", since=context.baseline_since)]
    return [note("baseline")] if context.is_baseline else []


def close_pass(running: RunningPass) -> PassReport:
    """Close the pass by what its steps say."""
    reports = running.reports
    errors = running.errors + [note("step_failed", step=r.step) for r in reports if r.outcome == Outcome.ERROR]
    warnings = running.warnings + [note("step_warned", step=r.step) for r in reports if r.outcome == Outcome.WARNING]
    outcome = Outcome.ERROR if errors else Outcome.WARNING if warnings else Outcome.OK
    report = running.report(outcome, errors + warnings)
    if not running.context.is_dry_run:
        counts = {name: sum(getattr(r, name) for r in reports) for name in ("candidates", "mails", "tasks")}
        infos = baseline_notes(running.context)
        running.log.close_row(RunLog.WHOLE, outcome=outcome, ms=report.ms, notes=report.notes, infos=infos, **counts)
    return report
