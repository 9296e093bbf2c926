"""Mails on their way to a real SMTP server that behaves and misbehaves (CASES M1 to M13)."""

from datetime import timedelta

import pytest
from django.core.management import call_command

from notify.delivery.runner import deliver_due
from notify.models import MailQueue, MailState
from notify.transports.memory import MemoryTransport
from tests.factories import NOW
from tests.mails import PAST, make_mail, outcomes, state
from tests.smtp import DROP, NONSENSE, STALL

pytestmark = pytest.mark.django_db(transaction=True)


def make_due(mail):
    MailQueue.objects.filter(pk=mail.pk).update(due_at=PAST)


def test_a_mail_arrives_with_both_bodies_and_its_headers(server):
    mail = make_mail(to=("ann@example.org",), key=7, subject="Order PO-4711, Bolt M8: new comment by Aiko")

    report = deliver_due(transport=server.transport())

    [received] = server.received
    message = received.message
    assert (report.sent, report.retried, report.failed, report.uncertain) == (1, 0, 0, 0)
    assert received.recipients == ("ann@example.org",)
    assert message["Subject"] == "Order PO-4711, Bolt M8: new comment by Aiko"
    mail.refresh_from_db()
    assert message["Message-ID"] == f"<kwit.comment.7.0.0.{mail.message_token}@localhost>"
    assert len(mail.message_token) == 32
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["List-Unsubscribe"] == "<mailto:webmaster@localhost?subject=unsubscribe%20comment>"
    assert "When will it ship?" in message.get_body(("plain",)).get_content()
    assert "<p>When will it ship?</p>" in message.get_body(("html",)).get_content()
    mail.refresh_from_db()
    assert (mail.state, mail.attempts, mail.worker, mail.lease_until, mail.flight) == ("sent", 1, "", None, None)
    assert "When will it ship?" in mail.message_text
    assert "<blockquote" in mail.message_html
    assert mail.sent_at is not None
    assert outcomes(mail) == [("ann@example.org", "sent", 250)]
    assert mail.tries.get().text == "taken"
    assert mail.tries.get().enhanced == "2.0.0"


def test_one_connection_serves_many_mails(server):
    for _ in range(5):
        make_mail()

    report = deliver_due(transport=server.transport())

    assert (report.sent, server.connections, len(server.received)) == (5, 1, 5)


def test_what_is_not_due_waits_and_a_limit_is_kept(server):
    make_mail(due_at=NOW + timedelta(days=36500))
    for _ in range(3):
        make_mail()

    assert deliver_due(transport=server.transport(), limit=2).sent == 2
    assert deliver_due(transport=server.transport()).sent == 1
    assert deliver_due(transport=server.transport()).sent == 0


def test_m1_a_header_in_a_subject_stays_a_subject(server):
    make_mail(subject="A\r\nBcc: x@example.org")
    others = [make_mail() for _ in range(9)]

    report = deliver_due(transport=server.transport())

    assert report.sent == 10
    assert [state(mail) for mail in others] == ["sent"] * 9
    message = server.received[0].message
    assert message["Subject"] == "A Bcc: x@example.org"
    assert message["Bcc"] is None
    assert "x@example.org" not in server.recipients()


def test_m2_a_display_name_full_of_markup_is_only_a_name(server):
    mail = make_mail(to=('"<a href="https://example.org">bot</a>" <ann@example.org>',))
    good = make_mail(to=("ben@example.org",))

    deliver_due(transport=server.transport())

    assert state(good) == "sent"
    assert (state(mail), server.recipients().count("ann@example.org")) in (("sent", 1), ("blocked", 0))
    assert all("href" not in received.message["To"] for received in server.received)


def test_m3_a_503_for_one_mail_does_not_stop_the_others(server):
    mails = [make_mail(to=(f"{name}@example.org",)) for name in ("ann", "ben", "cy")]
    server.on_mail = lambda number: "503 5.5.1 bad sequence" if number == 1 else ""

    report = deliver_due(transport=server.transport())

    assert (report.sent, report.retried) == (2, 1)
    assert [state(mail) for mail in mails] == ["queued", "sent", "sent"]
    assert outcomes(mails[0]) == [("ann@example.org", "deferred", 503)]

    make_due(mails[0])
    deliver_due(transport=server.transport())
    assert sorted(server.recipients()) == ["ann@example.org", "ben@example.org", "cy@example.org"]


def test_m4_an_error_nobody_knows_marks_its_mail_and_the_run_goes_on():
    class OwnError(Exception):
        pass

    def answer(letter):
        if letter.recipients == ("ann@example.org",):
            raise OwnError("the service is confused")

    first, second = make_mail(), make_mail(to=("ben@example.org",))

    report = deliver_due(transport=MemoryTransport(answer))

    assert (report.uncertain, report.sent) == (1, 1)
    assert [state(first), state(second)] == ["uncertain", "sent"]
    assert "OwnError: the service is confused" in first.tries.get().text


