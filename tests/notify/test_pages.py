"""The pages of the notify half: what they show, what they cost, and that they only look."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone, translation

from notify.models import Control, MailQueue, RunLog, TaskQueue
from notify.pages.words import problem_of
from tests.browser.story import HOLDER, fill
from tests.factories import NOW

pytestmark = pytest.mark.django_db
MODELS = [Control, RunLog, MailQueue, TaskQueue]
EVIL = "<script>alert(1)</script>"


def address(model: Any, page: str = "changelist", *args: Any) -> str:
    return reverse(f"admin:notify_{model._meta.model_name}_{page}", args=args)


def text_of(client: Client, url: str, **query: Any) -> str:
    page = client.get(url, query)
    assert page.status_code == 200, page.content[:500]
    return page.content.decode()


def log(step: str = "pass", *, minute: int = 0, pass_id: UUID | None = None, **fields: Any) -> RunLog:
    at = NOW + timedelta(minutes=minute)
    values = {"started_at": at, "ended_at": at, "ms": 5, "outcome": "ok"} | fields
    return RunLog.objects.create(pass_id=pass_id or uuid4(), step=step, **values)


def queue_mail(key: int, **fields: Any) -> MailQueue:
    control = Control.objects.create(kind="comment", key=key, key2=1)
    values = {"subject": f"Subject {key}", "recipients": ["a@example.org"]} | fields
    return MailQueue.objects.create(control=control, **values)


@pytest.mark.parametrize("model", MODELS)
def test_a_list_costs_the_same_queries_for_few_rows_and_for_many(
    admin_client: Client, model: Any, django_assert_max_num_queries: Any, django_assert_num_queries: Any
) -> None:
    fill(passes=3, events=4)
    admin_client.get(address(model))
    with django_assert_max_num_queries(5) as few:
        admin_client.get(address(model))
    fill_more = 60
    RunLog.objects.all().delete()
    TaskQueue.objects.all().delete()
    MailQueue.objects.all().delete()
    Control.objects.all().delete()
    fill(passes=fill_more, events=fill_more)

    with django_assert_num_queries(len(few)):
        page = admin_client.get(address(model))

    assert page.content.count(b'type="checkbox" name="pk"') in (0, 50) or model is TaskQueue


@pytest.mark.parametrize("model", MODELS)
def test_a_rows_own_page_costs_a_fixed_number_of_queries(
    admin_client: Client, model: Any, django_assert_max_num_queries: Any
) -> None:
    fill(passes=40, events=20)
    for row in (model.objects.first(), model.objects.last()):
        admin_client.get(address(model, "change", row.pk))

        with django_assert_max_num_queries(10):
            assert admin_client.get(address(model, "change", row.pk)).status_code == 200


@pytest.mark.parametrize("model", MODELS)
def test_no_list_counts_its_table(admin_client: Client, model: Any, django_assert_max_num_queries: Any) -> None:
    fill(passes=2, events=2)

    with django_assert_max_num_queries(10) as queries:
        admin_client.get(address(model))

    assert [query["sql"] for query in queries if "COUNT(" in query["sql"].upper()] == []


@pytest.mark.parametrize(
    "url",
    [
        "/admin/?range=30d",
        "/admin/notify/runlog/",
        "/admin/notify/runlog/?outcome=error",
        "/admin/notify/runlog/?outcome=died",
        "/admin/notify/runlog/?work=1&since=2026-01-01",
        "/admin/notify/runlog/?step=comment&until=2026-01-01",
        "/admin/notify/runlog/?pass=00000000-0000-4000-8000-000000000000",
        "/admin/notify/runlog/skipped/",
        "/admin/notify/control/?kind=comment",
        "/admin/notify/control/?kind=comment&key=7&key2=1",
        "/admin/notify/control/?key=7",
        "/admin/notify/mailqueue/?state=blocked",
        "/admin/notify/mailqueue/?pass=00000000-0000-4000-8000-000000000000",
        "/admin/notify/taskqueue/?open=1",
        "/admin/notify/taskqueue/?assignee=aiko",
    ],
)
def test_no_page_reads_a_whole_table(admin_client: Client, url: str, django_assert_max_num_queries: Any) -> None:
    """A scan along an index that stops at a LIMIT is a page; one without reads everything, or sorts it."""
    if connection.vendor != "sqlite":
        pytest.skip("plans are read on SQLite: it has no statistics, so that few rows give the plan of many")
    fill(passes=3, events=3)
    with django_assert_max_num_queries(30) as queries:
        admin_client.get(url)

    scans = []
    for query in queries:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN QUERY PLAN {query['sql']}".replace("%", "%%"), ())
            plan = [row[3] for row in cursor.fetchall()]
        # The rows of a partial index are few: one full look a day and step.
        read = [one for one in plan if one.startswith("SCAN notify_") and "ix_notify_run_log_full" not in one]
        is_sorted_first = any("TEMP B-TREE FOR ORDER BY" in one for one in plan)
        scans += [(query["sql"], plan)] if read and (is_sorted_first or "LIMIT" not in query["sql"]) else []
    assert scans == []


@pytest.mark.parametrize("range_name", ["24h", "7d", "30d"])
def test_the_dashboard_costs_the_same_queries_for_any_range_and_any_number_of_rows(
    admin_client: Client, range_name: str, django_assert_max_num_queries: Any, django_assert_num_queries: Any
) -> None:
    fill(passes=3, events=3)
    admin_client.get("/admin/")
    with django_assert_max_num_queries(30) as few:
        admin_client.get("/admin/")
    fill(passes=150, events=0, seed=8)

    with django_assert_num_queries(len(few)):
        page = admin_client.get("/admin/", {"range": range_name})

    assert page.status_code == 200


@pytest.mark.parametrize("model", MODELS)
def test_even_a_superuser_is_offered_no_change(admin_client: Client, model: Any) -> None:
    fill(passes=1, events=2)
    pk = model.objects.first().pk

    page = text_of(admin_client, address(model, "change", pk))

    assert 'name="_save"' not in page
    assert admin_client.get(address(model, "add")).status_code == 403
    assert admin_client.post(address(model, "delete", pk)).status_code == 403
    assert admin_client.post(address(model, "change", pk), {"subject": "x"}).status_code == 405


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("pk", ["0", "999999999", "x", str(2**63), "-1", "1.5"])
def test_a_row_that_is_not_there_is_not_found(admin_client: Client, model: Any, pk: str) -> None:
    assert admin_client.get(address(model, "change", pk)).status_code == 404


def test_markup_in_what_was_logged_is_shown_as_text_everywhere(admin_client: Client) -> None:
    mail = queue_mail(1, subject=EVIL, recipients=[EVIL], state="blocked", problem=EVIL, payload={"note": EVIL})
    Control.objects.update(recipients=EVIL)
    task = TaskQueue.objects.create(control=mail.control, title=EVIL, assignee=EVIL, done_by=EVIL, done_at=NOW)
    row = log(outcome="error", error=f"{EVIL}\n{EVIL}", host=EVIL, started_at=timezone.now())
    log("comment", pass_id=row.pass_id, outcome="error", error=f"circuit breaker {EVIL}")
    skipped = f"SKIPPED: lock code -1, held by {EVIL}"
    for minute in (1, 2, 3):
        log(outcome="skipped", error=skipped, started_at=timezone.now() + timedelta(minutes=minute))

    pages = [text_of(admin_client, address(model)) for model in MODELS]
    pages += [text_of(admin_client, address(type(one), "change", one.pk)) for one in (mail.control, mail, task, row)]
    pages += [text_of(admin_client, "/admin/"), text_of(admin_client, address(RunLog, "skipped"))]

    assert not any("Cell(" in page or "Badge(" in page or "&lt;span" in page for page in pages)
    assert [page.count("alert(1)</script>") for page in pages] == [0] * len(pages)
    assert all("&lt;script&gt;alert(1)" in page for page in pages)


def test_a_pass_is_one_line_with_its_steps_below(admin_client: Client) -> None:
    whole = log(candidates=3, mails=2)
    for step in ("order", "comment"):
        log(step, pass_id=whole.pass_id, candidates=1)

    page = text_of(admin_client, address(RunLog))

    assert "2 steps" in page
    assert page.count("<details>") == 1
    assert page.index(">all<") < page.index(">order<") < page.index(">comment<")


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ({"outcome": "error"}, {"failed", "died"}),
        ({"outcome": "died"}, {"died"}),
        ({"outcome": "running"}, {"running"}),
        ({"step": "comment"}, {"step"}),
        ({"work": "1"}, {"failed"}),
        ({"since": "2026-01-31T08:02:30+00:00"}, {"died", "running"}),
        ({"until": "2026-01-30"}, set()),
        ({"since": "2026-01-31", "until": "2026-01-31", "outcome": "ok"}, {"good"}),
    ],
)
def test_filters_of_the_run_history(admin_client: Client, query: dict[str, str], shown: set[str]) -> None:
    good = log(minute=1)
    rows = {
        "good": good,
        "step": log("comment", minute=1, pass_id=good.pass_id),
        "failed": log(minute=2, outcome="error", candidates=4, error="boom"),
        "died": log(minute=3, outcome="error", ms=None, error="died: …"),
        "running": log(minute=4, outcome="running", ended_at=None, ms=None),
    }

    page = admin_client.get(address(RunLog), query)

    listed = {row.key for row in page.context["table"].rows}
    assert listed == {str(rows[name].pk) for name in shown}


def test_a_filter_that_makes_no_sense_says_so_and_lists_nothing(admin_client: Client) -> None:
    log()

    page = admin_client.get(address(RunLog), {"since": "soon"})

    assert "is not a date" in page.content.decode()
    assert page.context["table"].rows == []


def test_a_moment_that_a_link_has_given_stays_in_the_form(admin_client: Client) -> None:
    page = text_of(admin_client, address(RunLog), since="2026-01-31T08:00:00+00:00")

    assert 'type="text" id="filter-since" name="since" value="2026-01-31T08:00:00+00:00"' in page
    assert 'type="date" id="filter-until"' in page


def test_the_pages_of_the_run_history_show_each_pass_once(admin_client: Client) -> None:
    rows = {str(log(minute=number % 3).pk) for number in range(120)}

    seen: list[str] = []
    url = address(RunLog) + "?outcome=ok"
    while url:
        page = admin_client.get(url)
        seen += [row.key for row in page.context["table"].rows]
        url = address(RunLog) + "?" + page.context["next_query"] if page.context["next_query"] else ""

    assert len(seen) == 120
    assert set(seen) == rows
    assert "outcome=ok" in page.context["previous_query"]


def test_a_passes_page_shows_the_whole_error_and_its_neighbours(admin_client: Client) -> None:
    before, row, after = log(minute=1), log(minute=2, outcome="error", error="first\nlast line"), log(minute=2)

    page = text_of(admin_client, address(RunLog, "change", row.pk))

    assert "first\nlast line" in page
    assert f'rel="prev" href="{address(RunLog, "change", before.pk)}"' in page
    assert f'rel="next" href="{address(RunLog, "change", after.pk)}"' in page
    assert 'http-equiv="refresh"' not in page


def test_the_page_of_a_pass_under_way_loads_itself_anew(admin_client: Client) -> None:
    row = log(outcome="running", ended_at=None, ms=None)

    assert 'http-equiv="refresh"' in text_of(admin_client, address(RunLog, "change", row.pk))


def test_skips_in_a_row_are_one_line_and_a_pass_between_parts_them(admin_client: Client) -> None:
    other = HOLDER.replace("app-2", "app-3")
    for minute, (outcome, error) in enumerate(
        [("skipped", HOLDER), ("ok", None), ("skipped", HOLDER), ("skipped", other), ("skipped", other), ("error", "x")]
    ):
        log(minute=minute, outcome=outcome, error=error)

    page = admin_client.get(address(RunLog, "skipped"))

    lines = [[str(cell.text) for cell in row.cells] for row in page.context["table"].rows]
    assert [line[2] for line in lines] == ["3", "1"]
    assert lines[0][3] == "2\xa0minutes"
    assert [line[4] for line in lines] == ["-1", "-1"]
    assert "app-3" in lines[0][5]
    assert "app-2" in lines[0][5]


def test_a_skip_at_the_very_moment_of_a_pass_belongs_to_no_later_run(admin_client: Client) -> None:
    log(minute=1)
    log(minute=1, outcome="skipped", error=HOLDER)

    page = admin_client.get(address(RunLog, "skipped"))

    assert len(page.context["table"].rows) == 1


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ({"kind": "comment"}, [8, 7]),
        ({"key": "7"}, [7, 7]),
        ({"kind": "order", "key": "7"}, [7]),
        ({"kind": "comment", "key": "7", "key2": "5"}, [7]),
        ({"kind": "comment", "key": "7", "key2": "6"}, []),
        ({}, [8, 7, 7]),
    ],
)
def test_the_control_table_is_searched_by_kind_and_key(
    admin_client: Client, query: dict[str, str], keys: list[int]
) -> None:
    Control.objects.create(kind="comment", key=7, key2=5)
    Control.objects.create(kind="order", key=7)
    Control.objects.create(kind="comment", key=8)

    page = admin_client.get(address(Control), query)

    assert [row.cells[2].text for row in page.context["table"].rows] == keys


def test_an_event_leads_to_its_messages_and_to_its_pass(admin_client: Client) -> None:
    whole = log()
    mail = queue_mail(5, pass_id=whole.pass_id)
    task = TaskQueue.objects.create(control=mail.control, title="Call", pass_id=whole.pass_id)

    page = text_of(admin_client, address(Control, "change", mail.control.pk))

    assert address(MailQueue, "change", mail.pk) in page
    assert address(TaskQueue, "change", task.pk) in page
    way = re.search(r'href="([^"]+/pass/[^"]+)"', page)
    assert way
    assert admin_client.get(way[1]).url == address(RunLog, "change", whole.pk)


def test_an_event_without_messages_says_why(admin_client: Client) -> None:
    control = Control.objects.create(kind="comment", key=1)

    assert "baseline" in text_of(admin_client, address(Control, "change", control.pk))


def test_a_passes_numbers_lead_to_its_mails(admin_client: Client) -> None:
    whole = log(mails=1)
    mine, _other = queue_mail(1, pass_id=whole.pass_id), queue_mail(2, pass_id=uuid4())

    page = admin_client.get(address(MailQueue), {"pass": str(whole.pass_id)})

    assert [row.key for row in page.context["table"].rows] == [str(mine.pk)]


def test_waiting_mails_stand_first_that_wait_longest_and_sent_ones_last(admin_client: Client) -> None:
    old, new = (queue_mail(key, due_at=NOW + timedelta(hours=key)) for key in (1, 2))

    def listed() -> list[str]:
        state = MailQueue.objects.values_list("state", flat=True)[0]
        page = admin_client.get(address(MailQueue), {"state": state})
        return [row.key for row in page.context["table"].rows]

    assert listed() == [str(old.pk), str(new.pk)]
    MailQueue.objects.update(state="sent")
    assert listed() == [str(new.pk), str(old.pk)]


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

    verdict = page[page.index("kwit-verdict") : page.index("kwit-panel")]
    assert says in verdict
    assert leads_to in verdict
    assert "All is well" not in page


def test_two_skips_in_a_row_are_normal_and_three_are_not(admin_client: Client) -> None:
    now = timezone.now()
    log(started_at=now - timedelta(minutes=9))
    for minute in (3, 2):
        log(started_at=now - timedelta(minutes=minute), outcome="skipped", error=HOLDER)
    assert "All is well" in text_of(admin_client, "/admin/")

    log(started_at=now, outcome="skipped", error=HOLDER)

    page = text_of(admin_client, "/admin/")
    assert "3 passes were skipped in a row" in page
    assert "host app-2, process 4711" in page


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


def panel_of(page: Any, name: str) -> Any:
    return next(one["panel"] for context in page.context for one in context.get("panels", ()) if one["name"] == name)


def test_a_range_with_too_many_rows_is_cut_at_its_old_end_and_says_so(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("notify.pages.figures.LOG_ROWS_MAX", 3)
    now = timezone.now()
    for minute in range(6):
        log(started_at=now - timedelta(minutes=minute))

    page = admin_client.get("/admin/")

    assert "more rows than are read" in page.content.decode()
    assert [t.value for t in panel_of(page, "notify-passes")["tiles"] if t.badge and str(t.badge.word) == "ok"] == ["4"]


def test_a_count_goes_to_its_bound_and_says_more(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notify.pages.figures.COUNT_MAX", 2)
    monkeypatch.setattr("notify.pages.panels.COUNT_MAX", 2)
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


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ("no recipient; not an address: ; x; 100%s", "brak odbiorcy; to nie adres: ; x; 100%s"),
        ("held by ann: late; really", "wstrzymał(a) ann: late; really"),
        ("made anew; not yet released", "utworzona od nowa; jeszcze nie zwolniona"),
        ("somebody's own words; 5% of them", "somebody's own words; 5% of them"),
        ("", ""),
    ],
)
def test_a_mails_problem_is_said_in_the_readers_language_and_other_words_are_left(kept: str, said: str) -> None:
    with translation.override("pl"):
        assert problem_of(kept) == said
