"""What the pages say of delivery and what may be done there: attempts, preview, channels, suppressions, stories."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from desk.models import Action
from notify.channels import pause_channel
from notify.conf import conf
from notify.models import Attempt, Channel, Control, MailQueue, Suppression
from notify.suppressions import suppress
from tests.browser.story import ALL_TENANTS, OPERATE, VIEW, make_user
from tests.factories import NOW, make_comment, make_contact
from tests.mails import make_mail

pytestmark = pytest.mark.django_db
EVIL = "<script>alert(1)</script>"
MAILS, CHANNELS = "/admin/notify/mailqueue/", "/admin/notify/channel/"
LIST, EXPLAIN = "/admin/notify/suppression/", "/admin/notify/control/explain/"


@pytest.fixture
def olga(client: Client) -> Client:
    client.force_login(make_user("olga", *OPERATE))
    return client


@pytest.fixture
def victor(client: Client) -> Client:
    client.force_login(make_user("victor", *VIEW))
    return client


def page_of(client: Client, url: str, **query: Any) -> str:
    page = client.get(url, query)
    assert page.status_code == 200, page.content[:500]
    return page.content.decode()


def of_mail(mail: MailQueue, page: str = "change") -> str:
    return f"{MAILS}{mail.pk}/{page}/"


def try_once(mail: MailQueue, *, outcome: str = "refused", **fields: Any) -> Attempt:
    values = {"number": 1, "recipient": "ann@example.org", "code": 550, "enhanced": "5.1.1", "text": "no such user"}
    values |= {"outcome": outcome, "worker": "app-1:7:x", "channel": "smtp", "at": NOW}
    return Attempt.objects.create(mail=mail, **values | fields)


def pause(name: str = "smtp", *, reason: str = "535 wrong password") -> Channel:
    pause_channel(name, reason=reason, now=timezone.now(), conf=conf())
    return Channel.objects.get(name=name)


def confirmed(client: Client, url: str, **data: Any) -> Any:
    """Do what the confirmation page offers."""
    page = client.post(url, data)
    assert page.status_code == 200, page.content[:500]
    sent: dict[str, Any] = {}
    for name, value in page.context["asked"].hidden:
        sent.setdefault(name, []).append(value)
    return client.post(url, sent | {name: value for name, value in data.items() if name not in ("pk", "scope")})


# The mail's page.


def test_a_mails_page_shows_each_attempt_with_the_servers_words(victor: Client) -> None:
    mail = make_mail(state="failed", attempts=2)
    try_once(mail, outcome="deferred", code=451, enhanced="4.7.1", text="greylisted", number=1)
    try_once(mail, text="no such user\nsee https://example.org/550", number=2)

    page = page_of(victor, of_mail(mail))

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

    page = page_of(victor, of_mail(mail))

    assert "these are the newest 2" in page
    assert [f"r{number}@example.org" in page for number in (1, 2, 3)] == [False, True, True]


def test_what_was_sent_is_shown_as_it_was_and_in_a_frame_without_scripts(victor: Client) -> None:
    mail = make_mail(state="sent", sent_at=NOW, message_text="The text sent.", message_html="<p>The HTML sent.</p>")

    page = page_of(victor, of_mail(mail))

    assert "The text sent." in page
    assert re.search(rf'<iframe [^>]*sandbox src="{of_mail(mail, "html")}"', page)
    assert "The HTML sent." not in page
    assert page_of(victor, of_mail(mail, "html")) == "<p>The HTML sent.</p>"


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

    page, frame = page_of(victor, of_mail(mail, "preview")), page_of(victor, of_mail(mail, "html"))

    assert "When will it ship?" in page
    assert f"kwit.comment.{mail.control.key}.0.0@" in page
    assert f'sandbox src="{of_mail(mail, "html")}"' in page
    assert "When will it ship?" in frame
    mail.refresh_from_db()
    assert (mail.state, mail.message_text) == ("queued", "")


def test_the_preview_of_a_mail_that_cannot_be_made_says_why(victor: Client) -> None:
    mail = make_mail(template="nowhere")

    page = page_of(victor, of_mail(mail, "preview"))

    assert "It cannot be made" in page
    assert "TemplateDoesNotExist" in page
    assert victor.get(of_mail(mail, "html")).status_code == 404


def test_a_digests_leader_names_its_mails_and_each_of_them_leads_to_it(victor: Client) -> None:
    leader = make_mail(state="sent", message_text="The digest.")
    follower = make_mail(state="sent", digest_of=leader)
    try_once(leader, outcome="sent", code=250, text="2.0.0 queued as 4711")

    of_leader, of_follower = page_of(victor, of_mail(leader)), page_of(victor, of_mail(follower))

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

    page = page_of(victor, of_mail(mail))

    assert said in page


def test_a_queued_mail_names_the_paused_channel_and_the_suppressed_address(victor: Client) -> None:
    mail = make_mail(to=("Ann@Example.org", "ben@example.org"))
    channel = pause()
    suppress("ann@example.org", reason="complained")

    page = page_of(victor, of_mail(mail))

    assert "535 wrong password" in page
    assert f"{CHANNELS}{channel.pk}/change/" in page
    assert f"{LIST}?address=ann%40example.org" in page
    assert "address=ben" not in page


@pytest.mark.parametrize("recipients", ["ann@example.org", {"to": "ann@example.org"}, ["ann@example.org", 7], 7, []])
def test_recipients_that_plain_sql_has_written_break_no_page(victor: Client, recipients: Any) -> None:
    mail = make_mail(to=recipients)

    pages = [page_of(victor, url) for url in (MAILS, of_mail(mail), of_mail(mail, "preview"))]
    pages.append(page_of(victor, f"/admin/notify/control/{mail.control_id}/change/"))

    assert len(pages) == 4


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
    pages = [page_of(admin_client, url) for url in urls] + [page_of(admin_client, EXPLAIN, **event)]

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


@pytest.mark.parametrize("url", [f"{CHANNELS}act/resume/", f"{LIST}act/unsuppress/", f"{LIST}suppress/"])
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

    pages = [page_of(victor, url) for url in urls]

    assert not any("formaction" in page or 'name="pk"' in page for page in pages)
    operator = Client()
    operator.force_login(make_user("wanda", *OPERATE))
    offered = "".join(page_of(operator, url) for url in urls)
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

    pages = [page_of(client, url) for url in (MAILS, of_mail(mail), "/admin/")]

    links = {link.replace("&amp;", "&") for page in pages for link in re.findall(r'href="(/admin/notify/[^"]+)"', page)}
    assert links
    assert {link: client.get(link).status_code for link in links} == dict.fromkeys(links, 200)


def test_an_explanation_quotes_mails_and_needs_the_right_to_see_them(client: Client) -> None:
    client.force_login(make_user("lena", ALL_TENANTS, "notify.view_control"))
    control = make_mail().control

    assert client.get(EXPLAIN).status_code == 403
    for url in ("/admin/notify/control/", f"/admin/notify/control/{control.pk}/change/"):
        assert "explain/" not in page_of(client, url)


# Channels.


def test_a_paused_channel_is_shown_with_until_when_and_why_and_is_resumed(olga: Client) -> None:
    channel = pause()
    page = page_of(olga, CHANNELS)
    assert "paused" in page
    assert "535 wrong password" in page
    assert f"{timezone.localtime(channel.paused_until):%Y-%m-%d %H:%M:%S}" in page

    asked = olga.post(f"{CHANNELS}act/resume/", {"scope": "selected", "pk": [channel.pk], "from": "detail"})
    channel.refresh_from_db()
    assert channel.paused_until is not None
    done = olga.post(f"{CHANNELS}act/resume/", dict(asked.context["asked"].hidden))

    assert done.url == f"{CHANNELS}{channel.pk}/change/"
    channel.refresh_from_db()
    assert (channel.paused_until, channel.failures) == (None, 1)
    action = Action.objects.get()
    assert (action.actor, action.name, action.scope, action.done) == ("olga", "resume", "smtp", 1)


def test_a_channel_that_works_is_offered_no_resume(olga: Client) -> None:
    channel = pause()
    Channel.objects.update(paused_until=timezone.now() - timedelta(seconds=1))

    page = page_of(olga, f"{CHANNELS}{channel.pk}/change/")

    assert "works" in page
    assert "act/resume/" not in page


def test_the_dashboard_says_which_channel_pauses(victor: Client) -> None:
    channel = pause()

    page = page_of(victor, "/admin/")

    assert "Channel smtp pauses until" in page
    assert "535 wrong password" in page
    Channel.objects.filter(pk=channel.pk).update(paused_until=NOW)
    assert "Channel smtp" not in page_of(victor, "/admin/")


# The suppression list.


def test_an_address_is_put_on_the_list_with_a_reason_and_the_action_is_recorded(olga: Client) -> None:
    assert f"{LIST}suppress/" in page_of(olga, LIST)
    assert "Which address gets no more mail" in page_of(olga, f"{LIST}suppress/")

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

    done = confirmed(olga, f"{LIST}act/unsuppress/", scope="selected", pk=[rows[0].pk, rows[2].pk])

    assert done.url == LIST
    assert Suppression.objects.get().address == "ben@example.org"
    action = Action.objects.get()
    assert (action.name, action.scope, action.done) == ("unsuppress", "ann@example.org, cy@example.org", 2)


def test_an_address_taken_off_on_its_own_page_leads_back_to_the_list(olga: Client) -> None:
    suppress("ann@example.org", reason="x")
    url = f"{LIST}act/unsuppress/"

    done = confirmed(olga, url, scope="selected", pk=[Suppression.objects.get().pk], **{"from": "detail"})

    assert done.url == LIST


def test_an_address_is_found_however_it_is_written(victor: Client) -> None:
    for name in ("ann", "ben"):
        suppress(f"{name}@example.org", reason="x")

    page = victor.get(LIST, {"address": " Ann@EXAMPLE.org "})

    assert [row.name for row in page.context["table"].rows] == ["ann@example.org"]


# Explanations.


def test_an_explanation_tells_the_story_of_an_event_with_the_servers_words(victor: Client) -> None:
    mail = make_mail(state="failed")
    try_once(mail)

    page = page_of(victor, EXPLAIN, kind="comment", key=mail.control.key)

    assert "was prepared on" in page
    assert "refused for good: 550 5.1.1 no such user" in page
    assert of_mail(mail) in page
    assert 'lang="en"' in page


def test_an_explanation_says_why_an_event_was_not_notified(victor: Client) -> None:
    comment = make_comment(recipient=make_contact())

    page = page_of(victor, EXPLAIN, kind="comment", key=comment.line_id)

    assert "not notified" in page
    assert f"Event comment {comment.line_id}/{comment.pk} has not been notified." in page


def test_the_pages_of_an_event_and_of_a_mail_lead_to_its_explanation(victor: Client) -> None:
    mail = make_mail()
    wanted = f"{EXPLAIN}?kind=comment&amp;key={mail.control.key}&amp;key2=0"

    for url in (of_mail(mail), f"/admin/notify/control/{mail.control_id}/change/"):
        assert wanted in page_of(victor, url)
    assert "was queued on" in page_of(victor, wanted.replace("&amp;", "&"))


def test_a_key_with_many_events_lists_them(victor: Client) -> None:
    for number in range(1, 30):
        Control.objects.create(kind="comment", key=7, key2=number)

    page = page_of(victor, EXPLAIN, kind="comment", key="7")

    assert "This key has several events" in page
    assert f"{EXPLAIN}?kind=comment&amp;key=7&amp;key2=29" in page
    assert "by a baseline" in page_of(victor, EXPLAIN, kind="comment", key="7", key2="29")


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
    assert said in page_of(victor, EXPLAIN, **query)


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

    assert "ails sent" not in page_of(client, "/admin/")