def test_an_error_before_anything_is_sent_blocks_the_mail_with_what_to_correct(server):
    mail, good = make_mail(template="no-such-template"), make_mail()

    report = deliver_due(transport=server.transport())

    mail.refresh_from_db()
    assert (report.blocked, report.sent) == (1, 1)
    assert (mail.state, state(good)) == ("blocked", "sent")
    assert "TemplateDoesNotExist" in mail.problem
    assert outcomes(mail) == [("", "error", None)]
    assert "Traceback" in mail.tries.get().text


@pytest.mark.parametrize(
    ("to", "named"), [(["", "ok@example.org"], "''"), ([None], "None"), ("a@example.org;", ""), ([1], "1")]
)
def test_m5_the_good_address_is_served_and_the_bad_one_named(server, to, named):
    mail = make_mail(to=to)

    deliver_due(transport=server.transport())

    mail.refresh_from_db()
    said = [*mail.tries.filter(outcome="refused").values_list("recipient", flat=True), mail.problem]
    assert any(named in text for text in said)
    assert mail.state == {"": "sent", "''": "partial"}.get(named, "blocked")
    assert len(server.received) == (mail.state != "blocked")


@pytest.mark.parametrize("to", [[], "", [""], {}])
def test_m6_a_mail_to_nobody_is_blocked_and_says_so(server, to):
    mail = make_mail(to=to)

    report = deliver_due(transport=server.transport())

    mail.refresh_from_db()
    assert (report.blocked, mail.state) == (1, "blocked")
    assert mail.problem.startswith("no recipient")
    assert deliver_due(transport=server.transport()).blocked == 0


@pytest.mark.parametrize("subject", ["x" * 255, "Ж" * 200, "日本語" * 80, "=?utf-8?q?spoofed?=", "🙂" * 120])
def test_m7_a_long_subject_in_any_script_arrives_whole(server, subject):
    make_mail(subject=subject)

    assert deliver_due(transport=server.transport()).sent == 1

    [received] = server.received
    assert received.message["Subject"] == subject
    assert max(map(len, received.content.split(b"\r\n"))) <= 998


def test_m8_a_refused_recipient_leaves_the_other_one_served(server):
    mail = make_mail(to=("gone@example.org", "ok@example.org"))
    server.on_rcpt = lambda address: "550 5.1.1 no such user" if address.startswith("gone") else ""

    report = deliver_due(transport=server.transport())

    assert (report.partial, state(mail)) == (1, "partial")
    assert outcomes(mail) == [("gone@example.org", "refused", 550), ("ok@example.org", "sent", 250)]
    assert mail.tries.get(outcome="refused").text == "no such user"
    assert deliver_due(transport=server.transport()).letters == 0


def test_m8_a_greylisted_recipient_is_retried_alone(server):
    mail = make_mail(to=("grey@example.org", "ok@example.org"))
    server.on_rcpt = lambda address: "450 4.7.1 greylisted, try later" if address.startswith("grey") else ""
    deliver_due(transport=server.transport())
    mail.refresh_from_db()
    assert (mail.state, mail.attempts, mail.due_at > NOW) == ("queued", 1, True)

    server.on_rcpt = lambda address: ""
    make_due(mail)
    report = deliver_due(transport=server.transport())

    assert (report.sent, state(mail)) == (1, "sent")
    assert server.recipients() == ["ok@example.org", "grey@example.org"]
    first, second = (received.message for received in server.received)
    assert first["Message-ID"] == second["Message-ID"]
    assert first["To"] == second["To"] == "grey@example.org, ok@example.org"


def test_m8_a_server_that_takes_a_hundred_at_a_time_gets_them_in_turns(server, settings):
    settings.NOTIFY = {"RECIPIENTS_MAX": 200}
    everybody = tuple(f"u{number}@example.org" for number in range(150))
    mail, taken = make_mail(to=everybody), []

    def take(address):
        taken.append(address)
        return "452 4.5.3 too many recipients" if len(taken) > 100 and server.datas == 0 else ""

    server.on_rcpt = take
    report = deliver_due(transport=server.transport())

    mail.refresh_from_db()
    assert report.letters == 2
    assert (mail.state, mail.attempts) == ("sent", 1)
    assert sorted(server.recipients()) == sorted(everybody)
    assert [len(received.recipients) for received in server.received] == [100, 50]


