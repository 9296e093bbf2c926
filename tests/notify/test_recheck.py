"""A mail that is no longer true when its turn comes is withdrawn; one query per claimed batch and kind says so."""

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from notify.checks import check_step
from notify.delivery.runner import deliver_due
from notify.explain.event import explain_event
from notify.keys import DigestKey, UuidKey
from notify.models import Control, MailQueue
from notify.operations.mails import release_mails
from notify.steps import FlaggedStep, Scope, Step
from notify.transports.memory import MemoryTransport
from tests.factories import NOW
from tests.notify.samples import do_pass
from tests.notify.test_keys import make_customer, make_invoice, make_ticket
from tests.notify.test_page_actions import MAILS, confirm
from tests.shop.models import Invoice, Ticket

pytestmark = pytest.mark.django_db(transaction=True)


class Unpaid(Step):
    kind = "unpaid"
    template = "unpaid"
    is_windowed = False
    recheck = True

    def events(self, scope: Scope) -> Any:
        return Invoice.objects.filter(paid_at=None).values(
            "number", key=F("pk"), event_at=F("issued_at"), recipients=F("customer__email")
        )


class ByNumber(Unpaid):
    def events(self, scope: Scope) -> Any:
        return Invoice.objects.filter(paid_at=None).values(
            "number", key=DigestKey("number"), event_at=F("issued_at"), recipients=F("customer__email")
        )


class ByParts(Unpaid):
    def events(self, scope: Scope) -> Any:
        return Invoice.objects.filter(paid_at=None).values(
            "number", key=DigestKey("number", "customer"), event_at=F("issued_at"), recipients=F("customer__email")
        )


@pytest.fixture(autouse=True)
def templates(write_template):
    for kind in ("unpaid", "opened"):
        write_template(f"mail/{kind}.subject.txt", "{{ number }}")
        write_template(f"mail/{kind}.body.txt", "{{ number }}")


def deliver() -> tuple[Any, list[str]]:
    transport = MemoryTransport()
    report = deliver_due(transport=transport)
    return report, sorted(letter.subject for letter in transport.letters)


def pay(*numbers: str) -> None:
    Invoice.objects.filter(number__in=numbers).update(paid_at=NOW)


def states() -> dict[str, str]:
    return dict(MailQueue.objects.values_list("subject", "state"))


@pytest.mark.parametrize("step", [Unpaid, ByNumber, ByParts])
def test_a_mail_whose_event_is_gone_is_withdrawn_and_the_others_go(add_step, step):
    add_step(step)
    for number in ("A/1", "B", "C"):
        make_invoice(number)
    do_pass()
    pay("A/1", "C")

    report, sent = deliver()

    assert (report.sent, report.withdrawn, sent) == (1, 2, ["B"])
    assert states() == {"A/1": "withdrawn", "B": "sent", "C": "withdrawn"}
    gone = MailQueue.objects.get(subject="C")
    assert gone.problem == "withdrawn: the step's query does not give this event any more"
    assert gone.tries.count() == 0
    assert Control.objects.count() == 3
    assert do_pass().steps[0].candidates == 0


class Opened(Step):
    kind = "opened"
    template = "opened"
    recheck = True

    def events(self, scope: Scope) -> Any:
        return Ticket.objects.filter(answered=False).values(
            number=F("title"), key=UuidKey("pk"), event_at=F("opened_at"), recipients=F("customer__email")
        )


def test_one_query_per_batch_and_kind_asks(add_step):
    add_step(Unpaid)
    add_step(Opened)
    for number in range(20):
        make_invoice(f"N{number}")
        make_ticket(title=f"T{number}")
    do_pass(now=NOW + timedelta(minutes=1))
    pay("N3")
    Ticket.objects.filter(title="T4").update(answered=True)

    with CaptureQueriesContext(connection) as found:
        report, sent = deliver()

    assert (report.sent, report.withdrawn) == (38, 2)
    assert not {"N3", "T4"} & set(sent)
    asked = [query["sql"] for query in found if "shop_invoice" in query["sql"] or "shop_ticket" in query["sql"]]
    loads = [q["sql"] for q in found if q["sql"].startswith("SELECT") and '"notify_mail_queue"."worker" = ' in q["sql"]]
    assert len(asked) <= 2 * len(loads) < 20, asked


