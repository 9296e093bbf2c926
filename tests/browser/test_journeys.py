"""What people come for, in a real browser, under the strict policy and without serious findings of axe."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from notify.models import Control, MailQueue, RunLog
from tests.browser.chromium import PHONE, axe_findings
from tests.browser.story import OPERATE, VIEW, fill, make_user

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
    "/admin/desk/action/",
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
    ids=["desk", "phone", "dark", "no-script"],
)
def test_every_page_is_lawful_accessible_and_no_wider_than_its_screen(
    open_page: Open, options: dict[str, Any], addresses: list[str]
) -> None:
    fill(passes=20, events=14)
    has_script = options.get("java_script_enabled", True)
    page = open_page(make_user("olga", *OPERATE), **options)
    details = [
        f"/admin/notify/{model._meta.model_name}/{model.objects.latest('pk').pk}/change/"
        for model in (RunLog, Control, MailQueue)
    ]
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
    page.get_by_role("link", name=str(blocked.pk), exact=True).click()
    expect(page.locator("h1")).to_contain_text("blocked")
    page.get_by_role("link", name=str(blocked.pass_id)).click()
    expect(page.get_by_role("heading", name="Steps")).to_be_visible()


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
    page.goto("/admin/desk/action/")
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

    page.get_by_text("The same as a table").first.click()
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
