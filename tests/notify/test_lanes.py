"""Several connections of one worker, and what is said to a server before the mail is committed as begun."""

import contextlib
import dataclasses
import threading
import time
from datetime import timedelta
from queue import SimpleQueue

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from notify.conf import Conf
from notify.delivery import lanes
from notify.delivery.runner import deliver_due
from notify.models import Channel, MailQueue
from notify.transports.memory import MemoryTransport
from notify.transports.smtp import SmtpTransport
from tests.mails import PAST, make_mail, state
from tests.notify.test_waiting_mail import Remark
from tests.racing import race, until
from tests.smtp import DROP, smtp_server

pytestmark = pytest.mark.django_db(transaction=True)


class Watched(MemoryTransport):
    """Notes who packs each letter, and lets a test act there."""

    def __init__(self, on_pack=lambda letter: None, on_send=lambda letter: None):
        super().__init__()
        self.packed = []
        self.on_pack, self.on_send = on_pack, on_send

    def pack(self, letter):
        self.on_pack(letter)
        self.packed.append((letter.subject, threading.current_thread() is threading.main_thread()))
        return super().pack(letter)

    def send(self, letter, packed, *, give_up_at):
        self.on_send(letter)
        return super().send(letter, packed, give_up_at=give_up_at)


def test_lanes_send_at_once_and_each_over_a_connection_of_its_own(server):
    for number in range(12):
        make_mail(to=(f"u{number}@example.org",))
    everybody = threading.Barrier(4)
    server.on_mail = lambda number: ""
    meeting = Meeting(server.transport, everybody)

    report = deliver_due(make_transport=meeting, lanes=4)

    assert (report.sent, server.connections) == (12, 4)
    assert sorted(server.recipients()) == sorted(f"u{number}@example.org" for number in range(12))


class Meeting:
    """Makes transports that wait for one another before each mail: no lane could pass alone."""

    def __init__(self, make, barrier):
        self.make, self.barrier = make, barrier

    def __call__(self):
        transport = self.make()
        send = transport.send

        def together(email, packed, *, give_up_at):
            self.barrier.wait(20)
            return send(email, packed, give_up_at=give_up_at)

        transport.send = together
        return transport


def test_a_commit_covers_what_several_lanes_have_done():
    for _ in range(24):
        make_mail()
    everybody = threading.Barrier(8)

    class Together(MemoryTransport):
        def send(self, email, packed, *, give_up_at):
            everybody.wait(20)
            return super().send(email, packed, give_up_at=give_up_at)

    with CaptureQueriesContext(connection) as captured:
        assert deliver_due(make_transport=Together, lanes=8).sent == 24

    inserts = [query for query in captured if "INTO notify_attempt" in query["sql"] or "tried AS" in query["sql"]]
    assert len(inserts) < 24


def test_only_as_many_lanes_are_opened_as_there_are_mails(server):
    for _ in range(2):
        make_mail()

    assert deliver_due(make_transport=server.transport, lanes=8).sent == 2
    assert server.connections <= 2


def test_a_connection_is_closed_after_so_many_mails(server, configure):
    configure(CONNECTION_MAILS=2)
    for _ in range(5):
        make_mail()

    assert deliver_due(transport=server.transport()).sent == 5
    assert server.connections == 3


def test_an_idle_connection_is_closed(monkeypatch, server):
    monkeypatch.setattr(lanes, "IDLE_S", 0.1)
    jobs = SimpleQueue()
    lane = lanes.Lane(
        number=1, transport=server.transport(), conf=Conf(), now=timezone.now, jobs=jobs, events=SimpleQueue()
    )
    lane.transport.open()
    thread = lane.start()

    until(lambda: lane.transport.connection is None)
    jobs.put(None)
    thread.join(20)
    assert server.connections == 1


