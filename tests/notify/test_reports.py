"""What became of mails after they were sent: reports in every form, forged ones, copies, Maildir and IMAP."""

import io
import json
import mailbox
import socket
import threading
import time
from contextlib import contextmanager
from email.message import EmailMessage

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import strategies as st

from notify.delivery.feedback import Intake, take_message
from notify.delivery.reports import find_tokens, parse_message, read_reports
from notify.delivery.runner import deliver_due
from notify.models import Attempt, Suppression
from notify.signing import Sent, WrongToken, bounce_address, read_report_token, sign_report, token_in
from tests.mails import make_mail, outcomes
from tests.racing import race

BASE = "bounces@example.org"


@pytest.fixture(autouse=True)
def reports_come_back(configure):
    configure(BOUNCE_ADDRESS=BASE)


def report(to, *blocks, kind="delivery-status", extra=""):
    """Return a report as mail servers write it: the explanation, its form, and the headers of the mail."""
    form = "\n".join(["Reporting-MTA: dns; mx.example.net\n", *blocks])
    return (
        f"From: MAILER-DAEMON@example.net\nTo: <{to}>\nSubject: Undelivered Mail Returned to Sender\n"
        f'MIME-Version: 1.0\nContent-Type: multipart/report; report-type={kind}; boundary="B"\n\n'
        f"--B\nContent-Type: text/plain\n\nI'm sorry to have to inform you.\n"
        f"--B\nContent-Type: message/{kind}\n\n{form}\n--B{extra}--\n"
    ).encode()


def failed(address, *, action="failed", status="5.1.1", words="smtp; 550 5.1.1 no such user"):
    return f"Final-Recipient: rfc822; {address}\nAction: {action}\nStatus: {status}\nDiagnostic-Code: {words}\n"


def complaint(to, *, token_address="", recipient="ann@example.org", kind="abuse"):
    returned = f"Original-Mail-From: <{token_address}>\n" if token_address else ""
    given = f"Original-Rcpt-To: <{recipient}>\n" if recipient else ""
    form = f"Feedback-Type: {kind}\nUser-Agent: SomeISP/1.0\nVersion: 1\n{returned}{given}"
    return (
        f"From: fbl@example.net\nTo: {to}\nMIME-Version: 1.0\n"
        'Content-Type: multipart/report; report-type=feedback-report; boundary="B"\n\n'
        f"--B\nContent-Type: text/plain\n\nThis is a report.\n"
        f"--B\nContent-Type: message/feedback-report\n\n{form}\n"
        f"--B\nContent-Type: message/rfc822\n\nFrom: kwit@example.org\nSubject: x\n\nbody\n--B--\n"
    ).encode()


@pytest.fixture
def sent_mail(server):
    """A mail that was sent over SMTP, and the address that its reports come to."""
    mail = make_mail(to=("ann@example.org",))
    deliver_due(transport=server.transport())
    return mail, server.received[-1].sender


pytestmark = pytest.mark.django_db(transaction=True)


def test_each_mail_has_an_address_of_its_own_for_reports(sent_mail):
    mail, came_from = sent_mail

    assert came_from.startswith("bounces+")
    assert came_from.endswith("@example.org")
    assert len(came_from.partition("@")[0]) <= 64
    assert read_report_token(token_in(came_from.upper(), BASE)) == Sent(mail.pk, 0)


def test_a_bounce_is_an_outcome_of_its_recipient_with_time_and_words(sent_mail):
    mail, came_from = sent_mail

    found = take_message(report(came_from, failed("ann@example.org")))

    assert found == Intake(read=1, bounced=1)
    assert outcomes(mail) == [("ann@example.org", "sent", 250), ("ann@example.org", "bounced", 550)]
    row = mail.tries.get(outcome="bounced")
    assert (row.enhanced, row.text, row.channel, row.at is not None) == ("5.1.1", "no such user", "report", True)


def test_a_second_copy_changes_nothing(sent_mail):
    mail, came_from = sent_mail
    content = report(came_from, failed("ann@example.org"))
    take_message(content)

    assert take_message(content) == Intake(read=1, repeated=1)
    assert mail.tries.filter(outcome="bounced").count() == 1


