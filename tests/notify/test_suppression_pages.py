"""The pages of the suppression list: addresses put on it with a reason, taken off it, and found."""

from typing import Any

import pytest
from django.test import Client

from kwit.models import Action
from notify.delivery.suppressions import suppress
from notify.models import Suppression
from tests.notify.pages import LIST, text_of

pytestmark = pytest.mark.django_db


def confirmed(client: Client, url: str, **data: Any) -> Any:
    """Do what the confirmation page offers."""
    page = client.post(url, data)
    assert page.status_code == 200, page.content[:500]
    sent: dict[str, Any] = {}
    for name, value in page.context["asked"].hidden:
        sent.setdefault(name, []).append(value)
    return client.post(url, sent | {name: value for name, value in data.items() if name not in ("pk", "scope")})


def test_an_address_is_put_on_the_list_with_a_reason_and_the_action_is_recorded(olga: Client) -> None:
    assert f"{LIST}suppress/" in text_of(olga, LIST)
    assert "Which address gets no more mail" in text_of(olga, f"{LIST}suppress/")

    done = olga.post(f"{LIST}suppress/", {"address": "Ann@Example.org", "reason": "complained"}, follow=True)

    assert "No more mail goes to ann@example.org." in done.content.decode()
    row = Suppression.objects.get()
    assert (row.address, row.reason) == ("ann@example.org", "complained")
    action = Action.objects.get()
    assert (action.actor, action.name, action.scope) == ("olga", "suppress", "ann@example.org")
    assert (action.note, action.done, action.outcome) == ("reason=complained", 1, "done")


@pytest.mark.parametrize(
    "data",
    [
        {"address": "nobody", "reason": "x"},
        {"address": "a@example.org, b@example.org", "reason": "x"},
        {"address": "a@example.org", "reason": ""},
        {"address": "", "reason": "x"},
    ],
)
def test_what_is_not_one_address_with_a_reason_is_refused(olga: Client, data: dict[str, str]) -> None:
    assert "errorlist" in olga.post(f"{LIST}suppress/", data).content.decode()

    assert not Suppression.objects.exists()
    assert not Action.objects.exists()


def test_an_address_that_is_on_the_list_stays_as_it_was(olga: Client) -> None:
    suppress("ann@example.org", reason="first")

    done = olga.post(f"{LIST}suppress/", {"address": "ann@example.org", "reason": "second"}, follow=True)

    assert "It was on the list already: ann@example.org" in done.content.decode()
    assert Suppression.objects.get().reason == "first"
    assert Action.objects.get().done == 0


def test_addresses_are_taken_off_the_list_and_the_record_names_them(olga: Client) -> None:
    for name in ("ann", "ben", "cy"):
        suppress(f"{name}@example.org", reason="x")
    rows = list(Suppression.objects.order_by("pk"))

    done = confirmed(olga, f"{LIST}action/unsuppress/", scope="selected", pk=[rows[0].pk, rows[2].pk])

    assert done.url == LIST
    assert Suppression.objects.get().address == "ben@example.org"
    action = Action.objects.get()
    assert (action.name, action.scope, action.done) == ("unsuppress", "ann@example.org, cy@example.org", 2)


def test_an_address_taken_off_on_its_own_page_leads_back_to_the_list(olga: Client) -> None:
    suppress("ann@example.org", reason="x")
    url = f"{LIST}action/unsuppress/"

    done = confirmed(olga, url, scope="selected", pk=[Suppression.objects.get().pk], **{"from": "detail"})

    assert done.url == LIST


def test_an_address_is_found_however_it_is_written(victor: Client) -> None:
    for name in ("ann", "ben"):
        suppress(f"{name}@example.org", reason="x")

    page = victor.get(LIST, {"address": " Ann@EXAMPLE.org "})

    assert [row.name for row in page.context["table"].rows] == ["ann@example.org"]
