"""The next mail is made while the last one is written down, and announced before its own turn is committed."""

import contextlib
import dataclasses
import threading
import time
from datetime import timedelta

import pytest
from django.db import connection, connections
from django.utils import timezone

from notify.delivery import prefetch as drafts
from notify.delivery.runner import deliver_due
from notify.models import Channel, MailQueue
from notify.transports.memory import MemoryTransport
from notify.transports.smtp import SmtpTransport
from tests.mails import PAST, make_mail, state
from tests.notify.test_waiting_mail import Remark
from tests.racing import until
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


def test_while_a_mail_is_sent_the_next_one_is_made_in_a_thread():
    for number in range(3):
        make_mail(subject=f"mail {number}")
    is_second_packed = threading.Event()

    def on_pack(letter):
        if letter.subject == "mail 1":
            is_second_packed.set()

    def on_send(letter):
        assert is_second_packed.wait(20), "the second mail waited for the first"

    transport = Watched(on_pack, on_send)

    assert deliver_due(transport=transport).sent == 3
    assert transport.packed == [("mail 0", True), ("mail 1", False), ("mail 2", False)]
    assert [letter.subject for letter in transport.letters] == ["mail 0", "mail 1", "mail 2"]


def test_a_draft_that_waited_too_long_is_made_anew(monkeypatch):
    monkeypatch.setattr(drafts, "FRESH_S", 0)
    for number in range(2):
        make_mail(subject=f"mail {number}")
    is_drafted = threading.Event()
    transport = Watched(
        on_pack=lambda letter: is_drafted.set() if letter.subject == "mail 1" else None,
        on_send=lambda letter: is_drafted.wait(20),
    )

    assert deliver_due(transport=transport).sent == 2
    assert transport.packed == [("mail 0", True), ("mail 1", False), ("mail 1", True)]


def test_what_travels_together_is_not_made_ahead(add_step):
    add_step(type("Digested", (Remark,), {"digest": timedelta(hours=1)}))
    for number in range(2):
        make_mail(kind="remark", to=(f"u{number}@example.org",), subject=f"mail {number}")
    transport = Watched()

    assert deliver_due(transport=transport).sent == 2
    assert transport.packed == [("mail 0", True), ("mail 1", True)]


def test_a_mail_that_cannot_be_made_ahead_is_blocked_alone():
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


def test_a_machine_without_threads_delivers_all_the_same(monkeypatch, caplog):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for number in range(3):
        make_mail(subject=f"mail {number}")
    transport = Watched()

    assert deliver_due(transport=transport).sent == 3
    assert transport.packed == [(f"mail {number}", True) for number in range(3)]
    assert "can't start new thread" in caplog.text


@pytest.mark.parametrize("end", ["told to stop", "Ctrl-C"])
def test_what_was_sent_is_written_down_before_anybody_waits_for_a_draft(end):
    first, second = make_mail(), make_mail(subject="mail 1")
    is_drafting, is_written = threading.Event(), []

    def on_pack(letter):
        if letter.subject == "mail 1":
            is_drafting.set()
            is_written.append(until(lambda: state(first) == "sent"))
            connections.close_all()

    def asked():
        if not transport.letters:
            return False
        assert is_drafting.wait(20)
        if end == "Ctrl-C":
            raise KeyboardInterrupt
        return True

    transport = Watched(on_pack)
    with pytest.raises(KeyboardInterrupt) if end == "Ctrl-C" else contextlib.nullcontext():
        deliver_due(transport=transport, is_stopping=asked)

    until(lambda: is_written)
    assert [state(first), state(second)] == ["sent", "queued"]
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("notify-drafts")])


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


def test_what_a_template_reads_leaves_no_connection_behind():
    for _ in range(3):
        make_mail()
    used = []

    def on_pack(letter):
        if threading.current_thread() is not threading.main_thread():
            Channel.objects.count()
            used.append(connection.connection)

    assert deliver_due(transport=Watched(on_pack)).sent == 3
    assert len(used) == 2
    with pytest.raises(connection.Database.Error, match=r"(?i)closed"):
        used[0].cursor().execute("SELECT 1")


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

    transport.connection.say_goodbye = lambda: pytest.fail("the server would take a goodbye for the body")
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
    transport.connection.say_goodbye = lambda: pytest.fail("the server would take a goodbye for the body")
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
