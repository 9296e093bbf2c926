"""What a step says of its mails beside their texts: sender, copies, reply addresses, headers, files, absolute links."""

import email
import email.policy
from io import StringIO
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.management import call_command
from django.db.models import F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from notify.checks import check_step
from notify.delivery.runner import deliver_due
from notify.errors import UnusableAttachment, WrongAddress
from notify.messages.options import File, read_file
from notify.models import Attempt, AttemptOutcome, MailQueue
from notify.operations.preview import preview_event, preview_mail
from notify.steps import Attachment, Step
from notify.transports.base import Email, Reply, Result
from notify.transports.django import as_django
from notify.transports.memory import MemoryTransport
from notify.transports.mime import compose
from tests.notify.samples import do_pass
from tests.notify.test_keys import make_customer, make_invoice
from tests.shop.models import Invoice

PDF = b"%PDF-1.7 \x00\xff not quite"


class Issued(Step):
    kind = "issued"
    template = "issued"
    is_windowed = False
    from_email = "Accounts <accounts@example.org>"

    def events(self, scope: Any) -> Any:
        return Invoice.objects.values(
            "number",
            "amount",
            "pdf",
            key=F("pk"),
            event_at=F("issued_at"),
            recipients=F("customer__email"),
            accountant=F("customer__accountant"),
        )

    def reply_to(self, event: Any) -> Any:
        return [f"Invoice {event.values['number']} <reply@example.org>", "office@example.org"]

    def cc(self, event: Any) -> Any:
        return event.values["accountant"]

    bcc = "archive@example.org; ann@example.org"
    headers = {"X-Kind": "invoice", "List-Unsubscribe": "<https://example.org/no>"}

    def attachments(self, event: Any) -> Any:
        name = f"{event.values['number']}.pdf"
        return [Attachment(path=event.values["pdf"], name=name)] if event.values["pdf"] else []


@pytest.fixture
def storage(tmp_path, settings):
    settings.MEDIA_ROOT = tmp_path / "media"
    return default_storage


@pytest.fixture
def templates(write_template):
    write_template("mail/issued.subject.txt", "{{ number }}")
    write_template(
        "mail/issued.body.txt", "{% load notify %}{% notify_url 'admin:index' %} {% notify_url '/i/7' %} {{ site_url }}"
    )


@pytest.fixture
def issued(add_step, templates, configure, storage):
    configure(SITE_URL="https://shop.example.org/")
    add_step(Issued)
    return Issued


def make(**fields: Any) -> Invoice:
    customer = make_customer(accountant=fields.pop("accountant", "books@example.org"))
    return make_invoice("FV-1", customer=customer, **fields)


def deliver(transport: Any = None) -> Any:
    transport = transport or MemoryTransport()
    deliver_due(transport=transport)
    return transport.letters


pytestmark = pytest.mark.django_db(transaction=True)


def test_a_mail_has_sender_copies_reply_addresses_headers_a_file_and_links(issued, storage):
    name = storage.save("invoices/1.pdf", ContentFile(PDF))
    make(pdf=name)
    assert do_pass().outcome == "ok"

    [sent] = deliver()

    assert (sent.sender, sent.to, sent.cc) == (
        "Accounts <accounts@example.org>",
        ("ann@example.org",),
        ("books@example.org",),
    )
    assert sent.recipients == ("ann@example.org", "books@example.org", "archive@example.org")
    assert sent.reply_to == ("Invoice FV-1 <reply@example.org>", "office@example.org")
    assert dict(sent.headers)["X-Kind"] == "invoice"
    assert [value for header, value in sent.headers if header == "List-Unsubscribe"] == ["<https://example.org/no>"]
    assert [(file.name, file.content, file.content_type) for file in sent.files] == [
        ("FV-1.pdf", PDF, "application/pdf")
    ]
    assert sent.text == ("https://shop.example.org/admin/ https://shop.example.org/i/7 https://shop.example.org\n")
    assert dict(Attempt.objects.values_list("recipient", "outcome")) == dict.fromkeys(sent.recipients, "sent")


def test_the_message_reads_so_to_whoever_receives_it(issued, storage):
    make(pdf=storage.save("invoices/1.pdf", ContentFile(PDF)))
    do_pass()
    [sent] = deliver()

    for data in (compose(sent), as_django(sent).message().as_bytes()):
        read = email.message_from_bytes(data, policy=email.policy.default)
        assert read["from"] == "Accounts <accounts@example.org>"
        assert (read["to"], read["cc"], read["bcc"]) == ("ann@example.org", "books@example.org", None)
        assert [str(address) for address in read["reply-to"].addresses] == [
            "Invoice FV-1 <reply@example.org>",
            "office@example.org",
        ]
        assert b"archive@example.org" not in data
        assert [part.get_filename() for part in read.iter_attachments()] == ["FV-1.pdf"]
        assert [part.get_content() for part in read.iter_attachments()] == [PDF]
        assert "https://shop.example.org/i/7" in read.get_body(("plain",)).get_content()


