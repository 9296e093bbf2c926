"""The list of receipts: each once with its latest verdict, filters, several tenants, and what it costs."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from portal.models import OrderLine
from receipts.models import Change, Reconciliation, Verdict
from tests.factories import NOW, make_line
from tests.receipts.kept import ALL, WORK, drifted, keep, make_person, make_receipt
from tests.receipts.pages import KEPT, LIST, RUNS, listed, walked
from tests.receipts.plain import cancel, target

pytestmark = pytest.mark.django_db


def test_the_list_shows_each_receipt_with_its_targets_and_its_latest_verdict(root: Client) -> None:
    drifted()
    make_receipt("CHG-2", ids=range(9001, 9008), kind="accept", at=NOW)
    keep("CHG-1")

    page = root.get(LIST)

    first, second = ([str(cell.text) for cell in row.cells] for row in page.context["table"].rows)
    assert first[:5] == ["CHG-1", "cancel", "acme", "3", "olga"]
    assert first[7] == "1 changed, 1 missing"
    assert second[:4] == ["CHG-2", "accept", "acme", "7"]
    body = page.content.decode()
    assert body.count("≠</span> differs") == 1
    assert body.count("○</span> never compared") == 1


def test_the_pages_of_the_list_show_receipts_with_equal_times_once_whatever_their_names(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwit.admin.base.ReadOnlyAdmin.page_rows", 4)
    names = ["a~b", "~", "~~x", "2026-01-31T08:00:00+00:00~1", "Ż ółw", "a&b=c", "100%", "a+b", "z", "Z"]
    for number, name in enumerate(names):
        make_receipt(name, at=NOW + timedelta(seconds=number % 2))

    seen = walked(root)

    assert len(seen) == len(names)
    assert set(seen) == set(names)


def test_no_receipt_is_shown_twice_whose_time_the_database_has_written(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's clock writes three decimals, Python six, and SQLite compares the texts."""
    monkeypatch.setattr("kwit.admin.base.ReadOnlyAdmin.page_rows", 2)
    names = [f"CHG-{number}" for number in range(7)]
    for name in names:
        cancel(target(make_line()), change_id=name)
    pages = [f"?after={row.created_at.isoformat().replace('+', '%2B')}~{row.pk}" for row in Change.objects.all()]

    assert sorted(walked(root)) == names
    for row, page in zip(Change.objects.all(), pages, strict=True):
        shown = [line.cells[0].text for line in root.get(LIST + page).context["table"].rows]
        assert row.pk not in shown
        before = root.get(LIST + page.replace("after", "before")).context["table"].rows
        assert len(before) == 2


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"change_id": "A"}, ["A"]),
        ({"change_id": "a"}, []),
        ({"kind": "accept"}, ["C"]),
        ({"tenant": "zeta"}, ["D", "B"]),
        ({"tenant": "zeta", "kind": "cancel"}, ["D", "B"]),
        ({"since": "2026-02-01"}, ["D", "C"]),
        ({"until": "2026-02-01"}, ["C", "B", "A"]),
        ({"since": "2026-02-01", "until": "2026-02-01", "tenant": "acme"}, ["C"]),
        ({"differs": "1"}, ["D", "A"]),
        ({"differs": "1", "tenant": "acme", "until": "2026-01-31"}, ["A"]),
        ({"differs": "1", "kind": "accept"}, []),
        ({"differs": "1", "change_id": "D"}, ["D"]),
        ({"since": "soon"}, []),
    ],
)
def test_filters_of_the_list(root: Client, query: dict[str, str], found: list[str]) -> None:
    line = make_line(state="cancelled", revision=5)
    make_receipt("A", at=NOW, ids=[999])
    make_receipt("B", at=NOW + timedelta(hours=1), tenant="zeta", ids=[999])
    make_receipt("C", at=NOW + timedelta(days=1), kind="accept", ids=[line.pk])
    make_receipt("D", at=NOW + timedelta(days=2), tenant="zeta", ids=[999])
    for name in "ACD":
        keep(name)

    assert listed(root, **query) == found


