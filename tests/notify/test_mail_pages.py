"""A mail's page: attempts with the server's words, what was or would be sent, and for what it waits."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from notify.delivery.suppressions import suppress
from tests.factories import NOW
from tests.mails import make_mail
from tests.notify.pages import CHANNELS, EVIL, LIST, MAILS, of_mail, pause, text_of, try_once

pytestmark = pytest.mark.django_db


def test_a_mails_page_shows_each_attempt_with_the_servers_words(victor: Client) -> None:
    mail = make_mail(state="failed", attempts=2)
    try_once(mail, outcome="deferred", code=451, enhanced="4.7.1", text="greylisted", number=1)
    try_once(mail, text="no such user\nsee https://example.org/550", number=2)

    page = text_of(victor, of_mail(mail))

    rows = re.findall(r"<tr>(.*?)</tr>", page, re.S)
    refused, deferred = (row for row in rows if "ann@example.org" in row)
    for text in (">2<", "refused", ">550<", "5.1.1", "no such user", "2026-01-31", "app-1:7:x", "smtp"):
        assert text in refused
    assert "deferred" in deferred
    assert "see https://example.org/550" in page


def test_a_mails_page_shows_the_newest_attempts_and_says_that_there_are_more(
    victor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("notify.pages.attempts.ATTEMPTS_SHOWN", 2)
    mail = make_mail(state="failed")
    for number in (1, 2, 3):
        try_once(mail, number=number, recipient=f"r{number}@example.org")

    page = text_of(victor, of_mail(mail))

    assert "these are the newest 2" in page
    assert [f"r{number}@example.org" in page for number in (1, 2, 3)] == [False, True, True]


def test_what_was_sent_is_shown_as_it_was_and_in_a_frame_without_scripts(victor: Client) -> None:
    mail = make_mail(state="sent", sent_at=NOW, message_text="The text sent.", message_html="<p>The HTML sent.</p>")

    page = text_of(victor, of_mail(mail))

    assert "The text sent." in page
    assert re.search(rf'<iframe [^>]*sandbox src="{of_mail(mail, "html")}"', page)
    assert "The HTML sent." not in page
    assert text_of(victor, of_mail(mail, "html")) == "<p>The HTML sent.</p>"


def test_the_frame_has_a_policy_of_its_own_and_all_other_pages_keep_theirs(victor: Client) -> None:
    mail = make_mail(state="sent", message_text="x", message_html=EVIL)

    frame, page, preview = (victor.get(of_mail(mail, name)) for name in ("html", "change", "preview"))

    policy = dict(part.partition(" ")[::2] for part in frame.headers["Content-Security-Policy"].split("; "))
    assert policy == {
        "sandbox": "",
        "default-src": "'none'",
        "style-src": "'unsafe-inline'",
        "img-src": "data:",
        "form-action": "'none'",
        "base-uri": "'none'",
        "frame-ancestors": "'self'",
    }
    assert frame.headers["X-Frame-Options"] == "SAMEORIGIN"
    for other in (page, preview):
        assert "script-src 'self'" in other.headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in other.headers["Content-Security-Policy"]
        assert other.headers["X-Frame-Options"] == "DENY"


def test_a_preview_shows_text_html_and_headers_of_what_would_be_sent(victor: Client) -> None:
    mail = make_mail()

    page, frame = text_of(victor, of_mail(mail, "preview")), text_of(victor, of_mail(mail, "html"))

    assert "When will it ship?" in page
    assert f"kwit.comment.{mail.control.key}.0.0." in page
    assert f'sandbox src="{of_mail(mail, "html")}"' in page
    assert "When will it ship?" in frame
    mail.refresh_from_db()
    assert (mail.state, mail.message_text) == ("queued", "")


def test_the_preview_of_a_mail_that_cannot_be_made_says_why(victor: Client) -> None:
    mail = make_mail(template="nowhere")

    page = text_of(victor, of_mail(mail, "preview"))

    assert "It cannot be made" in page
    assert "TemplateDoesNotExist" in page
    assert victor.get(of_mail(mail, "html")).status_code == 404


def test_a_digests_leader_names_its_mails_and_each_of_them_leads_to_it(victor: Client) -> None:
    leader = make_mail(state="sent", message_text="The digest.")
    follower = make_mail(state="sent", digest_of=leader)
    try_once(leader, outcome="sent", code=250, text="2.0.0 queued as 4711")

    of_leader, of_follower = text_of(victor, of_mail(leader)), text_of(victor, of_mail(follower))

    assert of_mail(follower) in of_leader
    assert of_mail(leader) in of_follower
    assert "The digest." in of_follower
    assert "queued as 4711" in of_follower


@pytest.mark.parametrize(
    ("held_for", "said"),
    [("digest", "others to join its digest"), ("quiet", "end of the recipient&#x27;s quiet hours")],
)
def test_a_mail_that_waits_says_for_what(victor: Client, held_for: str, said: str) -> None:
    mail = make_mail(held_for=held_for, due_at=timezone.now() + timedelta(hours=1))

    page = text_of(victor, of_mail(mail))

    assert said in page


def test_a_queued_mail_names_the_paused_channel_and_the_suppressed_address(victor: Client) -> None:
    mail = make_mail(to=("Ann@Example.org", "ben@example.org"))
    channel = pause()
    suppress("ann@example.org", reason="complained")

    page = text_of(victor, of_mail(mail))

    assert "535 wrong password" in page
    assert f"{CHANNELS}{channel.pk}/change/" in page
    assert f"{LIST}?address=ann%40example.org" in page
    assert "address=ben" not in page


@pytest.mark.parametrize("recipients", ["ann@example.org", {"to": "ann@example.org"}, ["ann@example.org", 7], 7, []])
def test_recipients_that_plain_sql_has_written_break_no_page(victor: Client, recipients: Any) -> None:
    mail = make_mail(to=recipients)

    pages = [text_of(victor, url) for url in (MAILS, of_mail(mail), of_mail(mail, "preview"))]
    pages.append(text_of(victor, f"/admin/notify/control/{mail.control_id}/change/"))

    assert len(pages) == 4
