"""What the pages say of delivery and of its channels: to whom, at what cost, and what may be done there."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from kwit.models import Action
from notify.delivery.suppressions import suppress
from notify.models import Attempt, Channel, Suppression
from tests.browser.story import ALL_TENANTS, OPERATE, VIEW, make_user
from tests.factories import NOW
from tests.mails import make_mail
from tests.notify.pages import CHANNELS, EVIL, EXPLAIN, LIST, MAILS, of_mail, pause, text_of, try_once

pytestmark = pytest.mark.django_db


def test_hostile_text_is_shown_as_text_everywhere(admin_client: Client) -> None:
    mail = make_mail(to=[EVIL], subject=EVIL, state="uncertain", operator=EVIL, message_text=EVIL, problem=EVIL)
    make_mail(to=[EVIL], subject=EVIL, digest_of=mail)
    try_once(mail, recipient=EVIL, text=f"{EVIL}\n{EVIL}", worker=EVIL[:20])
    channel = pause(EVIL, reason=EVIL)
    row = Suppression.objects.create(address=EVIL.lower(), reason=EVIL)
    event = {"kind": mail.control.kind, "key": mail.control.key}
    waiting = make_mail(to=[EVIL], subject=EVIL)

    urls = [CHANNELS, f"{CHANNELS}{channel.pk}/change/", LIST, f"{LIST}{row.pk}/change/", "/admin/", MAILS]
    urls += [of_mail(mail), of_mail(waiting), of_mail(waiting, "preview")]
    pages = [text_of(admin_client, url) for url in urls] + [text_of(admin_client, EXPLAIN, **event)]

    assert [page.count("alert(1)</script>") for page in pages] == [0] * len(pages)
    assert all("&lt;script&gt;alert(1)" in page for page in pages)


# What it costs.


def test_a_mails_page_costs_the_same_for_few_attempts_and_for_many(
    olga: Client, django_assert_max_num_queries: Any, django_assert_num_queries: Any
) -> None:
    mail = make_mail(state="partial", to=("a@example.org", "b@example.org"), message_text="x", message_html="y")
    try_once(mail)
    make_mail(digest_of=mail)
    olga.get(of_mail(mail))
    with django_assert_max_num_queries(11) as few:
        olga.get(of_mail(mail))
    for number in range(60):
        try_once(mail, number=number)
        make_mail(digest_of=mail)

    with django_assert_num_queries(len(few)):
        page = olga.get(of_mail(mail))

    assert b"Retry" in page.content


@pytest.mark.parametrize("url", [CHANNELS, LIST, MAILS, f"{LIST}?address=a1@example.org"])
def test_a_list_costs_the_same_for_few_rows_and_for_many(
    olga: Client, url: str, django_assert_max_num_queries: Any, django_assert_num_queries: Any
) -> None:
    def add(first: int, last: int) -> None:
        for number in range(first, last):
            Channel.objects.create(name=f"c{number}")
            suppress(f"a{number}@example.org", reason="x")
            make_mail()

    add(0, 2)
    olga.get(url)
    with django_assert_max_num_queries(6) as few:
        olga.get(url)
    add(2, 60)

    with django_assert_num_queries(len(few)):
        olga.get(url)


def test_the_dashboard_counts_sent_mails_without_reading_a_whole_table(
    admin_client: Client, django_assert_max_num_queries: Any
) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("plans are read on SQLite: it has no statistics, so that few rows give the plan of many")
    try_once(make_mail(state="sent"), outcome="sent", text="ok")
    with django_assert_max_num_queries(30) as queries:
        admin_client.get("/admin/")

    asked = [query["sql"] for query in queries if '"notify_attempt"' in query["sql"]]
    plans = []
    for sql in asked:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}".replace("%", "%%"), ())
            plans += [row[3] for row in cursor.fetchall()]
    assert len(asked) == 3
    assert [line for line in plans if line.startswith("SCAN notify_")] == []


# Who may do what.


@pytest.mark.parametrize("url", [f"{CHANNELS}action/resume/", f"{LIST}action/unsuppress/", f"{LIST}suppress/"])
def test_a_viewer_is_refused_and_nothing_changes(victor: Client, url: str) -> None:
    channel, _ = pause(), suppress("ann@example.org", reason="x")
    pk = channel.pk if "channel" in url else Suppression.objects.get().pk
    data = {"scope": "selected", "pk": [pk], "confirmed": "1", "address": "new@example.org", "reason": "x"}

    assert victor.post(url, data).status_code == 403

    assert victor.get(f"{LIST}suppress/").status_code == 403
    channel.refresh_from_db()
    assert channel.paused_until is not None
    assert Suppression.objects.get().address == "ann@example.org"
    assert not Action.objects.exists()


def test_a_viewer_is_offered_nothing_that_fails(victor: Client) -> None:
    channel = pause()
    suppress("ann@example.org", reason="x")
    mails = [make_mail(state=name, problem="x") for name in ("failed", "uncertain", "blocked", "queued")]
    urls = [CHANNELS, f"{CHANNELS}{channel.pk}/change/", LIST, f"{LIST}{Suppression.objects.get().pk}/change/"]
    urls += [MAILS, "/admin/", *(of_mail(mail) for mail in mails)]

    pages = [text_of(victor, url) for url in urls]

    assert not any("formaction" in page or 'name="pk"' in page for page in pages)
    operator = Client()
    operator.force_login(make_user("wanda", *OPERATE))
    offered = "".join(text_of(operator, url) for url in urls)
    assert "formaction" in offered
    assert 'name="pk"' in offered
    links = {link.replace("&amp;", "&") for page in pages for link in re.findall(r'href="(/admin/notify/[^"]+)"', page)}
    assert {link: victor.get(link).status_code for link in links} == dict.fromkeys(links, 200)


@pytest.mark.parametrize("missing", ["control", "runlog", "taskqueue", "channel", "suppression"])
def test_who_may_not_see_a_table_is_not_led_there(client: Client, missing: str) -> None:
    client.force_login(make_user("lena", *(name for name in VIEW if name != f"notify.view_{missing}")))
    mail = make_mail(to=("ann@example.org",), pass_id="00000000-0000-4000-8000-000000000000")
    pause()
    suppress("ann@example.org", reason="x")

    pages = [text_of(client, url) for url in (MAILS, of_mail(mail), "/admin/")]

    links = {link.replace("&amp;", "&") for page in pages for link in re.findall(r'href="(/admin/notify/[^"]+)"', page)}
    assert links
    assert {link: client.get(link).status_code for link in links} == dict.fromkeys(links, 200)


# Channels.


def test_a_paused_channel_is_shown_with_until_when_and_why_and_is_resumed(olga: Client) -> None:
    channel = pause()
    page = text_of(olga, CHANNELS)
    assert "paused" in page
    assert "535 wrong password" in page
    assert f"{timezone.localtime(channel.paused_until):%Y-%m-%d %H:%M:%S}" in page

    asked = olga.post(f"{CHANNELS}action/resume/", {"scope": "selected", "pk": [channel.pk], "from": "detail"})
    channel.refresh_from_db()
    assert channel.paused_until is not None
    done = olga.post(f"{CHANNELS}action/resume/", dict(asked.context["asked"].hidden))

    assert done.url == f"{CHANNELS}{channel.pk}/change/"
    channel.refresh_from_db()
    assert (channel.paused_until, channel.failures) == (None, 1)
    action = Action.objects.get()
    assert (action.actor, action.name, action.scope, action.done) == ("olga", "resume", "smtp", 1)


def test_a_channel_that_works_is_offered_no_resume(olga: Client) -> None:
    channel = pause()
    Channel.objects.update(paused_until=timezone.now() - timedelta(seconds=1))

    page = text_of(olga, f"{CHANNELS}{channel.pk}/change/")

    assert "works" in page
    assert "action/resume/" not in page


def test_the_dashboard_says_which_channel_pauses(victor: Client) -> None:
    channel = pause()

    page = text_of(victor, "/admin/")

    assert "Channel smtp pauses until" in page
    assert "535 wrong password" in page
    Channel.objects.filter(pk=channel.pk).update(paused_until=NOW)
    assert "Channel smtp" not in text_of(victor, "/admin/")


# The dashboard.


def test_the_dashboard_counts_what_was_sent_per_kind_those_in_digests_too(victor: Client) -> None:
    leader, failed, old = make_mail(state="sent"), make_mail(state="failed"), make_mail(state="sent")
    make_mail(state="sent", digest_of=leader)
    now = timezone.now()
    for recipient in ("a@example.org", "b@example.org"):
        Attempt.objects.create(mail=leader, number=1, outcome="sent", recipient=recipient, at=now)
    Attempt.objects.create(mail=failed, number=1, outcome="refused", at=now)
    Attempt.objects.create(mail=old, number=1, outcome="sent", at=now - timedelta(days=3))

    def sent(range_name: str) -> int:
        page = victor.get("/admin/", {"range": range_name})
        panels = next(context["panels"] for context in page.context if context.get("panels"))
        table = next(one["panel"]["kinds"] for one in panels if one["name"] == "notify-passes")
        place = [str(name) for name in table.head].index("mails sent")
        return next(row.cells[place].text for row in table.rows if row.cells[0].text == "comment")

    assert (sent("24h"), sent("7d")) == (2, 3)


def test_who_may_not_see_mails_is_told_no_number_of_them(client: Client) -> None:
    client.force_login(make_user("lena", ALL_TENANTS, "notify.view_runlog"))

    assert "ails sent" not in text_of(client, "/admin/")
