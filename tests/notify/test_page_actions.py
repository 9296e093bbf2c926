"""What people do on the pages: allowed by name, confirmed with the number, recorded, and never more than was shown."""

import sys
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from kwit.admin import actions as launching
from kwit.models import Action
from notify.models import Control, MailQueue, MailState, RunLog, TaskQueue
from notify.pages.actions import correct_and_send
from tests.browser.story import OPERATE, VIEW, make_user
from tests.crashing import own_database_url
from tests.factories import NOW
from tests.racing import until

pytestmark = pytest.mark.django_db
MAILS = "/admin/notify/mailqueue/"
TASKS = "/admin/notify/taskqueue/"
RUN = "/admin/notify/runlog/run/"
MAIL_ACTIONS = ("hold", "release", "retry", "resend", "confirm", "correct")
ACTS = [
    *(f"{MAILS}action/{name}/" for name in MAIL_ACTIONS),
    *(f"{TASKS}action/{name}/" for name in ("done", "assign", "reopen")),
    RUN,
]


def make_mails(count: int, **fields: Any) -> list[MailQueue]:
    first = Control.objects.count() + 1
    controls = [Control(kind="comment", key=key) for key in range(first, first + count)]
    Control.objects.bulk_create(controls)
    values = {"subject": "S", "recipients": ["a@example.org"], "due_at": NOW} | fields
    return [MailQueue.objects.create(control=control, **values) for control in Control.objects.filter(key__gte=first)]


def confirm(client: Client, url: str, data: dict[str, Any]) -> Any:
    """Do what the confirmation page offers: send its hidden fields with what was filled in."""
    page = client.post(url, data)
    assert page.status_code == 200, page.content
    sent: dict[str, Any] = {}
    for name, value in page.context["asked"].hidden:
        sent.setdefault(name, []).append(value)
    return page, client.post(url, sent | {k: v for k, v in data.items() if k not in ("pk", "scope")})


@pytest.mark.parametrize("url", ACTS)
def test_a_viewer_is_refused_each_action_and_leaves_nothing_changed(client: Client, url: str) -> None:
    client.force_login(make_user("victor", *VIEW))
    [mail] = make_mails(1)
    task = TaskQueue.objects.create(control=mail.control, title="T")

    page = client.post(url, {"scope": "selected", "pk": [mail.pk], "confirmed": "1", "recipients": "x@example.org"})

    assert page.status_code == 403
    mail.refresh_from_db()
    task.refresh_from_db()
    assert (mail.state, task.done_at, RunLog.objects.count(), Action.objects.count()) == ("queued", None, 0, 0)


@pytest.mark.parametrize("url", [MAILS, TASKS, "/admin/notify/runlog/"])
def test_a_viewer_is_offered_no_action_that_would_fail(client: Client, url: str) -> None:
    client.force_login(make_user("victor", *VIEW))
    [mail] = make_mails(1, state="blocked", problem="x")
    TaskQueue.objects.create(control=mail.control, title="T")

    def offered() -> set[str]:
        text = "".join(client.get(one).content.decode() for one in (url, f"{MAILS}{mail.pk}/change/"))
        return {word for word in ("formaction", 'name="pk"', "/run/") if word in text}

    assert offered() == set()
    # The positive control: these are the words of what is offered to who may.
    client.force_login(make_user("olga", *OPERATE))
    assert offered() == ({"formaction", 'name="pk"'} if "runlog" not in url else {"formaction", 'name="pk"', "/run/"})


@pytest.mark.parametrize("url", ACTS)
def test_an_action_without_signing_in_leads_to_the_sign_in(client: Client, url: str) -> None:
    assert client.post(url, {"confirmed": "1"}).url.startswith("/admin/login/")


@pytest.mark.parametrize("url", ACTS[:-1])
def test_following_a_link_does_nothing_and_leads_to_where_it_is_asked(olga: Client, url: str) -> None:
    make_mails(1)
    before = list(MailQueue.objects.values())

    page = olga.get(f"{url}?confirmed=1&scope=matching", follow=True)

    assert page.redirect_chain == [(url.partition("action/")[0], 302)]
    assert "Nothing was done. Start the action here again." in page.content.decode()
    assert list(MailQueue.objects.values()) == before
    assert olga.put(url).status_code == 405


