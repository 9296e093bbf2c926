"""Whose receipts the pages show, and who may do what there; nothing can be added, changed or deleted."""

import re

import pytest
from django.test import Client
from django.utils import timezone

from kwit.models import Action
from receipts.models import Reconciliation, ReconciliationRun
from tests.receipts.kept import ALL, VIEW, WORK, keep, make_person, make_receipt
from tests.receipts.pages import KEPT, LIST, RUNS, listed, text_of

pytestmark = pytest.mark.django_db


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
    assert "The action does not apply to any of these rows" in text_of(client, f"{RUNS}start/")
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

    assert root.get(f"{LIST}CHG-1/reconcile/").url == f"{LIST}CHG-1/change/"
    assert not Reconciliation.objects.exists()


def test_nothing_can_be_added_changed_or_deleted(admin_client: Client) -> None:
    make_receipt("CHG-1", ids=[999])
    kept = keep("CHG-1")

    for address in (f"{LIST}CHG-1/", f"{KEPT}{kept.pk}/"):
        assert admin_client.post(f"{address}delete/", {"post": "yes"}).status_code == 403
        assert admin_client.post(f"{address}change/", {"kind": "x"}).status_code == 405
    assert admin_client.get(f"{LIST}add/").status_code == 403