def test_too_many_connections_close_lanes_and_not_the_channel(server):
    mails = [make_mail(to=(f"u{number}@example.org",)) for number in range(20)]
    server.on_connect = lambda number: "421 4.7.0 too many connections" if number > 2 else ""

    report = deliver_due(make_transport=server.transport, lanes=6)

    assert (report.sent, report.error, report.paused_until) == (20, "", None)
    assert {state(mail) for mail in mails} == {"sent"}
    assert not Channel.objects.exclude(paused_until=None).exists()


def test_a_server_that_takes_no_connection_at_all_pauses_the_channel(server):
    for _ in range(3):
        make_mail()
    server.on_connect = lambda number: "421 4.7.0 too many connections"

    report = deliver_due(make_transport=server.transport, lanes=3)

    assert "too many connections" in report.error
    assert set(MailQueue.objects.values_list("state", "attempts", "worker")) == {("queued", 0, "")}


def test_several_lanes_that_meet_a_quota_at_once_lose_no_attempt(server):
    for number in range(30):
        make_mail(to=(f"u{number}@example.org",))
    server.on_data = lambda number: "450 4.7.1 quota exceeded" if number > 10 else ""

    report = deliver_due(make_transport=server.transport, lanes=4)

    assert report.sent == 10
    assert "quota exceeded" in report.error
    assert set(MailQueue.objects.values_list("state", "attempts", "worker")) == {("sent", 1, ""), ("queued", 0, "")}


@pytest.mark.parametrize("number", [1, 2])
def test_a_rate_is_kept_over_all_lanes_and_workers(configure, number):
    configure(RATE=20.0)
    for _ in range(16):
        make_mail()
    sent = []

    class Timed(MemoryTransport):
        def send(self, email, packed, *, give_up_at):
            sent.append(time.monotonic())
            return super().send(email, packed, give_up_at=give_up_at)

    reports = race(number, lambda _: deliver_due(make_transport=Timed, lanes=4))

    assert sum(report.sent for report in reports) == len(sent) == 16
    # A worker may have reserved a second's mails that it did not need; it is never faster.
    assert max(sent) - min(sent) > 15 / 20 * 0.9
    for first, later in zip(sorted(sent), sorted(sent)[8:], strict=False):
        assert later - first > 4 / 20, "no burst"


def test_a_stopping_worker_does_not_wait_for_its_turn(configure):
    configure(RATE=0.01)
    for _ in range(3):
        make_mail()
    transport = Watched()
    started = time.monotonic()

    report = deliver_due(transport=transport, is_stopping=lambda: bool(transport.letters))

    assert (report.sent, time.monotonic() - started < 10) == (1, True)
    assert MailQueue.objects.filter(state="queued", worker="").count() == 2


def test_a_clock_that_was_wrong_does_not_stop_a_channel_with_a_rate(configure):
    configure(RATE=100.0)
    Channel.objects.create(name="memory", next_at=timezone.now() + timedelta(days=365))
    make_mail()

    assert deliver_due(transport=MemoryTransport()).sent == 1


def test_a_template_that_reads_the_database_does_so_over_a_connection_of_its_lane():
    for _ in range(3):
        make_mail()
    used = []

    def on_pack(email):
        Channel.objects.count()
        used.append((connection.connection, threading.current_thread() is threading.main_thread()))

    assert deliver_due(transport=Watched(on_pack)).sent == 3
    assert {is_main for _, is_main in used} == {False}
    with pytest.raises(connection.Database.Error, match=r"(?i)closed"):
        used[0][0].cursor().execute("SELECT 1")


def test_mails_of_one_digest_do_not_race_each_other(add_step):
    add_step(type("Digested", (Remark,), {"digest": timedelta(hours=1)}))
    mails = [make_mail(kind="remark") for _ in range(12)]
    sent = []

    def make():
        transport = MemoryTransport()
        transport.letters = sent
        return transport

    assert deliver_due(make_transport=make, lanes=6).sent == 12
    assert [email.subject for email in sent] == ["12 notifications"]
    assert {state(mail) for mail in mails} == {"sent"}


