"""The row of each delivery: whose, over how many lanes, what came of it, and when its worker was last heard of."""

import os
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import OperationalError
from django.utils import timezone

from notify.delivery import run_log
from notify.delivery.run_log import record_sign_of_life
from notify.delivery.runner import deliver_due
from notify.errors import ChannelDown
from notify.models import Delivery
from notify.transports.memory import MemoryTransport
from tests.browser.story import VIEW, make_user
from tests.mails import make_mail, state
from tests.racing import in_another_session

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_delivery_says_who_sent_how_much_over_how_many_lanes():
    for number in range(3):
        make_mail(subject=f"mail {number}" if number else "")

    deliver_due(make_transport=MemoryTransport, lanes=4, worker="app-1:7:x")

    row = Delivery.objects.get()
    assert (row.worker, row.lanes, row.pid) == ("app-1:7:x", 4, os.getpid())
    assert (row.sent, row.blocked, row.failed, row.error) == (2, 1, 0, "")
    assert row.started_at <= row.seen_at == row.ended_at


def test_a_delivery_that_finds_nothing_has_no_row():
    deliver_due(transport=MemoryTransport())

    assert not Delivery.objects.exists()


def test_a_channel_that_is_down_is_in_the_row_and_a_pause_makes_no_further_ones():
    class Down(MemoryTransport):
        def open(self):
            raise ChannelDown("connection refused by a test")

    make_mail()
    for _ in range(3):
        deliver_due(transport=Down())

    [row] = Delivery.objects.all()
    assert "connection refused by a test" in row.error


def test_a_delivery_at_work_is_heard_of(monkeypatch):
    monkeypatch.setattr(run_log, "BEAT_S", 0)
    for _ in range(3):
        make_mail()
    seen = []

    class Slow(MemoryTransport):
        def send(self, email, packed, *, give_up_at):
            row = in_another_session(Delivery.objects.get)
            seen.append((row.ended_at, row.seen_at))
            return super().send(email, packed, give_up_at=give_up_at)

    deliver_due(transport=Slow())

    assert [ended for ended, _ in seen] == [None] * 3
    assert seen[0][1] < seen[-1][1]


def test_a_log_that_cannot_be_written_stops_no_mail(monkeypatch, caplog):
    def refuse(*args, **kwargs):
        raise OperationalError("no such table (a test)")

    monkeypatch.setattr(Delivery, "save", refuse)
    mail = make_mail()

    assert deliver_due(transport=MemoryTransport()).sent == 1
    assert state(mail) == "sent"
    assert "not logged" in caplog.text


def test_rows_are_kept_for_as_long_as_the_run_log():
    Delivery.objects.create(worker="old", started_at=timezone.now() - timedelta(days=61))
    make_mail()

    deliver_due(transport=MemoryTransport())

    assert not Delivery.objects.filter(worker="old").exists()


def test_an_idle_worker_is_seen():
    call_command("notify_work", "--rounds", "1")
    first = Delivery.objects.get()
    Delivery.objects.update(seen_at=first.started_at - timedelta(hours=1))

    record_sign_of_life(using="default", lanes=8)

    row = Delivery.objects.get()
    assert (row.pk, row.sent, row.seen_at >= first.seen_at) == (first.pk, 0, True)


def test_the_page_says_which_delivery_was_not_heard_of(client):

    now = timezone.now()
    Delivery.objects.create(worker="app-1:7:x", sent=12345, started_at=now, seen_at=now, ended_at=now)
    Delivery.objects.create(worker="app-2:8:y", started_at=now, seen_at=now - timedelta(hours=1))
    Delivery.objects.create(worker="app-3:9:z", started_at=now, seen_at=now, error="535 wrong password")
    client.force_login(make_user("victor", *VIEW, "notify.view_delivery"))

    page = client.get("/admin/notify/delivery/").content.decode()

    assert "12345" in page
    assert page.count("not heard of") == 1
    assert "535 wrong password" in page
    own = client.get(f"/admin/notify/delivery/{Delivery.objects.first().pk}/change/").content.decode()
    assert "app-1:7:x" in own
