"""
Each sentence of an explanation is checked against the truth: the tables now, and what the next pass does.

A Hypothesis state machine makes events of any age, runs passes, kills some, moves the clock both ways, changes the
circuit breaker and NOT_BEFORE; after each step every event is explained and each finding compared. Positive controls:
an explanation that ignores NOT_BEFORE, and one that believes an open row of the run log, do not get past it.
"""

import os
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.test import override_settings
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from notify.clock import SKEW
from notify.dialects import dialect_of
from notify.explain import unnotified
from notify.explain.event import explain_event
from notify.models import Control, RunLog
from notify.passes.runner import run_pass
from tests.factories import NOW, make_comment, make_contact, make_line, make_order
from tests.notify.proof import TABLES

pytestmark = pytest.mark.django_db(transaction=True)

LOOKBACK = FULL_EVERY = timedelta(days=1)
NO_PROCESS = 2**30
Key = tuple[str, int, int]

ages = st.sampled_from([timedelta(minutes=1), timedelta(hours=23), timedelta(hours=25), timedelta(days=9)])
jumps = st.sampled_from([timedelta(minutes=2), timedelta(hours=30), timedelta(hours=-30)])


class ExplainMachine(RuleBasedStateMachine):
    """Orders have a circuit breaker and no window; comments, one per line, have a window and no breaker."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.breaker, self.not_before = NOW, 2, None
        self.events: dict[Key, datetime] = {}
        self.token: Any = None

    @initialize()
    def clean(self) -> None:
        with transaction.atomic():
            for table in TABLES:
                table.objects.all().delete()
        self.contact = make_contact()

    def conf(self) -> Any:
        return override_settings(NOTIFY={"BREAKER": self.breaker, "NOT_BEFORE": self.not_before, "LOOKBACK": LOOKBACK})

    @rule(age=ages)
    def order(self, age: timedelta) -> None:
        order = make_order(registered_at=self.now - age, supplier=self.contact, buyer=self.contact)
        make_line(order=order)
        self.events["order", order.pk, 0] = self.now - age

    @rule(age=ages)
    def comment(self, age: timedelta) -> None:
        comment = make_comment(line=make_line(), recipient=self.contact, created_at=self.now - age)
        self.events["comment", comment.line_id, comment.pk] = self.now - age

    @rule(jump=jumps)
    def move_the_clock(self, jump: timedelta) -> None:
        self.now += jump

    @rule(breaker=st.sampled_from([1, 2, 50]), age=st.sampled_from([None, timedelta(hours=24), timedelta(days=20)]))
    def configure(self, breaker: int, age: timedelta | None) -> None:
        self.breaker, self.not_before = breaker, None if age is None else self.now - age

    @rule(kind=st.sampled_from(["order", "comment"]))
    def kill_a_pass_in_a_step(self, kind: str) -> None:
        """Leave what a SIGKILL leaves: open rows, and a lock that nobody holds."""
        pass_id = uuid4()
        for step in (RunLog.WHOLE, kind):
            RunLog.objects.create(
                pass_id=pass_id, step=step, started_at=self.now, host=os.uname().nodename, pid=NO_PROCESS
            )

    @rule()
    def another_session_takes_the_lock(self) -> None:
        if self.token is None:
            self.token = dialect_of(connection).try_lock(connection).token

    @rule()
    def the_lock_is_released(self) -> None:
        if self.token is not None:
            dialect_of(connection).unlock(connection, self.token)
            self.token = None

    def teardown(self) -> None:
        self.the_lock_is_released()

    @rule(is_full=st.booleans(), kinds=st.sampled_from([("order",), ("comment",), ("order", "comment")]))
    def run_pass(self, is_full: bool, kinds: tuple[str, ...]) -> None:
        """What was said to be found is found, what was said to wait waits."""
        self.the_lock_is_released()
        before = {event: self.codes(event) for event in self.waiting()}
        texts = {event: self.text(event) for event in before}
        with self.conf():
            run_pass(now=self.now, kinds=kinds, is_full=is_full)
        waiting = self.waiting()
        for event, codes in before.items():
            if event[0] in kinds:
                self.check_forecast(event, codes, texts[event], was_prepared=event not in waiting, is_full=is_full)

    def check_forecast(self, event: Key, codes: list[str], text: str, *, was_prepared: bool, is_full: bool) -> None:
        if "before_not_before" in codes or "behind_breaker" in codes:
            assert not was_prepared, (event, text)
        elif "outside_window" in codes:
            assert was_prepared == (is_full or "The next pass scans all events" in text), (event, text)
        else:
            assert was_prepared, (event, text)

    def waiting(self) -> list[Key]:
        known = set(Control.objects.values_list("kind", "key", "key2"))
        return [event for event in self.events if event not in known]

    def findings(self, event: Key) -> Any:
        kind, key, key2 = event
        with self.conf():
            [explained] = explain_event(kind=kind, key=key, key2=key2, now=self.now).events
        return explained.findings

    def codes(self, event: Key) -> list[str]:
        return [finding.code for finding in self.findings(event)]

    def text(self, event: Key) -> str:
        return " ".join(finding.text for finding in self.findings(event))

    @invariant()
    def each_finding_is_true(self) -> None:
        waiting = self.waiting()
        for event, at in self.events.items():
            codes = self.codes(event)
            assert (codes == ["notified"]) == (event not in waiting), (event, codes)
            if event in waiting:
                assert codes[0] == "not_notified"
                assert sorted(codes[1:]) == sorted(self.expected(event, at, waiting)), (event, self.text(event))

    def expected(self, event: Key, at: datetime, waiting: list[Key]) -> list[str]:
        """Return what the tables and the settings say of an event that has no control row."""
        if self.not_before is not None and at < self.not_before:
            return ["before_not_before"]
        found = []
        is_outside = event[0] == "comment" and at < self.now - LOOKBACK
        if is_outside:
            found.append("outside_window")
        if event[0] == "order" and self.orders_before(event, at, waiting) >= self.breaker:
            found.append("behind_breaker")
        return [*found, *self.expected_of_last_run(event, at, is_outside=is_outside)]

    def orders_before(self, event: Key, at: datetime, waiting: list[Key]) -> int:
        allowed = [
            (self.events[other], other[1])
            for other in waiting
            if other[0] == "order" and (self.not_before is None or self.events[other] >= self.not_before)
        ]
        return sum(other < (at, event[1]) for other in allowed)

    def expected_of_last_run(self, event: Key, at: datetime, *, is_outside: bool) -> list[str]:
        rows = RunLog.objects.filter(step=event[0], started_at__lte=self.now + SKEW)
        last = rows.order_by("-started_at", "-pk").first()
        if last is None:
            return ["no_pass"]
        if last.outcome == "running":
            return ["pass_running" if self.token is not None else "pass_died"]
        if last.outcome == "error":
            return ["step_failed"]
        if at > last.started_at:
            return ["not_seen_yet"]
        if "circuit breaker" in (last.error or ""):
            return ["left_waiting"]
        return [] if is_outside else ["found_next"]


def check(machine: type[RuleBasedStateMachine], examples: int = 12) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=12,
            deadline=None,
            database=None,
            derandomize="CI" in os.environ,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_whatever_happens_each_sentence_is_true() -> None:
    check(ExplainMachine)


def test_control_the_machine_finds_an_explanation_that_counts_what_not_before_excludes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = ExplainMachine()
    machine.clean()
    for _ in range(3):
        machine.order(timedelta(days=9))
    machine.order(timedelta(minutes=1))
    machine.configure(2, timedelta(hours=24))
    machine.each_finding_is_true()
    real = unnotified.Step.candidates
    monkeypatch.setattr(
        unnotified.Step,
        "candidates",
        lambda self, scope, **options: real(self, scope, **options | {"not_before": None}),
    )

    with pytest.raises(AssertionError):
        machine.each_finding_is_true()


def test_control_the_machine_finds_an_explanation_that_believes_an_open_row(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = ExplainMachine()
    machine.clean()
    machine.order(timedelta(minutes=1))
    machine.kill_a_pass_in_a_step("order")
    machine.each_finding_is_true()
    monkeypatch.setattr(type(dialect_of(connection)), "is_lock_free", lambda self, connection: False)

    with pytest.raises(AssertionError):
        machine.each_finding_is_true()
