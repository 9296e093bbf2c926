"""Delivery by an engine the site already has: fed from the queue, so that a lost broker loses nothing."""

import contextlib
import importlib.util
import subprocess
import time
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from notify.conf import Conf
from notify.delivery.dispatch import find_sink, hand_over_due, send_due
from notify.delivery.runner import deliver_due
from notify.delivery.sinks.base import deliver_claimed
from notify.errors import SinkUnusable
from notify.models import Attempt, Channel, MailQueue
from notify.transports.memory import MemoryTransport
from tests.mails import make_mail
from tests.postgres import free_port
from tests.programs import find_program
from tests.racing import until

pytestmark = pytest.mark.django_db(transaction=True)


class Broker:
    """A sink that only remembers; what it does with a portion is up to the test."""

    def __init__(self, error=None):
        self.portions = []
        self.error = error

    def hand_over(self, *, worker, ids, using):
        if self.error:
            raise self.error
        self.portions.append((worker, list(ids), using))


def states():
    return sorted(MailQueue.objects.values_list("state", flat=True))


def test_what_is_handed_over_is_delivered_by_whoever_gets_it(configure):
    configure(CLAIM_BATCH=2)
    for _ in range(5):
        make_mail()
    broker = Broker()

    assert hand_over_due(broker).handed_over == 5
    assert [len(ids) for _, ids, _ in broker.portions] == [2, 2, 1]
    assert hand_over_due(broker).handed_over == 0

    assert sum(deliver_claimed(*portion) for portion in broker.portions) == 5
    assert states() == ["sent"] * 5


def test_a_portion_that_comes_twice_is_delivered_once():
    for _ in range(3):
        make_mail()
    broker = Broker()
    hand_over_due(broker)

    assert [deliver_claimed(*broker.portions[0]) for _ in range(2)] == [3, 0]
    assert Attempt.objects.count() == 3


def test_a_portion_that_runs_twice_at_once_is_delivered_once():
    for number in range(2):
        make_mail(subject=f"mail {number}")
    broker = Broker()
    hand_over_due(broker)
    [(name, ids, using)] = broker.portions
    again = []

    class Interrupted(MemoryTransport):
        def send(self, letter, packed, *, give_up_at):
            # While the first mail is on the wire and the second one is not.
            again.append(deliver_claimed(name, ids, using))
            return super().send(letter, packed, give_up_at=give_up_at)

    assert deliver_due(only=(name, ids), transport=Interrupted()).sent == 2
    assert again == [0, 0]
    assert Attempt.objects.count() == 2
    assert name not in Attempt.objects.values_list("worker", flat=True)


def test_a_portion_that_finds_the_channel_paused_is_given_back():
    make_mail()
    broker = Broker()
    hand_over_due(broker)
    now = timezone.now()
    Channel.objects.create(name="backend", paused_at=now, paused_until=now + timedelta(hours=1), reason="421")

    assert deliver_claimed(*broker.portions[0]) == 0
    assert MailQueue.objects.filter(state="queued", worker="", lease_until=None).count() == 1


def test_a_portion_that_the_broker_loses_is_handed_over_again():
    make_mail()
    broker = Broker()
    hand_over_due(broker)
    MailQueue.objects.update(lease_until=timezone.now() - timedelta(seconds=1))

    assert hand_over_due(broker).handed_over == 1
    lost, found = broker.portions
    assert deliver_claimed(*lost) == 0
    assert deliver_claimed(*found) == 1


@pytest.mark.parametrize("error", [ConnectionRefusedError("no broker"), SinkUnusable("no broker")])
def test_a_broker_that_cannot_be_reached_is_one_error_and_frees_the_mails(error):
    make_mail()

    report = hand_over_due(Broker(error))

    assert "no broker" in report.error
    assert MailQueue.objects.get().lease_until is None


def test_nothing_is_handed_over_while_the_channel_pauses():
    now = timezone.now()
    Channel.objects.create(name="backend", paused_at=now, paused_until=now + timedelta(hours=1), reason="421")
    make_mail()

    report = hand_over_due(Broker())

    assert (report.handed_over, report.pause_reason) == (0, "421")


def test_a_sink_that_is_not_there_is_named(configure):
    configure(SINK="nowhere.Sink")
    with pytest.raises(SinkUnusable, match=r"nowhere\.Sink"):
        find_sink(Conf(SINK="nowhere.Sink"))
    with pytest.raises(CommandError, match=r"nowhere\.Sink"):
        call_command("notify_deliver")


@contextlib.contextmanager
def redis_server(tmp_path):
    """Run Debian's redis-server on a free port of loopback; yield its URL."""
    program = find_program("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed (apt-get install redis-server)")
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(tmp_path)]
    process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        import redis

        client = redis.Redis(port=port)

        def answers():
            with contextlib.suppress(redis.ConnectionError):
                return client.ping()

        until(answers)
        client.close()
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait(10)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::UserWarning")
def test_celery_delivers_over_a_real_broker_and_a_dead_one_loses_nothing(tmp_path, configure):
    import celery
    from celery.contrib.testing.worker import start_worker

    configure(SINK="celery")
    for _ in range(4):
        make_mail()
    with redis_server(tmp_path) as url:
        app = celery.Celery("site", broker=url, set_as_current=True)
        app.conf.update(broker_connection_retry_on_startup=True, worker_hijack_root_logger=False)
        app.set_default()
        assert send_due().handed_over == 4
        assert states() == ["queued"] * 4
        with start_worker(app, pool="solo", perform_ping_check=False, loglevel="ERROR"):
            until(lambda: states() == ["sent"] * 4)
        app.close()

    assert Attempt.objects.count() == 4
    make_mail()
    app.conf.broker_url = f"redis://127.0.0.1:{free_port()}/0"
    report = send_due()
    assert "nothing can be handed over" in report.error
    assert MailQueue.objects.filter(state="queued", lease_until=None).count() == 1
    app.close()


@pytest.mark.skipif(importlib.util.find_spec("django.tasks") is None, reason="Django's Tasks came with Django 6.0")
def test_djangos_tasks_deliver(configure, settings):
    settings.TASKS = {"default": {"BACKEND": "django.tasks.backends.immediate.ImmediateBackend"}}
    configure(SINK="tasks")
    for _ in range(3):
        make_mail()

    assert send_due().handed_over == 3
    assert states() == ["sent"] * 3


@pytest.mark.skipif(importlib.util.find_spec("django.tasks") is not None, reason="this Django has Tasks")
def test_djangos_tasks_on_an_older_django_are_named_as_missing(configure):
    configure(SINK="tasks")

    with pytest.raises(SinkUnusable, match=r"django\.tasks"):
        send_due()


def test_time_is_not_lost_on_an_empty_queue():
    started = time.monotonic()

    assert hand_over_due(Broker()).handed_over == 0
    assert time.monotonic() - started < 5
