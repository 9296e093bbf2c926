"""How each database's dialect must read: in lists, in order, of one moment, and every value as Python has it."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, models, transaction
from django.db.models import BooleanField, Case, DateTimeField, DecimalField, F, QuerySet, Value, When

from notify.dialects import base, dialect_of
from portal.models import Comment, Contact, OrderLine
from tests.factories import NOW, make_contact, make_line, make_many
from tests.racing import in_another_session

pytestmark = pytest.mark.django_db(transaction=True)


def values_of(queryset: QuerySet[Any, Any], *names: str, rows: int = 2) -> list[list[tuple[Any, ...]]]:
    return list(dialect_of(connection).stream(queryset, names=names, rows=rows))


def test_rows_come_in_lists_of_at_most_the_asked_size_in_the_order_of_the_query(dialect):
    for number in range(5):
        make_contact(name=f"n{number}")

    found = values_of(Contact.objects.order_by("-name").values("name", "email"), "email", "name")

    assert [[name for _, name in rows] for rows in found] == [["n4", "n3"], ["n2", "n1"], ["n0"]]
    assert found[0][0] == ("n4@example.org", "n4")


@pytest.mark.parametrize("number", [0, 1, 2, 4])
def test_no_list_is_empty_and_no_row_is_lost_at_the_end_of_a_list(number):
    for _ in range(number):
        make_contact()

    found = values_of(Contact.objects.values("pk"), "pk")

    assert [len(rows) for rows in found] == [2] * (number // 2) + [1] * (number % 2)


def test_a_query_that_can_have_no_rows_gives_none():
    make_contact()

    assert values_of(Contact.objects.none().values("name"), "name") == []
    assert values_of(Contact.objects.filter(pk__in=[]).values("name"), "name") == []


def test_values_arrive_as_python_has_them():
    precise = datetime(2026, 1, 31, 8, 0, 0, 123456, tzinfo=UTC)
    make_line(rejected_at=precise, item="0017", qty=None, revision=2**31 - 1, handled=True)
    queryset = OrderLine.objects.values(
        "rejected_at",
        "item",
        "qty",
        "revision",
        "handled",
        price=Value(Decimal("12345.60"), DecimalField(max_digits=12, decimal_places=2)),
        big=Value(2**63 - 1, models.BigIntegerField()),
        is_early=Case(When(rejected_at__lt=NOW, then=True), default=False, output_field=BooleanField()),
        moment=Value(precise, DateTimeField()),
        same_name=F("order__tenant"),
    )
    names = list(queryset.query.values_select) + list(queryset.query.annotation_select)

    ((row,),) = values_of(queryset, *names)

    assert dict(zip(names, row, strict=True)) == {
        "rejected_at": precise,
        "item": "0017",
        "qty": None,
        "revision": 2**31 - 1,
        "handled": True,
        "price": Decimal("12345.60"),
        "big": 2**63 - 1,
        "is_early": False,
        "moment": precise,
        "same_name": "acme",
    }
    assert row[names.index("handled")] is True
    assert row[names.index("rejected_at")].tzinfo is not None


def test_the_result_is_that_of_one_moment_whatever_is_committed_meanwhile(dialect):
    for number in range(6):
        make_contact(name=f"n{number}")

    seen = []
    for rows in dialect.stream(Contact.objects.order_by("name").values("name"), names=["name"], rows=2):
        seen += [name for (name,) in rows]
        number = len(seen)
        in_another_session(lambda number=number: make_contact(name=f"n{number}-late"))
        with transaction.atomic(durable=True):
            Contact.objects.filter(name="n5").update(name="renamed")
            make_contact(name=f"own{number}")

    assert seen == [f"n{number}" for number in range(6)]
    assert Contact.objects.count() == 12


def test_the_caller_may_leave_a_stream_before_its_end_and_start_another(dialect):
    for _ in range(4):
        make_contact()

    chunks = dialect.stream(Contact.objects.values("pk"), names=["pk"], rows=1)
    next(chunks)
    chunks.close()

    assert len(values_of(Contact.objects.values("pk"), "pk")) == 2


def test_two_streams_can_be_open_at_once(dialect):
    for _ in range(2):
        make_contact()

    pairs = [
        (outer, inner)
        for outer in dialect.stream(Contact.objects.values("pk"), names=["pk"], rows=1)
        for inner in dialect.stream(Contact.objects.values("pk"), names=["pk"], rows=1)
    ]

    assert len(pairs) == 4


def test_lists_of_long_texts_are_short_and_few_rows_are_fetched_at_once(dialect, monkeypatch):
    monkeypatch.setattr(base, "LIST_CHARS_MAX", 1000)
    monkeypatch.setattr(base, "FETCH_ROWS_FIRST", 2)
    line = make_line()
    make_many(Comment(line=line, author="a", body="x" * length) for length in [400] * 10 + [10] * 40)

    found = values_of(Comment.objects.order_by("pk").values("body"), "body", rows=20)

    assert [len(body) for rows in found for (body,) in rows] == [400] * 10 + [10] * 40
    # The row that is one too many ends a list.
    assert [len(rows) for rows in found[:3]] == [3, 3, 3]
    assert max(len(rows) for rows in found) == 20
