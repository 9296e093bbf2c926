"""What people come for, in a real browser, under the strict policy and without serious findings of axe."""

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from notify.conf import conf
from notify.delivery.channels import pause_channel
from notify.models import Channel, Control, MailQueue, RunLog
from tests.browser.chromium import PHONE, axe_findings
from tests.browser.story import OPERATE, VIEW, fill, make_user, skipped_by
from tests.mails import log

pytestmark = pytest.mark.django_db(transaction=True)
Open = Callable[..., Page]

PAGES = [
    "/admin/",
    "/admin/?range=7d",
    "/admin/notify/runlog/",
    "/admin/notify/runlog/skipped/",
    "/admin/notify/runlog/run/",
    "/admin/notify/control/?kind=comment",
    "/admin/notify/control/?key=x",
    "/admin/notify/mailqueue/?state=blocked",
    "/admin/notify/taskqueue/",
    "/admin/notify/channel/",
    "/admin/notify/suppression/",
    "/admin/notify/suppression/suppress/",
    "/admin/notify/control/explain/?kind=comment&key=1004",
    "/admin/kwit/action/",
]
ESSENTIAL = [PAGES[0], PAGES[2], PAGES[7]]
#: The admin's own pages: the policy holds there, too.
DJANGOS = ["/admin/password_change/", "/admin/auth/user/", "/admin/auth/user/add/", "/admin/notify/"]


@pytest.mark.parametrize(
    ("options", "addresses"),
    [
        ({}, PAGES),
        ({"viewport": PHONE}, ESSENTIAL),
        ({"color_scheme": "dark"}, ESSENTIAL),
        ({"java_script_enabled": False}, ESSENTIAL),
    ],
    ids=["kwit", "phone", "dark", "no-script"],
)
def test_every_page_is_lawful_accessible_and_no_wider_than_its_screen(
    open_page: Open, options: dict[str, Any], addresses: list[str]
) -> None:
    fill(passes=20, events=14)
    fail_some(1)
    log(started_at=timezone.now(), outcome="skipped", said=[skipped_by("h" * 90)])
    log(started_at=timezone.now(), outcome="skipped", error=f"SKIPPED: lock code -1, held by {'s' * 120}")
    has_script = options.get("java_script_enabled", True)
    page = open_page(make_user("olga", *OPERATE), **options)
    details = [
        f"/admin/notify/{model._meta.model_name}/{model.objects.latest('pk').pk}/change/"
        for model in (RunLog, Control, MailQueue)
    ]
    failed = MailQueue.objects.filter(state="failed").latest("pk")
    details += [f"/admin/notify/mailqueue/{failed.pk}/{name}/" for name in ("change", "preview")]
    problems = []
    for address in [*addresses, *details]:
        answer = page.goto(address)
        assert answer is not None
        assert answer.status == 200, address
        expect(page.locator("h1").first).to_be_visible()
        if has_script:
            problems += [f"{address} {finding}" for finding in axe_findings(page)]
            wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            problems += [f"{address} is wider than the screen by {wider}"] if wider > 0 else []
    assert problems == []


def test_the_admins_own_pages_keep_the_policy(open_page: Open) -> None:
    user = make_user("root", *OPERATE)
    user.is_superuser = True
    user.save()
    page = open_page(user)

    for address in [*DJANGOS, f"/admin/auth/user/{user.pk}/change/"]:
        page.goto(address)
        page.wait_for_load_state("networkidle")


def test_who_tried_too_often_and_who_may_not_get_pages_like_all_others(open_page: Open) -> None:
    make_user("olga")
    page = open_page(None, "/admin/login/")
    for _ in range(5):
        page.fill("#id_username", "olga")
        page.fill("#id_password", "a wrong one")
        page.click("input[type=submit]")
    expect(page.locator("h1").first).to_have_text("Sign-in is locked")
    problems = axe_findings(page)

    page = open_page(make_user("nobody"), "/admin/notify/runlog/")
    expect(page.locator("h1").first).to_have_text("Access denied")

    assert problems + axe_findings(page) == []


