"""Ways out: which one a site has, and what Django's own can and cannot say."""

import email
import email.policy
import json
import re
import smtplib
from datetime import timedelta
from email.header import decode_header, make_header

import django
import pytest
from django.core import mail as django_mail
from django.core.exceptions import ImproperlyConfigured
from django.core.mail.backends.base import BaseEmailBackend
from django.core.management import call_command
from hypothesis import given
from hypothesis import strategies as st

from notify.conf import Conf
from notify.delivery.runner import deliver_due
from notify.errors import ChannelDown
from notify.models import Suppression
from notify.steps import Step
from notify.text import one_line
from notify.transports.base import Email, Reply
from notify.transports.connection import Connection
from notify.transports.django import BackendTransport, as_django
from notify.transports.factory import find_transport
from notify.transports.memory import MemoryTransport
from notify.transports.mime import compose
from notify.transports.replies import is_channel_trouble, is_mailbox_gone, parse_reply, verdict
from notify.transports.smtp import SmtpTransport
from tests.mails import make_mail, outcomes, state
from tests.scripted_smtp import scripted_server
from tests.smtp import smtp_server

HAS_MAILERS = django.VERSION >= (6, 1)
SMTP = "django.core.mail.backends.smtp.EmailBackend"
MEMORY = "django.core.mail.backends.locmem.EmailBackend"


def use(settings, backend, **options):
    """Set the site's mail backend as this Django wants it."""
    if HAS_MAILERS:
        settings.MAILERS = {"default": {"BACKEND": backend, "OPTIONS": options}}
        return
    settings.EMAIL_BACKEND = backend
    names = {"username": "EMAIL_HOST_USER", "password": "EMAIL_HOST_PASSWORD"}
    for name, value in options.items():
        setattr(settings, names.get(name, f"EMAIL_{name.upper()}"), value)


def test_a_site_whose_mail_is_smtp_gets_our_own_transport_with_its_options(settings):
    use(settings, SMTP, host="mail.example.org", port=587, username="kwit", password="pw", use_tls=True, timeout=7)

    found = find_transport(Conf())

    assert isinstance(found, SmtpTransport)
    asked = found.options
    assert (asked.host, asked.port, asked.username, asked.password) == ("mail.example.org", 587, "kwit", "pw")
    assert (asked.use_tls, asked.use_ssl, asked.timeout) == (True, False, 7)


def test_any_other_mail_backend_is_used_as_it_is(settings):
    use(settings, MEMORY)

    assert isinstance(find_transport(Conf()), BackendTransport)
    assert isinstance(find_transport(Conf(TRANSPORT="smtp")), SmtpTransport) or HAS_MAILERS
    assert isinstance(find_transport(Conf(TRANSPORT="notify.transports.memory.MemoryTransport")), MemoryTransport)
    with pytest.raises(ImproperlyConfigured, match="TRANSPORT"):
        find_transport(Conf(TRANSPORT="nowhere.Transport"))


@pytest.mark.skipif(not HAS_MAILERS, reason="MAILERS came with Django 6.1")
def test_a_site_may_name_the_entry_of_mailers(settings):
    settings.MAILERS = {
        "default": {"BACKEND": MEMORY},
        "bulk": {"OPTIONS": {"host": "bulk.example.org", "use_ssl": True}},
    }

    found = find_transport(Conf(MAILER="bulk"))

    assert (found.options.host, found.options.port) == ("bulk.example.org", 465)
    with pytest.raises(ImproperlyConfigured, match="default"):
        find_transport(Conf(MAILER="none"))


class Backend(BaseEmailBackend):
    """A mail backend that does what a test says."""

    def __init__(self, do):
        super().__init__()
        self.do = do

    def send_messages(self, messages):
        return self.do(messages[0])


def raising(error):
    def do(message):
        raise error

    return do


class ServiceError(Exception):
    def __init__(self, status_code):
        super().__init__(f"the service says {status_code}")
        self.status_code = status_code