def test_a_mail_that_cannot_be_made_is_blocked_alone():
    mails = [make_mail(), make_mail(template="no-such-template"), make_mail()]

    report = deliver_due(transport=Watched())

    assert [state(mail) for mail in mails] == ["sent", "blocked", "sent"]
    assert (report.sent, report.blocked) == (2, 1)
    mails[1].refresh_from_db()
    assert "TemplateDoesNotExist: notify/mail/no-such-template" in mails[1].problem
    assert "render_body" in mails[1].tries.get().text


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), BaseException("a panic in Rust"), MemoryError()])
def test_a_template_that_would_end_the_process_ends_its_mail(error):
    mails = [make_mail(subject=f"mail {number}") for number in range(3)]

    def on_pack(letter):
        if letter.subject == "mail 1":
            raise error

    deliver_due(transport=Watched(on_pack))

    assert [state(mail) for mail in mails] == ["sent", "blocked", "sent"]
    mails[1].refresh_from_db()
    assert type(error).__name__ in mails[1].problem
    assert "on_pack" in mails[1].tries.get().text


def test_a_machine_with_few_threads_delivers_over_fewer_lanes(monkeypatch, caplog):
    start, started = threading.Thread.start, []

    def refuse(thread):
        if not thread.name.startswith("notify-lane") or not started:
            started.append(thread)
            return start(thread)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(5):
        make_mail()

    assert deliver_due(make_transport=MemoryTransport, lanes=4).sent == 5
    assert "can't start new thread" in caplog.text


@pytest.mark.parametrize("end", ["told to stop", "Ctrl-C"])
def test_each_lane_finishes_its_mail_and_nothing_further_begins(end):
    for number in range(12):
        make_mail(subject=f"mail {number}")
    begun, go_on, emails = threading.Barrier(4), threading.Event(), []

    class Slow(MemoryTransport):
        def send(self, email, packed, *, give_up_at):
            begun.wait(20)
            assert go_on.wait(20)
            emails.append(email)
            return super().send(email, packed, give_up_at=give_up_at)

    def asked():
        if begun.n_waiting == 0 and MailQueue.objects.filter(state="sending").count() == 3:
            with contextlib.suppress(threading.BrokenBarrierError):
                begun.wait(20)
            go_on.set()
            if end == "Ctrl-C":
                raise KeyboardInterrupt
            return True
        return go_on.is_set()

    with pytest.raises(KeyboardInterrupt) if end == "Ctrl-C" else contextlib.nullcontext():
        deliver_due(make_transport=Slow, lanes=3, is_stopping=asked)

    assert len(emails) == 3
    assert sorted(MailQueue.objects.values_list("state", "worker")) == [("queued", "")] * 9 + [("sent", "")] * 3
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("notify-lane")])


def test_what_a_template_sets_for_its_thread_stays_with_its_mail():
    zones = []

    def on_pack(letter):
        zones.append(timezone.get_current_timezone_name())
        timezone.activate("Asia/Tokyo")

    for _ in range(3):
        make_mail()
    deliver_due(transport=Watched(on_pack))

    assert zones == [timezone.get_current_timezone_name()] * 3


def test_a_worker_that_is_told_to_stop_leaves_the_next_mail_as_it_was():
    first, second = make_mail(), make_mail()
    transport = Watched()

    deliver_due(transport=transport, is_stopping=lambda: bool(transport.letters))

    assert [state(first), state(second)] == ["sent", "queued"]
    second.refresh_from_db()
    assert (second.worker, second.message_text, second.attempts) == ("", "", 0)


@pytest.fixture
def server():
    with smtp_server() as running:
        yield running


def packed_letters(transport, *names):
    """Return a letter to each of these, packed."""
    watched = Watched()
    for name in names:
        make_mail(to=(f"{name}@example.org",))
    deliver_due(transport=watched)
    return [(letter, transport.pack(letter)) for letter in watched.letters]


