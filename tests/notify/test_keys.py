"""Events whose key is a UUID, a text or several columns: found once, known again, and called by their own words."""

import datetime as dt
import hashlib
import json
import uuid
from io import StringIO
from typing import Any

import pytest
import sqlglot
from django.core.management import call_command
from django.db import connection
from django.db.models import Exists, F, OuterRef, Value
from django.db.models.functions import Lower
from django.template import engines
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from kwit.db.dialect import database_of
from notify.checks import check_step
from notify.delivery.runner import deliver_due
from notify.errors import WrongKey
from notify.keys import DigestKey, OriginalKey, UuidKey, digest, join, split, tsql_text
from notify.messages import loading
from notify.models import Control, MailQueue
from notify.operations.mails import release_mails
from notify.steps import FlaggedStep, Scope, Step
from notify.transports.memory import MemoryTransport
from tests.factories import NOW, make_many
from tests.notify.samples import do_pass
from tests.shop.models import Customer, Invoice, Ticket

ID = uuid.UUID("f05f0c8a-4e12-4a6b-9c3d-0123456789ab")


class TicketOpened(Step):
    kind = "ticket"
    template = "ticket"

    def events(self, scope: Scope) -> Any:
        return Ticket.objects.values(
            "title", key=UuidKey("pk"), event_at=F("opened_at"), recipients=F("customer__email")
        )


class InvoiceIssued(Step):
    kind = "invoice"
    template = "ticket"

    def events(self, scope: Scope) -> Any:
        return Invoice.objects.values(
            key=DigestKey("number"), event_at=F("issued_at"), title=F("number"), recipients=F("customer__email")
        )


class Composite(InvoiceIssued):
    kind = "composite"

    def events(self, scope: Scope) -> Any:
        return Invoice.objects.values(
            key=DigestKey("customer", "number", "due_on"),
            event_at=F("issued_at"),
            title=F("number"),
            recipients=F("customer__email"),
        )


def make_customer(**fields: Any) -> Customer:
    return Customer.objects.create(**{"name": "Ann", "email": "ann@example.org"} | fields)


def make_ticket(pk: uuid.UUID | None = None, **fields: Any) -> Ticket:
    customer = fields.pop("customer", None) or make_customer()
    return Ticket.objects.create(
        **{"pk": pk or uuid.uuid4(), "title": "Help", "opened_at": NOW, "customer": customer} | fields
    )


def make_invoice(number: str = "FV/1", **fields: Any) -> Invoice:
    customer = fields.pop("customer", None) or make_customer()
    values = {"amount": 1, "issued_at": NOW, "due_on": dt.date(2026, 2, 14), "customer": customer}
    return Invoice.objects.create(number=number, **values | fields)


@pytest.fixture
def templates(write_template):
    write_template("mail/ticket.subject.txt", "{{ kind }} {{ key }}: {{ title }}")
    write_template("mail/ticket.body.txt", "{{ kind }} {{ key }}: {{ title }}")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "pk", [ID, uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), uuid.UUID(int=2**127), uuid.UUID(int=2**63), uuid.uuid4()]
)
def test_a_uuid_is_exactly_the_two_keys(pk):
    make_ticket(pk)

    [row] = Ticket.objects.values(key=UuidKey("pk"), key2=UuidKey("pk", half=1), original_key=OriginalKey("pk"))

    assert UuidKey.from_numbers(row["key"], row["key2"]) == pk
    assert row["original_key"] == str(pk)
    assert (row["key"], row["key2"]) == UuidKey("pk").numbers_of([str(pk)], database_of(connection))


TEXTS = ["FV/1", "", " ", "a,b", "ź" * 20, "日本🧾", "back\\slash/", "1:a", "x" * 20]


@pytest.mark.django_db
@pytest.mark.parametrize("number", TEXTS)
def test_a_digest_in_the_database_is_that_of_the_canonical_text(number):
    invoice = make_invoice(number, due_on=dt.date(2026, 1, 2))
    parts = ("customer", "number", "due_on")

    [row] = Invoice.objects.values(
        key=DigestKey(*parts), key2=DigestKey(*parts, half=1), alone=DigestKey("number"), original=OriginalKey(*parts)
    )

    texts = [str(invoice.customer_id), number, "2026-01-02"]
    is_utf16 = connection.vendor == "microsoft"
    assert (row["key"], row["key2"]) == digest(texts, is_utf16=is_utf16)
    assert row["alone"] == digest([number], is_utf16=is_utf16)[0]
    assert split(row["original"]) == texts