def test_copies_that_come_at_once_are_one_outcome(sent_mail):
    mail, came_from = sent_mail
    content = report(came_from, failed("ann@example.org"))

    race(4, lambda number: take_message(content))

    assert mail.tries.filter(outcome="bounced").count() == 1


@pytest.mark.parametrize("spoil", ["other mail", "other part", "other signature", "no token", "other domain"])
def test_a_forged_token_changes_nothing(sent_mail, configure, spoil):
    configure(SUPPRESS_BOUNCED=True)
    _, came_from = sent_mail
    other = make_mail()
    payload, signature = token_in(came_from, BASE).rsplit("-", 1)
    token = {
        "other mail": sign_report(Sent(other.pk, 0)).rsplit("-", 1)[0] + f"-{signature}",
        "other part": payload[:-1] + f"1-{signature}",
        "other signature": f"{payload}-{'a' * len(signature)}",
    }.get(spoil, f"{payload}-{signature}")
    to = {"no token": BASE, "other domain": f"bounces+{token}@example.net"}.get(spoil, f"bounces+{token}@example.org")

    assert take_message(report(to, failed("ann@example.org"))) == Intake(read=1, forged=1)
    assert not Attempt.objects.filter(outcome="bounced").exists()
    assert not Suppression.objects.exists()


def test_a_token_ends_with_the_secret_by_overlap(settings):
    token = sign_report(Sent(7, 1))

    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another", [settings.SECRET_KEY]
    assert read_report_token(token) == Sent(7, 1)

    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(WrongToken):
        read_report_token(token)


@pytest.mark.parametrize(
    ("words", "status", "is_hard"),
    [
        ("smtp; 550 5.1.1 no such user", "5.1.1", True),
        ("smtp; 550 No such user", "5.0.0", True),
        ("smtp; 550 5.7.1 looks like spam", "5.7.1", False),
        ("smtp; 550 relaying denied", "5.0.0", False),
        ("smtp; 552 5.2.2 mailbox full", "5.2.2", False),
        ("X-Unix; 67", "5.1.1", True),
    ],
)
def test_a_mailbox_that_is_gone_is_suppressed_when_the_site_says_so(sent_mail, configure, words, status, is_hard):
    _, came_from = sent_mail
    configure(SUPPRESS_BOUNCED=True)

    take_message(report(came_from, failed("ann@example.org", status=status, words=words)))

    assert Suppression.objects.filter(address="ann@example.org", kind="", cause="bounced").exists() is is_hard


def test_a_site_that_does_not_say_so_suppresses_nobody(sent_mail):
    _, came_from = sent_mail

    take_message(report(came_from, failed("ann@example.org")))
    take_message(complaint(came_from))

    assert not Suppression.objects.exists()


@pytest.mark.parametrize(("action", "outcome"), [("delivered", "delivered"), ("delayed", None), ("relayed", None)])
def test_a_report_of_another_action(sent_mail, action, outcome):
    mail, came_from = sent_mail

    take_message(report(came_from, failed("ann@example.org", action=action, status="2.0.0", words="smtp; 250 ok")))

    assert [each for _, each, _ in outcomes(mail)][1:] == ([outcome] if outcome else [])


def test_a_receipt_of_the_reader_says_that_it_was_delivered(sent_mail):
    mail, came_from = sent_mail
    fields = "Final-Recipient: rfc822; ann@example.org\nDisposition: manual-action/MDN-sent-manually; displayed\n"

    take_message(
        report(came_from, kind="disposition-notification").replace(
            b"Reporting-MTA: dns; mx.example.net\n", fields.encode()
        )
    )

    assert outcomes(mail)[1:] == [("ann@example.org", "delivered", None)]


@pytest.mark.parametrize("recipient", ["ann@example.org", ""])
def test_a_complaint_that_came_by_a_feedback_loop(sent_mail, configure, recipient):
    configure(SUPPRESS_COMPLAINED=True)
    mail, came_from = sent_mail

    found = take_message(complaint("fbl@example.org", token_address=came_from, recipient=recipient))

    assert found == Intake(read=1, complained=1, suppressed=1)
    assert outcomes(mail)[1:] == [("ann@example.org", "complained", None)]
    assert Suppression.objects.get().cause == "complained"


