"""What the API refuses, and how: who may not see, methods that would write, and what nobody can mean."""

from typing import Any
from uuid import uuid4

import pytest
from django.contrib import admin
from django.db import OperationalError
from django.test import Client
from django.urls import reverse

from kwit.api.resources import Resource, _registered
from notify.models import RunLog, TaskQueue
from tests.browser.story import make_user
from tests.kwit.conftest import ALL, Ask, answered, program_of
from tests.kwit.listed import LISTS, NAMES, make_mail
from tests.mails import log

pytestmark = pytest.mark.django_db


def test_a_user_sees_the_lists_of_which_he_sees_the_page(client: Client) -> None:
    user = make_user("viewer", "notify.view_mailqueue", "kwit.see_all_tenants")
    ask = program_of(user)

    assert [one["name"] for one in ask("/api/v1")["resources"]] == ["mails"]
    ask("/api/v1/mails")
    for name in NAMES:
        if name != "mails":
            ask(f"/api/v1/{name}", 403)
            ask(f"/api/v1/{name}/1", 403)
    assert set(ask("/api/v1/openapi.json")["paths"]) == {"/api/v1/mails", "/api/v1/mails/{key}"}


def test_who_may_not_enter_the_admin_pages_may_not_ask(db: None) -> None:
    user = make_user("outsider", *ALL)
    user.is_staff = False
    user.save()

    program_of(user)("/api/v1/mails", 403)


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete", "trace"])
@pytest.mark.parametrize(
    "path", ["/api/v1", "/api/v1/mails", "/api/v1/mails/1", "/api/v1/x/y/z", "/healthz", "/metrics"]
)
def test_nothing_but_reading_is_allowed(client: Client, method: str, path: str) -> None:
    response = getattr(Client(enforce_csrf_checks=True), method)(path)

    answered(response, 405)
    assert response["Allow"] == "GET, HEAD, OPTIONS"


def test_options_and_head_answer_without_a_body(admin_client: Client) -> None:
    options = admin_client.options("/api/v1/mails")
    head = admin_client.head("/api/v1/mails")

    assert (options.status_code, options.content, options["Allow"]) == (204, b"", "GET, HEAD, OPTIONS")
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ("since=yesterday", "since"),
        ("outcome=fine", "outcome"),
        ("outcom=ok", "outcom"),
        ("outcome=ok&outcome=error", "outcome"),
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=٣", "limit"),
        ("limit=", "limit"),
        ("limit=1e3", "limit"),
        ("after=x", "after"),
        ("after=2026-01-31T08:00:00Z~9999999999999999999999", None),
        ("after=%00~%00", "after"),
        ("pass=1", "pass"),
        ("before=1", "before"),
        ("token=kwit_x", "token"),
    ],
)
def test_what_is_not_understood_is_refused_with_what_and_where(ask: Ask, query: str, where: str | None) -> None:
    log()
    if where is None:
        ask(f"/api/v1/passes?{query}")
        return

    found = ask(f"/api/v1/passes?{query}", 400)

    assert found["type"] == "about:blank"
    assert found["title"] == "Bad Request"
    assert [one["where"] for one in found["errors"]] == [where]


HOSTILE = ["%00", "%C2%B2", "0", "-1", "01", "%D9%A1", "99999999999999999999", "x" * 3000, "..%2f", "1~2"]
#: One of each kind that has broken something, and their place.
ODD = ["%00", "%C2%B2", "99999999999999999999", "0001-01-01T00:00:00%2B14:00", "9999-12-31", "1~2", "%F0%9F%98%80"]
CURSORS = ["%00", "0001-01-01T00:00:00%2B14:00~1", "2026-01-01T00:00:00~99999999999999999999", "9999-12-31~1"]


@pytest.mark.parametrize("name", LISTS)
def test_no_hostile_input_breaks_a_list(name: str, admin_client: Client) -> None:
    log()
    resource = _registered[name]
    assert isinstance(resource, Resource)
    for text in HOSTILE:
        assert admin_client.get(f"/api/v1/{name}/{text}").status_code == 404, text
    asked = [(one.name, text) for one in resource.model_admin.filters for text in ODD]
    for place, text in [*asked, *(("after", text) for text in CURSORS), *(("limit", text) for text in HOSTILE[:7])]:
        status = admin_client.get(f"/api/v1/{name}?{place}={text}").status_code
        assert status in (200, 400), (place, text)


@pytest.mark.parametrize("model", [RunLog, TaskQueue])
def test_no_hostile_input_breaks_the_page_of_the_same_list(admin_client: Client, model: Any) -> None:
    url = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    window = admin.site.get_model_admin(model)
    asked = [(one.name, text) for one in window.filters for text in ODD[:5]]  # type: ignore[attr-defined]
    for place, text in [*asked, *(("before", text) for text in CURSORS)]:
        assert admin_client.get(f"{url}?{place}={text}").status_code in (200, 400), (place, text)


def test_hostile_explanations_do_not_break_it(ask: Ask, admin_client: Client) -> None:
    for text in HOSTILE:
        for query in (f"kind={text}&key=1", f"kind=comment&key={text}", f"kind=comment&key=1&key2={text}"):
            assert admin_client.get(f"/api/v1/explain?{query}").status_code in (200, 400), query


def test_an_address_with_nothing_behind_it_is_told_so_in_the_same_shape(ask: Ask) -> None:
    for path in ("/api/v1/nothing", "/api/v1/mails/1/2", "/api/", "/api/v2/mails", "/api/v1/explain/1"):
        ask(path, 404)


def test_plain_sql_s_odd_json_is_answered_as_json(ask: Ask) -> None:
    make_mail(1, recipients={"not": ["a", "list"]}, payload=[1e308, None, "\ud800".encode("utf-8", "replace").decode()])

    assert ask("/api/v1/mails")["items"][0]["recipients"] == {"not": ["a", "list"]}


def test_a_silent_database_is_503_and_names_nothing(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*args: Any) -> Any:
        raise OperationalError("connection to db.internal:5432, user kwit, failed")

    monkeypatch.setattr(_registered["mails"], "answer", silent)

    assert ask("/api/v1/mails", 503)["detail"] == "A database does not answer."


def test_refusals_are_in_english_whatever_the_browser_asks_for(admin_client: Client) -> None:
    response = admin_client.get("/api/v1/passes?since=x", headers={"accept-language": "pl"})

    assert answered(response, 400)["errors"][0]["problem"] == "“x” is not a date."


@pytest.mark.parametrize("tried", ["%C2%B2", "x", "%00", "1.5", "%D9%A1"])
def test_a_number_that_only_looks_like_one_is_a_bad_request(admin_client: Client, tried: str) -> None:
    url = reverse("admin:notify_runlog_pass", args=[uuid4()])

    assert admin_client.get(f"{url}?tried={tried}").status_code == 400
    assert {admin_client.get(f"{url}{query}").status_code for query in ("", "?tried=", "?tried=3")} == {200}
