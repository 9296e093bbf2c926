"""
A Hypothesis state machine: anything may happen between two passes, and a pass may die anywhere.

The model knows what each step has to find; the database must agree after every pass: each event at most one control row
and one mail, each due event exactly one. Deaths are exceptions here, followed by a fresh session; real kills are in
test_crashes.py. Positive controls: a pass with a watermark, and one that commits a control row before its message, do
not get past the machine's comparisons.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import Max, QuerySet
from django.test import override_settings
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from notify.dialects import dialect_of
from notify.models import Control, RunLog
from notify.passes.runner import PassReport, run_pass
from notify.steps import Step
from portal.models import Comment, LineState, OrderLine
from tests.crashing import Trap
from tests.factories import NOW, make_contact, make_line, make_order
from tests.notify.proof import (
    BEGIN,
    INSERT_COMMENT,
    TABLES,
    Key,
    controls,
    has_row_locks,
    mails_of_events,
    readers_wait,
    tasks_of_events,
    unmarked,
)

pytestmark = pytest.mark.django_db(transaction=True)

KINDS = ("order", "rejected", "comment")
BREAKER = 2
LOOKBACK = timedelta(days=1)
LINES = 3
NOTIFY = {"BREAKER": BREAKER, "CHUNK_ROWS": 2, "LOOKBACK": LOOKBACK, "MARK_BATCH": 3}

ages = st.sampled_from(
    [timedelta(0), timedelta(minutes=5), timedelta(hours=23), timedelta(hours=25), timedelta(days=9)]
)
jumps = st.sampled_from([timedelta(minutes=1), timedelta(hours=30), timedelta(days=40), timedelta(hours=-30)])
#: Where a pass dies: before or after the nth write of this kind; nowhere for an empty text.
WRITES = ("notify_control", "notify_mail_queue", "notify_task_queue", "portal_orderline", "notify_run_log", "COMMIT")
kills = st.just("") | st.builds(
    "{}:{}:{}".format, st.sampled_from(["before", "after"]), st.sampled_from(WRITES), st.integers(1, 3)
)


def commits_late() -> bool:
    """Whether a pass can run beside a transaction that has written and not committed."""
    return has_row_locks() and not readers_wait()


class Died(BaseException):
    """The process is gone; nothing that catches errors may catch this."""


@dataclass
class Deadly(Trap):
    """Dies at the chosen write as a killed process would: whatever it sends afterwards does not arrive either."""

    is_dead: bool = False

    def around(self, sql: str, call: Callable[[], Any]) -> Any:
        """Refuse everything after death."""
        if self.is_dead:
            raise Died
        return super().around(sql, call)

    def spring(self, moment: str) -> None:
        """Die if this is the place."""
        for what in WRITES:
            count = sum(what in write for write in self.writes)
            if what in self.writes[-1] and self.kill == f"{moment}:{what}:{count}":
                self.is_dead = True
                raise Died


@contextmanager
def dying(kill: str) -> Iterator[Deadly]:
    """Let this connection die at a write; a fresh session stands there afterwards."""
    trap = Deadly(kill)
    connection.ensure_connection()
    trap.watch(connection)
    try:
        yield trap
    except Died:
        pass
    finally:
        connection.execute_wrappers.clear()
        del connection._commit, connection.create_cursor
        if trap.is_dead:
            connection.close()


@dataclass
class Model:
    """What the business did and what has been notified, in plain Python."""

    #: Event times of all events that are committed; of comments only the newest of each line counts.
    orders: dict[int, datetime] = field(default_factory=dict)
    rejected: dict[int, datetime] = field(default_factory=dict)
    comments: dict[int, dict[int, datetime]] = field(default_factory=dict)
    #: What became of each event that was ever prepared: "mail" or "baseline".
    fate: dict[Key, str] = field(default_factory=dict)

    def events(self, kinds: tuple[str, ...]) -> dict[Key, datetime]:
        """Return the events there are at this moment, with their times."""
        found: dict[Key, datetime] = {}
        found |= {("order", key, 0): at for key, at in self.orders.items()}
        found |= {("rejected", key, 0): at for key, at in self.rejected.items()}
        for line, comments in self.comments.items():
            newest = max(comments)
            found["comment", line, newest] = comments[newest]
        return {key: at for key, at in found.items() if key[0] in kinds}

    def allowed(self, kinds: tuple[str, ...], not_before: datetime | None) -> dict[Key, datetime]:
        """Return the events that a pass may prepare: not yet notified, not too old."""
        events = self.events(kinds)
        return {k: at for k, at in events.items() if k not in self.fate and (not_before is None or at >= not_before)}

    def due(self, allowed: dict[Key, datetime], *, since: datetime | None, breaker: int | None) -> set[Key]:
        """Return those of the allowed events that the pass must prepare."""
        due = {key for key, at in allowed.items() if key[0] != "order" and (since is None or at >= since)}
        oldest = sorted((at, key) for key, at in allowed.items() if key[0] == "order")
        return due | {key for _, key in oldest[:breaker]}


class PassMachine(RuleBasedStateMachine):
    """Business, clock, passes and deaths in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.now, self.not_before = Model(), NOW, None
        self.late: list[tuple[Any, int, int, datetime]] = []
        with transaction.atomic():
            for table in TABLES:
                table.objects.all().delete()
            self.person = make_contact(name="ann")
            # Lines to comment on; their order is not registered, so it is no event.
            self.lines = [make_line(handled=True).pk for _ in range(LINES)]

    def teardown(self) -> None:
        for session, *_ in self.late:
            if session is not None:
                session.rollback()
                session.close()

    @initialize(age=st.none() | st.just(timedelta(hours=24)))
    def go_live(self, age: timedelta | None) -> None:
        """Choose whether there is a date before which nothing is notified."""
        self.not_before = None if age is None else NOW - age

    @rule(age=ages)
    def register_order(self, age: timedelta) -> None:
        order = make_order(registered_at=self.now - age, buyer=self.person, supplier=self.person)
        make_line(order=order)
        make_line(order=order)
        self.model.orders[order.pk] = order.registered_at

    @rule(age=ages)
    def reject_line(self, age: timedelta) -> None:
        order = make_order(buyer=self.person)
        line = make_line(order=order, state=LineState.REJECTED, rejected_at=self.now - age, handled=True)
        self.model.rejected[line.pk] = line.rejected_at

    @rule(line=st.integers(0, LINES - 1), age=ages)
    def comment(self, line: int, age: timedelta) -> None:
        made = Comment.objects.create(
            line_id=self.lines[line], recipient=self.person, author="a", created_at=self.now - age
        )
        self.model.comments.setdefault(made.line_id, {})[made.pk] = made.created_at

    @precondition(lambda self: commits_late() and len(self.late) < 2)
    @rule(line=st.integers(0, LINES - 1), age=ages)
    def comment_without_commit(self, line: int, age: timedelta) -> None:
        session, at = connection.copy(), self.now - age
        session.set_autocommit(False)
        with session.cursor() as cursor:
            cursor.execute(INSERT_COMMENT[session.vendor], [self.lines[line], at])
            self.late.append((session, self.lines[line], cursor.fetchone()[0], at))

    @precondition(lambda self: not commits_late() and len(self.late) < 2)
    @rule(line=st.integers(0, LINES - 1), age=ages)
    def comment_that_appears_late(self, line: int, age: timedelta) -> None:
        """Where another writer would be waited for: a number taken now and a row that comes later look the same."""
        taken = Comment.objects.create(line_id=self.lines[line], author="a")
        self.late.append((None, self.lines[line], taken.pk, self.now - age))
        taken.delete()

    @precondition(lambda self: self.late)
    @rule()
    def commit_late_comment(self) -> None:
        session, line, pk, at = self.late.pop(0)
        if session is None:
            Comment.objects.create(pk=pk, line_id=line, recipient=self.person, author="a", created_at=at)
        else:
            session.commit()
            session.close()
        self.model.comments.setdefault(line, {})[pk] = at

    @rule(jump=jumps)
    def jump(self, jump: timedelta) -> None:
        self.now += jump

    @rule(kinds=st.sampled_from([KINDS, *((kind,) for kind in KINDS)]), is_full=st.booleans(), kill=kills)
    def run_pass(self, kinds: tuple[str, ...], is_full: bool, kill: str) -> None:
        self.passing(kinds, kill=kill, is_full=is_full)

    @rule(kill=kills)
    def baseline(self, kill: str) -> None:
        self.passing(KINDS, kill=kill, is_baseline=True)

    @rule()
    def full_pass(self) -> None:
        """Afterwards nothing that is due is left, however many passes died before."""
        for _ in range(len(self.model.orders) // BREAKER + 1):
            self.passing(KINDS, is_full=True)
        assert not self.model.allowed(KINDS, self.not_before)

    def passing(
        self, kinds: tuple[str, ...], *, kill: str = "", is_full: bool = False, is_baseline: bool = False
    ) -> None:
        """Run a pass, compare what it did with the model, then let the model follow."""
        not_before = None if is_baseline else self.not_before
        allowed = self.model.allowed(kinds, not_before)
        due = self.model.due(
            allowed,
            since=None if is_full or is_baseline else self.now - LOOKBACK,
            breaker=None if is_baseline else BREAKER,
        )
        report: PassReport | None = None
        with dying(kill), override_settings(NOTIFY={**NOTIFY, "NOT_BEFORE": self.not_before}):
            report = run_pass(now=self.now, kinds=kinds, is_full=is_full, is_baseline=is_baseline)
        new = controls() - self.model.fate.keys()
        assert new <= allowed.keys()
        self.model.fate |= dict.fromkeys(new, "baseline" if is_baseline else "mail")
        self.agree()
        if report is not None:
            assert report.outcome in ("ok", "warning"), report
            assert due <= new
            self.check_flags(kinds)
            self.check_breaker(report, allowed.keys() - new)

    def agree(self) -> None:
        """Each event that was ever prepared has exactly what it got then; no other event has anything."""
        mailed = {key for key, fate in self.model.fate.items() if fate == "mail"}
        assert Counter(Control.objects.values_list("kind", "key", "key2")) == Counter(self.model.fate.keys())
        assert mails_of_events() == Counter(mailed)
        assert tasks_of_events() == Counter(key for key in mailed if key[0] == "rejected")
        flagged = OrderLine.objects.filter(handled=True, order__registered_at__isnull=False)
        assert {("order", order, 0) for order in flagged.values_list("order", flat=True)} <= self.model.fate.keys()

    def check_flags(self, kinds: tuple[str, ...]) -> None:
        """A pass that came to its end leaves no flag down and no row of the log open."""
        assert "order" not in kinds or unmarked() == 0
        assert not RunLog.objects.running().exists()
        assert not RunLog.objects.filter(ms__lt=0).exists()

    def check_breaker(self, report: PassReport, left: set[Key]) -> None:
        """The warning of the circuit breaker counts those that wait, and comes only when some do."""
        waiting = sum(key[0] == "order" for key in left)
        told = next((step.error or "" for step in report.steps if step.step == "order"), "")
        assert (f"{BREAKER} prepared, {waiting} wait" in told) == bool(waiting and report_has(report, "order")), told


def report_has(report: PassReport, kind: str) -> bool:
    """Whether the step ran."""
    return any(step.step == kind for step in report.steps)


def test_whatever_happens_each_due_event_has_one_message_in_the_end():
    run_state_machine_as_test(
        PassMachine,
        settings=settings(
            max_examples=15,
            stateful_step_count=14,
            deadline=None,
            database=None,
            # The same examples each time in CI, new ones elsewhere.
            derandomize="CI" in os.environ,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_control_the_machine_finds_a_pass_that_remembers_only_how_far_it_came(monkeypatch):
    candidates = Step.candidates

    def above_watermark(self: Step, *arguments: Any, **options: Any) -> QuerySet[Any, Any]:
        last = Control.objects.filter(kind=self.kind).aggregate(last=Max("key"))["last"] or 0
        return candidates(self, *arguments, **options).filter(key__gt=last)

    machine = PassMachine()
    machine.comment(1, timedelta(0))
    machine.full_pass()
    machine.comment(0, timedelta(0))
    monkeypatch.setattr(Step, "candidates", above_watermark)

    with pytest.raises(AssertionError):
        machine.full_pass()


def test_control_the_machine_finds_a_control_row_that_is_committed_before_its_message(monkeypatch):
    insert_mails = dialect_of(connection).insert_mails

    def commit_before(session: Any, *arguments: Any) -> None:
        with session.cursor() as cursor:
            cursor.execute("COMMIT")
            if connection.vendor != "postgresql":
                cursor.execute(BEGIN[connection.vendor])
        insert_mails(session, *arguments)

    machine = PassMachine()
    machine.register_order(timedelta(0))
    machine.passing(KINDS, kill="before:notify_mail_queue:1")
    monkeypatch.setattr(dialect_of(connection), "insert_mails", commit_before)

    with pytest.raises(AssertionError, match="Counter"):
        machine.passing(KINDS, kill="before:notify_mail_queue:1")
