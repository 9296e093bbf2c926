"""What a member of tenants sees of events, mails and tasks: these tenants' rows, their numbers, and nothing else."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from kwit.models import Action, Membership
from notify.models import Channel, Control, MailQueue, RunLog, TaskQueue
from tests.browser.story import make_user
from tests.factories import NOW, make_comment, make_contact, make_line

pytestmark = pytest.mark.django_db
EXPLAIN = "/admin/notify/control/explain/"
RIGHTS = [f"notify.view_{name}" for name in ("control", "mailqueue", "taskqueue", "runlog", "channel", "suppression")]
RIGHTS += ["notify.retry_mail", "notify.finish_task", "kwit.view_action"]


@pytest.fixture
def member(client: Client) -> Client:
    """Sign in somebody who belongs to acme and zeta."""
    user = make_user("mia", *RIGHTS)
    for tenant in ("acme", "zeta"):
        Membership.objects.create(user=user, tenant=tenant)
    client.force_login(user)
    return client


def mail(key: int, tenant: str, **fields: Any) -> MailQueue:
    control = Control.objects.create(kind="comment", key=key, tenant=tenant)
    values = {"subject": f"Subject {key}", "recipients": ["a@example.org"], "state": "blocked", "problem": "x"}
    return MailQueue.objects.create(control=control, tenant=tenant, **values | fields)


def keys_of(page: Any) -> list[str]:
    return [row.key for row in page.context["table"].rows]


def test_the_pages_of_a_list_of_several_tenants_show_each_row_once_and_no_other(member: Client) -> None:
    rows = [mail(key, ("acme", "other", "zeta", "")[key % 4]) for key in range(1, 240)]
    own = [str(row.pk) for row in reversed(rows) if row.tenant in ("acme", "zeta")]

    seen: list[str] = []
    query = ""
    while True:
        page = member.get(f"/admin/notify/mailqueue/?{query}")
        seen += keys_of(page)
        query = page.context["next_query"]
        if not query:
            break
    back = member.get(f"/admin/notify/mailqueue/?{page.context['previous_query']}")

    assert seen == own
    assert keys_of(back) == own[50:100]


def test_a_list_by_state_is_in_the_order_of_its_due_times_over_all_tenants(member: Client) -> None:
    due = [NOW + timedelta(hours=hours) for hours in (3, 1, 4, 2)]
    rows = [mail(key, ("acme", "zeta")[key % 2], due_at=at) for key, at in enumerate(due)]

    page = member.get("/admin/notify/mailqueue/", {"state": "blocked"})

    assert keys_of(page) == [str(row.pk) for row in sorted(rows, key=lambda row: row.due_at)]


@pytest.mark.parametrize(
    "url",
    [
        "/admin/notify/control/",
        "/admin/notify/control/?kind=comment",
        "/admin/notify/mailqueue/",
        "/admin/notify/mailqueue/?state=blocked",
        "/admin/notify/mailqueue/?state=sent",
        "/admin/notify/taskqueue/",
        "/admin/kwit/action/",
    ],
)
@pytest.mark.parametrize("tenants", [1, 2])
def test_no_list_of_a_member_sorts_or_reads_a_table(
    member: Client, url: str, tenants: int, django_assert_max_num_queries: Any
) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("plans are read on SQLite: it has no statistics, so that few rows give the plan of many")
    Membership.objects.filter(tenant__in=["zeta"][tenants - 1 :]).delete()
    mail(1, "acme")

    with django_assert_max_num_queries(20) as queries:
        member.get(url)

    lists = [query["sql"] for query in queries if "LIMIT 51" in query["sql"]]
    assert lists
    for sql in lists:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}".replace("%", "%%"), ())
            plan = [row[3] for row in cursor.fetchall()]
        assert [one for one in plan if one.startswith(("SCAN notify_", "SCAN kwit_", "SCAN U0", "SCAN V0"))] == []
        assert any("tenant" in one or "whose" in one for one in plan), plan
        # Of several tenants a page each is sorted; of one there is nothing to sort.
        assert tenants > 1 or not any("TEMP B-TREE FOR ORDER BY" in one for one in plan), plan


def test_the_dashboard_counts_a_members_own_rows_and_says_nothing_of_the_installation(member: Client) -> None:
    now = timezone.now()
    for key, tenant in enumerate(("acme", "zeta", "other", "other", "")):
        mail(key, tenant)
        TaskQueue.objects.create(control=Control.objects.get(key=key), tenant=tenant, title="x")
    Channel.objects.create(name="smtp", reason="quota of x@other", paused_at=now, paused_until=now + timedelta(1))
    RunLog.objects.create(pass_id="00000000-0000-4000-8000-000000000000", step="pass", ended_at=now, error="boom")

    page = member.get("/admin/")
    text = page.content.decode()

    panels = [one for context in page.context for one in context.get("panels", ())]
    assert [one["name"] for one in panels if one["name"].startswith("notify")] == ["notify-queues"]
    tiles = {str(tile.badge.word if tile.badge else tile.name): tile.value for tile in panels[0]["panel"]["tiles"]}
    assert (tiles["blocked"], tiles["open tasks"]) == ("2", "2")
    assert "2 mails are blocked" in text
    assert not re.search("quota|smtp|boom|good pass", text)


def test_why_a_channel_pauses_is_not_told_to_a_member_who_sees_that_it_does(member: Client) -> None:
    now = timezone.now()
    row = mail(7, "acme", state="queued", problem="", due_at=now)
    Channel.objects.create(
        name="smtp", reason="quota of x@other", paused_at=now, paused_until=now + timedelta(minutes=5)
    )

    pages = [
        member.get(f"/admin/notify/mailqueue/{row.pk}/change/"),
        member.get(EXPLAIN, {"kind": "comment", "key": 7}),
    ]

    for page in pages:
        assert "smtp" in page.content.decode()
        assert "quota" not in page.content.decode()


def told(client: Client, key: int, **more: Any) -> str:
    text = client.get(EXPLAIN, {"kind": "comment", "key": key, **more}).content.decode()
    text = re.sub(r'name="csrfmiddlewaretoken" value="[^"]+"', "", text)
    return re.sub(rf"\b{key}\b", "KEY", text)


def test_of_a_foreign_event_there_is_as_much_to_say_as_of_none(member: Client) -> None:
    aiko = make_contact(name="aiko")
    waiting = make_comment(line=make_line(tenant="other", id=4001), recipient=aiko)
    mail(5001, "other")
    mail(5002, "")

    for more in ({}, {"key2": 0}, {"key2": waiting.pk}):
        nothing = told(member, 987654, **more)
        assert "There is no such event" in nothing
        for key in (waiting.line_id, 5001, 5002):
            assert told(member, key, **more) == nothing


def test_a_member_is_told_of_his_own_events_prepared_or_not(member: Client) -> None:
    aiko = make_contact(name="aiko")
    waiting = make_comment(line=make_line(tenant="acme"), recipient=aiko)
    mail(5001, "zeta")

    assert "has not been notified" in told(member, waiting.line_id)
    assert "has not been notified" in told(member, waiting.line_id, key2=waiting.pk)
    assert "was prepared on" in told(member, 5001)


def test_an_event_that_was_prepared_for_nobody_is_not_told_as_waiting(member: Client) -> None:
    aiko = make_contact(name="aiko")
    comment = make_comment(line=make_line(tenant="acme"), recipient=aiko)
    Control.objects.create(kind="comment", key=comment.line_id, key2=comment.pk)

    assert "There is no such event" in told(member, comment.line_id)


def test_an_action_says_whose_rows_it_was_about(member: Client) -> None:
    one, other, foreign = mail(1, "acme"), mail(2, "zeta"), mail(3, "other")
    url = "/admin/notify/mailqueue/action/release/"
    for pks in ([one.pk], [one.pk, foreign.pk], [one.pk, other.pk]):
        MailQueue.objects.update(state="blocked", problem="x")
        member.post(url, {"scope": "selected", "pk": pks, "confirmed": "1"})

    rows = list(Action.objects.order_by("pk").values_list("tenant", "done", "scope"))
    assert rows == [("acme", 1, f"{one.pk}"), ("acme", 1, f"{one.pk}"), ("", 2, f"{one.pk}, {other.pk}")]
    assert MailQueue.objects.get(pk=foreign.pk).state == "blocked"
    shown = member.get("/admin/kwit/action/").content.decode()
    assert shown.count("<code>release</code>") == 2


def test_all_that_match_are_all_of_ones_own(member: Client) -> None:
    mail(1, "acme"), mail(2, "zeta")
    foreign = mail(3, "other")

    page = member.post("/admin/notify/mailqueue/action/release/?state=blocked", {"scope": "matching"})
    assert page.context["asked"].number == 2
    member.post("/admin/notify/mailqueue/action/release/?state=blocked", {"scope": "matching", "confirmed": "1"})

    assert list(MailQueue.objects.filter(state="blocked").values_list("pk", flat=True)) == [foreign.pk]


def test_an_action_for_one_row_is_not_done_to_two(member: Client) -> None:
    rows = [mail(1, "acme"), mail(2, "acme")]
    sent = {"pk": [row.pk for row in rows], "confirmed": "1", "recipients": "x@example.org", "subject": "x"}

    for scope in ("selected", "matching"):
        answer = member.post("/admin/notify/mailqueue/action/correct/", {**sent, "scope": scope})
        assert answer.status_code == 400
    assert not MailQueue.objects.filter(subject="x").exists()


def test_who_belongs_to_no_tenant_sees_no_rows(client: Client) -> None:
    mail(1, "acme")
    mail(2, "")
    client.force_login(make_user("nobody", *RIGHTS))

    for name in ("control", "mailqueue", "taskqueue"):
        assert keys_of(client.get(f"/admin/notify/{name}/")) == []
    for name in ("runlog", "channel", "suppression"):
        assert client.get(f"/admin/notify/{name}/").status_code == 403


def test_who_belongs_to_no_tenant_is_told_so_and_not_that_all_is_well(client: Client) -> None:
    mail(1, "acme", state="failed")
    user = make_user("nobody", "notify.view_mailqueue")
    client.force_login(user)

    alone = client.get("/admin/").content.decode()
    Membership.objects.create(user=user, tenant="zeta")
    of_zeta = client.get("/admin/").content.decode()

    assert "You are not a member of any tenant" in alone
    assert "All is well" not in alone
    assert "You are not a member of any tenant" not in of_zeta
    assert "All is well" in of_zeta