def test_each_of_to_cc_and_bcc_has_an_outcome_of_their_own_and_is_retried_alone(issued):
    make()
    do_pass()
    said = {"ann@example.org": "sent", "books@example.org": "deferred", "archive@example.org": "refused"}

    deliver(MemoryTransport(lambda sent: [Result(a, AttemptOutcome(said[a]), Reply(250)) for a in sent.recipients]))

    outcomes = dict(Attempt.objects.values_list("recipient", "outcome"))
    assert outcomes == said
    MailQueue.objects.update(due_at="2020-01-01T00:00:00Z")
    [again] = deliver()
    assert (again.recipients, again.to, again.cc) == (
        ("books@example.org",),
        ("ann@example.org",),
        ("books@example.org",),
    )
    assert as_django(again).recipients() == ["books@example.org"]


def test_whoever_is_named_twice_gets_one_mail(issued):
    make(accountant="ANN@example.org, books@example.org, Books@Example.org")
    do_pass()

    [sent] = deliver()

    assert sent.recipients == ("ann@example.org", "books@example.org", "archive@example.org")


def test_copies_are_split_like_other_recipients_and_no_part_shows_the_blind_ones(issued, configure):
    configure(RECIPIENTS_MAX=1)
    make()
    do_pass()

    sent = deliver()

    assert [(one.recipients, one.to, one.cc) for one in sent] == [
        (("ann@example.org",), ("ann@example.org",), ()),
        (("books@example.org",), (), ("books@example.org",)),
        (("archive@example.org",), (), ()),
    ]
    assert b"To: undisclosed-recipients:;" in compose(sent[2])


def test_a_wrong_copy_is_left_out_and_named(issued):
    make(accountant="nobody")
    report = do_pass()

    mail = MailQueue.objects.get()
    assert (report.outcome, mail.state, mail.problem) == ("ok", "queued", "not an address: 'nobody'")
    assert deliver()[0].recipients == ("ann@example.org", "archive@example.org")


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        ({"headers": {"X-A": "a\r\nBcc: x@example.org"}}, "headers[X-A] cannot be used"),
        ({"headers": {"X-A\r\nBcc": "x@example.org"}}, "headers cannot be used"),
        ({"headers": {"Bcc": "x@example.org"}}, "headers cannot be used: 'Bcc'"),
        ({"headers": {"Content-Type": "text/html"}}, "headers cannot be used"),
        ({"headers": {"X-A": "x" * 901}}, "headers[X-A] cannot be used"),
        ({"from_email": "nobody"}, "from_email cannot be used: 'nobody'"),
        ({"from_email": "a@example.org, b@example.org"}, "from_email cannot be used"),
        ({"reply_to": ["ok@example.org", "x y"]}, "reply_to cannot be used: 'x y'"),
        ({"cc": lambda self, event: 1 / 0}, "cannot be made: ZeroDivisionError"),
    ],
)
def test_what_would_be_another_mail_blocks_it_and_says_why(add_step, templates, spoilt, said):
    add_step(type("Spoilt", (Issued,), spoilt))
    make()

    do_pass()

    mail = MailQueue.objects.get()
    assert mail.state == "blocked"
    assert mail.problem.startswith(said)
    assert deliver() == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(name=st.text(max_size=30), value=st.text(max_size=60), sender=st.text(max_size=30), file=st.text(max_size=30))
def test_no_header_and_no_name_can_become_another_header(name, value, sender, file):
    sent = Email(
        sender=f"{sender} <a@example.org>" if "<" not in sender else "a@example.org",
        recipients=("x@example.org",),
        to=("x@example.org",),
        subject=value,
        text="x",
        html="<p>x</p>",
        headers=(("X-Value", value),),
        files=(File(file, b"x", "text/plain"),),
    )
    try:
        data = compose(sent)
    except (ValueError, WrongAddress):
        return

    read = email.message_from_bytes(data)
    assert set(read.keys()) == {"From", "To", "Subject", "X-Value", "MIME-Version", "Content-Type"}
    [body, part] = read.get_payload()
    assert set(part.keys()) == {"Content-Type", "Content-Transfer-Encoding", "Content-Disposition"}
    assert body.get_content_type() == "multipart/alternative"


