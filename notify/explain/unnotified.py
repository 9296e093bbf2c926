"""Explains why an event has no message: failed conditions, events ahead of it, results of the last passes."""

import os
import socket
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connections
from django.db.models import Min, Q, QuerySet
from django.utils.translation import gettext as _

from ..conf import Conf
from ..dialects import dialect_of
from ..models import Outcome, RunLog
from ..notes import try_find
from ..steps import FlaggedStep, Scope, Step, breaker_of, columns_of, not_before_of
from .conditions import failing_conditions
from .delivery import moment
from .messages import say_logged


@dataclass(frozen=True)
class Finding:
    """One thing there is to say: a code for programs, a sentence for people."""

    code: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Inquiry:
    """Where, when and by whom is asked: a member of these tenants, or (None) one who sees all."""

    using: str
    conf: Conf
    now: datetime
    tenants: Collection[str] | None = None

    @property
    def log(self) -> QuerySet[RunLog]:
        """The run log without rows from the future."""
        return RunLog.objects.using(self.using).believable(self.now)


def events_of(step: Step, inquiry: Inquiry) -> QuerySet[Any, Any]:
    """Return all events of a step, whenever they happened."""
    return step.keyed_events(Scope(now=inquiry.now), using=inquiry.using)


def explain_no_candidate(step: Step, key: int, key2: int, inquiry: Inquiry) -> Iterator[Finding]:
    """Say which conditions of the step's query fail for the key."""
    events = events_of(step, inquiry)
    keys = {"key": key, "key2": key2} if "key2" in columns_of(step.events(Scope(now=inquiry.now))) else {"key": key}
    failing = failing_conditions(events, keys)
    if isinstance(step, FlaggedStep):
        rows = step.flagged_of(key=key, key2=key2, using=inquiry.using)
        if rows.exists() and not rows.filter(**{step.flag: False}).exists():
            text = _(
                "All its rows carry the flag “%(flag)s” although no message was prepared: it was handled elsewhere."
            )
            yield Finding("handled", text % {"flag": step.flag})
    if failing == []:
        yield Finding("no_row", _("It is not a candidate: there is no such row, or what it refers to is gone."))
    elif failing is None:
        yield Finding("not_a_candidate", _("It is not a candidate: the step's query does not give it."))
    else:
        for condition in failing:
            yield Finding("condition", _("It is not a candidate: %(condition)s.") % {"condition": condition})


def explain_waiting(step: Step, key: int, key2: int, event_at: datetime | None, inquiry: Inquiry) -> Iterator[Finding]:
    """Say why an event that the step's query gives has not been prepared yet, or never will be."""
    not_before = not_before_of(step, inquiry.conf)
    if not_before is not None and (event_at is None or event_at < not_before):
        text = _("It happened on %(at)s, before %(limit)s: older events are never notified.")
        yield Finding("before_not_before", text % {"at": moment(event_at), "limit": moment(not_before)})
        return
    full_at = next_full_scan_at(step, inquiry)
    is_outside = is_outside_window(step, event_at, inquiry)
    if is_outside:
        yield outside_window(event_at, full_at, inquiry)
    # The next pass that can find it scans all events if it lies outside the window, or if a full scan is due.
    is_full = is_outside or full_at is None or not step.is_windowed
    yield from explain_breaker(step, key, key2, event_at, inquiry, is_full=is_full)
    yield from explain_last_run(step, event_at, inquiry, is_outside=is_outside)


def is_outside_window(step: Step, event_at: datetime | None, inquiry: Inquiry) -> bool:
    """Whether only a full scan finds an event."""
    return step.is_windowed and (event_at is None or event_at < inquiry.now - inquiry.conf.LOOKBACK)


def next_full_scan_at(step: Step, inquiry: Inquiry) -> datetime | None:
    """Return after which moment a pass scans all events; None when the next one does."""
    last = inquiry.log.filter(is_full__in=[True], step=step.kind).order_by("-started_at").first()
    at = last.started_at + inquiry.conf.FULL_EVERY if last else None
    return at if at is not None and at >= inquiry.now else None


def outside_window(event_at: datetime | None, full_at: datetime | None, inquiry: Inquiry) -> Finding:
    """Say when a full scan will find an event that lies outside the window."""
    if full_at is not None:
        text = _(
            "It happened on %(at)s, longer ago than an ordinary pass looks back (%(lookback)s). The next full scan, "
            "which finds it, is due after %(full_at)s; one can run now: notify_pass --full."
        )
    else:
        text = _(
            "It happened on %(at)s, longer ago than an ordinary pass looks back (%(lookback)s). The next pass scans "
            "all events and finds it; one can run now: notify_pass --full."
        )
    values = {"at": moment(event_at), "lookback": inquiry.conf.LOOKBACK, "full_at": moment(full_at)}
    return Finding("outside_window", text % values)