def test_the_digest_is_sha_256_over_lengths_and_texts():
    """Fixed for ever: what is in a control table must be found again."""
    expected = hashlib.sha256(b"4:FV/1,2:42").digest()

    assert digest(["FV/1", "42"]) == (
        int.from_bytes(expected[:8], "big", signed=True),
        int.from_bytes(expected[8:16], "big", signed=True),
    )


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_an_original_key_of_several_parts_can_be_taken_apart(texts):
    assert (split(join(texts)) if len(texts) > 1 else [join(texts)]) == texts


@given(st.lists(st.text(), min_size=1, max_size=3), st.lists(st.text(), min_size=1, max_size=3))
def test_two_lists_of_values_have_two_digests(one, other):
    assert (digest(one) == digest(other)) == (one == other)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("step", [TicketOpened, InvoiceIssued, Composite])
def test_each_event_gives_one_message_and_is_known_again(add_step, templates, step):
    add_step(step)
    tickets = [make_ticket(), make_ticket(ID)]
    invoices = [make_invoice("FV/1"), make_invoice("FV\\2"), make_invoice("fv/1")]
    originals = {
        "ticket": {str(ticket.pk) for ticket in tickets},
        "invoice": {invoice.number for invoice in invoices},
        "composite": {join([str(i.customer_id), i.number, "2026-02-14"]) for i in invoices},
    }[step.kind]

    first, second = do_pass(), do_pass()

    assert (first.outcome, first.steps[0].mails, second.steps[0].candidates) == ("ok", len(originals), 0)
    assert set(Control.objects.values_list("original_key", flat=True)) == originals
    transport = MemoryTransport()
    deliver_due(transport=transport)
    assert all(letter.text.strip() == letter.subject for letter in transport.letters)
    assert {letter.subject.split(": ")[0] for letter in transport.letters} == {f"{step.kind} {o}" for o in originals}


@pytest.mark.django_db(transaction=True)
def test_the_anti_join_is_one_statement_in_the_database(add_step, templates):
    add_step(TicketOpened)
    customer = make_customer()
    make_many(Ticket(title="x", customer=customer, opened_at=NOW) for _ in range(50))
    do_pass()

    with CaptureQueriesContext(
        connection,
    ) as found:
        do_pass()

    about = [query["sql"] for query in found if "shop_ticket" in query["sql"] and "SELECT" in query["sql"]]
    assert len(about) == 1
    assert "notify_control" in about[0]


@pytest.mark.django_db
@pytest.mark.skipif(connection.vendor == "microsoft", reason="EXPLAIN is not there")
@pytest.mark.parametrize("step", [TicketOpened, Composite])
def test_the_anti_join_uses_the_index_of_the_control_table(step):
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off")
            cursor.execute("SET LOCAL enable_mergejoin = off")

    plan = step().candidates(Scope(now=NOW, since=NOW), not_before=None, using="default").explain()

    seek = "key=? AND key2=?" if connection.vendor == "sqlite" else "uq_notify_control_event"
    assert seek in plan


class Answered(FlaggedStep, TicketOpened):
    kind = "answered"
    flag = "answered"
    flag_key = "pk"

    def events(self, scope: Scope) -> Any:
        return super().events(scope).filter(answered=False)

    def flagged(self) -> Any:
        return Ticket.objects.all()


class PaidInvoice(FlaggedStep, Composite):
    """Rows of another table carry the flag; here the customers, all of whose invoices are handled together."""

    kind = "flagged"
    flag = "answered"
    flag_key = ("title", "customer")

    def events(self, scope: Scope) -> Any:
        return Ticket.objects.filter(answered=False).values(
            "title", key=DigestKey("title", "customer"), event_at=F("opened_at"), recipients=F("customer__email")
        )

    def flagged(self) -> Any:
        return Ticket.objects.all()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("step", [Answered, PaidInvoice])
def test_flags_are_raised_by_such_keys_too(add_step, templates, step):
    add_step(step)
    make_ticket()
    make_ticket(title="another")

    report = do_pass()

    assert (report.outcome, report.steps[0].mails) == ("ok", 2)
    assert set(Ticket.objects.values_list("answered", flat=True)) == {True}
    assert [m.id for m in check_step(step()) if m.id.startswith("notify.E")] == []


