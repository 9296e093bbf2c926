"""Each snippet of docs/own-step.md runs by itself, and does what the page says of it."""

import re
import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.utils import timezone

import tests.shop.models
from notify.checks import check_step
from notify.delivery.runner import deliver_due
from notify.models import Control, MailQueue, TaskQueue
from notify.steps import registered
from notify.transports.memory import MemoryTransport
from tests.notify.samples import do_pass
from tests.notify.test_keys import make_customer, make_invoice, make_ticket

ROOT = Path(__file__).resolve().parents[2]
SNIPPETS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "own-step.md").read_text(), re.S)
MODELS, *STEPS = SNIPPETS
TEST = STEPS.pop()
TEXTS = {
    "invoice": "{{ number }} {{ amount }} {{ due_on|date }}",
    "reminder": "{{ number }} {{ key2 }}",
    "ticket": "{{ title }} {{ key }}",
}


def run(snippet: str) -> dict[str, Any]:
    """Run a snippet in a module of its own, inside the package of the shop."""
    module = ModuleType("tests.shop.snippet")
    module.__package__ = "tests.shop"
    exec(compile(snippet, "own-step.md", "exec"), vars(module))
    return vars(module)


@pytest.fixture
def templates(write_template, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    for name, text in TEXTS.items():
        write_template(f"mail/{name}.subject.txt", text)
        write_template(f"mail/{name}.body.txt", text)
    write_template("mail/comments.subject.txt", "{% for event in events %}{{ event.body }}{% endfor %}")
    write_template("mail/comments.body.txt", "x")
    write_template("mail/comments.body.html", "x")
    write_template("mail/comment.subject.txt", "{{ body }} by {{ author }}")
    write_template("mail/comment.body.txt", "x")
    write_template("mail/comment.body.html", "x")
    write_template("task/ticket.title.txt", "{{ title }}")


def test_the_models_are_those_that_the_tests_use():
    shown = MODELS.removeprefix("# shop/models.py\n").strip()
    assert shown in (ROOT / "tests" / "shop" / "models.py").read_text()


@pytest.mark.parametrize("snippet", STEPS, ids=lambda snippet: re.findall(r"class (\w+)", snippet)[0])
def test_a_snippet_is_a_step_without_fault(add_step, templates, snippet):
    """It defines or imports every name that it uses, and ``check`` finds nothing but what the page says of it."""
    run(snippet)

    [step] = registered()
    found = [(message.id, message.msg) for message in check_step(step)]
    assert [one for one in found if one[0] != "notify.W001"] == []


def of(name: str) -> str:
    return next(snippet for snippet in STEPS if f"class {name}(" in snippet)


@pytest.mark.django_db(transaction=True)
def test_the_invoice_has_its_pdf_and_the_accountant_a_copy(add_step, templates):
    run(of("InvoiceIssued"))
    path = default_storage.save("invoices/17.pdf", ContentFile(b"%PDF"))
    customer = make_customer(accountant="books@example.org", language="pl_PL")
    make_invoice("FV-17", customer=customer, amount="1234.50", pdf=path, issued_at=timezone.now())
    do_pass(now=timezone.now())
    transport = MemoryTransport()

    deliver_due(transport=transport)

    [sent] = transport.letters
    assert (sent.to, sent.cc, [file.name for file in sent.files]) == (
        ("ann@example.org",),
        ("books@example.org",),
        ["FV-17.pdf"],
    )
    assert sent.subject == "FV-17 1234,50 14 lutego 2026"
    assert sent.text.strip() == sent.subject


@pytest.mark.django_db(transaction=True)
def test_a_reminder_goes_out_after_7_and_after_14_days_unless_it_was_paid(add_step, templates):
    run(of("PaymentReminder"))
    now = timezone.now()
    invoice = make_invoice("A", due_on=now.date() - timedelta(days=7))
    make_invoice("B", due_on=now.date() - timedelta(days=6))
    do_pass(now=now)
    do_pass(now=now + timedelta(days=1))
    do_pass(now=now + timedelta(days=8))
    assert list(Control.objects.filter(key=invoice.pk).order_by("key2").values_list("key2", flat=True)) == [7, 14]
    tests.shop.models.Invoice.objects.update(paid_at=now)

    deliver_due(transport=MemoryTransport())

    assert set(MailQueue.objects.values_list("state", flat=True)) == {"withdrawn"}


@pytest.mark.django_db(transaction=True)
def test_the_ticket_is_told_by_its_uuid(add_step, templates):
    run(of("TicketOpened"))
    ticket = make_ticket(title="Help", opened_at=timezone.now())

    do_pass(now=timezone.now())

    assert MailQueue.objects.get().subject == f"Help {ticket.pk}"
    assert TaskQueue.objects.get().assignee == "support"


@pytest.mark.django_db(transaction=True)
def test_the_test_of_the_page_passes(add_step, templates, monkeypatch):
    run(of("InvoiceIssued"))
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.models", tests.shop.models)

    run(TEST)["test_an_invoice_is_told_once"]()
