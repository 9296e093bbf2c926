"""Explanations on the pages: the story of an event, for whom, at what cost, and whatever is asked for."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from notify.models import Control, MailQueue
from notify.notes import as_data, note
from tests.browser.story import ALL_TENANTS, make_user
from tests.factories import make_comment, make_contact, make_line
from tests.mails import make_mail
from tests.notify.pages import EXPLAIN, of_mail, text_of, try_once

pytestmark = pytest.mark.django_db


def test_an_explanation_costs_the_same_however_many_events_there_are(
    victor: Client, django_assert_max_num_queries: Any, django_assert_num_queries: Any
) -> None:
    mail = make_mail(state="failed")
    try_once(mail)
    query = {"kind": "comment", "key": mail.control.key, "key2": 0}
    victor.get(EXPLAIN, query)
    with django_assert_max_num_queries(14) as few:
        victor.get(EXPLAIN, query)
    for number in range(1, 40):
        Control.objects.create(kind="comment", key=mail.control.key, key2=number)
        make_mail()
        try_once(mail, number=number)

    with django_assert_num_queries(len(few)):
        victor.get(EXPLAIN, query)


def test_an_explanation_quotes_mails_and_needs_the_right_to_see_them(client: Client) -> None:
    client.force_login(make_user("lena", ALL_TENANTS, "notify.view_control"))
    control = make_mail().control

    assert client.get(EXPLAIN).status_code == 403
    for url in ("/admin/notify/control/", f"/admin/notify/control/{control.pk}/change/"):
        assert "explain/" not in text_of(client, url)


def test_an_explanation_tells_the_story_of_an_event_with_the_servers_words(victor: Client) -> None:
    mail = make_mail(state="failed")
    try_once(mail)

    page = text_of(victor, EXPLAIN, kind="comment", key=mail.control.key)

    assert "was prepared on" in page
    assert "refused for good: 550 5.1.1 no such user" in page
    assert of_mail(mail) in page


@pytest.mark.parametrize(("language", "said"), [("pl", "brak odbiorcy"), ("ja", "宛先なし")])
def test_an_explanation_is_in_one_language_and_marked_as_no_other(victor: Client, language: str, said: str) -> None:
    mail = make_mail(state="blocked", recipients=[], problem="no recipient", notes=as_data([note("no_recipient")]))
    query = {"kind": "comment", "key": mail.control.key}

    page = victor.get(EXPLAIN, query, headers={"accept-language": language}).content.decode()
    answer = victor.get("/api/v1/explain", query, headers={"accept-language": language}).json()

    assert said in page
    assert re.findall(r'lang="([^"]+)"', page) == [language]
    # Programs get what is stored, whatever language their caller reads.
    [event] = answer["events"]
    assert [finding["code"] for finding in event["findings"]] == ["notified"]
    assert event["mails"][0]["state"] == "blocked"


def test_an_explanation_says_why_an_event_was_not_notified(victor: Client) -> None:
    comment = make_comment(recipient=make_contact())

    page = text_of(victor, EXPLAIN, kind="comment", key=comment.line_id)

    assert "not notified" in page
    assert f"Event comment {comment.line_id}/{comment.pk} has not been notified." in page


def test_the_pages_of_an_event_and_of_a_mail_lead_to_its_explanation(victor: Client) -> None:
    mail = make_mail()
    wanted = f"{EXPLAIN}?kind=comment&amp;key={mail.control.key}&amp;key2=0"

    for url in (of_mail(mail), f"/admin/notify/control/{mail.control_id}/change/"):
        assert wanted in text_of(victor, url)
    assert "was queued on" in text_of(victor, wanted.replace("&amp;", "&"))


def test_the_page_of_a_business_row_leads_to_why_somebody_was_or_was_not_notified(client: Client) -> None:
    line = make_line()
    rights = ("notify.view_control", "notify.view_mailqueue", "portal.view_orderline")
    client.force_login(make_user("vera", ALL_TENANTS, *rights))

    page = text_of(client, f"/admin/portal/orderline/{line.pk}/change/")

    for kind, key in (("comment", line.pk), ("rejected", line.pk), ("order", line.order_id)):
        assert f"{EXPLAIN}?kind={kind}&amp;key={key}" in page
    assert "state must be" in text_of(client, EXPLAIN, kind="rejected", key=str(line.pk))
    client.force_login(make_user("lena", ALL_TENANTS, "notify.view_control", "portal.view_orderline"))
    assert "explain/" not in text_of(client, f"/admin/portal/orderline/{line.pk}/change/")


def test_a_key_with_many_events_lists_them(victor: Client) -> None:
    for number in range(1, 30):
        Control.objects.create(kind="comment", key=7, key2=number)

    page = text_of(victor, EXPLAIN, kind="comment", key="7")

    assert "This key has several events" in page
    assert f"{EXPLAIN}?kind=comment&amp;key=7&amp;key2=29" in page
    assert "by a baseline" in text_of(victor, EXPLAIN, kind="comment", key="7", key2="29")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({}, "Give the kind of the event"),
        ({"kind": "comment"}, "Give the kind of the event"),
        ({"kind": "comment", "key": "x"}, "is not a whole number"),
        ({"kind": "comment", "key": str(2**63)}, "is not a whole number"),
        ({"kind": "gone", "key": "1"}, "No app registers a step of kind"),
        ({"kind": "a-kind-that-is-too-long", "key": "1"}, "is not one of the choices"),
    ],
)
def test_whatever_is_asked_for_gets_an_answer(victor: Client, query: dict[str, str], said: str) -> None:
    assert said in text_of(victor, EXPLAIN, **query)


@pytest.mark.parametrize(
    ("state", "says"),
    [("failed", "failed"), ("blocked", "blocked"), ("uncertain", "uncertain"), ("sent", "sent"), ("queued", "queued")],
)
def test_the_answer_is_the_state_of_the_mail(victor: Client, state: str, says: str) -> None:
    due_at = timezone.now() + timedelta(hours=2)
    mail = make_mail(state=state, problem="x" if state == "blocked" else "", due_at=due_at)

    answer = victor.get(EXPLAIN, {"kind": "comment", "key": mail.control.key}).context["sections"][0].facts[0].cell

    assert str(answer.badge.word) == says
    assert ("waiting until" in str(answer.text)) == (state == "queued")


def test_an_event_that_a_baseline_marked_is_never_notified(victor: Client) -> None:
    control = make_mail().control
    MailQueue.objects.all().delete()

    page = text_of(victor, EXPLAIN, kind="comment", key=control.key)

    assert "never: baseline" in page