@pytest.mark.parametrize("name", ["Rechnung Müller 日本.pdf", 'a"b;c\\d.pdf', "x" * 200 + ".pdf", "ż" * 150])
def test_a_file_may_have_any_name(name):
    sent = Email(
        "a@example.org",
        ("x@example.org",),
        ("x@example.org",),
        "s",
        "t",
        "",
        (),
        files=(File(name, PDF, "application/pdf"),),
    )

    data = compose(sent)

    [part] = email.message_from_bytes(data, policy=email.policy.default).iter_attachments()
    assert part.get_filename() == name
    assert max(map(len, data.split(b"\r\n"))) <= 998
    assert data.isascii()


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("../../etc/passwd", "_.._etc_passwd"),
        ("..\\..\\x.exe", "_.._x.exe"),
        ("FV/2026/1.pdf", "FV_2026_1.pdf"),
        ("a\nb.pdf", "a b.pdf"),
        ("x" * 300 + ".pdf", "x" * 196 + ".pdf"),
        ("x" * 300, "x" * 200),
        ("invoice\u202efdp.exe", "invoicefdp.exe"),
        ("日本.pdf", "日本.pdf"),
        ("..", "attachment"),
    ],
)
def test_a_file_s_name_can_be_saved_anywhere(given, name):
    assert read_file(Attachment(name=given, content=b"x"), 1).name == name


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "\0"])
def test_a_path_outside_of_the_storage_is_a_missing_file(storage, path):
    with pytest.raises(UnusableAttachment):
        read_file(Attachment(path=path, name="x"), 1000)


def test_a_missing_file_blocks_that_mail_and_says_so(issued, storage):
    make(pdf="invoices/gone.pdf")
    make_invoice("FV-2", customer=make_customer(email="ben@example.org"))
    do_pass()

    sent = deliver()

    assert [one.to for one in sent] == [("ben@example.org",)]
    blocked = MailQueue.objects.get(state="blocked")
    assert blocked.problem == "the file invoices/gone.pdf is missing"
    storage.save("invoices/gone.pdf", ContentFile(PDF))
    call_command("notify_release", str(blocked.pk), "--actor", "ann", stdout=StringIO())
    assert [file.content for file in deliver()[0].files] == [PDF]


def test_files_have_a_limit_with_a_name(issued, storage, configure):
    make(pdf=storage.save("invoices/1.pdf", ContentFile(b"x" * 101)))
    do_pass()
    configure(ATTACHMENT_BYTES=100)

    assert deliver() == []

    assert "larger than NOTIFY_ATTACHMENT_BYTES" in MailQueue.objects.get().problem


def test_a_callable_is_called_when_the_mail_is_sent(add_step, templates, configure):
    configure(SITE_URL="https://shop.example.org")
    called = []

    def content() -> str:
        called.append(1)
        return "a;b"

    add_step(type("Called", (Issued,), {"attachments": [Attachment(content=content, name="a.csv"), None]}))
    make()
    do_pass()
    assert called == []

    [sent] = deliver()

    assert [(file.name, file.content, file.content_type) for file in sent.files] == [("a.csv", b"a;b", "text/csv")]
    assert called == [1]


def test_what_is_previewed_is_what_arrives(issued, storage):
    invoice = make(pdf=storage.save("invoices/1.pdf", ContentFile(PDF)))
    [before] = preview_event(kind="issued", key=invoice.pk)
    do_pass()
    queued = preview_mail(MailQueue.objects.get())

    [sent] = deliver()

    for shown in (before, queued):
        assert (shown.sender, shown.recipients, shown.cc) == (sent.sender, sent.to, sent.cc)
        assert (shown.bcc, shown.attachments) == (("archive@example.org",), ("FV-1.pdf",))
        assert (shown.subject, shown.text) == (sent.subject, sent.text)
        assert shown.headers["Reply-To"] == ", ".join(sent.reply_to)
    out = StringIO()
    call_command("notify_preview", "issued", str(invoice.pk), stdout=out)
    assert "Bcc: archive@example.org" in out.getvalue()
    assert "Attachments: FV-1.pdf" in out.getvalue()


def test_a_step_may_say_where_its_site_is(add_step, templates):
    add_step(type("Sited", (Issued,), {"site_url": lambda self, event: f"https://{event.values['number']}.example/"}))
    make()
    do_pass()

    assert deliver()[0].text.endswith(" https://FV-1.example\n")


def test_a_link_without_a_site_blocks_the_mail(add_step, templates):
    add_step(Issued)
    make()
    do_pass()

    assert deliver() == []
    assert "set NOTIFY['SITE_URL']" in MailQueue.objects.get().problem


def test_check_refuses_copies_and_files_of_a_digest(templates):
    step = type("Digested", (Issued,), {"digest": True})()

    assert [m.id for m in check_step(step)] == ["notify.E011"]
    assert "bcc, cc, attachments" in next(iter(check_step(step))).msg