def test_the_permission_to_act_without_the_one_to_see_is_not_enough(client: Client) -> None:
    client.force_login(make_user("mallory", "notify.retry_mail", "notify.run_pass"))

    assert client.post(f"{MAILS}action/hold/", {"scope": "matching"}).status_code == 404
    assert client.post(RUN, {"confirmed": "1"}).status_code == 403


def test_the_first_click_only_asks_and_shows_the_number(olga: Client) -> None:
    mails = make_mails(3)

    page = olga.post(f"{MAILS}action/hold/", {"scope": "selected", "pk": [mails[0].pk, mails[1].pk]})

    assert "Hold: 2 rows?" in page.content.decode()
    assert MailQueue.objects.filter(state="queued").count() == 3
    assert not Action.objects.exists()


def test_selected_mails_are_held_and_the_action_is_recorded(olga: Client) -> None:
    mails = make_mails(3)

    _, done = confirm(
        olga, f"{MAILS}action/hold/", {"scope": "selected", "pk": [mails[0].pk, mails[2].pk], "reason": "why"}
    )

    assert done.url == MAILS
    assert list(MailQueue.objects.order_by("pk").values_list("state", flat=True)) == ["blocked", "queued", "blocked"]
    action = Action.objects.get()
    assert (action.actor, action.name, action.subject) == ("olga", "hold", "notify.mailqueue")
    assert (action.scope, action.asked, action.done, action.outcome) == (f"{mails[0].pk}, {mails[2].pk}", 2, 2, "done")
    assert action.note == "reason=why"


def test_all_that_match_are_released_but_none_that_came_after_the_number_was_shown(olga: Client) -> None:
    make_mails(60, state="blocked", problem="held by x")
    make_mails(2, state="blocked", problem="no recipient", recipients=[])
    url = f"{MAILS}action/release/?state=blocked"
    page = olga.post(url, {"scope": "matching"})
    assert "Release: 60 rows?" in page.content.decode()
    [late] = make_mails(1, state="blocked", problem="held by x")

    done = olga.post(url, dict(page.context["asked"].hidden))

    assert done.url == f"{MAILS}?state=blocked"
    assert MailQueue.objects.filter(state="queued").count() == 60
    late.refresh_from_db()
    assert late.state == "blocked"
    action = Action.objects.get()
    assert (action.scope, action.asked, action.done) == ("?state=blocked", 60, 60)


def test_rows_that_do_not_allow_it_are_counted_out(olga: Client) -> None:
    held, addressless = (
        make_mails(1, state="blocked", problem="h")[0],
        make_mails(1, state="blocked", problem="n", recipients=[])[0],
    )

    page = olga.post(f"{MAILS}action/release/", {"scope": "selected", "pk": [held.pk, addressless.pk]})

    text = page.content.decode()
    assert "Release: 1 row?" in text
    assert "The action does not apply to 1 selected row." in text


def test_nothing_selected_is_said(olga: Client) -> None:
    page = olga.post(f"{MAILS}action/hold/", {"scope": "selected"}, follow=True)

    assert "No rows were selected." in page.content.decode()


def test_a_filter_that_makes_no_sense_matches_nothing(olga: Client) -> None:
    make_mails(2)

    page = olga.post(f"{MAILS}action/hold/?state=everything", {"scope": "matching"})

    assert page.context["asked"].number == 0
    assert "The action does not apply to any of these rows." in page.content.decode()


@pytest.mark.parametrize("data", [{"pk": "x"}, {"pk": "1", "top": "x", "confirmed": "1"}, {"pk": "1; DROP TABLE"}])
def test_what_no_page_of_ours_sends_is_a_bad_request(olga: Client, data: dict[str, str]) -> None:
    assert olga.post(f"{MAILS}action/hold/", {"scope": "selected", **data}).status_code == 400