REFUSED = smtplib.SMTPRecipientsRefused(
    {"ann@example.org": (550, b"5.1.1 no"), "ben@example.org": (450, b"4.2.0 later")}
)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("do", "is_now", "attempts"),
    [
        (lambda message: 1, "sent", [("ann@example.org", "sent", None), ("ben@example.org", "sent", None)]),
        (lambda message: 0, "queued", [("ann@example.org", "deferred", None), ("ben@example.org", "deferred", None)]),
        (lambda message: None, "uncertain", None),
        (raising(REFUSED), "queued", [("ann@example.org", "refused", 550), ("ben@example.org", "deferred", 450)]),
        (raising(smtplib.SMTPDataError(554, b"5.7.1 spam")), "failed", None),
        (raising(smtplib.SMTPServerDisconnected("gone")), "uncertain", None),
        (raising(TimeoutError("slow")), "uncertain", None),
        (raising(RuntimeError("own error")), "uncertain", None),
        (raising(ServiceError(422)), "failed", None),
        (raising(ServiceError(503)), "queued", None),
    ],
)
def test_what_a_backend_says_or_raises_decides_what_became_of_the_mail(do, is_now, attempts):
    mail, other = make_mail(to=("ann@example.org", "ben@example.org")), make_mail(to=("cy@example.org",))
    seen = []

    def once(message):
        seen.append(message)
        return do(message) if len(seen) == 1 else 1

    deliver_due(transport=BackendTransport(lambda: Backend(once)))

    assert state(mail) == is_now
    assert state(other) == "sent"
    if attempts is not None:
        assert outcomes(mail) == attempts


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "error",
    [
        smtplib.SMTPSenderRefused(550, b"5.7.1 not you", "me"),
        smtplib.SMTPDataError(421, b"4.7.0 closing"),
        ServiceError(429),
        ServiceError(401),
    ],
)
def test_trouble_of_the_whole_backend_pauses_it_and_costs_no_attempt(error):
    mails = [make_mail(), make_mail()]

    report = deliver_due(transport=BackendTransport(lambda: Backend(raising(error))))

    assert report.error
    assert report.paused_until
    assert [(state(mail), outcomes(mail)) for mail in mails] == [("queued", []), ("queued", [])]


@pytest.mark.django_db(transaction=True)
def test_a_backend_that_reports_each_recipient_is_listened_to():
    class Status:
        message_id = "m1"

        def __init__(self, status):
            self.status = status

    def do(message):
        class Known:
            recipients = {"ann@example.org": Status("rejected"), "ben@example.org": Status("queued")}

        message.anymail_status = Known()
        return 1

    mail = make_mail(to=("ann@example.org", "ben@example.org"))

    deliver_due(transport=BackendTransport(lambda: Backend(do)))

    assert state(mail) == "partial"
    assert outcomes(mail) == [("ann@example.org", "refused", None), ("ben@example.org", "sent", None)]
    assert mail.tries.get(outcome="sent").text == "queued, message m1"


@pytest.mark.django_db(transaction=True)
def test_a_mail_through_djangos_backend_is_the_same_mail():
    make_mail(to=("ann@ŻÓŁW.example",), subject="A\r\nBcc: x@example.org", key=5)

    assert deliver_due().sent == 1

    [message] = django_mail.outbox
    assert message.to == ["ann@xn--w-uga1v8h.example"]
    assert message.subject == "A Bcc: x@example.org"
    assert message.extra_headers["Message-ID"].startswith("<kwit.comment.5.0.0.")
    assert message.extra_headers["Message-ID"].endswith("@localhost>")
    assert message.alternatives[0][1] == "text/html"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "command", [["notify_deliver"], ["notify_work", "--rounds", "1"]], ids=lambda command: command[0]
)
def test_a_program_reads_one_object_whatever_a_backend_prints(settings, capsys, command):
    use(settings, "django.core.mail.backends.console.EmailBackend")
    make_mail(subject="Printed by the backend")

    call_command(*command, "--json")

    out, err = capsys.readouterr()
    assert '"sent": 1' in out
    assert isinstance(json.loads(out), dict)
    assert "Subject: Printed by the backend" in err


@pytest.mark.django_db(transaction=True)
def test_our_smtp_is_what_an_smtp_site_sends_with(settings):
    make_mail()
    with smtp_server() as server:
        use(settings, SMTP, host="127.0.0.1", port=server.port)

        assert deliver_due().sent == 1
        assert len(server.received) == 1


