"""The dashboard: whether all is well, what is not and where, the sums of a range, and what they cost."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from notify.dialects import dialect_of
from notify.models import MailQueue, RunLog
from notify.notes import note
from tests.browser.story import HELD, fill
from tests.mails import log
from tests.notify.pages import address, queue_mail, text_of, try_once

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("range_name", ["24h", "7d", "30d"])
def test_the_dashboard_costs_the_same_queries_for_any_range_and_any_number_of_rows(
    admin_client: Client, range_name: str, django_assert_max_num_queries: Any, django_assert_num_queries: Any
) -> None:
    fill(passes=3, events=3)
    admin_client.get("/admin/")
    with django_assert_max_num_queries(32) as few:
        admin_client.get("/admin/")
    fill(passes=150, events=0, seed=8)

    with django_assert_num_queries(len(few)):
        page = admin_client.get("/admin/", {"range": range_name})

    assert page.status_code == 200


def test_the_dashboard_says_when_all_is_well(admin_client: Client) -> None:
    log(started_at=timezone.now())

    page = text_of(admin_client, "/admin/")

    assert "All is well" in page


@pytest.mark.parametrize(
    ("make", "says", "leads_to"),
    [
        (lambda: None, "There has been no good pass yet", "/admin/notify/runlog/"),
        (lambda: log(started_at=timezone.now() - timedelta(days=2)), "The last good pass was", "/admin/notify/runlog/"),
        (lambda: log(started_at=timezone.now(), outcome="error", error="boom"), "The last pass failed: boom", "change"),
        (lambda: queue_mail(1, state="blocked", problem="no recipient"), "1 mail is blocked", "?state=blocked"),
        (lambda: queue_mail(1, state="failed"), "1 mail is failed", "?state=failed"),
        (lambda: queue_mail(1, state="uncertain"), "1 mail is uncertain", "?state=uncertain"),
        (lambda: queue_mail(1, due_at=timezone.now() - timedelta(hours=2)), "has been due for", "?state=queued"),
    ],
)
def test_the_dashboard_says_what_is_not_well_and_where(
    admin_client: Client, make: Callable[[], Any], says: str, leads_to: str
) -> None:
    make()

    page = text_of(admin_client, "/admin/")

    verdict = page[page.index("kwit-status") : page.index("kwit-panel")]
    assert says in verdict
    assert leads_to in verdict
    assert "All is well" not in page


def test_two_skips_in_a_row_are_normal_and_three_are_not(admin_client: Client) -> None:
    now = timezone.now()
    log(started_at=now - timedelta(minutes=9))
    for minute in (3, 2):
        log(started_at=now - timedelta(minutes=minute), outcome="skipped", said=[HELD])
    assert "All is well" in text_of(admin_client, "/admin/")

    log(started_at=now, outcome="skipped", said=[HELD])

    page = text_of(admin_client, "/admin/")
    assert "3 passes were skipped in a row" in page
    assert "host app-2, process 4711" in page


def test_more_skips_than_are_looked_at_are_not_told_as_so_many(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("stats", "dashboard"):
        monkeypatch.setattr(f"notify.pages.{module}.LATEST_MAX", 4)
    for minute in range(6):
        log(started_at=timezone.now() - timedelta(minutes=minute), outcome="skipped", said=[HELD])

    assert "4+ passes were skipped in a row" in text_of(admin_client, "/admin/")


def test_the_dashboard_adds_up_the_log_of_the_range_only(admin_client: Client) -> None:
    now = timezone.now()
    for hours, mails in ((1, 5), (2, 7), (30, 100)):
        whole = log(started_at=now - timedelta(hours=hours), mails=mails, ms=hours * 10)
        log("comment", pass_id=whole.pass_id, started_at=whole.started_at, candidates=mails, mails=mails)

    panel = panel_of(admin_client.get("/admin/"), "notify-passes")
    week = panel_of(admin_client.get("/admin/?range=7d"), "notify-passes")

    def mails(panel: Any) -> Any:
        return next(row.cells[2].text for row in panel["kinds"].rows if row.cells[0].text == "comment")

    assert (mails(panel), mails(week)) == (12, 112)
    assert [tile.value for tile in panel["tiles"] if tile.badge and str(tile.badge.word) == "ok"] == ["2"]


def test_the_dashboard_charts_what_was_sent_by_kind_when_it_was_over(admin_client: Client) -> None:
    now = timezone.now()
    for key, minutes in ((1, 3), (2, 3), (3, 150)):
        at = now - timedelta(minutes=minutes)
        try_once(queue_mail(key, state="sent", sent_at=at), outcome="sent", at=at)
    # One recipient has it, another waits: it is over for nobody yet.
    try_once(queue_mail(4), outcome="sent", at=now - timedelta(hours=5))
    try_once(queue_mail(5, state="failed"), outcome="refused", at=now)

    page = admin_client.get("/admin/")

    panel = panel_of(page, "notify-passes")
    sent = next(chart for chart in panel["charts"] if chart.title == "Mails sent")
    place = [str(name) for name in sent.table.head].index("comment")
    by_step = [row.cells[place].text for row in sent.table.rows]
    row = next(row for row in panel["kinds"].rows if row.cells[0].text == "comment")
    assert sum(map(int, by_step)) == row.cells[3].text == 4
    assert int(by_step[23]) + int(by_step[22]) == 3
    assert by_step[23] != "0"
    assert row.cells[3].url == "/admin/notify/mailqueue/?state=sent"


def test_the_dashboard_says_who_holds_the_lock(admin_client: Client) -> None:
    now = timezone.now()
    log(started_at=now - timedelta(minutes=9))
    assert "the lock was held by" not in text_of(admin_client, "/admin/")

    log(started_at=now - timedelta(minutes=1), outcome="skipped", said=[HELD])
    page = text_of(admin_client, "/admin/")
    assert "the lock was held by" in page
    assert "host app-2, process 4711" in page

    running = log(started_at=now, outcome="running", ended_at=None, ms=None, host="app-3", pid=77)
    assert "host app-3, process 77" not in text_of(admin_client, "/admin/"), "its row is open, and nobody has the lock"

    answer = dialect_of(connection).try_lock(connection)
    page = text_of(admin_client, "/admin/")
    dialect_of(connection).unlock(connection, answer.token)
    assert "the lock is held by" in page
    assert "host app-3, process 77" in page
    assert address(RunLog, "change", running.pk) in page


def test_the_last_full_scan_leads_to_the_step_that_did_it(admin_client: Client) -> None:
    now = timezone.now()
    whole = log(started_at=now - timedelta(hours=3))
    for place, kind in enumerate(("order", "rejected", "advice", "comment")):
        at = whole.started_at + timedelta(milliseconds=place)
        log(kind, pass_id=whole.pass_id, started_at=at, is_full=True)
        log(kind, started_at=at + timedelta(hours=1))

    tiles = panel_of(admin_client.get("/admin/"), "notify-passes")["tiles"]
    link = next(tile.url for tile in tiles if tile.name == "last full scan")

    found = admin_client.get(link).context["table"].rows
    assert [row.key for row in found] == [str(RunLog.objects.get(step="order", is_full=True).pk)]


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("pl", ("krok advice nie powiódł się", "proces 4711, od", "nie zamykając", "bezpiecznik: przygotowano 500")),
        ("ja", ("ステップ advice が失敗しました", "プロセス 4711", "閉じないまま", "サーキットブレーカー: 500")),
    ],
)
def test_what_the_log_says_is_said_in_the_readers_language(
    admin_client: Client, language: str, words: tuple[str, ...]
) -> None:
    breaker = note("breaker", prepared=500, waiting=7, oldest="2026-11-30T07:58:00+0000")
    notes = (note("step_failed", step="advice"), HELD, note("died"), breaker)
    rows = [log(minute=minute, outcome="error", said=[one]) for minute, one in enumerate(notes)]

    page = admin_client.get(address(RunLog), headers={"accept-language": language}).content.decode()

    for row, word in zip(rows, words, strict=True):
        one = admin_client.get(address(RunLog, "change", row.pk), headers={"accept-language": language})
        assert word in page
        assert word in one.content.decode()
    assert not [one for one in notes if one.english in page]


def panel_of(page: Any, name: str) -> Any:
    return next(one["panel"] for context in page.context for one in context.get("panels", ()) if one["name"] == name)


def test_a_range_with_too_many_rows_is_cut_at_its_old_end_and_says_so(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("notify.pages.stats.LOG_ROWS_MAX", 3)
    now = timezone.now()
    for minute in range(6):
        log(started_at=now - timedelta(minutes=minute))

    page = admin_client.get("/admin/")

    assert "more rows than are read" in page.content.decode()
    assert [t.value for t in panel_of(page, "notify-passes")["tiles"] if t.badge and str(t.badge.word) == "ok"] == ["4"]


def test_a_count_goes_to_its_bound_and_says_more(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notify.pages.stats.COUNT_MAX", 2)
    monkeypatch.setattr("notify.pages.dashboard.COUNT_MAX", 2)
    for key in range(4):
        queue_mail(key)

    assert "more than 2" in text_of(admin_client, "/admin/")


def test_every_link_of_the_dashboard_leads_somewhere(admin_client: Client) -> None:
    fill(passes=80, events=30)
    page = text_of(admin_client, "/admin/")

    links = {link.replace("&amp;", "&") for link in re.findall(r'href="(/admin/notify/[^"]+)"', page)}

    assert len(links) > 20
    assert {link: admin_client.get(link).status_code for link in links} == dict.fromkeys(links, 200)


def test_who_may_see_the_log_only_gets_the_log_only(client: Client) -> None:
    from tests.browser.story import ALL_TENANTS, make_user

    client.force_login(make_user("lena", ALL_TENANTS, "notify.view_runlog"))

    page = text_of(client, "/admin/")

    assert "Notifications: passes" in page
    assert "Notifications: queues" not in page
    assert client.get(address(MailQueue)).status_code == 403
    assert client.get(address(RunLog)).status_code == 200
