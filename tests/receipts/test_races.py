"""Races with real connections, on each isolation level; the naive version loses each time, or they prove nothing."""

import os
import signal
import threading
import time

import pytest
from django.db import connection, transaction

from portal.models import OrderLine
from receipts import apply
from receipts.api import Conflict, Target, cancel_many, cancel_one, reconcile
from receipts.dialects import postgresql
from receipts.errors import Collided
from receipts.models import Audit, Change
from tests.babelfish import stand_in_cannot
from tests.crashing import is_stopped, start_child
from tests.factories import make_line, make_many, make_order
from tests.racing import background, in_another_session, is_waiting_for_lock, open_transaction, race, until
from tests.receipts.plain import cancel, states, target

pytestmark = pytest.mark.django_db(transaction=True)


def bump(line):
    """Change a row as any other part of the site would."""
    OrderLine.objects.filter(pk=line.pk).update(revision=line.revision + 1, qty=99)


def test_reading_and_then_writing_loses_the_race():
    """The positive control: this is what cancel_one must not do."""
    line = make_line()
    all_have_read = threading.Barrier(4)

    def naive(number):
        read = OrderLine.objects.get(pk=line.pk)
        if (read.state, read.revision, read.qty) != ("pending", 4, 10):
            return False
        all_have_read.wait(30)
        read.state, read.revision = "cancelled", read.revision + 1
        read.save()
        return True

    assert race(4, naive) == [True] * 4


def test_one_of_many_cancels_a_row(isolation):
    line = make_line()

    outcomes = race(4, lambda number: cancel_one(tenant="acme", target=target(line)))

    assert outcomes.count(Target(line.pk, 5, 10)) == 1
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 3
    assert states(line) == [("cancelled", 5)]


def test_many_with_one_change_id_apply_it_once(isolation):
    lines = [make_line() for _ in range(3)]

    outcomes = race(4, lambda number: cancel(*map(target, lines)))

    assert sorted(outcomes, key=str) == [False, False, False, True]
    assert states(*lines) == [("cancelled", 5)] * 3


@pytest.mark.parametrize(("commit", "answer"), [(True, False), (False, True)])
def test_the_second_with_one_change_id_waits_for_the_first(isolation, commit, answer):
    """R9: the first is still open; once it has committed the second answers False, once rolled back it applies."""
    line = make_line()

    with open_transaction(lambda: cancel(target(line)), commit=commit) as first:
        second = background(lambda: cancel(target(line)))
        until(is_waiting_for_lock)

    assert first is True
    assert second.end() is answer
    assert states(line) == [("cancelled", 5)]


@pytest.mark.parametrize("verb", ["one", "many"])
@pytest.mark.parametrize("commit", [True, False])
def test_a_row_that_changes_during_the_wait_for_its_lock_is_compared_again(isolation, verb, commit):
    """READ COMMITTED re-checks the UPDATE's condition on the row as committed; the other levels repeat."""
    line = make_line()

    def act():
        return cancel_one(tenant="acme", target=target(line)) if verb == "one" else cancel(target(line))

    with open_transaction(lambda: bump(line), commit=commit):
        late = background(act)
        until(is_waiting_for_lock)
    outcome = late.end()

    if commit:
        assert isinstance(outcome, Conflict)
        assert outcome.problems[0].current == {"revision": 5, "qty": 99, "state": "pending"}
        assert states(line) == [("pending", 5)]
    else:
        assert outcome in (True, Target(line.pk, 5, 10))
        assert states(line) == [("cancelled", 5)]


def test_an_older_snapshot_in_the_callers_transaction_is_a_conflict(isolation):
    """The caller's transaction cannot be repeated for it; READ COMMITTED has no older snapshot."""
    line = make_line()
    if connection.vendor == "sqlite":
        pytest.skip("on SQLite nobody gets in between")

    with transaction.atomic():
        assert OrderLine.objects.filter(pk=line.pk, revision=4).exists()
        assert background(lambda: bump(line)).end() is None
        with pytest.raises(Conflict) as caught:
            cancel(target(line))
        assert OrderLine.objects.filter(pk=line.pk).exists()

    assert isinstance(caught.value, Collided) is (isolation != "read committed")
    assert states(line) == [("pending", 5)]


def test_a_change_id_taken_behind_an_older_snapshot_is_a_conflict_too(isolation):
    line = make_line()
    if connection.vendor == "sqlite":
        pytest.skip("on SQLite nobody gets in between")

    with transaction.atomic():
        assert not Change.objects.exists()
        assert background(lambda: cancel(target(line))).end() is True
        if isolation == "read committed":
            assert cancel(target(line)) is False
        else:
            with pytest.raises(Collided):
                cancel(target(line))

    assert states(line) == [("cancelled", 5)]


