"""The pages of receipts: what they show, to whom, what they cost, and that they only look."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from desk.models import Action
from portal.models import OrderLine
from receipts import kinds
from receipts.api import reconcile, record_reconciliation
from receipts.models import Change, Reconciliation, ReconciliationRun, StoredPlan, Verdict
from receipts.pages import contents
from receipts.pages.words import RESERVED, receipt_url
from tests.factories import NOW, make_line
from tests.receipts.kept import ALL, VIEW, WORK, make_person, make_receipt
from tests.receipts.plain import cancel, target

pytestmark = pytest.mark.django_db
LIST = "/admin/receipts/change/"
KEPT = "/admin/receipts/reconciliation/"
RUNS = "/admin/receipts/reconciliationrun/"
EVIL = "<script>alert(1)</script>"


@pytest.fixture
def root(client: Client) -> Client:
    """Sign in somebody who may do all of it for all tenants."""
    client.force_login(make_person("root", *WORK, ALL, "receipts.view_storedplan"))
    return client


@pytest.fixture
def ann(client: Client) -> Client:
    """Sign in somebody who may do all of it for acme."""
    client.force_login(make_person("ann", *WORK, tenants=["acme"]))
    return client


def text_of(client: Client, url: str, **query: Any) -> str:
    page = client.get(url, query)
    assert page.status_code == 200, (url, page.status_code)
    return page.content.decode()


def listed(client: Client, **query: Any) -> list[str]:
    """Return the change_ids of the first page of the list."""
    return [row.cells[0].text for row in client.get(LIST, query).context["table"].rows]


def walked(client: Client, **query: Any) -> list[str]:
    """Return the change_ids of all pages of the list."""
    seen, address = [], LIST + "?" + "&".join(f"{name}={value}" for name, value in query.items())
    while address:
        page = client.get(address)
        seen += [row.cells[0].text for row in page.context["table"].rows]
        address = LIST + "?" + page.context["next_query"] if page.context["next_query"] else ""
    return seen


def keep(change_id: str, *, changed: int = 0, actor: str = "ann") -> Reconciliation:
    """Keep a reconciliation of a receipt with so many rows changed; the others match."""
    (result,) = reconcile(change_ids=[change_id])
    return record_reconciliation(result, actor=actor)


def drifted() -> tuple[OrderLine, OrderLine, OrderLine]:
    """Commit CHG-1 of acme over three rows; one stays, one is changed, one goes."""
    same, moved, gone = make_line(), make_line(), make_line()
    cancel(*map(target, (same, moved, gone)), actor="olga", reason="sold out")
    OrderLine.objects.filter(pk=moved.pk).update(qty=3, revision=6)
    OrderLine.objects.filter(pk=gone.pk).delete()
    return same, moved, gone


# The list.


def test_the_list_shows_each_receipt_with_its_targets_and_its_latest_verdict(root: Client) -> None:
    drifted()
    make_receipt("CHG-2", ids=range(1, 8), kind="accept", at=NOW)
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
    monkeypatch.setattr("desk.admins.WindowAdmin.page_rows", 4)
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
    monkeypatch.setattr("desk.admins.WindowAdmin.page_rows", 2)
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
    monkeypatch.setattr("desk.admins.WindowAdmin.page_rows", 3)
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


# Whose receipts.


FOREIGN = [
    ("get", f"{LIST}CHG-Z/change/"),
    ("post", f"{LIST}CHG-Z/reconcile/"),
    ("get", f"{LIST}CHG-Z/export/csv/"),
    ("get", f"{LIST}CHG-Z/export/print/"),
    ("get", f"{KEPT}{{pk}}/change/"),
    ("get", f"{KEPT}{{pk}}/export/json/"),
    ("get", f"{KEPT}{{pk}}/export/print/"),
    ("get", f"{RUNS}{{run}}/change/"),
]


@pytest.mark.parametrize(("method", "address"), FOREIGN)
def test_a_foreign_tenants_address_is_answered_as_if_there_were_nothing(ann: Client, method: str, address: str) -> None:
    make_receipt("CHG-Z", tenant="zeta", ids=[999])
    kept = keep("CHG-Z")
    run = ReconciliationRun.objects.create(actor="root")
    csrf = re.compile(rb'name="csrfmiddlewaretoken" value="[^"]*"')
    real = address.format(pk=kept.pk, run=run.pk)
    absent = address.replace("CHG-Z", "CHG-Y").format(pk=kept.pk + 1, run=run.pk + 1)

    found, nothing = getattr(ann, method)(real), getattr(ann, method)(absent)

    assert (found.status_code, nothing.status_code) == (404, 404)
    pages = [csrf.sub(b"", one.content).replace(b"CHG-Y", b"CHG-Z") for one in (found, nothing)]
    pages = [re.sub(rb"/\d+/", b"/0/", page) for page in pages]
    assert pages[0] == pages[1]
    assert Reconciliation.objects.count() == 1
    assert not Action.objects.exists()


def test_a_member_sees_nothing_of_foreign_tenants_in_lists_counts_and_exports(ann: Client) -> None:
    make_receipt("CHG-Z", tenant="zeta", ids=[999], at=timezone.now())
    make_receipt("CHG-A", ids=[999], at=timezone.now())
    keep("CHG-Z")
    for address in (LIST, KEPT, f"{LIST}?differs=1", f"{LIST}?change_id=CHG-Z", f"{LIST}?tenant=zeta", "/admin/"):
        page = text_of(ann, address)
        assert "CHG-Z" not in page.replace('value="CHG-Z"', "").replace("change_id=CHG-Z", ""), address
    for shape in ("csv", "json"):
        assert b"CHG-Z" not in ann.get(f"{LIST}export/{shape}/?tenant=zeta").getvalue()
        assert b"CHG-A" in ann.get(f"{LIST}export/{shape}/").getvalue()
    assert "The rows of" not in text_of(ann, "/admin/")


def test_whoever_belongs_to_no_tenant_sees_no_receipt(client: Client) -> None:
    client.force_login(make_person("nobody", *WORK))
    make_receipt("CHG-1", ids=[999])

    assert listed(client) == []
    assert client.get(f"{LIST}CHG-1/change/").status_code == 404
    assert "None of these rows allows it" in text_of(client, f"{RUNS}start/")
    assert client.post(f"{RUNS}start/", {"confirmed": "1"}).status_code == 200
    assert not ReconciliationRun.objects.exists()


# Who may do what.


ACTS = [
    ("post", f"{LIST}CHG-1/reconcile/"),
    ("get", f"{LIST}CHG-1/export/csv/"),
    ("get", f"{LIST}CHG-1/export/json/"),
    ("get", f"{LIST}CHG-1/export/print/"),
    ("get", f"{LIST}export/csv/"),
    ("get", f"{KEPT}{{pk}}/export/csv/"),
    ("get", f"{RUNS}start/"),
    ("post", f"{RUNS}start/"),
]


def test_a_viewer_is_refused_each_action(client: Client) -> None:
    client.force_login(make_person("victor", *VIEW, ALL))
    make_receipt("CHG-1", ids=[999])
    kept = keep("CHG-1")

    answers = [getattr(client, method)(address.format(pk=kept.pk), {"confirmed": "1"}) for method, address in ACTS]

    assert {answer.status_code for answer in answers} == {403}
    assert (Reconciliation.objects.count(), ReconciliationRun.objects.count(), Action.objects.count()) == (1, 0, 0)


def test_an_action_without_signing_in_leads_to_the_sign_in(client: Client) -> None:
    for method, address in ACTS:
        assert getattr(client, method)(address.format(pk=1), {"confirmed": "1"}).url.startswith("/admin/login/")


def test_a_viewer_is_offered_no_action_that_would_fail(client: Client) -> None:
    client.force_login(make_person("victor", *VIEW, ALL))
    make_receipt("CHG-1", ids=[999])
    kept = keep("CHG-1")

    def offered() -> set[str]:
        urls = (LIST, f"{LIST}CHG-1/change/", KEPT, f"{KEPT}{kept.pk}/change/", RUNS)
        text = "".join(text_of(client, url) for url in urls)
        return {word for word in ("/export/", "/reconcile/", "start/") if word in text}

    assert offered() == set()
    # The positive control: these are the words of what is offered to who may.
    client.force_login(make_person("wanda", *WORK, ALL))
    assert offered() == {"/export/", "/reconcile/", "start/"}


def test_the_permission_to_act_without_the_one_to_see_is_not_enough(client: Client) -> None:
    client.force_login(make_person("mallory", "receipts.reconcile", "receipts.export", ALL))
    make_receipt("CHG-1", ids=[999])
    kept = keep("CHG-1")

    for method, address in ACTS:
        assert getattr(client, method)(address.format(pk=kept.pk), {"confirmed": "1"}).status_code == 403, address
    assert Reconciliation.objects.count() == 1


def test_results_are_hidden_from_who_may_see_receipts_only(client: Client) -> None:
    client.force_login(make_person("clerk", "receipts.view_change", "receipts.reconcile", ALL))
    make_receipt("CHG-1", ids=[999])
    kept = keep("CHG-1")

    page = text_of(client, f"{LIST}CHG-1/change/")

    assert "Earlier reconciliations" not in page
    assert "/reconcile/" not in page
    assert client.get(f"{KEPT}{kept.pk}/change/").status_code == 403
    assert client.post(f"{LIST}CHG-1/reconcile/").status_code == 403


def test_following_a_link_reconciles_nothing(root: Client) -> None:
    make_receipt("CHG-1", ids=[999])

    assert root.get(f"{LIST}CHG-1/reconcile/").status_code == 405
    assert not Reconciliation.objects.exists()


def test_nothing_can_be_added_changed_or_deleted(admin_client: Client) -> None:
    make_receipt("CHG-1", ids=[999])
    kept = keep("CHG-1")

    for address in (f"{LIST}CHG-1/", f"{KEPT}{kept.pk}/"):
        assert admin_client.post(f"{address}delete/", {"post": "yes"}).status_code == 403
        assert admin_client.post(f"{address}change/", {"kind": "x"}).status_code == 405
    assert admin_client.get(f"{LIST}add/").status_code == 403


# One receipt.


def test_a_receipt_is_shown_as_committed_with_a_genuine_digest_and_its_plan(root: Client) -> None:
    same, moved, gone = drifted()
    now = timezone.now()
    approval = {"state": "applied", "approver": "bob", "approved_at": now, "decided_at": now}
    values = {"change_id": "CHG-1", "kind": "cancel", "targets": [], "digest": "d", "author": "ann"}
    mine = StoredPlan.objects.create(**values, **approval, approved_digest="d", tenant="acme")
    other = StoredPlan.objects.create(**values, tenant="zeta")

    page = text_of(root, f"{LIST}CHG-1/change/")

    assert "sold out" in page
    assert "✓</span> genuine" in page
    for line in (same, moved, gone):
        assert f'<td class="kwit-number">{line.pk}</td>' in page
    assert "pending" in page
    assert "≠" not in page
    assert f"storedplan/{mine.pk}/change/" in page
    assert f"storedplan/{other.pk}/change/" not in page


@pytest.mark.parametrize("targets", [{}, [], [1], [{"id": 1}], "x", [{"id": "1", "revision": 1, "qty": 1}], 7])
def test_a_receipt_that_plain_sql_has_written_is_shown_as_not_genuine(root: Client, targets: Any) -> None:
    if not (isinstance(targets, list | dict) or connection.features.supports_primitives_in_json_field):
        pytest.skip("SQL Server keeps such targets out itself: ISJSON is 1 for lists and objects only")
    make_receipt("CHG-1", targets=targets)

    page = text_of(root, f"{LIST}CHG-1/change/")

    assert "not that of the content" in page
    assert listed(root) == ["CHG-1"]
    assert root.get(f"{LIST}CHG-1/export/json/").status_code in (200, 302)
    assert root.get(f"{LIST}export/csv/").getvalue().count(b"CHG-1") == 1


def test_where_the_audit_is_not_what_was_approved_it_is_marked(root: Client) -> None:
    make_receipt("CHG-1", ids=[1, 2], targets=[{"id": 1, "revision": 3, "qty": 10}, {"id": 5, "revision": 4, "qty": 1}])

    page = text_of(root, f"{LIST}CHG-1/change/")

    assert page.count("<mark") == 5  # the revision of 1, revision and qty of 2 and of 5


def test_the_rows_of_a_large_receipt_come_in_pages_of_bounded_cost(
    root: Client, django_assert_max_num_queries: Any
) -> None:
    ids = [*range(1, 101), 2**63 - 1]
    make_receipt("CHG-1", ids=ids)
    seen, address = [], f"{LIST}CHG-1/change/"
    while address:
        with django_assert_max_num_queries(12):
            page = root.get(address)
        table = next(one for one in page.context["detail"].sections if one.title == "As committed")
        seen += [row.cells[0].text for row in table.table.rows]
        address = next((link.url for link in table.pages if link.text == "Next page"), "")

    assert seen == ids


NAMES = [*RESERVED, "a/b", "a_2Fb", "_-act", "_-", "x/../y", "Ż?&#%41;", "a b", '"<b>', "~", "CHG_41", "история"]


def test_every_change_id_has_an_address_of_its_own(root: Client) -> None:
    for name in NAMES:
        make_receipt(name, ids=[999])
    rows = {row.cells[0].text: row.cells[0].url for row in root.get(LIST).context["table"].rows}

    assert set(rows) == set(NAMES)
    for name, address in rows.items():
        page, done = root.get(address), root.post(receipt_url(name, "reconcile"))
        assert page.context["title"] == f"Receipt {name}"
        assert "/../" not in address
        assert Reconciliation.objects.latest("pk").change_id == name
        assert done.url.startswith(KEPT)
        assert root.get(receipt_url(name, "export", "csv")).status_code == 200


ABSENT = ["CHG-2", "chg-1", "CHG-1 ", "x" * 65, "\x00", "_00", "%00", "_", "_-CHG-1_", "a/b/c"]


def test_a_change_id_without_a_receipt_is_not_found(root: Client) -> None:
    make_receipt("CHG-1")

    assert {root.get(receipt_url(name)).status_code for name in ABSENT} == {404}


BAD_VALUES = ["", "x", "-1", "0", "9" * 30, "\x00", "a\x00b", "1' OR '1'='1", "%", "~", "~~", "2026-13-99", "١٢", EVIL]


def test_no_query_string_is_an_internal_error(root: Client) -> None:
    make_receipt("CHG-1", ids=[999])
    kept = keep("CHG-1")
    names = ("change_id", "kind", "tenant", "since", "until", "differs", "category", "range")
    addresses = (LIST, KEPT, RUNS, f"{LIST}CHG-1/change/", f"{KEPT}{kept.pk}/change/")

    for value in BAD_VALUES:
        asked = dict.fromkeys(names, value)
        queries = [(LIST, asked), (LIST, {"before": value}), (LIST, {"change_id": value})]
        queries += [(address, {**asked, "after": value}) for address in addresses]
        for address, query in queries:
            answer = root.get(address, query)
            assert answer.status_code in (200, 400), (address, query)
            assert EVIL.encode() not in answer.content
        assert root.get(f"{LIST}export/csv/", {"since": value}).status_code in (200, 302)


def test_markup_in_what_was_committed_is_shown_as_text_everywhere(root: Client) -> None:
    make_receipt(EVIL, tenant=EVIL, kind="cancel", actor=EVIL, reason=EVIL, ids=[999])
    kept = keep(EVIL, actor=EVIL)
    Reconciliation.objects.update(
        items=[
            {"id": 999, "category": EVIL, "recorded": {"revision": EVIL, "qty": EVIL, "state": EVIL}, "current": None},
            {"id": "x"},
            7,
        ]
    )
    ReconciliationRun.objects.create(actor=EVIL, error=EVIL, host=EVIL, tenants=[EVIL])

    addresses = [LIST, receipt_url(EVIL), KEPT, f"{KEPT}{kept.pk}/change/", RUNS]
    addresses += [f"{RUNS}{ReconciliationRun.objects.get().pk}/change/", receipt_url(EVIL, "export", "print")]
    addresses += [f"{KEPT}{kept.pk}/export/print/", "/admin/"]
    pages = [text_of(root, address) for address in addresses]

    assert [page.count("alert(1)</script>") for page in pages] == [0] * len(pages)
    assert all("&lt;script&gt;alert(1)" in page for page in pages[:-1])


# Reconcile now.


def test_reconcile_now_shows_recorded_and_current_side_by_side_with_what_differs_marked(root: Client) -> None:
    same, moved, gone = drifted()
    before = list(OrderLine.objects.order_by("pk").values())
    assert "Reconcile now" in text_of(root, f"{LIST}CHG-1/change/")

    answer = root.post(f"{LIST}CHG-1/reconcile/")
    page = root.get(answer.url)

    kept = Reconciliation.objects.get()
    assert (kept.match, kept.changed, kept.missing, kept.actor, kept.tenant) == (1, 1, 1, "root", "acme")
    section = page.context["detail"].sections[1]
    cells = {
        row.cells[0].text: [(str(cell.text), cell.is_marked) for cell in row.cells[2:]] for row in section.table.rows
    }
    assert cells == {
        same.pk: [(text, False) for text in ("5", "5", "10", "10", "cancelled", "cancelled")],
        moved.pk: [
            *[("5", False), ("6", True), ("10", False), ("3", True)],
            *[("cancelled", False), ("cancelled", False)],
        ],
        gone.pk: [
            *[("5", False), ("—", True), ("10", False), ("—", True)],
            *[("cancelled", False), ("—", True)],
        ],
    }
    assert [link.text for link in section.choices] == ["all: 3", "match: 1", "changed: 1", "missing: 1"]
    body = page.content.decode()
    assert "Nothing here says by whom or why" in body
    assert f'datetime="{timezone.localtime(kept.taken_at).isoformat()}"' in body
    assert "<form" not in body[body.index('id="content-main"') :]  # there is nothing to revert with
    assert list(OrderLine.objects.order_by("pk").values()) == before
    action = Action.objects.get()
    assert (action.actor, action.name, action.scope, action.tenant) == ("root", "reconcile", "CHG-1", "acme")
    assert (action.outcome, action.note) == ("done", "1 match, 1 changed, 1 missing")


@pytest.mark.parametrize("category", ["match", "changed", "missing"])
def test_each_category_is_a_filter(root: Client, category: str) -> None:
    lines = dict(zip(("match", "changed", "missing"), drifted(), strict=True))
    kept = keep("CHG-1")

    page = root.get(f"{KEPT}{kept.pk}/change/", {"category": category})

    assert [row.cells[0].text for row in page.context["detail"].sections[1].table.rows] == [lines[category].pk]


def test_the_rows_of_a_large_reconciliation_come_in_pages(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receipts.pages.reconciling.ROWS_SHOWN", 3)
    lines = [make_line(state="cancelled", revision=5 + number % 2) for number in range(11)]
    # Above whatever id a test of SQL Server has reached.
    gone = 2**62
    make_receipt("CHG-1", ids=[*(line.pk for line in lines), gone])
    kept = keep("CHG-1")

    def walk(category: str) -> list[int]:
        seen, address = [], f"{KEPT}{kept.pk}/change/?category={category}"
        while address:
            section = root.get(address).context["detail"].sections[1]
            seen += [row.cells[0].text for row in section.table.rows]
            address = next((link.url for link in section.pages if link.text == "Next page"), "")
        return seen

    ids = [line.pk for line in lines]
    assert walk("") == [*ids, gone]
    assert walk("match") == ids[::2]
    assert walk("changed") == ids[1::2]
    assert walk("missing") == [gone]


def test_an_earlier_reconciliation_can_be_opened_as_it_was(root: Client) -> None:
    _, moved, _ = drifted()
    first = keep("CHG-1")
    OrderLine.objects.filter(pk=moved.pk).update(qty=2)
    keep("CHG-1")

    receipt, earlier = text_of(root, f"{LIST}CHG-1/change/"), root.get(f"{KEPT}{first.pk}/change/?category=changed")

    assert f"{KEPT}{first.pk}/change/" in receipt
    assert [cell.text for cell in earlier.context["detail"].sections[1].table.rows[0].cells][2:6] == [5, 6, 10, 3]


def test_a_long_history_is_cut_and_leads_to_all_of_it(root: Client) -> None:
    make_receipt("CHG-1", ids=[999])
    for _ in range(21):
        keep("CHG-1")

    page = text_of(root, f"{LIST}CHG-1/change/")

    assert "All of them" in page
    assert len(root.get(f"{KEPT}?change_id=CHG-1").context["table"].rows) == 21


def test_a_receipt_of_a_kind_that_nobody_declares_any_more_says_so(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_receipt("CHG-1", ids=[999])
    kept = keep("CHG-1")
    monkeypatch.setattr(kinds, "_registered", {})

    page = text_of(root, f"{LIST}CHG-1/change/")
    answer = root.post(f"{LIST}CHG-1/reconcile/", follow=True)

    assert "declares the kind of change “cancel” any more" in page
    assert "/reconcile/" not in page
    assert answer.status_code == 200
    assert next(iter(map(str, answer.context["messages"]))).startswith("No app of this site declares")
    assert root.get(f"{KEPT}{kept.pk}/change/").status_code == 200
    assert (Reconciliation.objects.count(), Action.objects.get().outcome) == (1, "failed")


def test_a_stored_item_is_read_once_and_the_audit_by_range(root: Client, django_assert_max_num_queries: Any) -> None:
    make_receipt("CHG-1", ids=range(1, 60))
    kept = keep("CHG-1")

    with django_assert_max_num_queries(8):
        root.get(f"{KEPT}{kept.pk}/change/")
    assert len(contents.items_after(kept, "missing", 50)) == 9


# The dashboard.


def panel(client: Client) -> dict[str, str]:
    """Return the receipts' tiles by name."""
    found = next(one for one in client.get("/admin/").context["panels"] if one["name"] == "receipts")
    return {str(tile.name): (tile.value, tile.url) for tile in found["panel"]["tiles"]}


