"""The pages of the notify half: what they show, what they cost, and that they only look."""

import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone, translation

from notify.explain.messages import say_problem
from notify.models import Control, MailQueue, RunLog, TaskQueue
from notify.notes import as_data, note
from tests.browser.story import OPERATE, PASSWORD, fill, make_user
from tests.factories import NOW
from tests.mails import log
from tests.notify.pages import EVIL, MAILS, address, queue_mail, text_of

pytestmark = pytest.mark.django_db
MODELS = [Control, RunLog, MailQueue, TaskQueue]


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
        "/admin/notify/runlog/?step=comment&since=2026-01-01&work=1",
        "/admin/notify/runlog/?step=comment&since=2026-01-01&until=2026-01-01",
        "/admin/notify/runlog/?outcome=error&since=2026-01-01",
        "/admin/notify/runlog/?pass=00000000-0000-4000-8000-000000000000",
        "/admin/notify/runlog/skipped/",
        "/admin/notify/control/?kind=comment",
        "/admin/notify/control/?kind=comment&key=7&key2=1",
        "/admin/notify/control/?key=7",
        "/admin/notify/mailqueue/?state=blocked",
        "/admin/notify/mailqueue/?state=sent",
        "/admin/notify/mailqueue/?pass=00000000-0000-4000-8000-000000000000",
        "/admin/notify/taskqueue/?open=1",
        "/admin/notify/taskqueue/?assignee=aiko",
    ],
)
def test_no_page_reads_a_whole_table(admin_client: Client, url: str, django_assert_max_num_queries: Any) -> None:
    """
    A scan along an index that stops at a LIMIT is a page; one without reads everything, or sorts it.

    One with a condition that is not the index's own passes over whatever does not fulfil it, and a search whose rows
    are sorted before the LIMIT reads them all.
    """
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
        of_few = ("ix_notify_run_log_full", "ix_notify_task_queue_todo")
        met = [one for one in plan if re.match(r"(SCAN|SEARCH) notify_(?!channel)", one)]
        read = [one for one in met if one.startswith("SCAN") and not any(name in one for name in of_few)]
        is_page = "LIMIT" in query["sql"] and " WHERE " not in query["sql"]
        is_sorted_first = met and "LIMIT" in query["sql"] and "USE TEMP B-TREE FOR ORDER BY" in plan
        scans += [(query["sql"], plan)] if (read and not is_page) or is_sorted_first else []
    assert scans == []


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
    skipped = note("skipped", code=-1, holder=[note("holder_process", pid=EVIL, host=EVIL)])
    for minute in (1, 2, 3):
        log(outcome="skipped", said=[skipped], started_at=timezone.now() + timedelta(minutes=minute))

    pages = [text_of(admin_client, address(model)) for model in MODELS]
    pages += [text_of(admin_client, address(type(one), "change", one.pk)) for one in (mail.control, mail, task, row)]
    pages += [text_of(admin_client, "/admin/"), text_of(admin_client, address(RunLog, "skipped"))]

    assert not any("Cell(" in page or "Badge(" in page or "&lt;span" in page for page in pages)
    assert [page.count("alert(1)</script>") for page in pages] == [0] * len(pages)
    assert all("&lt;script&gt;alert(1)" in page for page in pages)


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


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        (
            [note("no_recipient"), note("not_an_address", addresses="; x; 100%s")],
            "brak odbiorcy; to nie adres: ; x; 100%s",
        ),
        ([note("held_by_because", person="ann", reason="late; really")], "wstrzymał(a) ann: late; really"),
        ([note("made_anew")], "utworzona od nowa; jeszcze nie zwolniona"),
        ([], "no recipient"),
    ],
)
def test_a_mails_problem_is_said_in_the_readers_language_and_other_words_are_left(notes: Any, said: str) -> None:
    mail = MailQueue(problem="no recipient", notes=as_data(notes))

    with translation.override("pl"):
        assert say_problem(mail) == said


def test_who_signs_in_again_before_he_confirms_is_led_back_to_his_list(client: Client) -> None:
    make_user("olga", *OPERATE)
    mail = queue_mail(1)
    gone = client.post(f"{MAILS}action/hold/?state=queued", {"confirmed": "1", "scope": "matching"})

    page = client.post(gone.url, {"username": "olga", "password": PASSWORD}, follow=True)

    assert [url for url, _status in page.redirect_chain][-1] == f"{MAILS}?state=queued"
    assert "Nothing was done. Start the action here again." in page.content.decode()
    mail.refresh_from_db()
    assert mail.state == "queued"