@pytest.mark.parametrize(
    ("code", "text", "is_channel", "outcome"),
    [
        (250, "2.0.0 fine", False, "sent"),
        (421, "too many connections", True, "deferred"),
        (450, "4.7.1 quota exceeded", True, "deferred"),
        (450, "4.7.1 Greylisted, please try again", False, "deferred"),
        (451, "4.7.1 greylisting rate limit", False, "deferred"),
        (452, "4.2.2 mailbox over quota", False, "deferred"),
        (452, "the user is over quota", False, "deferred"),
        (452, "4.3.1 insufficient system storage", True, "deferred"),
        (452, "4.5.3 too many recipients", False, "deferred"),
        (451, "4.7.0 hourly limit reached", True, "deferred"),
        (454, "4.7.0 TLS not available", True, "deferred"),
        (550, "5.1.1 quota of patience", False, "refused"),
        (503, "5.5.1 bad sequence", False, "deferred"),
        (535, "5.7.8 authentication failed", True, "refused"),
        (554, "5.7.1 spam", False, "refused"),
    ],
)
def test_a_reply_means_this_recipient_the_channel_or_neither(code, text, is_channel, outcome):
    reply = parse_reply(code, text.encode())

    assert is_channel_trouble(reply) is is_channel
    assert verdict(reply) == outcome


def test_a_reply_is_taken_apart_and_made_safe_to_store():
    assert parse_reply(550, b"5.1.1 no\r\nsuch \x00user\xff") == Reply(550, "5.1.1", "no such user\ufffd")
    assert parse_reply(550, b"2.0.0 nonsense") == Reply(550, "", "2.0.0 nonsense")
    assert len(parse_reply(550, b"x" * 10_000).text) == 2000


@pytest.mark.parametrize(
    ("answer", "is_gone"),
    [
        ("550 5.1.1 no such user", True),
        ("550 5.1.10 recipient not found", True),
        ("550 5.2.1 mailbox disabled", True),
        ("550 No such user here", True),
        ("550 Requested action not taken: mailbox unavailable", True),
        ("550 Recipient address rejected: User unknown in virtual mailbox table", True),
        ("550 5.7.1 relaying denied", False),
        ("550 relaying denied", False),
        ("550 Relay not permitted", False),
        ("550 client host blocked", False),
        ("550 looks like spam", False),
        ("550 mailbox full", False),
        ("553 sender address rejected", False),
        ("550 Sender verify failed", False),
        ("551 User not local", False),
        ("554 5.1.8 bad sender", False),
        ("450 4.1.1 not now", False),
    ],
)
def test_only_a_refusal_of_the_mailbox_itself_says_that_it_is_gone(answer, is_gone):
    assert is_mailbox_gone(parse_reply(int(answer[:3]), answer[4:].encode())) is is_gone


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("hook", "answer", "is_suppressed"),
    [
        ("on_rcpt", "550 5.1.1 no such user", True),
        ("on_rcpt", "550 no such user", True),
        ("on_rcpt", "550 relaying denied", False),
        ("on_rcpt", "550 client host blocked", False),
        ("on_data", "550 5.1.1 no such user", False),
        ("on_data", "550 looks like spam", False),
        ("on_mail", "550 5.1.1 no such user", False),
        ("on_mail", "553 sender address rejected", False),
    ],
)
def test_a_good_address_is_not_suppressed_for_what_is_not_its_fault(settings, hook, answer, is_suppressed):
    settings.NOTIFY = {"SUPPRESS_REFUSED": True}
    make_mail()
    with smtp_server() as server:
        setattr(server, hook, lambda _: answer)
        deliver_due(transport=server.transport())

    assert Suppression.objects.filter(address="ann@example.org").exists() is is_suppressed


@pytest.mark.django_db(transaction=True)
def test_a_password_that_is_not_ascii_signs_in_where_the_server_says_how_it_is_encoded():
    make_mail()
    with smtp_server(auth_require_tls=False) as server:
        server.password = "pässwörd"
        report = deliver_due(transport=server.transport(username="kwit", password="pässwörd"))

    assert (report.sent, report.error) == (1, "")