@pytest.mark.django_db(transaction=True)
def test_a_message_that_could_not_be_made_is_made_anew_by_its_original_key(add_step, write_template, templates):
    write_template("mail/ticket.subject.txt", "{% include 'not/there.txt' %}")
    add_step(TicketOpened)
    ticket = make_ticket()
    do_pass()
    mail = MailQueue.objects.get()
    assert mail.state == "blocked"
    write_template("mail/ticket.subject.txt", "{{ key }}")
    loading.clear_cache()
    engines["django"].engine.template_loaders[0].reset()

    release_mails(MailQueue.objects.all(), actor="ann")

    mail.refresh_from_db()
    assert (mail.state, mail.subject, mail.problem) == ("queued", str(ticket.pk), "")


def explained(*words: str) -> Any:
    out = StringIO()
    call_command("notify_explain", *words, "--json", stdout=out)
    return json.loads(out.getvalue())


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("spelling", [str, lambda pk: str(pk).upper(), lambda pk: pk.hex])
def test_commands_take_and_show_the_original_key(add_step, templates, spelling):
    add_step(TicketOpened)
    ticket = make_ticket()
    out = StringIO()
    call_command("notify_preview", "ticket", spelling(ticket.pk), stdout=out)
    assert f"ticket {ticket.pk}: Help" in out.getvalue()
    before = explained("ticket", spelling(ticket.pk))
    do_pass()

    after = explained("ticket", spelling(ticket.pk))

    assert [event["is_notified"] for event in (*before["events"], *after["events"])] == [False, True]
    for answer in (before, after):
        assert answer["events"][0]["original_key"] == str(ticket.pk)
        assert str(ticket.pk) in answer["events"][0]["sentences"][0]
    key, key2 = after["events"][0]["key"], after["events"][0]["key2"]
    assert explained("ticket", str(key), str(key2))["events"] == after["events"]


@pytest.mark.django_db(transaction=True)
def test_commands_take_a_key_of_several_parts(add_step, templates):
    add_step(Composite)
    invoice = make_invoice("FV/1")
    do_pass()

    answer = explained("composite", f"{invoice.customer_id}/FV\\/1/2026-02-14")

    assert [event["is_notified"] for event in answer["events"]] == [True]


@pytest.mark.django_db(transaction=True)
def test_pages_and_api_take_and_show_the_original_key(add_step, templates, victor):
    add_step(TicketOpened)
    ticket, other = make_ticket(), make_ticket()
    do_pass()

    listed = victor.get(reverse("admin:notify_control_changelist"), {"key": str(ticket.pk)}).content.decode()
    page = victor.get(reverse("admin:notify_control_explain"), {"kind": "ticket", "key": str(ticket.pk)})
    answer = victor.get("/api/v1/explain", {"kind": "ticket", "key": str(ticket.pk)})
    mails = victor.get(reverse("admin:notify_mailqueue_changelist")).content.decode()
    wrong = victor.get(reverse("admin:notify_control_changelist"), {"key": "no-uuid"}).content.decode()

    assert str(ticket.pk) in listed
    assert str(other.pk) not in listed
    assert f"Event ticket {ticket.pk} was prepared" in page.content.decode()
    assert f"ticket {ticket.pk}" in mails
    assert "is not the key of an event" in wrong
    assert answer.json()["events"][0]["original_key"] == str(ticket.pk)


class Compiler:
    """Compiles a column to its name, as a compiler of Django does."""

    def compile(self, part: Any) -> Any:
        return f"[t].[{part.target.column}]", []


def tsql_of(key: Any) -> str:
    resolved = Invoice.objects.annotate(key=key).query.annotations["key"]
    sql, params = resolved.as_microsoft(Compiler(), connection)
    assert params == []
    sqlglot.parse_one(f"SELECT {sql} AS k FROM t", dialect="tsql")
    return sql