def test_each_mail_has_a_message_id_of_its_own_also_two_of_one_event_and_in_two_databases(server):
    """What it is made of could all be the same elsewhere: two stages of a site have one sender."""
    mail = make_mail(to=("ann@example.org",))
    fields = {
        name: getattr(mail, name) for name in ("template", "subject", "language", "payload", "due_at", "created_at")
    }
    MailQueue.objects.create(control=mail.control, recipients=["ben@example.org"], **fields)
    deliver_due(transport=server.transport())
    MailQueue.objects.update(state="queued", message_text="", message_html="", message_token="", attempts=0)
    deliver_due(transport=server.transport())

    assert len({received.message["Message-ID"] for received in server.received}) == len(server.received) == 4


def test_m9_two_spellings_of_one_address_are_one_delivery(server):
    mail = make_mail(to=["ok@example.org", "OK@EXAMPLE.org", "ok@example.org"])

    deliver_due(transport=server.transport())

    assert (server.recipients(), state(mail)) == (["ok@example.org"], "sent")


def test_m10_a_long_list_is_split_and_no_part_goes_twice(server, settings):
    settings.NOTIFY = {"RECIPIENTS_MAX": 200}
    everybody = tuple(f"u{number}@example.org" for number in range(501))
    mail = make_mail(to=everybody)
    server.on_data = lambda number: "451 4.4.1 try later" if number == 2 else ""

    report = deliver_due(transport=server.transport())
    assert (report.retried, report.letters) == (1, 3)
    assert [len(received.recipients) for received in server.received] == [200, 101]

    make_due(mail)
    report = deliver_due(transport=server.transport())
    assert (report.sent, state(mail)) == (1, "sent")
    assert sorted(server.recipients()) == sorted(everybody)
    ids = [received.message["Message-ID"] for received in server.received]
    assert len(set(ids)) == 3


def test_a_silence_after_the_whole_message_leaves_it_uncertain(server):
    mail = make_mail()
    server.on_data = lambda number: "drop-after"

    report = deliver_due(transport=server.transport())

    assert (report.uncertain, state(mail), len(server.received)) == (1, "uncertain", 1)
    assert outcomes(mail) == [("ann@example.org", "uncertain", None)]
    assert deliver_due(transport=server.transport()).letters == 0


def test_uncertain_mails_are_sent_again_with_the_same_id_where_the_site_says_so(server, settings):
    settings.NOTIFY = {"ON_UNCERTAIN": "resend"}
    mail = make_mail()
    server.on_data = lambda number: "nonsense-after" if number == 1 else ""
    deliver_due(transport=server.transport())
    assert state(mail) == "queued"

    make_due(mail)
    deliver_due(transport=server.transport())

    first, second = server.received
    assert state(mail) == "sent"
    assert first.message["Message-ID"] == second.message["Message-ID"]


@pytest.mark.parametrize("trouble", [NONSENSE, DROP, STALL])
def test_trouble_with_one_recipient_costs_that_mail_an_attempt_and_no_other(server, trouble):
    bad, good = make_mail(to=("poison@example.org",)), make_mail(to=("ben@example.org",))
    server.on_rcpt = lambda address: trouble if address.startswith("poison") else ""

    report = deliver_due(transport=server.transport(timeout=0.3))

    assert (report.sent, report.retried) == (1, 1)
    assert [state(bad), state(good)] == ["queued", "sent"]
    assert server.recipients() == ["ben@example.org"]


def test_a_deferred_mail_fails_after_the_last_attempt(server, settings):
    settings.NOTIFY = {"ATTEMPTS_MAX": 3}
    mail = make_mail()
    server.on_rcpt = lambda address: "450 4.2.0 greylisted"

    for _ in range(3):
        make_due(mail)
        report = deliver_due(transport=server.transport())

    mail.refresh_from_db()
    assert (report.failed, mail.state, mail.attempts) == (1, "failed", 3)
    assert outcomes(mail) == [("ann@example.org", "deferred", 450)] * 3


def test_a_refused_body_fails_with_the_servers_words(server):
    mail = make_mail()
    server.on_data = lambda number: "554 5.7.1 looks like spam"

    report = deliver_due(transport=server.transport())

    assert (report.failed, state(mail)) == (1, "failed")
    assert mail.tries.get().text == "looks like spam"


def test_the_command_prints_the_contracts_object(capsys, settings):
    make_mail()

    call_command("notify_deliver", "--json", "--limit", "5")

    assert '"sent": 1, "retried": 0, "failed": 0, "uncertain": 0' in capsys.readouterr().out


def test_every_state_is_known_to_the_report():
    from notify.delivery.results import DeliveryReport

    names = {*MailState.values} - {"queued", "sending"}
    assert names <= set(DeliveryReport.__dataclass_fields__)
