"""Many workers on one queue, and workers that die at every point of a delivery (CASES M14)."""

import threading
from collections import Counter
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from notify.delivery.runner import deliver_due
from notify.messages.bodies import render_body
from notify.models import Attempt, Channel, Control, MailQueue
from tests.crashing import nursery, start_child
from tests.mails import COMMENT, PAST, make_mail, outcomes, state
from tests.racing import race, until
from tests.smtp import DROP, STALL, Server, smtp_server

pytestmark = pytest.mark.django_db(transaction=True)

CALL = "tests.notify.test_delivery_crashes:deliver_to"
MAILS = 2
#: Times that a point is tried again which the worker did not come to; and what the shortest delivery has of them.
TRIES_MAX = 10
POINTS_MIN = 8


def deliver_to(port: int) -> int:
    """Deliver to a server of the parent's (runs in a child); return how many mails were sent."""
    return deliver_due(transport=Server(port=port).transport()).sent


def let_leases_run_out() -> None:
    MailQueue.objects.exclude(lease_until=None).update(lease_until=timezone.now() - timedelta(seconds=1))


def clear() -> None:
    Attempt.objects.all().delete()
    MailQueue.objects.all().delete()
    Control.objects.all().delete()


def check_end(server: Server, mails: list[MailQueue]) -> str:
    """Let another worker finish what a dead one left; return the states, each proved by what the server has seen."""
    let_leases_run_out()
    deliver_due(transport=server.transport())
    states = [state(mail) for mail in mails]
    for mail, is_now in zip(mails, states, strict=True):
        seen = server.recipients().count(mail.recipients[0])
        assert is_now in ("sent", "uncertain")
        assert seen == 1 if is_now == "sent" else seen <= 1, (mail.recipients, is_now, seen)
    assert states.count("uncertain") <= 1
    return " ".join(states)


def make_two(server: Server) -> list[MailQueue]:
    clear()
    server.received.clear()
    return [make_mail(to=(f"u{number}@example.org",)) for number in range(MAILS)]


def warm() -> None:
    """Render both bodies once, which takes longer than a whole delivery (runs in the process that is forked)."""
    render_body("comment", COMMENT, language="en")


def points(writes: list[str]) -> list[str]:
    """Return every moment at which a delivery that writes this can be killed."""
    # After a statement that is not a COMMIT is the same moment as before the next one, unless it commits by itself: a
    # statement WITH others in it, on PostgreSQL.
    ends = ("COMMIT", "WITH")
    commits = [f"after:{place}" for place, write in enumerate(writes, 1) if write.startswith(ends)]
    return [f"before:{place}" for place in range(1, len(writes) + 1)] + commits


def test_m14_a_worker_killed_at_any_write_leaves_at_most_one_mail_uncertain():
    ends = {}
    with (
        smtp_server() as server,
        nursery(CALL, server.port, warm="tests.notify.test_delivery_crashes:warm") as bear,
    ):
        mails = make_two(server)
        ended = bear("")
        assert ended.result == MAILS, ended.stderr
        assert check_end(server, mails) == "sent sent"
        for kill in points(ended.writes):
            for _ in range(TRIES_MAX):
                mails = make_two(server)
                # How many commits two mails need depends on when the writer is ready: fewer may have been enough.
                killed = bear(kill).killed
                assert killed or state(mails[0]) == state(mails[1]) == "sent"
                end = check_end(server, mails)
                if killed:
                    ends[kill] = end
                    break

    # Never two in doubt. Which of the two is, where one is, depends on which commits the writer has put together.
    found = set(ends.values())
    assert found <= {"sent sent", "uncertain sent", "sent uncertain"}, ends
    assert {"sent sent"} < found, ends
    assert {kill.split(":")[0] for kill in ends} == {"before", "after"}
    assert len(ends) >= POINTS_MIN, ends


def test_m14_a_worker_killed_while_the_server_has_the_message_leaves_that_mail_uncertain():
    mails = [make_mail(to=(f"u{number}@example.org",)) for number in range(5)]
    reached = threading.Event()
    with smtp_server() as server:

        def stall(number):
            if number == 3:
                reached.set()
                return STALL + "-after"
            return ""

        server.on_data = stall
        child = start_child(CALL, server.port)
        has_reached = reached.wait(60)
        assert child.sigkill().killed
        assert has_reached
        server.on_data = lambda number: ""

        assert check_end(server, mails) == "sent sent uncertain sent sent"
        assert sorted(server.recipients()) == [f"u{number}@example.org" for number in range(5)]
    assert outcomes(mails[2]) == [("u2@example.org", "uncertain", None)]
    assert "was not heard of again" in mails[2].tries.get().text