def send(transport, letter, packed):
    return [str(result.outcome) for result in transport.send(letter, packed, give_up_at=float("inf"))]


def test_an_announced_letter_is_said_once_and_sent_when_it_is_sent(server):
    transport = server.transport()
    [ann] = packed_letters(transport, "ann")
    asked = []
    server.on_rcpt = lambda address: asked.append(address) or ""
    transport.open()

    transport.announce(*ann)

    until(lambda: asked == ["ann@example.org"])
    assert server.received == []
    assert send(transport, *ann) == ["sent"]
    assert (asked, server.mails, server.datas, server.connections) == (["ann@example.org"], 1, 1, 1)
    transport.close()


@pytest.mark.parametrize("instead", ["announce another", "send another", "close"])
def test_an_announced_letter_that_is_not_sent_is_taken_back(server, instead):
    transport = server.transport()
    ann, ben = packed_letters(transport, "ann", "ben")
    transport.open()
    transport.announce(*ann)
    until(lambda: server.mails == 1)

    transport.connection.send_quit = lambda: pytest.fail("the server would take a goodbye for the body")
    if instead == "close":
        transport.close()
    elif instead == "announce another":
        transport.announce(*ben)

    assert send(transport, *ben) == ["sent"]
    transport.close()
    assert server.recipients() == ["ben@example.org"]
    assert server.connections == 2


def test_a_letter_whose_announcement_was_lost_goes_over_a_new_connection(server):
    transport = server.transport()
    ann, ben = packed_letters(transport, "ann", "ben")
    server.on_mail = lambda number: DROP if number == 2 else ""
    assert send(transport, *ann) == ["sent"]

    transport.announce(*ben)

    assert send(transport, *ben) == ["sent"]
    assert server.recipients() == ["ann@example.org", "ben@example.org"]
    transport.close()


def test_a_letter_whose_envelope_took_too_long_is_not_sent(server):
    transport = server.transport()
    [(letter, packed)] = packed_letters(transport, "ann")
    transport.open()
    transport.connection.send_quit = lambda: pytest.fail("the server would take a goodbye for the body")
    give_up_at = time.monotonic() + 0.3
    server.on_rcpt = lambda address: until(lambda: time.monotonic() > give_up_at) and ""

    [result] = transport.send(letter, packed, give_up_at=give_up_at)

    assert (result.outcome, "lease" in result.reply.text) == ("deferred", True)
    assert (server.mails, server.received) == (1, [])


def test_a_quota_for_one_recipient_leaves_the_other_one_served(server):
    transport = server.transport()
    [(letter, packed)] = packed_letters(transport, "ann")
    both = dataclasses.replace(letter, recipients=("ann@example.org", "ben@example.org"))
    server.on_rcpt = lambda address: "450 4.7.1 quota exceeded" if address.startswith("ben") else ""

    results = transport.send(both, packed, give_up_at=float("inf"))
    transport.close()

    assert sorted(str(result.outcome) for result in results) == ["deferred", "sent"]
    assert server.recipients() == ["ann@example.org"]


class Robbed(SmtpTransport):
    """Loses the first announced mail to another worker, before its turn is committed."""

    is_robbed = False

    def announce(self, letter, packed):
        super().announce(letter, packed)
        if not self.is_robbed:
            self.is_robbed = True
            MailQueue.objects.filter(due_at=PAST).update(worker="another", state="queued")


def test_a_mail_that_was_lost_after_it_was_announced_is_not_sent(server):
    robbed, kept = make_mail(to=("ann@example.org",)), make_mail(to=("ben@example.org",), due_at=PAST + timedelta(1))

    report = deliver_due(transport=Robbed(server.transport().options))

    assert (report.sent, state(kept), state(robbed)) == (1, "sent", "queued")
    assert server.recipients() == ["ben@example.org"]