def test_a_row_that_changed_meanwhile_is_said(olga: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    [mail] = make_mails(1, state="blocked", problem="held by x")
    page = olga.post(f"{MAILS}action/release/", {"scope": "selected", "pk": [mail.pk]})
    MailQueue.objects.update(state="sent")

    done = olga.post(f"{MAILS}action/release/", dict(page.context["asked"].hidden), follow=True)

    assert done.context["asked"].number == 0 if "asked" in (done.context or {}) else True
    mail.refresh_from_db()
    assert mail.state == "sent"


def test_the_address_of_a_blocked_mail_is_corrected_on_its_page(olga: Client) -> None:
    [mail] = make_mails(1, state="blocked", problem="no recipient", recipients=[])
    data = {"scope": "selected", "pk": [mail.pk], "from": "detail", "subject": "S"}
    url = f"{MAILS}action/correct/"

    wrong, refused = confirm(olga, url, data | {"recipients": "nobody"})
    assert wrong.status_code == 200
    assert "Not an address" in refused.content.decode()
    _, done = confirm(olga, url, data | {"recipients": "right@example.org"})

    assert done.url == f"{MAILS}{mail.pk}/change/"
    mail.refresh_from_db()
    assert (mail.state, mail.recipients) == ("queued", ["right@example.org"])


def test_the_form_to_correct_a_mail_begins_with_what_it_has(olga: Client) -> None:
    [mail] = make_mails(1, state="failed", recipients=["a@example.org", "b@example.org"], subject="Old")

    page = olga.post(f"{MAILS}action/correct/", {"scope": "selected", "pk": [mail.pk]}).content.decode()

    assert 'value="a@example.org, b@example.org"' in page
    assert 'value="Old"' in page


@pytest.mark.parametrize(
    ("state", "after"), [("queued", "queued"), ("failed", "queued"), ("partial", "queued"), ("uncertain", "uncertain")]
)
def test_a_corrected_mail_goes_out_unless_it_is_in_doubt(olga: Client, state: str, after: str) -> None:
    [mail] = make_mails(1, state=state)

    confirm(
        olga,
        f"{MAILS}action/correct/",
        {"scope": "selected", "pk": [mail.pk], "recipients": "right@example.org", "subject": "New"},
    )

    mail.refresh_from_db()
    assert (mail.state, mail.recipients, mail.subject, mail.operator) == (after, ["right@example.org"], "New", "olga")


def test_a_mail_that_was_sent_since_the_form_was_shown_is_not_corrected(olga: Client) -> None:
    [mail] = make_mails(1, state="failed")
    page = olga.post(f"{MAILS}action/correct/", {"scope": "selected", "pk": [mail.pk]})
    MailQueue.objects.update(state="sent")

    olga.post(
        f"{MAILS}action/correct/",
        dict(page.context["asked"].hidden) | {"recipients": "late@example.org", "subject": "S"},
    )

    mail.refresh_from_db()
    assert mail.recipients == ["a@example.org"]
    assert correct_and_send([mail.pk], actor="o", using="default", recipients="late@example.org", subject="S") == 0


@pytest.mark.parametrize(
    ("act", "states", "after"),
    [
        ("retry", {"failed", "partial"}, "queued"),
        ("resend", {"uncertain"}, "queued"),
        ("confirm", {"uncertain"}, "sent"),
        ("release", {"blocked", "withdrawn"}, "queued"),
        ("hold", {"queued"}, "blocked"),
    ],
)
def test_an_action_on_all_touches_the_states_that_it_is_for(
    olga: Client, act: str, states: set[str], after: str
) -> None:
    begun = {}
    for state in MailState.values:
        more = {"lease_until": timezone.now() + timedelta(minutes=5), "flight": 0} if state == "sending" else {}
        begun[make_mails(1, state=state, problem="held by x" if state == "blocked" else "", **more)[0].pk] = state

    confirm(olga, f"{MAILS}action/{act}/", {"scope": "matching"})

    ended = dict(MailQueue.objects.values_list("pk", "state"))
    assert {begun[pk] for pk in begun if ended[pk] != begun[pk]} == states
    assert {ended[pk] for pk in begun if begun[pk] in states} == {after}
    assert set(MailQueue.objects.exclude(operator="").values_list("operator", flat=True)) == {"olga"}
    assert Action.objects.get().done == len(states)


@pytest.mark.parametrize("act", [name for name in MAIL_ACTIONS if name != "correct"])
def test_a_mail_that_travels_in_a_digest_is_left_to_its_leader(olga: Client, act: str) -> None:
    for state in ("queued", "failed", "uncertain", "blocked"):
        [leader] = make_mails(1, state="sent")
        make_mails(1, state=state, problem="x", digest_of=leader)

    page = olga.post(f"{MAILS}action/{act}/", {"scope": "matching"})

    assert page.context["asked"].number == 0


def test_a_task_is_given_to_somebody_done_and_taken_back_on_its_page(olga: Client) -> None:
    [mail] = make_mails(1)
    task = TaskQueue.objects.create(control=mail.control, title="T")
    data = {"scope": "selected", "pk": [task.pk]}

    confirm(olga, f"{TASKS}action/assign/", data | {"assignee": "aiko", "due_at": "2026-02-01 12:00"})
    task.refresh_from_db()
    assert (task.assignee, task.due_at is not None) == ("aiko", True)
    confirm(olga, f"{TASKS}action/done/", data)
    assert "Not done after all" in olga.get(f"{TASKS}{task.pk}/change/").content.decode()
    confirm(olga, f"{TASKS}action/reopen/", data)

    task.refresh_from_db()
    assert (task.done_at, task.done_by) == (None, "")


def test_tasks_are_done_by_the_one_who_says_so(olga: Client) -> None:
    [mail] = make_mails(1)
    task = TaskQueue.objects.create(control=mail.control, title="T")

    confirm(olga, f"{TASKS}action/done/", {"scope": "selected", "pk": [task.pk]})

    task.refresh_from_db()
    assert task.done_by == "olga"
    assert "olga" in olga.get(TASKS).content.decode()


def test_an_action_that_fails_half_way_is_recorded_as_failed_with_what_was_done(
    olga: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    mails = make_mails(3)
    monkeypatch.setattr("kwit.admin.actions.CHUNK_ROWS", 2)
    calls = []

    def breaking(pks: Any, **options: Any) -> int:
        calls.append(pks)
        if len(calls) == 2:
            raise RuntimeError("the second chunk")
        return len(pks)

    from notify.pages.mails import MailQueueAdmin

    act = next(one for one in MailQueueAdmin.list_actions if one.name == "release")
    monkeypatch.setattr(
        MailQueueAdmin, "list_actions", [type(act)(**{**vars(act), "verb": breaking, "eligible": lambda rows: rows})]
    )

    with pytest.raises(RuntimeError):
        confirm(olga, f"{MAILS}action/release/", {"scope": "selected", "pk": [mail.pk for mail in mails]})

    action = Action.objects.get()
    assert (action.outcome, action.asked, action.done) == ("failed", 3, 2)


def test_the_page_of_a_pass_asks_first(olga: Client) -> None:
    page = olga.get(RUN)

    assert "Run a pass now?" in page.content.decode()
    assert not RunLog.objects.exists()
    assert not Action.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_pass_started_by_hand_runs_in_a_process_of_its_own_and_its_page_follows_it(
    olga: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", own_database_url())

    started = olga.post(RUN, {"confirmed": "1"})
    first = olga.get(started.url)

    assert first.status_code in (200, 302)
    assert first.status_code == 302 or "has not written its row yet" in first.content.decode()
    row = until(lambda: RunLog.objects.filter(step="pass").exclude(outcome="running").first(), timeout_s=60)
    assert str(row.pass_id) in started.url
    assert row.pid != __import__("os").getpid()
    assert olga.get(started.url).url == reverse("admin:notify_runlog_change", args=[row.pk])
    action = Action.objects.get()
    assert (action.name, action.scope, action.outcome) == ("run_pass", str(row.pass_id), "done")


def test_a_process_that_cannot_be_started_is_a_failed_action(olga: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    with pytest.raises(OSError, match="nowhere"):
        olga.post(RUN, {"confirmed": "1"})

    assert Action.objects.get().outcome == "failed"
    assert launching.sys is sys


def test_a_pass_that_never_begins_says_where_to_look(olga: Client) -> None:
    url = reverse("admin:notify_runlog_pass", args=["00000000-0000-4000-8000-000000000000"])

    waiting, given_up = olga.get(url, {"tried": "0"}), olga.get(url, {"tried": "30"})

    assert "tried=2" in waiting.content.decode()
    assert "http-equiv" not in given_up.content.decode()
    assert "look into the log of the web server" in given_up.content.decode()


def test_the_trail_outlives_its_user(olga: Client) -> None:
    [mail] = make_mails(1)
    confirm(olga, f"{MAILS}action/hold/", {"scope": "selected", "pk": [mail.pk]})

    User.objects.all().delete()

    assert Action.objects.get().actor == "olga"
