"""
Another transaction in the way: a pass gives way and repeats its chunk, a bounded number of times.

Positive control: without the repetition the same meeting makes the step fail.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from notify.dialects import dialect_of
from notify.dialects.base import ControlRow
from notify.models import RunLog
from notify.passes.runner import PassReport, run_pass
from portal.models import OrderLine
from tests.babelfish import stand_in_cannot
from tests.factories import NOW, make_line, make_order
from tests.notify.proof import (
    BEGIN,
    HOLD_LINE,
    LOCK_TIMEOUT,
    assert_right,
    has_row_locks,
    is_waited_for,
    mails_of_events,
    make_world,
    readers_wait,
    unmarked,
)
from tests.racing import race, until

pytestmark = pytest.mark.django_db(transaction=True)

TRIES = 3


@pytest.fixture
def second() -> Iterator[Any]:
    """Another session on the same database, in a transaction of its own; any thread may use it."""
    other = connection.copy()
    other.inc_thread_sharing()
    yield other
    other.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pass wait for a moment only."""
    monkeypatch.setattr("notify.passes.retry.TRIES_MAX", TRIES)
    monkeypatch.setattr("notify.passes.retry.PAUSE_S", 0.001)
    for dialect in ("postgresql", "sqlserver"):
        monkeypatch.setattr(f"notify.dialects.{dialect}.ROW_LOCK_WAIT_MS", 50)


def need_row_locks() -> None:
    if not has_row_locks():
        pytest.skip("SQLite has one writer at a time: there are no row locks to meet")
    if readers_wait():
        pytest.skip(
            "READ_COMMITTED_SNAPSHOT is off: the pass would wait for the other session while it looks for events"
        )


def run(other: Any, *statements: str) -> None:
    """Let the other session send statements."""
    with other.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def insert(other: Any, key: tuple[str, int, int]) -> None:
    """Let the other session insert a control row, waiting for whoever has inserted it."""
    dialect_of(connection).insert_controls(other, key[0], [ControlRow(key[1], key[2], "en", "")])


def step_of(report: PassReport, kind: str) -> Any:
    """Return what a step reported."""
    return next(step for step in report.steps if step.step == kind)


def meet_in_opposite_order(other: Any, keys: list[tuple[str, int, int]]) -> tuple[PassReport, Any]:
    """Let a pass and another session insert the same keys, each holding what the other wants next."""
    run(other, BEGIN[other.vendor])
    insert(other, keys[-1])

    def act(number: int) -> Any:
        if number == 0:
            return run_pass(now=NOW, is_locking=False, kinds=["advice"])
        until(lambda: is_waited_for(other))
        insert(other, keys[0])
        run(other, "ROLLBACK")
        return "not the victim"

    return tuple(race(2, act))  # type: ignore[return-value]


@stand_in_cannot("it does not show who waits, so that the two need not meet")
def test_in_a_deadlock_the_pass_gives_way_and_repeats_its_chunk(second):
    need_row_locks()
    keys = sorted(key for key in make_world() if key[0] == "advice")

    report, met = meet_in_opposite_order(second, keys)

    assert met == "not the victim"
    assert report.outcome == "ok", report
    assert mails_of_events() == dict.fromkeys(keys, 1)


@stand_in_cannot("it does not show who waits, so that the two need not meet")
def test_control_without_the_repetition_a_deadlock_makes_the_step_fail(second, monkeypatch):
    need_row_locks()
    monkeypatch.setattr("notify.passes.retry.TRIES_MAX", 1)
    keys = sorted(key for key in make_world() if key[0] == "advice")

    report, _ = meet_in_opposite_order(second, keys)

    assert report.outcome == "error"
    assert not mails_of_events()


