"""Mail servers that stall, never end, refuse and close in the middle: time, memory and verdicts stay right."""

import socket
import time
import tracemalloc
from contextlib import ExitStack, suppress

import pytest

from notify.errors import ChannelDown, TooManyConnections
from notify.transports.base import Email, VerdictUnclear
from notify.transports.connection import LINE_OCTETS_MAX, REPLY_LINES_MAX
from notify.transports.smtp import SmtpOptions, SmtpTransport
from tests.scripted_smtp import close_after, drip, repeat, scripted_server, silence

STAGES = ["greeting", "EHLO", "MAIL", "RCPT", "DATA", "body"]
ENDLESS = {
    "endless lines": repeat("250-more\r\n"),
    "a line without end": repeat("250 x"),
    "one octet at a time": drip("250 this takes its time\r\n"),
    "silence": silence,
}


def make_letter(*recipients, text="Good morning.\n"):
    recipients = recipients or ("ann@example.org",)
    return Email("kwit@example.org", recipients, recipients, "A subject", text, "", ())


def send(transport, *recipients, text="Good morning.\n"):
    """Return (recipient, outcome, code) of one mail, what is unclear as if it were the mail's."""
    letter = make_letter(*recipients, text=text)
    try:
        results = transport.send(letter, transport.pack(letter), give_up_at=time.monotonic() + 5)
    except VerdictUnclear as unclear:
        results = unclear.results
    finally:
        transport.close()
    return [(result.recipient.partition("@")[0], str(result.outcome), result.reply.code) for result in results]


@pytest.mark.parametrize("extensions", [(), ("PIPELINING",)], ids=["one by one", "pipelining"])
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("what", ENDLESS.values(), ids=ENDLESS)
def test_a_server_that_never_ends_an_answer_is_left_in_time(stage, what, extensions):
    with scripted_server({stage: what}, *extensions) as server:
        began = time.monotonic()
        found = []
        with suppress(ChannelDown):
            found = send(server.transport())
        took = time.monotonic() - began

    assert took < 2.5
    expected = {"body": "uncertain", "greeting": None, "EHLO": None}.get(stage, "deferred")
    assert [outcome for _, outcome, _ in found] == ([expected] if expected else [])


def test_an_endless_answer_is_not_kept_in_memory():
    with scripted_server({"EHLO": repeat("250-" + "x" * 500 + "\r\n")}) as server:
        tracemalloc.start()
        with pytest.raises(ChannelDown, match="more than"):
            server.transport().open()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    assert peak < 4_000_000


@pytest.mark.parametrize("what", ENDLESS.values(), ids=ENDLESS)
def test_closing_waits_for_nobody(what):
    with scripted_server({"QUIT": what}) as server:
        transport = server.transport(timeout=30)
        transport.open()
        began = time.monotonic()
        transport.close()

        assert time.monotonic() - began < 0.2


def test_a_slow_but_honest_conversation_is_not_cut():
    with scripted_server({"MAIL": drip("250 fine\r\n", every_s=0.02)}) as server:
        assert send(server.transport()) == [("ann", "sent", 250)]


def test_a_mail_has_a_deadline_of_its_own_whatever_each_stage_takes():
    people = [f"p{number}@example.org" for number in range(20)]
    with scripted_server({"RCPT": drip("250 fine\r\n", every_s=0.02)}) as server:
        transport, letter = server.transport(), make_letter(*people)
        began = time.monotonic()
        with suppress(VerdictUnclear):
            transport.send(letter, transport.pack(letter), give_up_at=began + 1)
        took = time.monotonic() - began
        transport.close()

    assert took < 1.5
    assert server.bodies == 0


def test_the_longest_lawful_answers_are_read():
    lines = "".join(f"250-line {number}\r\n" for number in range(REPLY_LINES_MAX - 2)) + "250 " + "x" * 3000 + "\r\n"
    assert LINE_OCTETS_MAX > 3006
    with scripted_server({"body": lines}) as server:
        assert send(server.transport()) == [("ann", "sent", 250)]