def test_a_complaint_that_takes_it_back_is_none(sent_mail):
    _, came_from = sent_mail

    assert take_message(complaint(came_from, kind="not-spam")).complained == 0


def test_a_report_about_several_recipients_says_it_of_each(server):
    mail = make_mail(to=("ann@example.org", "ben@example.org", "cy@example.org"))
    deliver_due(transport=server.transport())
    came_from = server.received[-1].sender

    take_message(
        report(came_from, failed("ANN@example.org"), failed("cy@example.org", action="delivered", status="2.0.0"))
    )
    stranger = take_message(report(came_from, failed("dan@example.org")))

    assert sorted(outcomes(mail)[3:], key=str)[0] == ("ann@example.org", "bounced", 550)
    assert {(who, what) for who, what, _ in outcomes(mail)[3:]} == {
        ("ann@example.org", "bounced"),
        ("cy@example.org", "delivered"),
    }
    assert stranger == Intake(read=1, ignored=1)


def test_a_bounce_without_a_form_is_read_by_what_others_have_seen(sent_mail, configure):
    configure(SUPPRESS_BOUNCED=True)
    mail, came_from = sent_mail
    content = (
        f"From: MAILER-DAEMON@example.net\nTo: {came_from}\nSubject: failure notice\n\n"
        "Hi. This is the qmail-send program at example.net.\n"
        "I'm afraid I wasn't able to deliver your message to the following addresses.\n"
        "This is a permanent error; I've given up. Sorry it didn't work out.\n\n"
        "<ann@example.org>:\nSorry, no mailbox here by that name. (#5.1.1)\n\n"
        "--- Below this line is a copy of the message.\n\nReturn-Path: <x@example.org>\n"
    ).encode()

    found = take_message(content)

    assert (found.bounced, found.suppressed) == (1, 1)
    assert outcomes(mail)[1:] == [("ann@example.org", "bounced", 550)]


def test_an_absence_note_is_no_report(sent_mail):
    mail, came_from = sent_mail
    note = (
        f"From: ann@example.org\nTo: {came_from}\nAuto-Submitted: auto-replied\nSubject: I am away\n\nUntil Monday.\n"
    )

    assert take_message(note.encode()) == Intake(read=1, ignored=1)
    assert len(outcomes(mail)) == 1


def test_what_bounced_is_not_sent_again(sent_mail, server):
    _, came_from = sent_mail
    take_message(report(came_from, failed("ann@example.org")))
    call_command("notify_retry", "--all")

    assert deliver_due(transport=server.transport()).letters == 0


HOSTILE = [
    b"",
    b"\xff\xfe\x00" * 1000,
    b"Content-Type: multipart/mixed; boundary=B\n\n" + b"--B\nContent-Type: multipart/mixed; boundary=B\n\n" * 5000,
    b"To: " + b"(" * 200_000 + b"\n\n",
    b"To: " + b"bounces+x@example.org, " * 50_000 + b"\n\n",
    report("bounces+x@example.org", *[failed("ann@example.org")] * 20_000),
    b"Content-Type: message/rfc822\n\n" * 3000,
    b"Content-Type: text/plain; charset=nonsense\nContent-Transfer-Encoding: base64\n\n====",
]