def test_a_receipt_that_matches_again_differs_no_longer(root: Client) -> None:
    line = make_line(state="cancelled", revision=5, qty=9)
    make_receipt("CHG-1", ids=[line.pk])
    keep("CHG-1")
    assert listed(root, differs="1") == ["CHG-1"]
    OrderLine.objects.update(qty=10)

    keep("CHG-1")

    assert listed(root, differs="1") == []
    assert Verdict.objects.get().reconciliation == Reconciliation.objects.latest("pk")


def test_a_reader_of_several_tenants_sees_theirs_in_one_order(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kwit.admin.base.ReadOnlyAdmin.page_rows", 3)
    client.force_login(make_person("bob", *WORK, tenants=["acme", "zeta", "empty"]))
    for number in range(12):
        tenant = ("acme", "zeta", "other")[number % 3]
        make_receipt(f"CHG-{number:02}", tenant=tenant, at=NOW + timedelta(seconds=number // 4), ids=[999])
    expected = [row.pk for row in Change.objects.exclude(tenant="other").order_by("-created_at", "-change_id")]
    for name in ("CHG-00", "CHG-01", "CHG-02"):
        keep(name)

    assert walked(client) == expected
    assert walked(client, tenant="zeta") == [name for name in expected if int(name[4:]) % 3 == 1]
    assert walked(client, differs="1") == ["CHG-01", "CHG-00"]


@pytest.mark.parametrize("address", [LIST, KEPT, RUNS, "/admin/"])
def test_a_list_costs_the_same_queries_for_few_rows_and_for_many(
    root: Client, address: str, django_assert_max_num_queries: Any, django_assert_num_queries: Any
) -> None:
    make_receipt("CHG-0", ids=[999])
    keep("CHG-0")
    with django_assert_max_num_queries(12) as few:
        root.get(address)
    for number in range(1, 40):
        make_receipt(f"CHG-{number}", ids=[999])
        keep(f"CHG-{number}")

    with django_assert_num_queries(len(few)):
        root.get(address)

    if address != "/admin/":  # the dashboard counts up to a bound
        assert [query["sql"] for query in few if re.search(r"(?<!SELECT )COUNT\(", query["sql"])] == []


INDEXED = [
    "/admin/",
    LIST,
    f"{LIST}?tenant=acme",
    f"{LIST}?kind=cancel",
    f"{LIST}?tenant=acme&kind=cancel",
    f"{LIST}?change_id=CHG-1",
    f"{LIST}?since=2026-01-01&until=2026-12-31",
    f"{LIST}?differs=1",
    f"{LIST}?differs=1&tenant=acme",
    f"{LIST}CHG-1/change/",
    f"{LIST}?after=2026-01-31T08:00:00%2B00:00~CHG-1",
    KEPT,
    f"{KEPT}?change_id=CHG-1",
    RUNS,
]


@pytest.mark.parametrize("tenants", [(), ("acme",)])
def test_no_page_reads_a_whole_table(
    client: Client, tenants: tuple[str, ...], django_assert_max_num_queries: Any
) -> None:
    """A scan along an index that stops at a LIMIT is a page; one without reads everything, or sorts it."""
    if connection.vendor != "sqlite":
        pytest.skip("plans are read on SQLite: it has no statistics, so that few rows give the plan of many")
    client.force_login(make_person("reader", *WORK, *([] if tenants else [ALL]), tenants=tenants))
    make_receipt("CHG-1", ids=[999])
    keep("CHG-1")
    with django_assert_max_num_queries(30 * len(INDEXED)) as queries:
        for address in INDEXED:
            client.get(address)

    bad = []
    for query in {query["sql"]: query for query in queries}.values():
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN QUERY PLAN {query['sql']}".replace("%", "%%"), ())
            plan = [row[3] for row in cursor.fetchall()]
        is_read = any(one.startswith("SCAN receipts_") for one in plan)
        is_sorted = any("TEMP B-TREE FOR ORDER BY" in one for one in plan)
        is_ours = "receipts_" in query["sql"]
        # One receipt's rows may be sorted, and the few that hold the lock.
        may_sort = 'change_id" = ' in query["sql"] or "pk" in query["sql"] or " IN (" in query["sql"]
        bad += [(query["sql"], plan)] if is_ours and (is_read and "LIMIT" not in query["sql"]) else []
        bad += [(query["sql"], plan)] if is_ours and is_sorted and not may_sort else []
    assert bad == []