def test_the_dashboard_shows_the_receipts_of_the_day_and_what_differs(root: Client) -> None:
    now = timezone.now()
    make_receipt("OLD", ids=[999], at=now - timedelta(days=9))
    make_receipt("NEW", ids=[999], at=now)
    make_receipt("MIDDLE", ids=[999], at=now - timedelta(days=3))
    keep("NEW")

    tiles, page = panel(root), text_of(root, "/admin/")

    assert tiles["receipts today"][0] == "1"
    assert listed(
        root, since=tiles["receipts today"][1].split("since=")[1].replace("%3A", ":").replace("%2B", "+")
    ) == ["NEW"]
    assert tiles["differ from their rows"] == ("1", f"{LIST}?differs=1")
    assert tiles["oldest never compared"][1] == f"{LIST}OLD/change/"
    verdict = page[page.index("kwit-verdict") : page.index("kwit-panel")]
    assert "The rows of 1 receipt are not as it says." in verdict
    assert f"{LIST}?differs=1" in verdict
    assert "has not been compared with its rows for 1\xa0week" in verdict


def test_the_oldest_never_compared_is_found_at_either_end(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receipts.pages.panels.LOOKED_AT", 2)
    for number in range(6):
        make_receipt(f"CHG-{number}", ids=[999], at=NOW + timedelta(days=number))
        if number != 5:
            keep(f"CHG-{number}")

    assert panel(root)["oldest never compared"][1] == f"{LIST}CHG-5/change/"


def test_the_dashboard_counts_only_the_readers_tenants(ann: Client) -> None:
    make_receipt("CHG-Z", tenant="zeta", ids=[999], at=timezone.now())
    keep("CHG-Z")

    tiles = panel(ann)

    assert (tiles["receipts today"][0], tiles["differ from their rows"][0]) == ("0", "0")
    assert "oldest never compared" not in tiles


def test_a_dashboard_for_who_may_not_see_receipts_has_none(client: Client) -> None:
    client.force_login(make_person("victor", "notify.view_runlog"))

    assert "kwit-panel-receipts" not in text_of(client, "/admin/")
    client.force_login(make_person("wanda", *WORK, ALL))
    assert "kwit-panel-receipts" in text_of(client, "/admin/")
