"""Unsubscribing by link: one click without a session, a page of the recipient's own, and what it never does."""

import re

import pytest
from django.core.management import call_command
from django.db.models import F
from django.test import Client
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from notify.delivery.runner import deliver_due
from notify.delivery.suppressions import suppress
from notify.models import Suppression
from notify.operations.unsubscribe import kind_choices
from notify.signing import Leaving, WrongToken, open_link, seal_link
from notify.steps import Step
from portal import models
from tests.mails import make_mail, outcomes, state

pytestmark = pytest.mark.django_db(transaction=True)
ONE_CLICK = {"List-Unsubscribe": "One-Click"}


@pytest.fixture(autouse=True)
def site(configure, add_step):
    configure(UNSUBSCRIBE_LINKS=True, SITE_URL="https://kwit.example.org")

    class Comment(Step):
        kind = template = "comment"
        label = "Comments on your orders"

        def events(self, scope):
            return models.Comment.objects.values(key=F("line_id"), key2=F("pk"), event_at=F("created_at"))

    class Advice(Step):
        kind = template = "advice"

    class Order(Step):
        kind = template = "order"
        mandatory = True

    for step in (Comment, Advice, Order):
        add_step(step)


def link(address="ann@example.org", kind="comment", language="en"):
    return reverse("notify:unsubscribe", args=[seal_link(Leaving(address, kind, language))])


def entries():
    return sorted(Suppression.objects.values_list("address", "kind", "cause"))


def test_a_mail_to_one_recipient_has_a_link_of_his_own(server):
    make_mail(to=("Ann@Example.org",))

    assert deliver_due(transport=server.transport()).sent == 1

    message = server.received[0].message
    found = re.fullmatch(
        r"<https://kwit\.example\.org(/unsubscribe/[^>/]+/)>, <mailto:[^>]+>", message["List-Unsubscribe"]
    )
    assert message["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert open_link(found[1].split("/")[2]) == Leaving("ann@example.org", "comment", "en")
    assert "ann" not in found[1].lower() or "example" not in found[1].lower()


@pytest.mark.parametrize("why", ["two recipients", "mandatory", "turned off"])
def test_a_mail_that_nobody_can_leave_by_a_link_has_none(server, configure, why):
    if why == "turned off":
        configure(UNSUBSCRIBE_LINKS=False)
    make_mail(
        to=("ann@example.org", "ben@example.org")[: 2 if why == "two recipients" else 1],
        kind="order" if why == "mandatory" else "comment",
    )

    deliver_due(transport=server.transport())

    message = server.received[0].message
    assert message["List-Unsubscribe-Post"] is None
    assert message["List-Unsubscribe"].startswith("<mailto:")


def test_one_click_needs_neither_session_nor_token_and_leaves_this_kind_only(server):
    client = Client(enforce_csrf_checks=True)

    answer = client.post(link(), ONE_CLICK)
    again = client.post(link(), ONE_CLICK)

    assert (answer.status_code, again.status_code) == (200, 200)
    assert not answer.cookies
    assert entries() == [("ann@example.org", "comment", "link")]
    left, other = make_mail(), make_mail(kind="advice", template="comment")
    deliver_due(transport=server.transport())
    assert (state(left), state(other)) == ("blocked", "sent")
    assert outcomes(left) == [("ann@example.org", "suppressed", None)]


def test_looking_at_the_page_changes_nothing_and_shows_the_kinds(client):
    page = client.get(link())

    text = page.content.decode()
    assert page.status_code == 200
    assert entries() == []
    assert "Comments on your orders" in text
    assert re.search(r'value="order"[^>]* checked disabled', text)
    assert "ann@example.org" not in text
    assert (page["Referrer-Policy"], "no-store" in page["Cache-Control"]) == ("no-referrer", True)
    assert client.head(link()).status_code == 200
    assert client.put(link()).status_code == 405


def test_the_page_speaks_the_recipients_language(client):
    assert '<html lang="pl">' in client.get(link(language="pl")).content.decode()
    assert '<html lang="en">' in client.get(link(language="xx")).content.decode()


def test_a_recipient_turns_kinds_off_and_on_again(client):
    client.post(link(), {"kind": ["comment"]})
    assert entries() == [("ann@example.org", "advice", "link")]

    client.post(link(), {"kind": ["comment", "advice"]})
    assert entries() == []

    client.post(link(), {})
    assert entries() == [("ann@example.org", "advice", "link"), ("ann@example.org", "comment", "link")]
    assert {choice.kind for choice in kind_choices("ann@example.org") if choice.is_on} == {"order"}


def test_a_link_takes_nobody_off_the_list_who_is_on_it_for_another_reason(client):
    suppress("ann@example.org", reason="gone")
    suppress("ann@example.org", reason="asked by phone", kind="comment")

    client.post(link(), {"kind": ["comment", "advice", "order"]})

    assert entries() == [("ann@example.org", "", "manual"), ("ann@example.org", "comment", "manual")]


def test_a_mandatory_kind_cannot_be_left(client, server):
    client.post(link(kind="order"), ONE_CLICK)
    assert entries() == []

    Suppression.objects.create(address="ann@example.org", kind="order", cause="link")
    mail = make_mail(kind="order", template="comment")
    deliver_due(transport=server.transport())
    assert state(mail) == "sent"


def test_explain_says_who_unsubscribed_and_when(client, capsys):
    client.post(link(), ONE_CLICK)
    mail = make_mail(key=77)

    call_command("notify_explain", "comment", "77")

    out = capsys.readouterr().out
    assert re.search(r"ann@example\.org unsubscribed on \d{4}-\d\d-\d\d .* by link", out)
    assert mail.pk


@pytest.mark.parametrize("spoil", ["changed", "short", "other secret", "long", "nonsense"])
def test_a_forged_link_is_no_page(client, settings, spoil):
    path = link()
    token = path.split("/")[2]
    if spoil == "other secret":
        settings.SECRET_KEY = "another"
    path = {
        "changed": path.replace(token, token[:30] + ("A" if token[30] != "A" else "B") + token[31:]),
        "short": path.replace(token, token[:-8]),
        "long": path.replace(token, token * 20),
        "nonsense": "/unsubscribe/%C2%B2%F0%9F%98%80/",
    }.get(spoil, path)

    assert client.get(path).status_code == 404
    assert client.post(path, ONE_CLICK).status_code == 404
    assert entries() == []


def test_a_link_ends_with_the_secret_by_overlap(client, settings):
    path = link()

    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another", [settings.SECRET_KEY]
    assert client.get(path).status_code == 200

    settings.SECRET_KEY_FALLBACKS = []
    assert client.get(path).status_code == 404


@given(st.text(max_size=200))
def test_no_text_but_ours_is_a_token(text):
    with pytest.raises(WrongToken):
        open_link(text)


def test_another_spelling_is_the_same_recipient(client, server):
    client.post(link("ann@xn--bcher-kva.example"), ONE_CLICK)
    mail = make_mail(to=("ANN@bücher.example",))

    deliver_due(transport=server.transport())

    assert state(mail) == "blocked"