@pytest.mark.parametrize("content", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_message_changes_nothing_and_ends_in_time(content):
    began = time.monotonic()

    found = take_message(content)

    assert time.monotonic() - began < 5
    assert found.bounced == found.complained == found.delivered == 0


@given(st.binary(max_size=400), st.sampled_from([*HOSTILE[:2], report("x", failed("ann@example.org")), complaint("x")]))
def test_nothing_raises(noise, content):
    for spoiled in (noise, content[: len(noise)] + noise + content[len(noise) :], content[: len(noise)]):
        message = parse_message(spoiled)
        if message is not None:
            find_tokens(message, base=BASE)
            read_reports(message, spoiled)


def test_the_command_reads_a_pipe(sent_mail, monkeypatch, capsys):
    mail, came_from = sent_mail
    content = report("postmaster@example.org", failed("ann@example.org"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    call_command("notify_bounces", "--json", "--recipient", came_from)

    assert json.loads(capsys.readouterr().out)["bounced"] == 1
    assert outcomes(mail)[1:] == [("ann@example.org", "bounced", 550)]


def test_the_command_reads_the_new_messages_of_a_maildir_once(sent_mail, tmp_path, capsys):
    _, came_from = sent_mail
    box = mailbox.Maildir(tmp_path / "box")
    for address in (came_from, BASE):
        box.add(report(address, failed("ann@example.org")))

    for expected in ({"read": 2, "bounced": 1, "forged": 1}, {"read": 0, "bounced": 0, "forged": 0}):
        call_command("notify_bounces", "--json", "--maildir", str(tmp_path / "box"))
        found = json.loads(capsys.readouterr().out)
        assert {name: found[name] for name in expected} == expected
    assert {message.get_flags() for message in mailbox.Maildir(tmp_path / "box")} == {"S"}
    with pytest.raises(CommandError, match="no Maildir"):
        call_command("notify_bounces", "--maildir", str(tmp_path))


@contextmanager
def imap_server(*contents):
    """Run a server that knows the few commands that are used, and keeps which message was seen."""
    seen, commands = set(), []

    def serve(listener):
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb") as stream:
            say = lambda text: (stream.write(text if isinstance(text, bytes) else text.encode()), stream.flush())  # noqa: E731
            say("* OK ready\r\n")
            while line := stream.readline():
                tag, command, *rest = line.decode().split()
                commands.append(" ".join([command, *rest]))
                if command == "UID" and rest[0] == "SEARCH":
                    say(f"* SEARCH {' '.join(str(n) for n in range(1, len(contents) + 1) if str(n) not in seen)}\r\n")
                elif command == "UID" and rest[0] == "FETCH":
                    content = contents[int(rest[1]) - 1]
                    say(
                        f"* {rest[1]} FETCH (UID {rest[1]} BODY[]<0> {{{len(content)}}}\r\n".encode()
                        + content
                        + b")\r\n"
                    )
                elif command == "UID" and rest[0] == "STORE":
                    seen.add(rest[1])
                elif command == "CAPABILITY":
                    say("* CAPABILITY IMAP4rev1\r\n")
                elif command == "SELECT":
                    say(f"* {len(contents)} EXISTS\r\n")
                elif command == "LOGOUT":
                    say("* BYE\r\n")
                say(f"{tag} OK done\r\n")
                if command == "LOGOUT":
                    return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[1], seen, commands
        thread.join(5)


def test_the_command_reads_the_unseen_messages_of_an_imap_folder(sent_mail, monkeypatch, capsys):
    mail, came_from = sent_mail
    contents = [report(came_from, failed("ann@example.org")), report(BASE, failed("ann@example.org"))]
    with imap_server(*contents) as (port, seen, commands):
        url = f"imap://kwit:p%40ss@127.0.0.1:{port}/Reports"
        monkeypatch.setattr("sys.stdin", io.StringIO(url + "\n"))
        call_command("notify_bounces", "--json", "--imap", "-")

    found = json.loads(capsys.readouterr().out)
    assert (found["read"], found["bounced"], found["forged"], seen) == (2, 1, 1, {"1", "2"})
    assert 'LOGIN kwit "p@ss"' in commands
    assert 'SELECT "Reports"' in commands
    assert outcomes(mail)[1:] == [("ann@example.org", "bounced", 550)]


@pytest.mark.parametrize("url", ["http://x", "imaps://", "imap://kwit@", "imap://kwit:secret@127.0.0.1:1/x"])
def test_a_folder_that_cannot_be_read_is_an_error_without_the_secret(url):
    with pytest.raises(CommandError) as caught:
        call_command("notify_bounces", "--imap", url)

    assert "secret" not in str(caught.value)


def test_the_command_needs_the_address(configure):
    configure(BOUNCE_ADDRESS="")

    with pytest.raises(CommandError, match="NOTIFY_BOUNCE_ADDRESS"):
        call_command("notify_bounces")


def test_the_address_has_its_token_before_the_domain():
    assert bounce_address("bounces@example.org", Sent(2**63 - 1, 1000)).partition("+")[0] == "bounces"
    assert len(bounce_address("bounces@example.org", Sent(2**63 - 1, 1000)).partition("@")[0]) <= 64


def test_a_message_of_the_wrong_type_is_no_report():
    message = EmailMessage()
    message.set_content("hello")

    assert read_reports(message, bytes(message)) == []