@pytest.mark.parametrize("is_abrupt", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("extensions", [(), ("PIPELINING",)], ids=["one by one", "pipelining"])
@pytest.mark.parametrize("stage", ["MAIL", "RCPT", "DATA", "body"])
@pytest.mark.parametrize(
    ("answer", "outcome"), [("550 5.7.1 no", "refused"), ("552 5.3.4 too big", "refused"), ("421 4.7.0 go", "deferred")]
)
def test_an_answer_before_the_connection_closed_is_kept(stage, answer, outcome, extensions, is_abrupt):
    with scripted_server({stage: close_after(answer + "\r\n", is_abrupt=is_abrupt)}, *extensions) as server:
        [found] = send(server.transport(timeout=5))

    # A refused sender is the site's: the mail is kept.
    expected = "deferred" if stage == "MAIL" and answer.startswith("550") else outcome
    assert found == ("ann", expected, int(answer[:3]))


@pytest.mark.parametrize("answer", ["550 5.7.1 policy", "550-5.7.1 policy\r\n550-and mo", "550-5.7.1 policy\r\n"])
def test_a_refusal_that_broke_off_is_a_refusal(answer):
    with scripted_server({"RCPT": close_after(answer)}, "PIPELINING") as server:
        assert send(server.transport()) == [("ann", "refused", 550)]


def test_an_acceptance_that_broke_off_is_none():
    with scripted_server({"body": close_after("250-tak")}, "PIPELINING") as server:
        assert send(server.transport()) == [("ann", "uncertain", None)]


@pytest.mark.parametrize("answer", ["552 5.3.4 too big", "421 4.7.0 go away"])
def test_a_body_that_is_refused_while_it_is_written_was_refused(answer):
    with scripted_server({"DATA": close_after(f"354 go on\r\n{answer}\r\n", is_abrupt=True)}) as server:
        [found] = send(server.transport(timeout=5), text="0123456789abcdef\n" * 1_000_000)

    assert found == ("ann", "refused" if answer.startswith("552") else "deferred", int(answer[:3]))


def test_a_body_that_nobody_reads_ends_at_the_deadline_of_the_mail_and_was_not_sent():
    with scripted_server(
        {"DATA": lambda server, connection: connection.sendall(b"354 go on\r\n") or silence(server, connection)}
    ) as server:
        transport, letter = server.transport(), make_letter(text="0123456789abcdef\n" * 1_000_000)
        packed = transport.pack(letter)
        began = time.monotonic()
        try:
            results = transport.send(letter, packed, give_up_at=began + 1)
        except VerdictUnclear as unclear:
            results = unclear.results
        transport.close()

    assert time.monotonic() - began < 4
    assert [str(result.outcome) for result in results] == ["deferred"]


def test_nobody_says_goodbye_to_a_server_that_waits_for_a_body_which_nobody_gets():
    with scripted_server({"RCPT": "550 5.1.1 gone\r\n"}, "PIPELINING") as server:
        assert send(server.transport()) == [("ann", "refused", 550)]
        assert send(server.transport()) == [("ann", "refused", 550)]

    assert (server.bodies, server.connections, "QUIT" in server.commands) == (0, 2, False)


def test_recipients_answered_before_the_connection_closed_keep_their_answers():
    seen = []

    def rcpt(server, connection):
        seen.append(1)
        if len(seen) % 3 == 2:
            connection.sendall(b"550 5.1.1 gone\r\n")
            return True
        return (
            close_after("421 4.3.2 stopping\r\n")(server, connection)
            if len(seen) % 3 == 0
            else not connection.sendall(b"250 fine\r\n")
        )

    with scripted_server({"RCPT": rcpt}, "PIPELINING") as server:
        found = send(server.transport(), "a@example.org", "b@example.org", "c@example.org")

    assert sorted(found) == [("a", "deferred", 421), ("b", "refused", 550), ("c", "deferred", 421)]


def test_too_many_connections_is_told_from_a_channel_that_is_down():
    with (
        scripted_server({"greeting": close_after("421 4.7.0 Too many connections from you\r\n")}) as server,
        pytest.raises(TooManyConnections, match=r"421 4\.7\.0"),
    ):
        server.transport().open()
    with (
        scripted_server({"greeting": close_after("421 4.3.2 not available\r\n")}) as server,
        pytest.raises(ChannelDown, match=r"421 4\.3\.2") as caught,
    ):
        server.transport().open()

    assert not isinstance(caught.value, TooManyConnections)


def test_a_host_with_a_dead_address_leaves_time_for_the_next_one(monkeypatch):
    with scripted_server({}) as server, socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as stack:
        dead = full.getsockname()
        for _ in range(2):
            # Nobody accepts: the queue is full, and whoever comes next gets no answer at all.
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(dead)
        addresses = [(2, 1, 6, "", address) for address in (dead, ("127.0.0.1", server.port))]
        monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: addresses)
        began = time.monotonic()
        transport = SmtpTransport(SmtpOptions(host="mail.example.org", port=25, timeout=1))
        transport.open()
        transport.close()

    assert 0.4 < time.monotonic() - began < 1.2
    assert server.connections == 1