def test_a_step_without_recheck_is_not_asked(add_step):
    add_step(type("Told", (Unpaid,), {"recheck": False}))
    make_invoice("A")
    do_pass()
    pay("A")

    with CaptureQueriesContext(connection) as found:
        _report, sent = deliver()

    assert sent == ["A"]
    assert not [query for query in found if "shop_invoice" in query["sql"]]


def test_a_person_may_send_it_all_the_same(add_step):
    add_step(Unpaid)
    make_invoice("A")
    do_pass()
    pay("A")
    deliver()

    out = StringIO()
    call_command("notify_release", str(MailQueue.objects.get().pk), "--actor", "ann", "--json", stdout=out)

    assert '"released": 1' in out.getvalue()
    mail = MailQueue.objects.get()
    assert (mail.state, mail.problem) == ("queued", "released by ann although its event was gone")
    assert deliver()[1] == ["A"]
    assert states() == {"A": "sent"}


def test_explain_says_so(add_step):
    add_step(Unpaid)
    invoice = make_invoice("A")
    do_pass()
    pay("A")
    deliver()

    said = " ".join(explain_event(kind="unpaid", key=invoice.pk).events[0].sentences)

    assert "It was withdrawn right before sending" in said
    assert "notify_release" in said


def test_a_page_shows_and_releases_it(add_step, olga):
    add_step(Unpaid)
    make_invoice("A")
    do_pass()
    pay("A")
    deliver()
    [mail] = MailQueue.objects.all()

    page = olga.get(reverse("admin:notify_mailqueue_change", args=[mail.pk])).content.decode()
    confirm(olga, f"{MAILS}action/release/", {"pk": [mail.pk], "scope": "selected"})

    assert "withdrawn" in page
    assert states() == {"A": "queued"}


def test_a_mail_that_waits_for_a_retry_is_asked_for_again(add_step):
    add_step(Unpaid)
    make_invoice("A")
    do_pass()
    MailQueue.objects.update(attempts=1, message_text="A")
    pay("A")

    assert deliver()[0].withdrawn == 1


def test_what_is_gone_joins_no_digest(add_step):
    add_step(type("Digested", (Unpaid,), {"digest": timedelta(hours=1)}))
    customer = make_customer()
    for number in "ABC":
        make_invoice(number, customer=customer)
    do_pass()
    MailQueue.objects.update(created_at=NOW, due_at=NOW)
    pay("A", "B")

    report, sent = deliver()

    assert (report.sent, report.withdrawn, sent) == (1, 2, ["C"])


def test_a_query_that_fails_blocks_its_own_mails_only(add_step):
    class Failing(Unpaid):
        def recheck_events(self, scope: Scope) -> Any:
            return Invoice.objects.filter(no_such_field=1)

    add_step(Failing)
    add_step(Opened)
    make_invoice("A")
    make_ticket(title="T")
    do_pass(now=NOW + timedelta(minutes=1))

    report, sent = deliver()

    assert (report.blocked, sent) == (1, ["T"])
    assert "cannot be asked whether the event is still true: FieldError" in MailQueue.objects.get(subject="A").problem
    assert release_mails(MailQueue.objects.filter(subject="A"), actor="ann") == 1


class Flagged(FlaggedStep, Opened):
    flag = "answered"
    flag_key = "pk"

    def flagged(self) -> Any:
        return Ticket.objects.all()


def test_a_flagged_step_has_to_say_what_is_still_true(add_step):
    assert "notify.E012" in [m.id for m in check_step(Flagged())]

    class Better(Flagged):
        def recheck_events(self, scope: Scope) -> Any:
            return Ticket.objects.values(key=UuidKey("pk"), event_at=F("opened_at"))

    assert "notify.E012" not in [m.id for m in check_step(Better())]
    add_step(Better)
    make_ticket(title="T")
    assert do_pass().outcome == "ok"
    assert Ticket.objects.get().answered
    assert deliver()[1] == ["T"]
