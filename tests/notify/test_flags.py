"""Steps with a flag: the circuit breaker lets through the oldest, and lines are marked when it is told."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from notify.models import MailQueue
from portal.models import OrderLine
from tests.factories import NOW, make_contact, make_line, make_order
from tests.notify.samples import Lined, do_pass, mailed, make_lines, noted
from tests.racing import race

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_circuit_breaker_takes_the_oldest_first_and_says_how_many_wait(add_step, configure):
    add_step(type("Broken", (Lined,), {"breaker": True}))
    configure(BREAKER=2, CHUNK_ROWS=1)
    lines = make_lines(5)

    first = do_pass(now=NOW + timedelta(hours=1))

    assert mailed("lined") == [lines[0].pk, lines[1].pk]
    assert first.outcome == "warning"
    assert first.steps[0].error == "circuit breaker: 2 prepared, 3 wait, the oldest since 2026-01-31T08:02:00+0000"
    do_pass(now=NOW + timedelta(hours=1))
    last = do_pass(now=NOW + timedelta(hours=1))
    assert mailed("lined") == [line.pk for line in lines]
    assert (last.outcome, last.steps[0].candidates) == ("ok", 1)


def test_exactly_as_many_as_the_breaker_allows_are_no_warning(add_step):
    add_step(type("Broken", (Lined,), {"breaker": 3}))
    make_lines(3)

    assert do_pass().outcome == "ok"


def test_events_without_a_time_wait_for_the_breaker_like_others(add_step):
    add_step(type("Broken", (Lined,), {"breaker": 1}))
    make_lines(3, rejected_at=None)

    report = do_pass()

    assert report.steps[0].error == "circuit breaker: 1 prepared, 2 wait, the oldest since an unknown time"


@pytest.mark.parametrize("is_dry_run", [False, True])
def test_groups_that_cannot_be_prepared_do_not_keep_the_places_of_those_behind(add_step, refusing_trigger, is_dry_run):
    """The oldest is refused for ever; each pass still prepares as many as the breaker allows."""

    add_step(type("Broken", (Lined,), {"breaker": 2}))
    bad = make_lines(1)
    good = make_lines(3, at=NOW + timedelta(minutes=10))
    refusing_trigger("notify_control", "key", bad[0].pk)

    report = do_pass(now=NOW + timedelta(hours=1), is_dry_run=is_dry_run)

    assert report.outcome == "error"
    assert report.steps[0].mails == 2
    if not is_dry_run:
        assert noted("lined") == [good[0].pk, good[1].pk]
        do_pass(now=NOW + timedelta(hours=1))
        assert noted("lined") == [line.pk for line in good]


def test_blocked_groups_are_settled_and_do_not_come_back(add_step):
    class Addressless(Lined):
        breaker = 2

        def events(self, scope: Any) -> Any:
            return OrderLine.objects.filter(handled=False).values(
                key=F("pk"), event_at=F("rejected_at"), recipients=F("reason")
            )

    add_step(Addressless)
    lines = make_lines(3)

    do_pass()
    do_pass()

    assert noted("lined") == [line.pk for line in lines]
    assert set(MailQueue.objects.values_list("state", flat=True)) == {"blocked"}


def test_lines_are_marked_in_batches_after_the_messages_are_committed(configure):
    configure(MARK_BATCH=2)
    order = make_order(registered_at=NOW, supplier=make_contact())
    for _ in range(5):
        make_line(order=order)

    with CaptureQueriesContext(connection) as captured:
        report = do_pass()

    statements = [query["sql"] for query in captured]
    marking = f"UPDATE {connection.ops.quote_name('portal_orderline')}"
    marks = [number for number, sql in enumerate(statements) if marking in sql]
    queued = max(number for number, sql in enumerate(statements) if "INTO notify_control" in sql)
    committed = next(number for number in range(queued, len(statements)) if statements[number] == "COMMIT")
    assert len([number for number in marks if number > committed]) == 3
    assert OrderLine.objects.filter(handled=False).count() == 0
    assert report.outcome == "ok"


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_batch_is_left_over_whatever_the_number(configure, n):
    configure(MARK_BATCH=2)
    order = make_order(registered_at=NOW)
    for _ in range(n):
        make_line(order=order)

    do_pass()

    assert OrderLine.objects.filter(handled=False).count() == 0


def test_a_new_line_of_an_order_that_was_told_is_marked_without_a_second_mail():
    order = make_order(registered_at=NOW)
    make_line(order=order)
    do_pass()
    new = make_line(order=order)

    report = do_pass()

    new.refresh_from_db()
    assert new.handled
    assert mailed("order") == [order.pk]
    assert report.outcome == "warning"
    assert report.steps[0].error == "repaired: 1 row marked whose event already had its message"


def test_lines_that_another_session_has_locked_for_a_moment_are_marked_all_the_same():
    """Marking gives way to people and tries again, like a chunk of messages."""
    order = make_order(registered_at=NOW, supplier=make_contact())
    line = make_line(order=order)
    held, release = threading.Event(), threading.Event()

    def hold(_: int) -> None:
        with transaction.atomic():
            OrderLine.objects.filter(pk=line.pk).update(reason="changed by a person")
            held.set()
            release.wait(30)

    thread = threading.Thread(target=race, args=(1, hold))
    thread.start()
    assert held.wait(30)
    # Whoever waits for the lock of the row is in the way of nobody: the holder commits while the pass waits.
    threading.Timer(0.2, release.set).start()
    try:
        report = do_pass()
    finally:
        release.set()
        thread.join(30)

    line.refresh_from_db()
    assert (line.handled, line.reason) == (True, "changed by a person")
    assert report.outcome == "ok"