def test_a_crash_in_the_second_part_of_a_long_list_leaves_only_that_part_in_doubt(settings):
    settings.NOTIFY = {"RECIPIENTS_MAX": 2}
    mail = make_mail(to=tuple(f"u{number}@example.org" for number in range(5)))
    lost = {"worker": "dead", "flight": 1, "lease_until": timezone.now() - timedelta(seconds=1)}
    MailQueue.objects.filter(pk=mail.pk).update(state="sending", message_text="text", **lost)
    Attempt.objects.bulk_create(
        Attempt(mail=mail, number=1, part=0, recipient=f"u{number}@example.org", outcome="sent", is_overruled=False)
        for number in range(2)
    )
    with smtp_server() as server:
        report = deliver_due(transport=server.transport())

        assert (report.uncertain, state(mail)) == (1, "uncertain")
        assert server.recipients() == ["u4@example.org"]
    doubtful = [name for name, outcome, _ in outcomes(mail) if outcome == "uncertain"]
    assert doubtful == ["u2@example.org", "u3@example.org"]


def test_a_slow_worker_that_speaks_after_its_lease_says_what_became_of_the_mail():
    mail = make_mail()
    with smtp_server() as server:
        first = server.transport()
        sent = first.send

        def late(letter, packed, *, give_up_at):
            results = sent(letter, packed, give_up_at=give_up_at)
            let_leases_run_out()
            assert deliver_due(transport=server.transport()).uncertain == 1
            assert state(mail) == "uncertain"
            return results

        first.send = late
        report = deliver_due(transport=first)

    assert (report.sent, state(mail), len(server.received)) == (1, "sent", 1)


def test_eight_workers_on_one_queue_send_each_mail_once(settings):
    settings.NOTIFY = {"CLAIM_BATCH": 5}
    mails = [make_mail(to=(f"u{number}@example.org",)) for number in range(96)]
    with smtp_server() as server:
        reports = race(8, lambda number: deliver_due(transport=server.transport()))

        assert sum(report.sent for report in reports) == len(mails)
        assert sorted(server.recipients()) == sorted(mail.recipients[0] for mail in mails)
    assert set(MailQueue.objects.values_list("state", "attempts", "worker")) == {("sent", 1, "")}
    assert Attempt.objects.count() == len(mails)


def test_control_workers_that_only_look_before_they_send_do_send_twice():
    for number in range(10):
        make_mail(to=(f"u{number}@example.org",))
    both_have_looked = threading.Barrier(2)
    with smtp_server() as server:

        def naive(number):
            transport, due = server.transport(), list(MailQueue.objects.filter(state="queued"))
            both_have_looked.wait(20)
            for mail in due:
                deliver_blindly(transport, mail)
                MailQueue.objects.filter(pk=mail.pk).update(state="sent")
            transport.close()

        race(2, naive)

        assert len(server.recipients()) == 20


def deliver_blindly(transport, mail):
    from notify.transports.base import Email

    letter = Email("a@example.org", tuple(mail.recipients), tuple(mail.recipients), "s", "text", "", ())
    transport.send(letter, transport.pack(letter), give_up_at=float("inf"))


def test_a_delivery_told_to_stop_finishes_the_mail_in_hand_and_frees_the_rest():
    for number in range(5):
        make_mail(to=(f"u{number}@example.org",))
    with smtp_server() as server:
        report = deliver_due(transport=server.transport(), is_stopping=lambda: len(server.received) >= 2)

        assert (report.sent, len(server.received)) == (2, 2)
    assert MailQueue.objects.filter(state="queued", worker="", lease_until=None).count() == 3


def break_off(raw: Any) -> None:
    """Leave a session as Ctrl-C leaves it in the middle of a statement: it takes no other."""
    if connection.vendor == "sqlite":
        raw.execute("BEGIN IMMEDIATE")
    elif connection.vendor == "postgresql":
        raw.pgconn.send_query(b"SELECT 1")


def test_ctrl_c_in_the_middle_of_a_statement_stays_ctrl_c_and_what_was_sent_is_known():
    mails, interrupted = [make_mail() for _ in range(3)], []
    with smtp_server() as server:

        def interrupt(execute, sql, params, many, context):
            if len(server.received) == 2 and not interrupted:
                interrupted.append(sql)
                break_off(context["connection"].connection)
                raise KeyboardInterrupt
            return execute(sql, params, many, context)

        with connection.execute_wrapper(interrupt), pytest.raises(KeyboardInterrupt):
            deliver_due(transport=server.transport())

    assert [state(mail) for mail in mails] == ["sent", "sent", "queued"]
    assert not MailQueue.objects.exclude(worker="").exists()


def test_the_command_stops_cleanly_on_sigterm():
    import signal

    for number in range(3):
        make_mail(to=(f"u{number}@example.org",))
    reached, go_on = threading.Event(), threading.Event()
    with smtp_server() as server:

        def slow(number):
            reached.set()
            until(go_on.is_set)
            return ""

        # At the end of the body: what was only announced before would be given back.
        server.on_data = slow
        child = start_child(
            "django.core.management:call_command",
            "notify_deliver",
            "--lanes=1",
            environment=smtp_environment(server),
        )
        assert reached.wait(60)
        child.process.send_signal(signal.SIGTERM)
        go_on.set()
        ended = child.end()

    assert ended.returncode == 0, ended.stderr
    assert len(server.received) == 1
    assert sorted(MailQueue.objects.values_list("state", flat=True)) == ["queued", "queued", "sent"]


