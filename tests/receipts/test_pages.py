"""A receipt's page: what was committed and by which plan, under any name, and no query or text breaks it."""

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from receipts.models import Reconciliation, ReconciliationRun, StoredPlan
from receipts.pages.badges import RESERVED, receipt_url
from tests.receipts.kept import drifted, keep, make_receipt
from tests.receipts.pages import EVIL, KEPT, LIST, RUNS, listed, text_of

pytestmark = pytest.mark.django_db


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
        assert root.get(f"{LIST}export/csv/", {"since": value}).status_code in (200, 302, 400)


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
