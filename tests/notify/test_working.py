"""Pass and delivery in a loop: rounds, wake-ups, a clean end."""

import json
import signal
import time
from datetime import UTC, datetime

import pytest
from django.core.management import call_command
from django.db import connection

from notify.dialects import dialect_of
from notify.management.worker import work
from notify.models import MailQueue
from tests.crashing import child_environment, start_child
from tests.factories import make_comment, make_contact
from tests.mails import make_mail
from tests.notify.samples import Remark
from tests.racing import race, until
from tests.smtp import smtp_server

pytestmark = pytest.mark.django_db(transaction=True)


def comment_now():
    return make_comment(recipient=make_contact(), created_at=datetime.now(UTC))


def test_a_round_prepares_and_delivers(capsys):
    comment_now()

    call_command("notify_work", "--rounds", "1", "--json")

    told = json.loads(capsys.readouterr().out)
    assert told["pass"]["outcome"] == "ok"
    assert (told["delivery"]["sent"], told["error"]) == (1, None)
    assert MailQueue.objects.get().state == "sent"


def test_the_last_of_a_number_of_rounds_says_whether_it_failed(add_step):
    class Failing(Remark):
        def candidates(self, scope, *, not_before, using):
            raise RuntimeError("no such view")

    add_step(Failing)

    with pytest.raises(SystemExit) as ended:
        call_command("notify_work", "--rounds", "1")

    assert ended.value.code == 1


def test_rounds_go_on_until_asked_to_stop():
    told = []

    count = work(every_s=0.01, is_stopping=lambda: len(told) >= 3, tell=told.append)

    assert count == len(told) == 3


def test_the_service_sends_what_comes_and_stops_cleanly_on_sigterm():
    with smtp_server() as server:
        environment = child_environment() | {"EMAIL_URL": f"smtp://127.0.0.1:{server.port}"}
        child = start_child("django.core.management:call_command", "notify_work", every=0.2, environment=environment)
        comment_now()
        until(lambda: len(server.received) == 1, timeout_s=30)
        comment_now()
        until(lambda: len(server.received) == 2)
        until(lambda: MailQueue.objects.filter(state="sent").count() == 2)
        child.process.send_signal(signal.SIGTERM)
        ended = child.end()

    assert ended.returncode == 0, ended.stderr
    assert "1 sent" in ended.stdout


@pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL can wake a waiting session")
def test_a_waiting_worker_is_woken_by_whoever_queues_a_mail():
    def waiter(number):
        dialect = dialect_of(connection)
        if number == 0:
            started = time.monotonic()
            assert dialect.wait(connection, 20) is True
            return time.monotonic() - started
        until(is_listening)
        dialect.announce(connection)
        return 0.0

    waited, _ = race(2, waiter)

    assert waited < 15


def is_listening():
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND pid <> pg_backend_pid()")
        return cursor.fetchone()[0]


def test_nobody_announces_and_the_wait_ends_by_itself():
    assert dialect_of(connection).wait(connection, 0.05) is False


def test_a_claim_takes_the_longest_due_first_and_what_is_leased_stays_leased():
    from datetime import timedelta

    dialect, now = dialect_of(connection), datetime.now(UTC)
    mails = [make_mail(due_at=now - timedelta(minutes=minutes)) for minutes in (1, 3, 2)]
    make_mail(due_at=now + timedelta(minutes=1))
    make_mail(state="blocked", problem="x")
    lease = now + timedelta(minutes=5)

    def claim(worker, at=now, limit=10):
        return dialect.claim_mails(
            connection, worker=worker, now=at, lease_until=at + timedelta(minutes=5), limit=limit
        )

    assert claim("a", limit=2) == [mails[1].pk, mails[2].pk]
    assert claim("b") == [mails[0].pk]
    assert claim("c") == []
    assert set(MailQueue.objects.filter(worker="a").values_list("lease_until", flat=True)) == {lease}
    assert len(claim("d", at=lease + timedelta(seconds=1))) == 4


def test_workers_that_claim_at_once_share_and_never_meet():
    from datetime import timedelta

    for _ in range(40):
        make_mail()
    now = datetime.now(UTC)

    def claim(number):
        mine, dialect = [], dialect_of(connection)
        while ids := dialect.claim_mails(
            connection, worker=f"w{number}", now=now, lease_until=now + timedelta(hours=1), limit=3
        ):
            mine += ids
        return mine

    shares = race(6, claim)

    assert sorted(pk for share in shares for pk in share) == sorted(MailQueue.objects.values_list("pk", flat=True))
