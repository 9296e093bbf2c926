"""The API for machines: the lists of the pages under the same permissions, and it only reads."""

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from kwit.admin.filters import ChoiceFilter
from kwit.api.encoding import with_id_texts
from kwit.api.resources import Resource, _registered
from notify.models import Attempt, Control
from receipts.models import Change, Reconciliation, StoredPlan, Verdict
from tests.browser.story import HELD
from tests.factories import NOW, make_line
from tests.kwit.conftest import Ask, program_of
from tests.kwit.listed import EVIL, LISTS, NAMES, fill, make_mail, make_receipt
from tests.mails import log

pytestmark = pytest.mark.django_db


def test_the_index_lists_what_the_user_may_ask_with_fields_and_filters(ask: Ask) -> None:
    found = {one["name"]: one for one in ask("/api/v1/")["resources"]}

    assert sorted(found) == NAMES
    assert set(NAMES) == {
        *("passes", "skipped-runs", "control", "mails", "tasks", "channels", "suppressions", "explain"),
        *("receipts", "reconciliations", "plans", "actions"),
    }
    assert found["mails"]["fields"]["due_at"] == {"type": "string", "format": "date-time"}
    assert found["mails"]["fields"]["sent_at"]["type"] == ["string", "null"]
    assert {one["name"] for one in found["passes"]["filters"]} == {"outcome", "step", "since", "until", "work", "pass"}


def test_the_openapi_document_describes_every_address(ask: Ask) -> None:
    found = ask("/api/v1/openapi.json")

    assert found["openapi"] == "3.1.0"
    assert set(found["paths"]) == {f"/api/v1/{name}" for name in NAMES} | {f"/api/v1/{name}/{{key}}" for name in LISTS}
    operations = [one["get"]["operationId"] for one in found["paths"].values()]
    assert len(set(operations)) == len(operations)


@pytest.mark.parametrize("name", LISTS)
def test_a_list_and_its_rows_have_exactly_the_fields_that_the_index_names(ask: Ask, name: str) -> None:
    fill(2)
    described = next(one for one in ask("/api/v1")["resources"] if one["name"] == name)

    items = ask(described["url"])["items"]

    assert len(items) >= 2
    assert {field for item in items for field in item} == set(described["fields"])
    key = items[0].get("id", items[0].get("change_id"))
    one = ask(f"{described['url']}/{key}")
    if name != "receipts":
        assert {name: one[name] for name in items[0]} == items[0]
    assert set(described["detail_fields"]) <= set(one)


@pytest.mark.parametrize("name", LISTS)
def test_pages_hold_every_row_once_and_end(ask: Ask, name: str) -> None:
    fill(3)
    url, keys = f"/api/v1/{name}", []
    whole = ask(url)

    page = ask(url, limit=2)
    while True:
        keys += page["items"]
        if not page["next"]:
            break
        page = ask(page["next"])

    assert keys == whole["items"]
    assert whole["next"] is None


def test_a_next_link_keeps_the_filters_and_stands_in_the_header_too(ask: Ask, admin_client: Client) -> None:
    fill(3)

    response = admin_client.get("/api/v1/passes", {"outcome": "ok", "limit": "1"})

    link = response.json()["next"]
    assert "outcome=ok" in link
    assert response["Link"] == f'<{link}>; rel="next"'
    assert ask(link)["items"][0]["outcome"] == "ok"


@pytest.mark.parametrize("name", LISTS)
def test_a_list_costs_the_same_queries_for_few_rows_and_for_many_and_counts_nothing(
    ask: Ask, name: str, django_assert_max_num_queries: Any, django_assert_num_queries: Any
) -> None:
    fill(2)
    ask(f"/api/v1/{name}")
    with django_assert_max_num_queries(6) as few:
        ask(f"/api/v1/{name}", limit=1)

    with django_assert_num_queries(len(few)):
        ask(f"/api/v1/{name}", limit=2)

    assert [query["sql"] for query in few if "COUNT(" in query["sql"].upper()] == []


@pytest.mark.parametrize("name", LISTS)
def test_the_filters_are_those_of_the_page(ask: Ask, name: str) -> None:
    resource = _registered[name]
    assert isinstance(resource, Resource)
    listed = next(one for one in ask("/api/v1")["resources"] if one["name"] == name)["filters"]

    known = [one.name for one in resource.model_admin.filters]
    assert [one["name"] for one in listed if one["name"] not in known] == []
    if name != "skipped-runs":
        assert [one["name"] for one in listed] == known
    for one in resource.model_admin.filters:
        value = next(iter(dict(one.options())), "1") if isinstance(one, ChoiceFilter) else "1"
        if one.name in [each["name"] for each in listed] and one.control in ("select", "number", "checkbox"):
            ask(f"/api/v1/{name}", **{one.name: value})


def test_passes_have_their_steps_and_a_step_has_its_rows(ask: Ask) -> None:
    run = log(candidates=3)
    log("comment", pass_id=run.pass_id, candidates=3, error="x\ny")

    [whole] = ask("/api/v1/passes")["items"]
    [step] = ask("/api/v1/passes", step="comment")["items"]

    assert whole["started_at"] == "2026-01-31T08:00:00Z"
    assert (whole["pass_id"], whole["candidates"], whole["is_full"]) == (str(run.pass_id), 3, False)
    assert [(one["step"], one["error"]) for one in whole["steps"]] == [("comment", "x\ny")]
    assert (step["step"], step["steps"]) == ("comment", [])