def test_an_inline_style_would_fail_a_test(open_page: Any) -> None:
    """The positive control: the policy is at work, and its violations are seen."""
    page = open_page(None, "/admin/login/")

    page.evaluate("() => document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\">x</p>')")
    page.wait_for_load_state("networkidle")

    assert len(open_page.violations) == 1
    open_page.violations.clear()


def test_find_why_a_mail_was_not_sent(open_page: Open) -> None:
    fill(passes=20, events=14)
    blocked = MailQueue.objects.filter(state="blocked").select_related("control")[0]
    page = open_page(make_user("olga", *OPERATE))

    page.get_by_role("link", name="Control table").first.click()
    page.get_by_label("Kind").select_option(blocked.control.kind)
    page.get_by_label("Key", exact=True).fill(str(blocked.control.key))
    page.get_by_role("button", name="Filter").click()
    page.get_by_role("link", name=str(blocked.control)).click()

    expect(page.get_by_text("no recipient")).to_be_visible()
    mails = page.get_by_role("region", name="Mails")
    mails.get_by_role("link", name=str(blocked.pk), exact=True).click()
    expect(page.locator("h1")).to_contain_text("blocked")
    page.get_by_role("link", name=str(blocked.pass_id)).click()
    expect(page.get_by_role("heading", name="Steps")).to_be_visible()


FRAMED = """<style>p { color: green }</style><p style="font-weight: bold">What was sent.</p>
<script>document.body.textContent = "a script ran"</script>
<img alt="" src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">"""


def fail_some(count: int) -> None:
    """Let this many queued mails fail for good, with the server's words and what was sent."""
    for mail in list(MailQueue.objects.filter(state="queued").order_by("pk")[:count]):
        MailQueue.objects.filter(pk=mail.pk).update(
            state="failed", attempts=1, message_text="What was sent.", message_html=FRAMED
        )
        mail.tries.create(
            number=1,
            recipient=mail.recipients[0],
            outcome="refused",
            code=550,
            enhanced="5.1.1",
            text="no such user here",
            at=timezone.now(),
            worker="app-1:7:1",
            channel="smtp",
        )


def test_find_what_the_server_said_and_retry_all_that_failed(open_page: Open) -> None:
    fill(passes=2, events=30)
    fail_some(3)
    failed = MailQueue.objects.filter(state="failed").select_related("control").earliest("pk")
    page = open_page(make_user("olga", *OPERATE))

    page.get_by_role("link", name="Control table").first.click()
    page.get_by_role("link", name="Why was, or was not, somebody notified?").click()
    page.get_by_label("Kind").select_option(failed.control.kind)
    page.get_by_label("Key", exact=True).fill(str(failed.control.key))
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("refused for good: 550 5.1.1 no such user here")).to_be_visible()
    page.get_by_role("link", name=str(failed.pk), exact=True).click()
    expect(page.get_by_role("cell", name="no such user here")).to_be_visible()
    expect(page.frame_locator(".kwit-frame").get_by_text("What was sent.")).to_be_visible()
    page.get_by_role("link", name="Home").first.click()
    page.get_by_role("link", name="3 mails are failed.").click()
    page.get_by_role("button", name="Retry: all that match").click()
    expect(page.get_by_text("Retry: 3 rows?")).to_be_visible()
    assert MailQueue.objects.filter(state="failed").count() == 3
    page.get_by_role("button", name="Yes: Retry").click()

    expect(page.get_by_text("Retry: 3 rows.")).to_be_visible()
    assert MailQueue.objects.filter(state="queued", operator="olga").count() == 3


def test_end_the_pause_of_a_channel(open_page: Open) -> None:
    fill(passes=2, events=2)
    pause_channel("smtp", reason="535 wrong password", now=timezone.now(), conf=conf())
    page = open_page(make_user("olga", *OPERATE))

    page.get_by_role("link", name="Channel smtp pauses until").click()
    page.get_by_role("link", name="smtp", exact=True).click()
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Yes: Resume").click()

    expect(page.locator("h1")).to_contain_text("works")
    assert Channel.objects.get().paused_until is None


