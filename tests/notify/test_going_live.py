"""Going live: a baseline that notes what is there, and a dry run that writes nothing and lists what would be."""

from datetime import timedelta
from typing import Any

import pytest

from notify.models import Control, MailQueue, RunLog, TaskQueue
from portal.models import OrderLine
from tests.factories import NOW, make_comment, make_contact, make_line, make_order
from tests.notify.samples import do_pass, mailed, make_comments, noted

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_baseline_marks_all_that_is_there_and_the_next_event_gives_a_mail(configure):
    """E15, with 300 old comments instead of 100,000: the number is the benchmark's affair."""
    configure(CHUNK_ROWS=100, NOT_BEFORE=NOW - timedelta(days=5))
    ann = make_contact()
    line, order = make_line(), make_order(registered_at=NOW - timedelta(days=400))
    waiting = make_line(order=order)
    make_comments(300, at=NOW - timedelta(days=400), line=line, recipient=ann)

    report = do_pass(is_baseline=True)
    do_pass(is_full=True)

    assert (MailQueue.objects.count(), TaskQueue.objects.count()) == (0, 0)
    assert (report.outcome, sum(step.mails for step in report.steps)) == ("ok", 0)
    assert noted("comment") == [line.pk], "one event a line: its newest comment"
    assert noted("order") == [order.pk], "older than NOT_BEFORE, but marked all the same"
    assert OrderLine.objects.get(pk=waiting.pk).handled

    make_comments(1, at=NOW, line=line, recipient=ann)
    do_pass()
    assert mailed("comment") == [line.pk]


def test_a_baseline_is_not_held_up_by_the_circuit_breaker(configure):
    configure(BREAKER=1)
    for _ in range(3):
        make_line(order=make_order(registered_at=NOW))

    do_pass(is_baseline=True)

    assert len(noted("order")) == 3


def everything() -> dict[str, list[Any]]:
    models = (Control, MailQueue, TaskQueue, RunLog, OrderLine)
    return {model.__name__: list(model.objects.order_by("pk").values()) for model in models}


def test_a_dry_run_writes_nothing_at_all_and_lists_what_it_would_queue(configure):
    RunLog.objects.create(pass_id="0" * 32, step="pass", started_at=NOW - timedelta(days=400))
    buyer = make_contact(email="buyer@example.org")
    order = make_order(buyer=buyer, number="PO-1", registered_at=NOW)
    line = make_line(order=order, item="Bolt", state="rejected", rejected_at=NOW)
    make_comment(line=line, author="Eve")
    before = everything()

    report = do_pass(is_dry_run=True)

    assert everything() == before
    assert report.outcome == "warning", "the comment has no recipient"
    assert [(one.event.kind, one.event.key, one.subject, one.state) for one in report.listed] == [
        ("order", order.pk, "New order PO-1", "queued"),
        ("rejected", line.pk, "Order PO-1: Bolt rejected", "queued"),
        ("comment", line.pk, "Order PO-1, Bolt: new comment by Eve", "blocked"),
    ]
    assert report.listed[1].title == "Find another supplier for Bolt of order PO-1"
    assert [(step.step, step.mails, step.tasks) for step in report.steps] == [
        ("order", 1, 0),
        ("rejected", 1, 1),
        ("advice", 0, 0),
        ("comment", 0, 0),
    ]


def test_after_a_dry_run_the_real_pass_queues_what_was_listed():
    make_comment(recipient=make_contact())
    listed = do_pass(is_dry_run=True).listed

    do_pass()

    assert [mail.subject for mail in MailQueue.objects.all()] == [one.subject for one in listed]
    assert len(listed) == 1


def test_a_dry_run_shows_the_circuit_breaker_as_the_real_pass_would(configure):
    configure(BREAKER=2)
    for minute in range(5):
        make_line(order=make_order(registered_at=NOW + timedelta(minutes=minute)))

    report = do_pass(is_dry_run=True, now=NOW + timedelta(hours=1))

    assert "circuit breaker: 2 prepared, 3 wait, the oldest since 2026-01-31T08:02:00" in report.steps[0].error