@stand_in_cannot("UPDLOCK does nothing there")
def test_overlapping_plans_in_opposite_order_never_deadlock(isolation):
    """R10: plan A (1, 2) and plan B (2, 1) at once, 200 times; exactly one is applied each time."""
    rounds = 200 if isolation == "read committed" or connection.vendor == "sqlite" else 40
    order = make_order()
    lines = make_many(
        OrderLine(order=order, tenant="acme", qty=10, revision=4, state="pending", handled=False)
        for _ in range(2 * rounds)
    )
    start = threading.Barrier(2)

    def play(number):
        answers = []
        for at in range(rounds):
            pair = [target(line) for line in lines[2 * at : 2 * at + 2]]
            start.wait(30)
            try:
                answers.append(cancel(*pair[:: 1 if number else -1], change_id=f"CHG-{at}-{number}"))
            except Conflict as conflict:
                answers.append([one.problem for one in conflict.problems])
        return answers

    one, two = race(2, play)

    lost = ["revision_differs", "revision_differs"]
    assert all({str(pair[0]), str(pair[1])} == {"True", str(lost)} for pair in zip(one, two, strict=True))
    assert set(OrderLine.objects.values_list("state", "revision")) == {("cancelled", 5)}


def test_reconciliation_is_one_snapshot():
    """R18: a writer moves two rows back and forth together; no result ever shows one of them moved alone."""
    lines = [make_line(), make_line()]
    cancel(*map(target, lines))
    stop = threading.Event()

    def write():
        qty = 10
        while not stop.is_set():
            qty = 21 - qty
            OrderLine.objects.all().update(qty=qty)

    writer = background(write)
    try:
        seen = {next(reconcile(change_ids=["CHG-1"])).changed for _ in range(200)}
    finally:
        stop.set()
        writer.end()

    assert seen <= {0, 2}


def test_a_batch_waits_for_nobody_it_does_not_touch():
    """A row that somebody else has locked does not hold up a batch of other rows."""
    locked, free = make_line(), make_line()
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time")

    with open_transaction(lambda: bump(locked)):
        assert cancel_many(change_id="CHG-1", tenant="acme", targets=[target(free)]) is True


def test_reconciling_all_beside_running_cancels_sees_each_receipt_whole_or_not_at_all():
    """A receipt that is there is there with its rows: never a changed, missing or broken target."""
    lines = [[make_line() for _ in range(3)] for _ in range(24)]

    def act(number):
        if number < 2:
            return [(result.change_id, result.match, result.is_match) for _ in range(6) for result in reconcile()]
        for place in range(number - 2, 24, 2):
            cancel(*map(target, lines[place]), change_id=f"CHG-{place:02}")
        return []

    outcomes = race(4, act)

    assert not [one for one in outcomes if isinstance(one, Exception)], outcomes
    seen = [row for outcome in outcomes for row in outcome]
    assert [row for row in seen if row[1:] != (3, True)] == []
    assert [result.match for result in reconcile()] == [3] * 24


def test_rows_and_audit_rows_that_are_read_one_after_the_other_disagree():
    """The control: why they are read in one statement."""
    line = make_line()

    rows = {row.pk: row.state for row in OrderLine.objects.all()}
    in_another_session(lambda: cancel(target(line)))
    audited = dict(Audit.objects.values_list("target_id", "state_after"))

    assert rows != audited
    assert next(reconcile()).is_match


def apply_and_stop(pk: int) -> str:
    """Apply, and stop like a process that gets SIGSTOP, its rows locked (runs in a child); return the outcome."""
    postgresql.STOPPED_WAIT_MS = 500
    read_back = apply.read_back

    def stop_once(*arguments):
        if not stopped:
            stopped.append(1)
            os.kill(os.getpid(), signal.SIGSTOP)
        read_back(*arguments)

    stopped, apply.read_back = [], stop_once
    outcome = apply.apply_with_reconnect(
        kind="cancel", change_id="CHG-1", tenant="acme", targets=[target(OrderLine.objects.get(pk=pk))]
    )
    return outcome.name


def test_a_stopped_apply_does_not_hold_business_rows_for_ever_and_is_settled_when_it_goes_on():
    if connection.vendor != "postgresql":
        pytest.skip("on SQLite the others' own timeout is the limit, SQL Server has none")
    line = make_line()
    child = start_child("tests.receipts.test_races:apply_and_stop", line.pk)
    try:
        until(lambda: child.process.poll() is not None or is_stopped(child.process.pid))
        assert child.process.poll() is None, child.end().stderr
        began = time.monotonic()
        with transaction.atomic(), connection.cursor() as cursor:
            # The positive control would wait for as long as the process is stopped.
            cursor.execute("SET LOCAL lock_timeout = 20000")
            assert OrderLine.objects.filter(pk=line.pk).update(handled=True) == 1
        assert time.monotonic() - began < 10
        assert not Change.objects.exists()
        child.process.send_signal(signal.SIGCONT)
        ended = child.end()
    finally:
        child.process.kill()
    assert ended.result == "APPLIED", ended.stderr
    assert states(line) == [("cancelled", 5)]


@pytest.mark.parametrize(("given", "kept"), [("0", "10s"), ("2s", "2s"), ("1h", "10s")])
def test_only_a_transaction_of_its_own_is_limited_and_a_shorter_limit_stays(given, kept):
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL has such a limit")
    seen = []

    def look(*arguments):
        with connection.cursor() as cursor:
            cursor.execute("SHOW idle_in_transaction_session_timeout")
            seen.append(cursor.fetchone()[0])

    with connection.cursor() as cursor:
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{given}'")
    try:
        apply.with_retry("default", look)
        look()
        with transaction.atomic():
            apply.with_retry("default", look)
    finally:
        connection.close()
    assert seen == [kept, given, given]
