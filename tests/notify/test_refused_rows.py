"""Rows that the database refuses during a delivery, and sessions of the database that end in the middle of one."""

import threading
from contextlib import ExitStack
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.utils import timezone

from notify.delivery.runner import deliver_due
from notify.dialects import dialect_of
from notify.models import Attempt, MailQueue
from notify.transports.memory import MemoryTransport
from tests.conftest import execute
from tests.mails import make_mail, outcomes, state
from tests.notify.test_lost_lock import only_on, own_session, terminate
from tests.racing import until
from tests.smtp import smtp_server

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def second():
    """Another session on the same database, for any thread."""
    other = connection.copy()
    other.inc_thread_sharing()
    yield other
    other.close()


UPDATES = {
    "sqlite": (
        "CREATE TRIGGER kwit_keeps BEFORE UPDATE ON notify_mail_queue WHEN OLD.subject = '{subject}' "
        "BEGIN SELECT RAISE(ABORT, 'kept by a trigger'); END",
        "DROP TRIGGER kwit_keeps",
    ),
    "postgresql": (
        "CREATE FUNCTION kwit_keeps() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'kept by a trigger'; END $$; "
        "CREATE TRIGGER kwit_keeps BEFORE UPDATE OF state ON notify_mail_queue FOR EACH ROW "
        "WHEN (OLD.subject = '{subject}') EXECUTE FUNCTION kwit_keeps()",
        "DROP FUNCTION kwit_keeps() CASCADE",
    ),
    "microsoft": (
        "CREATE TRIGGER kwit_keeps ON notify_mail_queue AFTER UPDATE AS "
        "IF UPDATE(state) AND EXISTS (SELECT 1 FROM inserted WHERE subject = N'{subject}') "
        "THROW 51000, N'kept by a trigger', 1;",
        "DROP TRIGGER kwit_keeps",
    ),
}


@pytest.fixture
def keep_state(transactional_db):
    """Return a function that has a trigger refuse every change of a mail's state, until the test ends."""
    create, drop = UPDATES[connection.vendor]
    with ExitStack() as undo:

        def keep(subject):
            execute(create.format(subject=subject))
            undo.callback(execute, drop)

        yield keep


def no_claims() -> bool:
    return not MailQueue.objects.exclude(worker="").exists()


@pytest.mark.parametrize("lanes", [1, 4])
def test_an_attempt_that_a_trigger_refuses_stops_no_other_mail(refusing_trigger, lanes):
    refusing_trigger("notify_attempt", "recipient", "bad@example.org")
    mails = [make_mail(to=(f"{name}@example.org",)) for name in ("ann", "bad", "ben", "cy", "dora")]
    emails = []

    def make():
        transport = MemoryTransport()
        transport.letters = emails
        return transport

    report = deliver_due(make_transport=make, lanes=lanes)

    assert (report.sent, report.error, no_claims()) == (5, "", True)
    assert [state(mail) for mail in mails] == ["sent"] * 5
    assert outcomes(mails[1]) == []
    assert deliver_due(transport=MemoryTransport()).letters == 0
    assert len(emails) == 5


def test_what_would_be_tried_again_but_cannot_be_recorded_waits_for_a_person(refusing_trigger):
    refusing_trigger("notify_attempt", "recipient", "bad@example.org")
    bad, good = make_mail(to=("bad@example.org", "ben@example.org")), make_mail(to=("cy@example.org",))
    with smtp_server() as server:
        server.on_rcpt = lambda address: "450 4.2.0 greylisted" if address.startswith("bad") else ""
        deliver_due(transport=server.transport())

        bad.refresh_from_db()
        assert (bad.state, state(good), no_claims()) == ("blocked", "sent", True)
        assert "what came of it cannot be written" in bad.problem
        assert server.recipients() == ["ben@example.org", "cy@example.org"]


def test_a_mail_that_may_not_begin_stops_no_other(keep_state):
    only_on("postgresql", "microsoft")
    mails = [make_mail(subject=subject) for subject in ("one", "two", "three")]
    keep_state("two")

    transport = MemoryTransport()
    report = deliver_due(transport=transport)

    assert [state(mail) for mail in mails] == ["sent", "queued", "sent"]
    assert [email.subject for email in transport.letters] == ["one", "three"]
    assert (report.sent, no_claims()) == (2, True)
    assert f"mail {mails[1].pk}: " in report.error


def test_a_count_of_attempts_at_its_limit_stops_no_other_mail():
    only_on("postgresql", "microsoft")
    mails = [make_mail(attempts=2**31 - 1), make_mail()]

    report = deliver_due(transport=MemoryTransport())

    assert ([state(mail) for mail in mails], report.error) == (["sent", "sent"], "")