def smtp_environment(server: Server) -> dict[str, str]:
    """Return a child's environment whose mail settings lead to the server."""
    from tests.crashing import child_environment

    return child_environment() | {"EMAIL_URL": f"smtp://127.0.0.1:{server.port}"}


LANES_CALL = "tests.notify.test_delivery_crashes:deliver_over_lanes"
LANES = 4
STORM_MAILS = 40
KILLS = 30


def deliver_over_lanes(port: int) -> int:
    """Deliver over several lanes to a server of the parent's (runs in a child); return how many mails were sent."""
    return deliver_due(make_transport=lambda: Server(port=port).transport(timeout=2), lanes=LANES).sent


class Moody:
    """A server that greylists everybody once, drops, closes and stalls, before and after it has taken a mail."""

    def __init__(self, server: Server, random: Random) -> None:
        self.known: set[str] = set()
        self.random = random
        server.on_mail = lambda number: self.some(0.05, DROP, "421 4.3.2 closing", "451 4.3.0 try later")
        server.on_rcpt = self.greylist
        server.on_data = lambda number: self.some(0.15, DROP, "drop-after", "stall-after", "421 4.7.0 closing")

    def some(self, often: float, *answers: str) -> str:
        return self.random.choice(answers) if self.random.random() < often else ""

    def greylist(self, address: str) -> str:
        if address in self.known:
            return ""
        self.known.add(address)
        return "450 4.7.1 greylisted, try again later"


def let_everything_be_due() -> None:
    let_leases_run_out()
    MailQueue.objects.filter(state="queued").update(due_at=PAST)
    Channel.objects.all().delete()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_storm_of_kills_with_lanes_leaves_one_mail_per_lane_in_doubt_and_none_twice(seed, settings):
    """Against a server that greylists, drops, closes and stalls; what was delivered is counted at the server."""
    random = Random(seed)
    mails = [make_mail(to=(f"u{number}@example.org",)) for number in range(STORM_MAILS)]
    kills = in_doubt = 0
    with (
        smtp_server() as server,
        nursery(LANES_CALL, server.port, warm="tests.notify.test_delivery_crashes:warm") as bear,
    ):
        Moody(server, random)
        for _ in range(KILLS):
            let_everything_be_due()
            ended = bear(f"{random.choice(('before', 'after'))}:{random.randint(1, 12)}")
            kills += ended.killed
            on_the_wire = MailQueue.objects.filter(state="sending")
            assert on_the_wire.count() <= LANES
            in_doubt += on_the_wire.count()
            if not MailQueue.objects.filter(state__in=("queued", "sending")).exists():
                break
        server.on_mail = server.on_data = lambda number: ""
        server.on_rcpt = lambda address: ""
        let_everything_be_due()
        deliver_due(make_transport=server.transport, lanes=LANES)

        seen = Counter(server.recipients())
    states = {mail.recipients[0]: state(mail) for mail in mails}
    assert set(states.values()) <= {"sent", "uncertain"}
    assert max(seen.values()) == 1, "none twice"
    assert {name for name, is_now in states.items() if is_now == "sent"} <= set(seen)
    assert set(Attempt.objects.filter(outcome="sent").values_list("recipient", flat=True)) <= set(seen)
    assert kills >= 3, "the positive control: there was a storm"
    assert in_doubt >= 1
    assert not MailQueue.objects.filter(state__in=("queued", "sending")).exists()


def test_sigkill_with_lanes_leaves_at_most_one_mail_per_lane_in_doubt():
    for number in range(30):
        make_mail(to=(f"u{number}@example.org",))
    with smtp_server() as server:
        stalled = []
        server.on_data = lambda number: stalled.append(number) or "stall-after" if number > 8 else ""
        child = start_child(LANES_CALL.replace("over_lanes", "patiently"), server.port)
        until(lambda: len(stalled) == LANES, timeout_s=60)
        assert child.sigkill().killed

        assert MailQueue.objects.filter(state="sending").count() == LANES
        server.on_data = lambda number: ""
        let_leases_run_out()
        report = deliver_due(make_transport=server.transport, lanes=LANES)

        assert report.uncertain == LANES
        assert max(Counter(server.recipients()).values()) == 1
    assert sorted(set(MailQueue.objects.values_list("state", flat=True))) == ["sent", "uncertain"]


def deliver_patiently(port: int) -> int:
    """Deliver over several lanes that wait for each answer (runs in a child)."""
    return deliver_due(make_transport=lambda: Server(port=port).transport(timeout=60), lanes=LANES).sent
