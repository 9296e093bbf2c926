"""Trouble that is the channel's and no mail's: dropped lines, quotas, pauses, servers that take nothing."""

import pytest

from notify.delivery.channels import get_pause, resume_channel
from notify.delivery.runner import deliver_due
from notify.models import Channel, MailQueue
from notify.transports.smtp import SmtpOptions, SmtpTransport
from tests.factories import NOW
from tests.mails import make_mail, outcomes, state
from tests.postgres import free_port
from tests.smtp import DROP, smtp_server

pytestmark = pytest.mark.django_db(transaction=True)


def test_m11_a_server_that_drops_the_line_after_every_tenth_mail_gets_each_mail_once(server):
    mails = [make_mail(to=(f"u{number}@example.org",)) for number in range(35)]
    server.on_mail = lambda number: DROP if number % 11 == 0 else ""

    report = deliver_due(transport=server.transport())

    assert (report.sent, server.connections) == (35, 4)
    assert server.recipients() == [f"u{number}@example.org" for number in range(35)]
    assert {state(mail) for mail in mails} == {"sent"}


@pytest.mark.parametrize("answer", ["450 4.7.1 quota exceeded", "421 4.7.0 too many", "451 4.3.2 system not ready"])
@pytest.mark.parametrize("place", ["on_mail", "on_rcpt", "on_data"])
def test_m12_a_quota_pauses_the_channel_and_costs_no_attempt(server, answer, place):
    mails = [make_mail() for _ in range(6)]
    setattr(server, place, lambda _: answer if len(server.received) >= 3 else "")

    report = deliver_due(transport=server.transport())

    assert report.sent == 3
    assert answer.split(" ", 2)[2] in report.error
    assert report.paused_until is not None
    rows = [(mail.state, mail.attempts, mail.lease_until) for mail in MailQueue.objects.order_by("pk")]
    assert rows == [("sent", 1, None)] * 3 + [("queued", 0, None)] * 3
    seen = server.mails
    assert deliver_due(transport=server.transport()).paused_until == report.paused_until
    assert server.mails == seen

    setattr(server, place, lambda _: "")
    assert resume_channel("smtp") is True
    assert deliver_due(transport=server.transport()).sent == 3
    assert Channel.objects.get().failures == 0
    assert {state(mail) for mail in mails} == {"sent"}


def test_a_channel_that_keeps_failing_pauses_longer_each_time():
    make_mail()
    transport = SmtpTransport(SmtpOptions(host="127.0.0.1", port=free_port(), timeout=5))
    pauses = []

    for _ in range(3):
        report = deliver_due(transport=transport)
        pauses.append(round((report.paused_until - Channel.objects.get().paused_at).total_seconds()))
        resume_channel("smtp")

    assert pauses == [60, 120, 240]


def test_m13_a_refused_connection_is_one_error_for_the_run(caplog):
    mails = [make_mail() for _ in range(3)]
    transport = SmtpTransport(SmtpOptions(host="127.0.0.1", port=free_port(), timeout=5))

    report = deliver_due(transport=transport)

    assert "ConnectionRefusedError" in report.error
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
    assert {(mail.state, mail.attempts, mail.worker) for mail in MailQueue.objects.all()} == {("queued", 0, "")}
    assert [outcomes(mail) for mail in mails] == [[], [], []]


def test_m13_a_wrong_password_and_a_server_without_tls_are_the_channels_trouble():
    with smtp_server(auth_require_tls=False) as server:
        server.password = "right"
        mail = make_mail()
        wrong = deliver_due(transport=server.transport(username="kwit", password="wrong"))
        resume_channel("smtp")
        no_tls = deliver_due(transport=server.transport(use_tls=True))
        resume_channel("smtp")
        right = deliver_due(transport=server.transport(username="kwit", password="right"))

    assert "535" in wrong.error
    assert "STARTTLS" in no_tls.error
    assert right.sent == 1
    mail.refresh_from_db()
    assert (mail.state, mail.attempts) == ("sent", 1)


def test_a_sender_that_is_refused_for_two_mails_is_the_channels_trouble(server):
    mails = [make_mail() for _ in range(2)]
    server.on_mail = lambda number: "550 5.7.1 you may not send as this"

    report = deliver_due(transport=server.transport())

    assert "the sender webmaster@localhost was refused" in report.error
    assert [state(mail) for mail in mails] == ["queued"] * 2
    assert set(MailQueue.objects.values_list("attempts", "lease_until", "worker")) == {(0, None, "")}


REFUSALS_OF_ONE = {
    "one recipient": ("on_rcpt", "451 4.3.0 temporary lookup failure"),
    "over quota": ("on_rcpt", "452 4.3.1 over quota"),
    "one body": ("on_data", "451 4.3.2 please try again later"),
    "one size": ("on_mail", "452 4.3.1 insufficient system storage"),
}


@pytest.mark.parametrize("kind", REFUSALS_OF_ONE)
def test_trouble_that_hangs_on_one_mail_does_not_hold_the_others(server, kind):
    """It is deferred and counted; what stands behind it goes."""
    place, answer = REFUSALS_OF_ONE[kind]
    mails = [make_mail(to=(f"{name}@example.org",)) for name in ("bad", "ben", "cy")]
    is_bad = (lambda given: given.startswith("bad")) if place == "on_rcpt" else (lambda given: given == 1)
    setattr(server, place, lambda given: answer if is_bad(given) else "")

    report = deliver_due(transport=server.transport())

    mails[0].refresh_from_db()
    assert [state(mail) for mail in mails] == ["queued", "sent", "sent"]
    assert (report.sent, report.retried, report.error) == (2, 1, "")
    assert (mails[0].attempts, mails[0].due_at > NOW) == (1, True)
    assert get_pause("smtp", now=NOW).is_over


def test_a_mail_that_the_server_always_stumbles_over_ends_after_its_attempts(server, configure):
    configure(ATTEMPTS_MAX=3)
    bad = make_mail(to=("bad@example.org",))
    server.on_rcpt = lambda address: "451 4.3.0 lookup failure" if address.startswith("bad") else ""

    for _ in range(3):
        make_mail(to=("good@example.org",))
        MailQueue.objects.filter(pk=bad.pk).update(due_at=NOW)
        deliver_due(transport=server.transport())

    assert state(bad) == "failed"
    assert list(bad.tries.order_by("pk").values_list("number", flat=True)) == [1, 2, 3]


def test_a_full_mailbox_is_that_recipients_trouble_and_not_the_channels(server):
    mail = make_mail()
    server.on_rcpt = lambda address: "452 4.2.2 mailbox over quota"

    report = deliver_due(transport=server.transport())

    assert (report.retried, report.error, state(mail)) == (1, "", "queued")
    assert get_pause("smtp", now=NOW).is_over