def test_a_skipped_run_says_who_held_the_lock(ask: Ask) -> None:
    log()
    log(outcome="skipped", said=[HELD])

    [skipped] = ask("/api/v1/skipped-runs")["items"]

    assert skipped["lock_code"] == "-1"
    assert skipped["held_by"].startswith("host app-2, process 4711")


def test_a_mail_has_its_event_its_64_bit_key_and_what_the_server_said(ask: Ask) -> None:
    mail = make_mail(state="failed")
    for number in (1, 2):
        Attempt.objects.create(mail=mail, number=number, recipient="a@example.org", outcome="deferred", code=450)

    found = ask(f"/api/v1/mails/{mail.pk}")

    assert (found["kind"], found["key"], found["key2"]) == ("comment", 1, 2**63 - 1)
    assert found["subject"] == EVIL
    assert [(one["number"], one["code"]) for one in found["attempts_made"]] == [(2, 450), (1, 450)]
    assert found["has_more_attempts"] is False


def test_explain_answers_what_the_command_prints(ask: Ask) -> None:
    mail = make_mail(7)
    for words in (["comment", "7"], ["comment", "99"], ["comment", "7", str(mail.control.key2)]):
        out = StringIO()
        call_command("notify_explain", *words, "--json", stdout=out)
        query = dict(zip(("kind", "key", "key2"), words, strict=False))

        assert ask("/api/v1/explain", **query) == with_id_texts(json.loads(out.getvalue()))


def test_explain_needs_a_kind_a_key_and_one_of_many_events(ask: Ask) -> None:
    Control.objects.bulk_create(Control(kind="comment", key=5, key2=number) for number in range(1, 30))

    assert {one["where"] for one in ask("/api/v1/explain", 400)["errors"]} == {"kind", "key"}
    assert ask("/api/v1/explain", 400, kind="comment", key=5)["errors"][0]["where"] == "key2"
    assert ask("/api/v1/explain", kind="comment", key=5, key2=7)["events"][0]["is_notified"]


def test_explain_tells_a_member_of_his_tenants_events_and_of_no_others(member: Any) -> None:
    ask = program_of(member)
    line = make_line(tenant="other")
    for key, tenant in ((1, "acme"), (2, "other"), (3, "")):
        Control.objects.create(kind="comment", key=key, key2=7, tenant=tenant)
    Control.objects.create(kind="comment", key=1, key2=8, tenant="other")

    assert [event["key2"] for event in ask("/api/v1/explain", kind="comment", key=1)["events"]] == [7]
    refused = [
        ask("/api/v1/explain", 404, kind="comment", key=key, **more)
        for key, more in ((1, {"key2": 8}), (2, {}), (3, {}), (999, {}), (line.pk, {"key2": 1}))
    ]
    assert [one for one in refused if one != refused[0]] == []


@pytest.mark.django_db(transaction=True)
def test_a_receipt_is_what_inspect_change_prints(ask: Ask) -> None:
    for change_id in ("CHG-1", "a/b?c#d %2F", "ä ö"):
        make_receipt(change_id)
        out = StringIO()
        call_command("inspect_change", change_id, "--json", stdout=out)

        assert ask(reverse("kwit:api-one", args=["receipts", change_id])) == with_id_texts(json.loads(out.getvalue()))


def test_a_member_finds_his_tenants_receipts_plans_and_reconciliations_only(member: Any) -> None:
    ask = program_of(member)
    fill(1)
    change = Change.objects.create(change_id="THEIRS", kind="cancel", tenant="other", targets=[], digest="x")
    theirs = {
        "receipts": change.pk,
        "reconciliations": Reconciliation.objects.create(
            change=change, tenant="other", match=1, changed=0, missing=0, items=[]
        ).pk,
        "plans": StoredPlan.objects.create(
            change_id="P", kind="cancel", tenant="other", targets=[], digest="x", author="ann"
        ).pk,
    }
    for name, key in theirs.items():
        assert len(ask(f"/api/v1/{name}")["items"]) == 1
        foreign = ask(f"/api/v1/{name}/{key}", 404)
        missing = ask(f"/api/v1/{name}/{'NONE' if name == 'receipts' else 999_999}", 404)
        assert foreign == missing


def test_receipts_that_differ_are_listed_as_receipts(ask: Ask) -> None:
    fill(2)
    last = Reconciliation.objects.get(change_id="C1")
    Verdict.objects.create(
        change_id="C1", kind="cancel", tenant="acme", created_at=NOW, reconciliation=last, found="differs"
    )

    [found] = ask("/api/v1/receipts", differs=1)["items"]

    assert (found["change_id"], found["digest"]) == ("C1", "x")


def test_an_id_beyond_the_integers_of_javascript_is_there_as_text_too():
    row = {"id": 2**53 + 1, "targets": [{"id": 7, "qty": 3}], "control_id": None, "key2": 0, "attempts": 2, "kind": "x"}

    assert with_id_texts(row) == {
        **row,
        "id_str": "9007199254740993",
        "key2_str": "0",
        "targets": [{"id": 7, "qty": 3, "id_str": "7"}],
    }