def test_a_password_that_the_server_cannot_take_is_an_error_that_names_the_setting_and_not_the_secret():
    with (
        smtp_server(auth_require_tls=False, auth_exclude_mechanism=["PLAIN"]) as server,
        pytest.raises(ChannelDown, match="EMAIL_HOST_PASSWORD") as caught,
    ):
        server.transport(username="kwit", password="pässwörd").open()

    assert not set("äö") & set(str(caught.value))


@pytest.mark.parametrize("password", ["secret", "pässwörd"])
def test_a_secret_that_the_server_repeats_is_not_recorded(password):
    refuse = {"EHLO": "250-me\r\n250 AUTH PLAIN\r\n", "AUTH": f"535 5.7.8 {password} is wrong\r\n"}
    with scripted_server(refuse) as server, pytest.raises(ChannelDown, match=r"535 5\.7\.8") as caught:
        server.transport(username="kwit", password=password).open()

    assert password not in str(caught.value)


@pytest.mark.parametrize(("options", "is_allowed"), [({}, False), ({"allow_clear_auth": True}, True)])
def test_a_password_goes_to_another_machine_over_an_encrypted_connection_only(monkeypatch, options, is_allowed):
    monkeypatch.setattr(Connection, "is_loopback", property(lambda self: False))
    with smtp_server(auth_require_tls=False) as server:
        server.password = "right"
        transport = server.transport(username="kwit", password="right", **options)
        if is_allowed:
            transport.open()
            transport.close()
        else:
            with pytest.raises(ChannelDown, match="NOTIFY_SMTP_ALLOW_CLEAR_AUTH"):
                transport.open()


@pytest.mark.django_db(transaction=True)
def test_mails_to_two_spellings_of_one_mailbox_travel_in_one_digest(server, add_step, settings):
    settings.NOTIFY = {"DIGEST": timedelta(minutes=1)}

    class Comment(Step):
        kind, template, digest = "comment", "comment", True

    add_step(Comment)
    for address in ("Ann@Example.org", "ann@example.org", "ann@b\u00fccher.example", "ann@XN--bcher-kva.example"):
        make_mail(to=(address,))

    report = deliver_due(transport=server.transport())

    assert (report.sent, len(server.received)) == (4, 2)
    assert server.recipients() == ["Ann@example.org", "ann@xn--bcher-kva.example"]


def test_a_long_name_of_the_sender_is_encoded_in_words_of_75_characters():
    name = "Zażółć gęślą jaźń " * 8
    packed = compose(Email(f'"{name}" <kwit@example.org>', (), ("a@example.org",), "S", "T", "", ()))

    shown = str(make_header(decode_header(email.message_from_bytes(packed)["From"])))
    assert shown.split() == [*name.split(), "<kwit@example.org>"]
    words = re.findall(rb"=\?\S+\?=", packed)
    assert len(words) > 2
    assert max(map(len, words)) <= 75


def test_a_name_with_a_comma_stays_one_sender():
    packed = compose(Email('"Acme, \\"Inc\\"." <noreply@example.org>', (), ("a@example.org",), "S", "T", "", ()))

    [sender] = email.message_from_bytes(packed, policy=email.policy.default)["From"].addresses
    assert (sender.display_name, sender.addr_spec) == ('Acme, "Inc".', "noreply@example.org")


WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp", "Cn", "Co")), max_size=300).map("x{}".format)


@given(
    WORDS,
    WORDS,
    WORDS,
    st.sampled_from(["kwit@example.org", '"Acme, Inc." <kwit@example.org>', "Zoë <kwit@bücher.example>"]),
)
def test_a_message_written_by_hand_says_what_djangos_own_says(subject, text, html, sender):
    subject = one_line(subject)
    mail = Email(
        sender, ("a@example.org",), ("a@example.org",), subject, text, html, (("Message-ID", "<1@example.org>"),)
    )

    ours = email.message_from_bytes(compose(mail), policy=email.policy.default)
    theirs = email.message_from_bytes(as_django(mail).message().as_bytes(), policy=email.policy.default)

    for name in ("From", "To", "Message-ID"):
        assert str(ours[name]) == str(theirs[name])
    assert str(ours["Subject"]).split() == subject.split()
    for kind in ("plain", "html"):
        bodies = [each.get_body((kind,)).get_content().replace("\r\n", "\n") for each in (ours, theirs)]
        assert bodies[0].rstrip("\n") == bodies[1].rstrip("\n")