def test_correct_the_address_of_a_blocked_mail(open_page: Open) -> None:
    fill(passes=2, events=2)
    page = open_page(make_user("olga", *OPERATE))
    blocked = MailQueue.objects.get(state="blocked")

    page.get_by_role("link", name="1 mail is blocked.").click()
    page.get_by_role("link", name=str(blocked.pk), exact=True).click()
    page.get_by_role("button", name="Correct the address").click()
    page.get_by_label("Recipients").fill("nobody")
    page.get_by_role("button", name="Yes: Correct the address").click()
    expect(page.get_by_text("Not an address: 'nobody'")).to_be_visible()
    page.get_by_label("Recipients").fill("right@example.org")
    page.get_by_role("button", name="Yes: Correct the address").click()

    expect(page.locator("h1")).to_contain_text("queued")
    blocked.refresh_from_db()
    assert (blocked.state, blocked.recipients) == ("queued", ["right@example.org"])


@pytest.mark.parametrize("java_script_enabled", [True, False])
def test_release_all_that_were_held_with_the_number_shown(open_page: Open, java_script_enabled: bool) -> None:
    fill(passes=2, events=30)
    MailQueue.objects.filter(state="queued").update(state="blocked", problem="held by someone")
    number = MailQueue.objects.filter(problem="held by someone").count()
    page = open_page(
        make_user("olga", *OPERATE), "/admin/notify/mailqueue/?state=blocked", java_script_enabled=java_script_enabled
    )

    page.get_by_role("button", name="Release: all that match").click()
    expect(page.get_by_text(f"Release: {number} rows?")).to_be_visible()
    page.get_by_role("link", name="No, go back").click()
    assert MailQueue.objects.filter(state="queued").count() == 0
    page.get_by_role("button", name="Release: all that match").click()
    page.get_by_role("button", name="Yes: Release").click()

    expect(page.get_by_text(f"Release: {number} rows.")).to_be_visible()
    assert MailQueue.objects.filter(state="queued").count() == number
    page.goto("/admin/kwit/action/")
    expect(page.get_by_role("cell", name="?state=blocked")).to_be_visible()


def test_a_viewer_sees_everything_and_is_offered_nothing(open_page: Open) -> None:
    fill(passes=20, events=14)
    page = open_page(make_user("victor", *VIEW))

    for address in ("/admin/notify/mailqueue/", "/admin/notify/taskqueue/", "/admin/notify/runlog/"):
        page.goto(address)
        expect(page.locator(".kwit-table").first).to_be_visible()
        assert page.get_by_role("button", name="Hold").count() == 0
        assert page.locator("input[name=pk]").count() == 0
    assert page.get_by_role("link", name="Run a pass now").count() == 0
    answer = page.goto("/admin/notify/runlog/run/")
    assert answer is not None
    assert answer.status == 403


def test_the_steps_of_a_pass_and_the_table_of_a_chart_open_without_scripts(open_page: Open) -> None:
    fill(passes=30, events=0)
    page = open_page(make_user("olga", *OPERATE), java_script_enabled=False)

    page.get_by_text("Show as a table").first.click()
    expect(page.get_by_role("columnheader", name="Ok", exact=True).first).to_be_visible()
    page.goto("/admin/notify/runlog/")
    page.get_by_text("4 steps").first.click()

    expect(page.get_by_role("cell", name="rejected", exact=True).first).to_be_visible()


@pytest.mark.parametrize(("language", "word"), [("pl", "Historia przebiegów"), ("ja", "実行履歴")])
def test_the_pages_speak_the_readers_language(open_page: Open, language: str, word: str) -> None:
    fill(passes=2, events=2)
    page = open_page(make_user("olga", *OPERATE), locale=language)

    page.goto("/admin/notify/runlog/")

    expect(page.locator("h1")).to_have_text(word)
    assert page.locator("html").get_attribute("lang") == language