def test_a_serialization_failure_repeats_the_chunk(second):
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL has this failure at a level that a pass may run at")
    keys = sorted(key for key in make_world() if key[0] == "advice")
    run(second, BEGIN[second.vendor])
    insert(second, keys[0])

    def act(number: int) -> Any:
        if number == 0:
            run(connection, "SET default_transaction_isolation = 'repeatable read'")
            return run_pass(now=NOW, is_locking=False, kinds=["advice"])
        until(lambda: is_waited_for(second))
        return run(second, "COMMIT")

    report, _ = race(2, act)

    assert report.outcome == "ok", report
    assert mails_of_events() == dict.fromkeys(keys[1:], 1), "the first is the other session's"


@pytest.mark.usefixtures("impatient")
def test_a_row_lock_that_stays_fails_its_step_alone_after_a_bounded_number_of_tries(second):
    need_row_locks()
    keys, tries = make_world(), []
    run(second, BEGIN[second.vendor])
    insert(second, next(key for key in sorted(keys) if key[0] == "advice"))

    def count(execute: Any, sql: str, params: Any, *rest: Any) -> Any:
        if "INTO notify_control" in sql and params[0] == "advice":
            tries.append(sql)
        return execute(sql, params, *rest)

    with connection.execute_wrapper(count):
        report = run_pass(now=NOW)

    assert len(tries) == TRIES
    assert {step.step: step.outcome.value for step in report.steps} == {
        "order": "ok",
        "rejected": "ok",
        "advice": "error",
        "comment": "ok",
    }
    assert LOCK_TIMEOUT.search(step_of(report, "advice").error)
    assert RunLog.objects.get(step="pass").error == "step advice failed"
    run(second, "ROLLBACK")
    assert run_pass(now=NOW).outcome == "ok"
    assert_right(keys)


@stand_in_cannot("UPDLOCK does nothing there")
@pytest.mark.usefixtures("impatient")
def test_a_line_that_somebody_holds_delays_its_flag_and_nothing_else(second):
    need_row_locks()
    keys = make_world()
    held = OrderLine.objects.order_by("pk").first()
    run(second, BEGIN[second.vendor], HOLD_LINE[second.vendor].format(pk=held.pk))

    report = run_pass(now=NOW)

    assert step_of(report, "order").outcome == "error"
    assert LOCK_TIMEOUT.search(step_of(report, "order").error)
    assert mails_of_events() == dict.fromkeys(keys, 1)
    run(second, "ROLLBACK")
    left = unmarked()
    repaired = step_of(run_pass(now=NOW), "order")
    assert repaired.error == f"repaired: {left} rows marked whose event already had its message"
    assert_right(keys)


@stand_in_cannot("UPDLOCK does nothing there")
@pytest.mark.usefixtures("impatient")
def test_a_line_left_behind_that_somebody_holds_does_not_keep_new_orders_waiting(second):
    need_row_locks()
    make_world(of_each=1)
    run_pass(now=NOW)
    late = make_line(order=OrderLine.objects.order_by("pk").first().order)
    run(second, BEGIN[second.vendor], HOLD_LINE[second.vendor].format(pk=late.pk))
    fresh = make_order(registered_at=NOW)
    make_line(order=fresh)

    report = run_pass(now=NOW)

    assert ("order", fresh.pk, 0) in mails_of_events()
    assert "could not be marked yet" in step_of(report, "order").error
    run(second, "ROLLBACK")
    assert run_pass(now=NOW).outcome == "warning"
    assert unmarked() == 0


@pytest.mark.usefixtures("impatient")
def test_a_database_that_another_writer_keeps_busy_repeats_the_chunk(second):
    if has_row_locks():
        pytest.skip("servers lock rows")
    keys, begun = make_world(of_each=1), []
    run(connection, "PRAGMA busy_timeout = 20")

    def meet(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("BEGIN"):
            begun.append(sql)
            # The other writer is there when the second transaction begins, and gone when that is tried again.
            if len(begun) == 2:
                run(second, "BEGIN IMMEDIATE")
            if len(begun) == 3:
                run(second, "ROLLBACK")
        return execute(sql, *rest)

    with connection.execute_wrapper(meet):
        report = run_pass(now=NOW)

    assert report.outcome == "ok", report
    assert_right(keys)
