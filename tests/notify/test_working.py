"""Pass and delivery in a loop: rounds, wake-ups, a clean end."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import call_command
from django.db import connection

from notify.dialects import dialect_of
from notify.errors import ChannelDown
from notify.management.worker import work
from notify.models import MailQueue
from notify.transports.memory import MemoryTransport
from tests.crashing import ROOT, child_environment, start_child
from tests.factories import make_comment, make_contact
from tests.mails import make_mail, state
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


def test_a_worker_whose_idle_session_is_ended_goes_on(caplog):
    """Also what the driver raises by itself, which Django wraps nowhere."""
    from tests.notify.test_lost_lock import only_on, own_session, terminate

    only_on("postgresql", "microsoft")
    second, told, ended = connection.copy(), [], []
    second.inc_thread_sharing()
    mail = make_mail(due_at=datetime.now(UTC) + timedelta(seconds=2))

    def is_stopping():
        if told and not ended:
            ended.append(own_session())
            timer = threading.Timer(0.3, lambda: terminate(ended[0], by=second))
            timer.start()
        return len(told) >= 3

    try:
        count = work(every_s=1.5, is_stopping=is_stopping, tell=told.append)
    finally:
        second.close()

    assert (count, [report.error for report in told]) == (3, ["", "", ""])
    assert state(mail) == "sent"
    assert own_session() != ended[0]


@pytest.mark.parametrize("is_there_meanwhile", [True, False])
def test_a_sqlite_file_that_is_replaced_is_opened_anew_and_said(tmp_path, is_there_meanwhile):
    if connection.vendor != "sqlite":
        pytest.skip("a file is what SQLite has")
    path, other = tmp_path / "kwit.sqlite3", tmp_path / "other.sqlite3"
    connection.ensure_connection()
    copy_to(path)
    make_mail(to=("ann@example.org",))
    copy_to(other)
    with smtp_server() as server:
        changed = {"DATABASE_URL": f"sqlite:///{path}", "EMAIL_URL": f"smtp://127.0.0.1:{server.port}"}
        names = ("KWIT_CHILD_DATABASES", "NOTIFY_DATABASE_URL", "RECEIPTS_DATABASE_URL")
        environment = {name: value for name, value in child_environment().items() if name not in names}
        process = subprocess.Popen(
            [sys.executable, "manage.py", "notify_work", "--every", "0.3"],
            cwd=ROOT,
            env=environment | changed | {"DJANGO_SETTINGS_MODULE": "config.settings", "DEBUG": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            first = process.stdout.readline()
            if not is_there_meanwhile:
                path.unlink()
                until(lambda: "the database file is not there" in process.stdout.readline(), timeout_s=30)
                assert not path.exists(), "no empty one was made"
            os.replace(other, path)
            until(lambda: len(server.received) == 1, timeout_s=30)
        finally:
            process.send_signal(signal.SIGTERM)
            said, _ = process.communicate(timeout=30)

    assert "pass ok" in first
    assert "was replaced; it is opened anew" in said
    assert process.returncode == 0
    with contextlib.closing(sqlite3.connect(path)) as replaced:
        assert replaced.execute("SELECT state FROM notify_mail_queue").fetchall() == [("sent",)]


def copy_to(path):
    with contextlib.closing(sqlite3.connect(path)) as target:
        connection.connection.backup(target)


def test_a_server_that_is_down_is_one_line_that_is_true(configure, caplog, capsys):
    configure(TRANSPORT="tests.notify.test_working.Unreachable")
    make_mail()

    with pytest.raises(SystemExit) as ended:
        call_command("notify_deliver")
    lines = [*capsys.readouterr().out.splitlines(), *(record.message for record in caplog.records)]

    assert ended.value.code == 1
    [line] = lines
    assert "The channel pauses until" in line
    assert "connection refused by a test" in line

    call_command("notify_deliver")
    [line] = capsys.readouterr().out.splitlines()
    assert "The channel pauses until" in line
    assert "Nothing was due" not in line


class Unreachable(MemoryTransport):
    """A server that is down."""

    def open(self):
        raise ChannelDown("connection refused by a test")