def explain_breaker(
    step: Step, key: int, key2: int, event_at: datetime | None, inquiry: Inquiry, *, is_full: bool
) -> Iterator[Finding]:
    """Say whether older candidates fill the next pass that can find the event."""
    limit = breaker_of(step, inquiry.conf)
    if limit is None or event_at is None:
        return
    scope = Scope(now=inquiry.now, since=None if is_full else inquiry.now - inquiry.conf.LOOKBACK)
    candidates = step.candidates(scope, not_before=not_before_of(step, inquiry.conf), using=inquiry.using)
    if step.coalesce:
        # Whole keys go through, the one with the oldest event first.
        own = candidates.filter(key=key).aggregate(oldest=Min("event_at"))["oldest"] or event_at
        before = Q(event_at__lt=own) | Q(event_at=own, key__lt=key)
        older = candidates.filter(before).order_by().values("key").distinct().count()
        yield from behind_breaker(limit, older, inquiry)
        return
    same = Q(event_at=event_at)
    before = Q(event_at__lt=event_at) | same & Q(key__lt=key) | same & Q(key=key, key2__lt=key2)
    yield from behind_breaker(limit, candidates.filter(before).count(), inquiry)


def behind_breaker(limit: int, older: int, inquiry: Inquiry) -> Iterator[Finding]:
    """Say that older candidates fill the next pass, if they do."""
    if older >= limit:
        text = (
            _("The circuit breaker lets %(limit)s of its kind through per pass, oldest first; %(older)s are before it.")
            if inquiry.tenants is None
            else _(
                "The circuit breaker lets %(limit)s of its kind through per pass, oldest first; "
                "as many or more are before it."
            )
        )
        yield Finding("behind_breaker", text % {"limit": limit, "older": older})


def explain_last_run(step: Step, event_at: datetime | None, inquiry: Inquiry, *, is_outside: bool) -> Iterator[Finding]:
    """Say what the step's last run has to do with it."""
    last = inquiry.log.filter(step=step.kind).order_by("-started_at", "-pk").first()
    if last is None:
        text = _("No pass has run step %(step)s yet, as far as the run log goes back.")
        yield Finding("no_pass", text % {"step": step.kind})
        return
    values = {"at": moment(last.started_at)}
    if last.outcome == Outcome.RUNNING:
        yield explain_open_run(last, inquiry)
    elif last.outcome == Outcome.ERROR and inquiry.tenants is None:
        text = _("The step's last run on %(at)s failed: %(error)s")
        yield Finding("step_failed", text % {**values, "error": say_logged(last).split("\n", 1)[0]})
    elif last.outcome == Outcome.ERROR:
        # The error may quote whatever the step was at.
        yield Finding("step_failed", _("The step's last run on %(at)s failed.") % values)
    elif event_at is not None and event_at > last.started_at:
        text = _("No pass has run the step since: its last run started on %(at)s.")
        yield Finding("not_seen_yet", text % values)
    elif try_find(last.notes, "stopped_after"):
        yield Finding("stopped_before", _("The step's last run on %(at)s was stopped before it came to it.") % values)
    elif try_find(last.notes, "breaker"):
        text = _("In the step's last run on %(at)s the circuit breaker left events waiting.")
        yield Finding("left_waiting", text % values)
    elif not is_outside:
        text = _("It is a candidate now; it was not when the step last ran, on %(at)s.")
        yield Finding("found_next", text % values)


def explain_open_run(row: RunLog, inquiry: Inquiry) -> Finding:
    """Say whether a run whose row is open is under way: the lock knows, and for its own host this process."""
    connection = connections[inquiry.using]
    is_running = not dialect_of(connection).is_lock_free(connection) or is_alive(row)
    if is_running:
        text = _("A pass is running this step since %(at)s.")
        return Finding("pass_running", text % {"at": moment(row.started_at)})
    text = _(
        "The pass that began this step on %(at)s has not closed it, and nobody holds the pass lock: its process has "
        "ended. The next pass repeats the step."
    )
    return Finding("pass_died", text % {"at": moment(row.started_at)})


def is_alive(row: RunLog) -> bool:
    """Whether a pass that took no lock (``run_pass(is_locking=False)``) still runs, on this very host."""
    # Elsewhere than on POSIX, signal 0 is one that ends a process.
    if os.name != "posix" or row.host != socket.gethostname() or not row.pid:
        return False
    try:
        os.kill(row.pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
