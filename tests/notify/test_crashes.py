"""
A pass killed with SIGKILL at each of its writing statements, and what the next pass makes of it.

Positive control: a pass that commits the message before its control row, killed in the same places, sends twice.
"""

from collections.abc import Iterator
from datetime import timedelta
from itertools import count

import pytest
from django.db import transaction

from notify.models import Control, MailQueue, RunLog
from notify.passes.runner import run_pass
from tests.crashing import Ended, crash_everywhere, nursery, run_child
from tests.factories import NOW
from tests.notify.proof import assert_right, clear_notified, controls, mails_of_events, make_world, small_pass, unmarked

pytestmark = pytest.mark.django_db(transaction=True)

#: Seconds. PostgreSQL notices within moments that a killed client is gone; a stale lock would last for ever.
LOCK_GONE_S = 10.0
PASS = "tests.notify.proof:small_pass"


def make_expired_row() -> RunLog:
    """Make a run-log row that the next pass prunes, so that a pass has a DELETE as well."""
    old = NOW - timedelta(days=365)
    return RunLog.objects.create(
        pass_id="00000000-0000-0000-0000-000000000001", step="pass", started_at=old, ended_at=old, outcome="ok"
    )


def crash_at_each_write() -> Iterator[Ended]:
    """Kill one small pass after another before its next write, until one gets through; then one after the last."""
    # After any other write is the same moment as before the next one: a pass tells nobody but the database.
    with nursery(PASS, warm="tests.notify.proof:warm") as bear:
        for nth in count(1):
            ended = bear(f"before:{nth}")
            yield ended
            if not ended.killed:
                break
        yield bear(f"after:{nth - 1}")


def naive_pass() -> None:
    """Queue mails first and remember them afterwards, in two transactions (runs in a child)."""
    waiting = controls_of_example() - controls()
    for kind, key, key2 in sorted(waiting):
        control = Control.objects.get_or_create(kind="naive", key=key, key2=key2)[0]
        with transaction.atomic():
            MailQueue.objects.create(control=control)
        Control.objects.create(kind=kind, key=key, key2=key2)


def controls_of_example() -> set[tuple[str, int, int]]:
    """Return the events of the naive example."""
    return {("comment", 1, 1), ("comment", 2, 2)}


def test_a_pass_killed_at_any_write_is_completed_by_the_next_one_exactly_once():
    keys, seen, repaired = make_world(), [], 0
    make_expired_row()

    for ended in crash_at_each_write():
        assert ended.killed or ended.returncode == 0, ended
        assert set(mails_of_events()) == controls(), f"{ended.kill}: a control row without its message, or the reverse"
        left_open, left_unmarked = RunLog.objects.running().count(), unmarked()

        report = run_pass(now=NOW, wait_s=LOCK_GONE_S)

        assert report.outcome in ("ok", "warning"), (ended.kill, report)
        assert_right(keys, context=ended.kill)
        died = RunLog.objects.filter(outcome="error", error__startswith="died")
        assert died.count() == left_open, ended.kill
        told = next(step.error or "" for step in report.steps if step.step == "order")
        assert (f"repaired: {left_unmarked} rows" in told) == bool(left_unmarked), (ended.kill, told)
        seen.append(ended)
        repaired += left_unmarked > 0
        clear_notified()
        make_expired_row()

    writes = seen[-2].writes
    verbs = {write.split()[0] for write in writes}
    assert verbs - {"COPY"} == {"INSERT", "UPDATE", "DELETE", "COMMIT"}, "COPY is PostgreSQL's way into the queues"
    assert sum("notify_mail_queue" in write for write in writes) == 8, "two chunks of each of the four steps"
    # Before the first, …, the last write; the one that got through came to no further write; after the last.
    assert [ended.killed for ended in seen] == [True] * len(writes) + [False, True]
    assert repaired > 0, "no point between the messages' commit and the marking was met"


def test_control_a_pass_that_writes_the_message_before_its_control_row_sends_twice_after_a_crash():
    worst = 0

    for _ in crash_everywhere("tests.notify.test_crashes:naive_pass"):
        naive_pass()
        worst = max([worst, *mails_of_events().values()])
        clear_notified()

    assert worst == 2


def test_a_kill_after_the_messages_and_before_the_flags_is_repaired_and_counted():
    """E14: a crash between the messages and the flags."""
    keys = make_world(of_each=2)
    with nursery(PASS) as bear:
        ended = bear("")
        assert ended.returncode == 0, ended.stderr
        marking = next(n for n, write in enumerate(ended.writes, 1) if "portal_orderline" in write and n > 5)
        clear_notified()

        ended = bear(f"before:{marking}")
    left = unmarked()
    report = run_pass(now=NOW, wait_s=LOCK_GONE_S)

    assert ended.killed
    assert left == 4
    assert report.steps[0].mails == 0
    assert report.steps[0].error == "repaired: 4 rows marked whose event already had its message"
    assert_right(keys)


def test_a_killed_pass_leaves_no_lock_and_is_closed_as_died_with_its_steps():
    """E6: no stale lock after SIGKILL."""
    make_world(of_each=1)

    ended = run_child(PASS, kill="after:3")
    assert ended.killed
    dead = RunLog.objects.get(step="pass")
    assert (dead.outcome, dead.ended_at) == ("running", None)
    report = run_pass(now=NOW, wait_s=LOCK_GONE_S)

    assert report.outcome == "ok"
    closed = RunLog.objects.filter(pass_id=dead.pass_id)
    assert {row.outcome for row in closed} == {"error"}
    assert {row.error for row in closed} == {"died: the process ended without closing its pass"}
    assert all(row.ended_at >= row.started_at for row in closed)
    assert small_pass() == "ok"