@pytest.mark.parametrize("is_ever", [True, False])
def test_a_lost_mail_that_cannot_be_recorded_stops_no_other(refusing_trigger, keep_state, is_ever):
    """With a trigger that refuses its state as well, it stays as it is, and is named each time."""
    past = timezone.now() - timedelta(hours=1)
    lost = [
        make_mail(to=(f"{name}@example.org",), state="sending", flight=0, worker="dead", lease_until=past, subject=name)
        for name in ("bad", "ben")
    ]
    due = make_mail(to=("cy@example.org",))
    if is_ever:
        keep_state("bad")
    else:
        refusing_trigger("notify_attempt", "recipient", "bad@example.org")

    report = deliver_due(transport=MemoryTransport())

    assert (state(lost[1]), state(due)) == ("uncertain", "sent")
    assert state(lost[0]) == ("sending" if is_ever else "uncertain")
    assert (f"mail {lost[0].pk}" in report.error) is is_ever
    assert MailQueue.objects.filter(worker__contains=":").count() == 0


@pytest.mark.parametrize("policy", ["hold", "resend"])
def test_a_session_that_ends_while_a_mail_is_on_the_wire_leaves_no_doubt(second, configure, policy):
    only_on("postgresql", "microsoft")
    configure(ON_UNCERTAIN=policy)
    mails = [make_mail(to=(f"u{number}@example.org",)) for number in range(4)]
    session, ended = own_session(), []
    with smtp_server() as server:
        transport = server.transport()
        send = transport.send

        def answered(email, packed, *, give_up_at):
            results = send(email, packed, give_up_at=give_up_at)
            if len(server.received) == 2:
                terminate(session, by=second)
                ended.append(True)
            return results

        transport.send = answered
        report = deliver_due(transport=transport)

        assert ended
        assert (report.sent, report.uncertain, no_claims()) == (4, 0, True)
        assert sorted(server.recipients()) == [f"u{number}@example.org" for number in range(4)]
    assert [outcomes(mail) for mail in mails] == [[(f"u{number}@example.org", "sent", 250)] for number in range(4)]


def test_a_commit_whose_answer_was_lost_is_not_recorded_twice(second, monkeypatch):
    only_on("postgresql")
    mails = [make_mail(to=(f"u{number}@example.org",)) for number in range(6)]
    dialect, calls = dialect_of(connection), []
    real = dialect.write_progress

    def cut(*args, **kwargs):
        begun = real(*args, **kwargs)
        calls.append(begun)
        if len(calls) % 2:
            terminate(own_session(), by=second)
            raise OperationalError("server closed the connection unexpectedly")
        return begun

    monkeypatch.setattr(dialect, "write_progress", cut)
    with smtp_server() as server:
        assert deliver_due(transport=server.transport()).sent == 6
        assert len(server.received) == 6
    assert {state(mail) for mail in mails} == {"sent"}
    assert Attempt.objects.count() == 6


@pytest.fixture
def absent(monkeypatch, configure):
    """Return a function that makes the database unreachable for the writer, from then on."""
    configure(LEASE=timedelta(seconds=2))
    dialect = dialect_of(connection)

    def away(*args, **kwargs):
        raise OperationalError("the server is not there (a test)")

    def begin():
        monkeypatch.setattr(dialect, "is_lost", lambda error: "not there (a test)" in str(error))
        monkeypatch.setattr(dialect, "write_progress", away)

    return begin


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_database_that_stays_away_with_mails_on_the_wire_is_exit_75(absent, monkeypatch, configure, lanes):
    for _ in range(lanes + 2):
        make_mail()
    send = MemoryTransport.send
    monkeypatch.setattr(MemoryTransport, "send", lambda *args, **kwargs: absent() or send(*args, **kwargs))
    configure(TRANSPORT="notify.transports.memory.MemoryTransport")

    with pytest.raises(CommandError, match="not there") as refused:
        call_command("notify_deliver", lanes=lanes)

    assert refused.value.returncode == 75
    assert 1 <= MailQueue.objects.filter(state="sending").count() <= lanes
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("notify-lane")])


def test_a_database_that_is_away_from_the_start_is_exit_1(monkeypatch):
    make_mail()
    dialect = dialect_of(connection)

    def away(*args, **kwargs):
        raise OperationalError("the server is not there (a test)")

    monkeypatch.setattr(dialect, "now", away)

    with pytest.raises(CommandError, match="not there") as refused:
        call_command("notify_deliver")

    assert refused.value.returncode == 1