def test_the_text_for_sql_server():
    digits = "REPLACE(CONVERT(nvarchar(36), [t].[id]), N'-', N'')"
    uuid_text = f"LOWER(STUFF(STUFF(STUFF(STUFF({digits}, 9, 0, N'-'), 14, 0, N'-'), 19, 0, N'-'), 24, 0, N'-'))"
    [number, due] = ["CONVERT(nvarchar(max), [t].[number])", "CONVERT(nvarchar(10), [t].[due_on], 23)"]
    whole = (
        f"CONVERT(nvarchar(20), DATALENGTH({number}) / 2) + N':' + {number} + N',' + "
        f"CONVERT(nvarchar(20), DATALENGTH({due}) / 2) + N':' + {due}"
    )

    assert tsql_text("u", "[t].[id]") == uuid_text
    assert tsql_of(UuidKey("pk")) == f"CONVERT(bigint, CONVERT(binary(8), SUBSTRING({digits}, 1, 16), 2))"
    assert tsql_of(UuidKey("pk", half=1)) == f"CONVERT(bigint, CONVERT(binary(8), SUBSTRING({digits}, 17, 16), 2))"
    assert tsql_of(DigestKey("number", "due_on", half=1)) == (
        f"CONVERT(bigint, CONVERT(binary(8), SUBSTRING(HASHBYTES('SHA2_256', {whole}), 9, 8)))"
    )
    assert tsql_of(OriginalKey("number")) == f"({number})"
    assert tsql_of(OriginalKey("number", "due_on")).count("REPLACE(REPLACE(") == 2


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("step", "text", "said"),
    [
        (TicketOpened, "4711", "'4711' is no UUID"),
        (Composite, "1/FV", "has 2 parts; this key has 3"),
        (Composite, "x/FV/2026-01-01", "'x' is no whole number"),
        (Composite, "1/FV/yesterday", "'yesterday' is no date"),
        (Composite, f"{2**63}/FV/2026-01-01", "is no whole number"),
        (InvoiceIssued, "a\0b", "is no text"),
        (InvoiceIssued, "\ud800", "is no text"),
    ],
)
def test_a_key_that_cannot_be_one_is_refused_in_words(add_step, step, text, said):
    add_step(step)

    with pytest.raises(WrongKey, match=said):
        step().get_key(text, using="default")


class Plain(Step):
    kind = "plain"
    template = "ticket"
    is_windowed = False
    given: dict[str, Any] = {}

    def events(self, scope: Scope) -> Any:
        return Ticket.objects.values("title", event_at=F("opened_at"), **self.given)


@pytest.mark.parametrize(
    ("given", "ids"),
    [
        ({"key": F("pk")}, ["notify.E010"]),
        ({"key": F("title")}, ["notify.E010"]),
        ({"key": F("opened_at")}, ["notify.E010"]),
        ({"key": F("customer"), "key2": F("pk")}, ["notify.E010"]),
        ({"key": F("customer"), "key2": F("title")}, ["notify.E010"]),
        ({"key": UuidKey("pk"), "key2": F("customer")}, ["notify.E010"]),
        ({"key": UuidKey("title")}, ["notify.E010"]),
        ({"key": UuidKey("pk", "customer")}, ["notify.E010"]),
        ({"key": DigestKey("opened_at")}, ["notify.E010"]),
        ({"key": DigestKey()}, ["notify.E010"]),
        ({"key": UuidKey("pk")}, []),
        ({"key": DigestKey("title", "customer__email", "pk")}, []),
        ({"key": DigestKey(Lower("title"))}, []),
        ({"key": F("customer"), "key2": Value(7)}, []),
    ],
)
def test_check_looks_at_the_types_of_keys_before_a_pass_does(templates, given, ids):
    step = type("Spoilt", (Plain,), {"given": given})()

    assert [m.id for m in check_step(step)] == ids


class Nullable(Plain):
    def events(self, scope: Scope) -> Any:
        return Invoice.objects.values(event_at=F("issued_at"), title=F("number"), **self.given)


@pytest.mark.parametrize(
    "given",
    [
        {"key": F("pk"), "key2": F("customer__ticket__customer")},
        {"key": F("customer__ticket__customer")},
        {"key": UuidKey("customer__ticket")},
        {"key": DigestKey("number", "customer__ticket__title")},
    ],
)
def test_check_warns_of_keys_that_may_be_null(templates, given):
    """A column of an outer join may be NULL, whatever its field says."""
    step = type("Spoilt", (Nullable,), {"given": given})()

    assert [m.id for m in check_step(step)] == ["notify.W003"]


@pytest.mark.django_db
def test_another_query_may_ask_the_control_table_by_such_a_key():
    """What own-step.md shows for events that are older than what was notified."""
    ticket = make_ticket()
    known = Control.objects.filter(kind="ticket", key=UuidKey(OuterRef("pk")), key2=UuidKey(OuterRef("pk"), half=1))
    rows = Ticket.objects.filter(Exists(known))
    assert not rows.exists()
    key, key2 = UuidKey("pk").numbers_of([str(ticket.pk)], database_of(connection))

    Control.objects.create(kind="ticket", key=key, key2=key2)

    assert rows.get() == ticket
