"""A plan's way in a real browser: written, corrected, approved by another, applied; and one that comes too late."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from portal.models import OrderLine
from receipts.models import StoredPlan
from tests.browser.chromium import PHONE, axe_findings
from tests.factories import make_line
from tests.receipts.plain import states
from tests.receipts.plan_people import ALL, APPLY, APPROVE, PLANS, WRITE, address, approved, csv_of, person, stored

pytestmark = pytest.mark.django_db(transaction=True)
Open = Callable[..., Page]
LINES = "/admin/portal/orderline/"


def test_a_plan_with_a_problem_is_corrected_approved_by_another_and_applied(open_page: Open, tmp_path: Path) -> None:
    one, two = make_line(), make_line()
    file = tmp_path / "plan.csv"
    file.write_text(csv_of(one, two).replace(f"{two.pk},4,10", f"{two.pk},04,10"))
    ann = open_page(person("ann", *WRITE), PLANS)

    ann.get_by_role("link", name="Upload a plan").click()
    ann.get_by_label("Kind of change").select_option("cancel")
    ann.get_by_label("Change id").fill("CHG-1")
    ann.get_by_label("Reason").fill("sold out")
    ann.get_by_label("File").set_input_files(file)
    ann.get_by_role("button", name="Keep as a draft").click()
    expect(ann.get_by_role("heading", name="1 problem; nothing was stored")).to_be_visible()
    expect(ann.get_by_role("row", name="3 revision '04' must be an integer, not '04'")).to_be_visible()
    expect(ann.get_by_label("Change id")).to_have_value("CHG-1")
    file.write_text(csv_of(one, two))
    ann.get_by_label("File").set_input_files(file)
    ann.get_by_role("button", name="Keep as a draft").click()
    expect(ann.get_by_text("All 2 targets are as approved.")).to_be_visible()
    assert ann.get_by_role("button", name="Approve").count() == 0

    bob = open_page(person("bob", *APPROVE, *APPLY), PLANS, java_script_enabled=False)
    bob.get_by_role("link", name="CHG-1").click()
    bob.get_by_role("button", name="Approve").click()
    bob.get_by_role("button", name="Yes: Approve").click()
    bob.get_by_role("button", name="Apply").click()
    expect(bob.get_by_text("Apply CHG-1 to 2 rows?")).to_be_visible()
    bob.get_by_role("button", name="Yes: Apply").click()
    expect(bob.locator("h1")).to_contain_text("applied")
    assert bob.locator(".messagelist a").get_attribute("href") == "/admin/receipts/change/CHG-1/change/"
    assert states(one, two) == [("cancelled", 5), ("cancelled", 5)]


def test_a_selection_becomes_a_plan_that_comes_too_late_and_is_planned_again(open_page: Open) -> None:
    one, two = make_line(), make_line()
    person("bob", *APPROVE)
    eve = open_page(person("eve", *ALL), LINES)

    for line in (one, two):
        eve.get_by_label(str(line), exact=True).check()
    eve.get_by_role("button", name="Plan their cancellation: selected").click()
    eve.get_by_label("Change id").fill("CHG-2")
    eve.get_by_role("button", name="Yes: Plan their cancellation").click()
    expect(eve.get_by_text("A draft of 2 targets is kept.")).to_be_visible()
    plan = StoredPlan.objects.get()
    StoredPlan.objects.try_approve(
        plan.pk, edits=plan.edits, approver="bob", approver_key="0", digest=plan.digest, now=plan.created_at
    )
    eve.reload()
    OrderLine.objects.filter(pk=two.pk).update(qty=7, revision=5)
    eve.get_by_role("button", name="Apply").click()
    expect(eve.get_by_text("It would be refused now. Targets that are not as approved: 1 of 2.")).to_be_visible()
    eve.get_by_role("button", name="Yes: Apply").click()

    expect(eve.locator("h1")).to_contain_text("refused")
    expect(eve.get_by_role("row", name=f"{two.pk} revision differs 4 ≠ 5 10 ≠ 7 pending")).to_be_visible()
    eve.get_by_role("link", name="Plan again").click()
    eve.get_by_role("button", name="Yes: Plan again").click()
    expect(eve.get_by_text("All 2 targets are as approved.")).to_be_visible()
    assert states(one, two) == [("pending", 4), ("pending", 5)]


def test_each_page_of_plans_is_accessible_and_no_wider_than_a_phone_in_the_dark(open_page: Open) -> None:
    line = make_line()
    draft, refused = stored(line, change_id="x" * 64, reason="why"), approved(line, change_id="CHG-2")
    problem = {"id": line.pk, "problem": "qty_differs", "approved": {}, "current": {"revision": 4, "qty": 7}}
    StoredPlan.objects.try_settle(
        refused.pk, digest=refused.digest, state="refused", now=draft.created_at, problems=[problem]
    )
    page = open_page(person("eve", *ALL), viewport=PHONE, color_scheme="dark")
    problems = []
    for url in [
        PLANS,
        f"{PLANS}upload/",
        *(address(one) for one in (draft, refused)),
        address(refused, "again"),
        LINES,
    ]:
        page.goto(url)
        problems += look(page, url)
    page.goto(f"{PLANS}upload/")
    page.get_by_label("Or paste it").fill("id,revision,qty\nx,y,z\n")
    page.get_by_role("button", name="Keep as a draft").click()
    expect(page.get_by_role("alert")).to_be_visible()
    problems += look(page, "problems")

    assert problems == []


def look(page: Page, name: str) -> list[str]:
    """Return what is wrong with a page as it stands there."""
    wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return [f"{name} {finding}" for finding in axe_findings(page)] + (
        [f"{name} is wider by {wider}"] if wider > 0 else []
    )
