"""The run log: a row per pass and per step, opened, closed, pruned; closed for the passes that died."""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import Error, connections
from django.db.models import Case, F, Value, When

from ..models import ERROR_CHARS_MAX, Outcome, RunLog
from ..notes import Note, as_data, english, note
from ..text import stored
from .context import PassContext

#: Rows per statement when the run log is pruned: below SQL Server's 5,000 for lock escalation, a short wait anywhere.
PRUNE_ROWS = 2000


@dataclass
class PassLog:
    """The log of one pass: its rows, by step, and the clock that measures them."""

    context: PassContext
    started: float
    started_at: datetime
    #: When each row was opened, by its step.
    opened_at: dict[str, datetime] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)

    def elapsed_ms(self, since: float | None = None) -> int:
        """Return the milliseconds since a reading of the monotonic clock; never negative."""
        return round((time.monotonic() - (self.started if since is None else since)) * 1000)

    def open_row(self, step: str, *, outcome: Outcome = Outcome.RUNNING, **closed: Any) -> None:
        """Write a row with who runs it; it says running unless all that closes it is given."""
        using = self.context.using
        since = 0 if step == RunLog.WHOLE else self.elapsed_ms()
        self.opened_at[step] = self.started_at + timedelta(milliseconds=since)
        write_with_reconnect(
            using,
            lambda: RunLog.objects.using(using).create(
                pass_id=self.context.pass_id,
                step=step,
                started_at=self.opened_at[step],
                outcome=outcome,
                **closed,
                host=socket.gethostname(),
                pid=os.getpid(),
            ),
        )

    def close_row(
        self, step: str, *, outcome: Outcome, ms: int, notes: Sequence[Note], infos: Sequence[Note] = (), **counts: Any
    ) -> None:
        """
        Close a row, even one that another pass has closed because it took us for dead.

        ``infos`` are said of a run that needs neither error nor warning: they stand in ``notes`` only.
        """
        using = self.context.using
        # Computed here: mssql-django adds a duration to a column in whole seconds.
        ended_at = self.opened_at.get(step, self.started_at) + timedelta(milliseconds=ms)
        rows = RunLog.objects.using(using).filter(pass_id=self.context.pass_id, step=step)
        text = text_of(notes) | {"notes": as_data([*infos, *notes])}
        values = {"outcome": outcome, "ms": ms, "ended_at": ended_at, **text, **counts}
        write_with_reconnect(using, lambda: rows.update(**values))
        self.closed.add(step)

    def write_refused(self, outcome: Outcome, notes: Sequence[Note]) -> None:
        """Write the row of a pass that did not start."""
        # One statement: a row that says running, if only for a moment, would be taken for the holder of the lock.
        ms = self.elapsed_ms()
        ended_at = self.started_at + timedelta(milliseconds=ms)
        self.open_row(RunLog.WHOLE, outcome=outcome, ms=ms, ended_at=ended_at, **text_of(notes))

    def close_dead(self) -> None:
        """Close the rows of passes that ended without closing them: we hold the lock, so none of them is running."""
        RunLog.objects.using(self.context.using).running().exclude(pass_id=self.context.pass_id).update(
            outcome=Outcome.ERROR,
            # A clock that was set back must not make a duration negative.
            ended_at=Case(When(started_at__gt=self.started_at, then=F("started_at")), default=Value(self.started_at)),
            **text_of([note("died")]),
        )

    def close_interrupted(self, signal: str) -> None:
        """Close the rows of a pass that is interrupted: they must not say running until the next pass."""
        # Should the session have ended, too, the next pass finds them.
        with contextlib.suppress(Error):
            drop_ended_session(self.context.using)
            for step in [step for step in self.opened_at if step not in self.closed]:
                since = self.opened_at[step] - self.started_at
                ms = self.elapsed_ms() - since // timedelta(milliseconds=1)
                self.close_row(step, outcome=Outcome.ERROR, ms=ms, notes=[note("interrupted", signal=signal)])

    def add_warning(self, warning: Note) -> None:
        """Add a warning to the closed row of the pass, unless it has an error or a warning already."""
        with contextlib.suppress(Error):
            rows = RunLog.objects.using(self.context.using).filter(pass_id=self.context.pass_id, step=RunLog.WHOLE)
            rows.filter(error__isnull=True).update(outcome=Outcome.WARNING, **text_of([warning]))

    def is_full_scan_due(self, step: str) -> bool:
        """Whether the step last scanned all events longer ago than FULL_EVERY, or never."""
        since = self.started_at - self.context.conf.FULL_EVERY
        # A row from the future is ignored: it would put the next full scan off.
        rows = RunLog.objects.using(self.context.using).full_since(step, since, now=self.started_at)
        return not rows.exists()

    def prune(self) -> None:
        """
        Delete expired rows, a bounded number, in short statements by key range.

        Raises: LockLost, DatabaseError.
        """
        context = self.context
        log, left = RunLog.objects.using(context.using), context.conf.LOG_PRUNE_BATCH
        cutoff = self.started_at - timedelta(days=context.conf.LOG_RETENTION_DAYS)
        while left > 0:
            # Also the last check of the lock: whether it was ours until the end.
            context.guard()
            ids = sorted(log.expired(cutoff).values_list("pk", flat=True)[: min(PRUNE_ROWS, left)])
            if not ids:
                return
            rows = log.filter(pk__gte=ids[0], pk__lte=ids[-1])
            if ids[-1] - ids[0] + 1 > len(ids):
                rows = rows.filter(pk__in=ids)
            rows.delete()
            left -= len(ids)


def text_of(notes: Sequence[Note]) -> dict[str, Any]:
    """Return notes as the two columns of a row; NULL in both is clean."""
    return {"error": stored(english(notes), ERROR_CHARS_MAX) or None, "notes": as_data(notes)}


def write_with_reconnect(using: str, write: Callable[[], object]) -> None:
    """Write to the log; once more on a new session when the old one has ended, for that is what the log must say."""
    try:
        write()
    except Error:
        if not drop_ended_session(using):
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
