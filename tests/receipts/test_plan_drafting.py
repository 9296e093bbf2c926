"""Drafts from rows: a refused plan's with the values of now, and those that somebody selects in a list."""

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from kwit.models import Action
from portal.models import OrderLine
from portal.pages import OrderLineAdmin
from receipts import change_types as kinds
from receipts.api import Conflict, apply_plan, cancel_many
from receipts.models import StoredPlan
from receipts.pages import plan_forms as plans_forms
from receipts.pages.plan_drafts import plan_action
from tests.factories import make_line, make_many, make_order
from tests.receipts.plain import target
from tests.receipts.plan_people import PLANS, SEE, WRITE, address, approved, signed_in, stored, text_of

pytestmark = pytest.mark.django_db
LINES = "/admin/portal/orderline/"
ACT = f"{LINES}action/plan_cancel/"


@pytest.fixture
def ann() -> Client:
    """Sign an author of acme in."""
    return signed_in("ann", *WRITE)


def refused(*lines: OrderLine) -> StoredPlan:
    """Make a plan that came too late for its first line."""
    plan = approved(*lines)
    OrderLine.objects.filter(pk=lines[0].pk).update(qty=7, revision=5)
    with pytest.raises(Conflict):
        apply_plan(pk=plan.pk)
    return plan


def confirm(client: Client, url: str, data: dict[str, Any], **typed: str) -> Any:
    """Send what the confirmation page offers, with what is typed."""
    page = client.post(url, data)
    assert page.status_code == 200, page
    sent: dict[str, Any] = {}
    for name, value in page.context["asked"].hidden:
        sent.setdefault(name, []).append(value)
    return client.post(url, sent | {"change_id": page.context["asked"].form["change_id"].initial or ""} | typed)


def rows_of(plan: StoredPlan) -> list[tuple[int, int, int]]:
    """Return a plan's targets."""
    return [(row["id"], row["revision"], row["qty"]) for row in plan.targets]


def test_selected_lines_become_a_draft_with_the_values_of_now(ann: Client) -> None:
    one, two, three = make_line(qty=3), make_line(revision=9), make_line()
    page = ann.post(ACT, {"scope": "selected", "pk": [one.pk, two.pk]})
    assert "Plan their cancellation: 2 rows?" in page.content.decode()
    assert not StoredPlan.objects.exists()
    OrderLine.objects.filter(pk=one.pk).update(revision=6)

    answer = confirm(ann, ACT, {"scope": "selected", "pk": [one.pk, two.pk]}, change_id="CHG-7", reason="sold out")

    plan = StoredPlan.objects.get()
    assert answer.url == address(plan)
    assert rows_of(plan) == [(one.pk, 6, 3), (two.pk, 9, 10)]
    assert (plan.kind, plan.tenant, plan.author, plan.reason, plan.state) == (
        "cancel",
        "acme",
        "ann",
        "sold out",
        "draft",
    )
    action = Action.objects.get()
    assert (action.actor, action.name, action.scope, action.done) == ("ann", "plan_cancel", "CHG-7", 2)
    assert (action.subject, action.tenant) == ("receipts.storedplan", "acme")
    assert three.state == "pending"


def test_all_that_match_become_a_draft_but_none_that_came_later(ann: Client) -> None:
    order = make_order()
    many = make_many(OrderLine(order=order, tenant="acme", qty=1, revision=1) for _ in range(120))
    make_line(order=order, state="accepted")
    make_line()
    page = ann.post(f"{ACT}?order={order.number}", {"scope": "matching"})
    assert "Plan their cancellation: 120 rows?" in page.content.decode()
    make_line(order=order)

    ann.post(f"{ACT}?order={order.number}", dict(page.context["asked"].hidden) | {"change_id": "CHG-7"})

    assert [row[0] for row in rows_of(StoredPlan.objects.get())] == [line.pk for line in many]


def test_a_change_id_is_suggested_that_nobody_has_used(ann: Client) -> None:
    page = ann.post(ACT, {"scope": "selected", "pk": [make_line().pk]})
    again = ann.post(ACT, {"scope": "selected", "pk": [make_line().pk]})

    suggested = [one.context["asked"].form["change_id"].initial for one in (page, again)]
    assert all(one.startswith("CANCEL-20") for one in suggested)
    assert len(set(suggested)) == 2


@pytest.mark.parametrize(
    ("change_id", "said"),
    [
        ("TAKEN", "used already"),
        ("PLANNED", "used already"),
        (" CHG", "has a blank at an end"),
        ("", "required"),
        ("x" * 65, "at most 64"),
        ("a\u0301", "normal form C"),
        ("a\0", "Null characters"),
    ],
)
def test_a_change_id_that_cannot_be_is_said_beside_its_field(ann: Client, change_id: str, said: str) -> None:
    one, two, three = make_line(), make_line(), make_line()
    cancel_many(change_id="TAKEN", tenant="acme", targets=[target(one)])
    stored(two, change_id="PLANNED")

    page = confirm(ann, ACT, {"scope": "selected", "pk": [three.pk]}, change_id=change_id, reason="keep me")

    assert page.status_code == 200
    assert said in str(page.context["asked"].form.errors["change_id"])
    assert "keep me" in page.content.decode()
    assert StoredPlan.objects.count() == 1


def test_another_tenants_plan_does_not_say_that_it_has_a_change_id(ann: Client) -> None:
    stored(make_line(tenant="b"), tenant="b", change_id="SECRET")

    assert confirm(ann, ACT, {"scope": "selected", "pk": [make_line().pk]}, change_id="SECRET").status_code == 302


def test_lines_of_several_tenants_are_no_plan() -> None:
    both = signed_in("both", *WRITE, tenants=("acme", "b"))
    lines = [make_line(), make_line(tenant="b")]

    for data in ({"scope": "selected", "pk": [line.pk for line in lines]}, {"scope": "matching"}):
        page = both.post(ACT, data, follow=True)
        assert "These rows are of several tenants; a plan is of one." in page.content.decode()
    assert both.post(f"{ACT}?tenant=b", {"scope": "matching"}).context["asked"].number == 1
    assert not StoredPlan.objects.exists()


def test_more_lines_than_a_plan_may_have_are_not_cut_off_in_silence(ann: Client, settings: Any) -> None:
    settings.RECEIPTS = {"MAX_TARGETS": 2}
    for _ in range(3):
        make_line()

    page = ann.post(ACT, {"scope": "matching"}, follow=True)

    assert "More than 2 rows match" in page.content.decode()


def test_lines_that_cannot_be_cancelled_are_counted_out_before_and_after_the_question(ann: Client) -> None:
    good, done, empty = make_line(), make_line(state="accepted"), make_line(qty=None)
    data = {"scope": "selected", "pk": [good.pk, done.pk, empty.pk]}
    page = ann.post(ACT, data)
    assert "The action does not apply to 2 selected rows." in page.content.decode()
    assert ann.post(ACT, {"scope": "selected", "pk": [done.pk]}).context["asked"].number == 0
    OrderLine.objects.filter(pk=good.pk).update(state="rejected", rejected_at="2026-01-01T00:00Z")

    late = ann.post(ACT, data | {"top": good.pk + 9, "confirmed": "1", "change_id": "CHG-7"})

    assert late.context["asked"].number == 0
    assert not StoredPlan.objects.exists()


def test_a_foreign_line_is_neither_listed_nor_planned(ann: Client) -> None:
    foreign = make_line(tenant="b")

    assert ann.get(LINES).context["table"].rows == []
    assert ann.get(f"{LINES}{foreign.pk}/change/").status_code == 404
    assert ann.post(ACT, {"scope": "selected", "pk": [foreign.pk]}).context["asked"].number == 0


def test_a_host_list_that_shows_foreign_rows_does_not_let_them_be_planned(
    ann: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = make_line(tenant="b")
    monkeypatch.setattr(OrderLineAdmin, "get_queryset", lambda self, request: OrderLine.objects.select_related("order"))

    page = ann.post(ACT, {"scope": "selected", "pk": [foreign.pk]})

    assert page.status_code == 302
    assert not StoredPlan.objects.exists()


def test_who_may_not_write_plans_is_offered_none(client: Client) -> None:
    victor, line = signed_in("victor", *SEE), make_line()

    assert "formaction" not in text_of(victor, LINES)
    assert victor.post(ACT, {"scope": "selected", "pk": [line.pk], "confirmed": "1"}).status_code == 403
    assert ann_without_sight().post(ACT, {"scope": "selected", "pk": [line.pk]}).status_code == 404
    assert client.post(ACT, {"scope": "matching"}).url.startswith("/admin/login/")


def ann_without_sight() -> Client:
    """Sign somebody in who may write plans and see no line."""
    return signed_in("blind", "receipts.add_storedplan")


@pytest.mark.parametrize("pk", ["x", "1; DROP TABLE", "99999999999999999999", "9" * 5000])
def test_a_key_that_no_page_sends_is_a_bad_request(ann: Client, pk: str) -> None:
    make_line()

    assert ann.post(ACT, {"scope": "selected", "pk": [pk]}).status_code == 400
    assert ann.post(ACT, {"scope": "matching", "top": pk}).status_code == 400


@pytest.mark.parametrize("query", ["order=%00", "state=x", "tenant=%00"])
def test_a_filter_of_lines_that_makes_no_sense_finds_nothing(ann: Client, query: str) -> None:
    make_line()

    assert ann.get(f"{LINES}?{query}").context["table"].rows == []


def test_the_action_belongs_to_the_admin_of_its_kinds_model(ann: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from notify.pages.mails import MailQueueAdmin

    act = plan_action(kind="cancel", label="Plan")
    monkeypatch.setattr(MailQueueAdmin, "list_actions", (type(act)(**vars(act) | {"eligible": lambda rows: rows}),))
    root = signed_in("root", *WRITE, "notify.view_mailqueue")

    with pytest.raises(ImproperlyConfigured, match="belongs to the admin of"):
        root.post("/admin/notify/mailqueue/action/plan_cancel/", {"scope": "matching"})


def test_a_refused_plan_is_planned_again_with_the_rows_of_now_under_an_id_of_its_own(ann: Client) -> None:
    one, two, gone = make_line(), make_line(), make_line()
    plan = refused(one, two, gone)
    OrderLine.objects.filter(pk=two.pk).update(state="accepted")
    gone_pk = gone.pk
    gone.delete()
    url = address(plan, "again")
    assert url in text_of(ann, address(plan))

    page = ann.get(url)
    text = page.content.decode()
    assert "The draft will have 1 target." in text
    assert "2 rows cannot be planned." in text
    assert [row.cells[0].text for row in page.context["asked"].table.rows] == [two.pk, gone_pk]
    answer = ann.post(url, {"confirmed": "1", "change_id": "CHG-2", "reason": "again"})

    fresh = StoredPlan.objects.get(change_id="CHG-2")
    assert answer.url == address(fresh)
    assert rows_of(fresh) == [(one.pk, 5, 7)]
    assert (fresh.state, fresh.author, fresh.approver) == ("draft", "ann", "")
    assert StoredPlan.objects.get(pk=plan.pk).state == "refused"
    assert (Action.objects.get().name, Action.objects.get().done) == ("plan_again", 1)


def test_a_plan_of_which_nothing_is_left_is_not_planned_again(ann: Client) -> None:
    plan = refused(make_line())
    OrderLine.objects.all().delete()

    page = ann.post(address(plan, "again"), {"confirmed": "1", "change_id": "CHG-2"})

    assert "The draft will have 0 targets." in page.content.decode()
    assert StoredPlan.objects.count() == 1


def test_only_a_closed_plan_is_planned_again(ann: Client) -> None:
    plan = stored(make_line())

    page = ann.post(address(plan, "again"), {"confirmed": "1", "change_id": "CHG-2"}, follow=True)

    assert "Only a plan that was closed without being applied is planned again." in page.content.decode()
    assert StoredPlan.objects.count() == 1


def test_the_used_change_id_is_refused_for_the_new_plan(ann: Client) -> None:
    plan = refused(make_line())

    page = ann.post(address(plan, "again"), {"confirmed": "1", "change_id": "CHG-1"})

    assert "used already" in page.content.decode()


def test_a_suggested_id_is_a_change_id() -> None:
    from datetime import date

    assert plans_forms.suggested_id("cancel", today=date(2026, 1, 31), token="ab12") == "CANCEL-20260131-AB12"
    assert len(plans_forms.suggested_id("k" * 20)) <= 64


def test_a_lines_page_and_list_cost_a_fixed_number_of_queries(ann: Client, django_assert_max_num_queries: Any) -> None:
    order = make_order()
    lines = make_many(OrderLine(order=order, tenant="acme", qty=1) for _ in range(60))
    ann.get(LINES)

    with django_assert_max_num_queries(6):
        assert len(ann.get(LINES).context["table"].rows) == 50
    with django_assert_max_num_queries(7):
        assert ann.get(f"{LINES}{lines[0].pk}/change/").status_code == 200
    assert PLANS


def test_a_kind_that_no_app_declares_any_more_is_said_and_nothing_is_drafted(
    ann: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, plan = make_line(), refused(make_line())
    monkeypatch.setattr(kinds, "_registered", {})

    for answer in (
        ann.post(ACT, {"scope": "selected", "pk": [line.pk]}, follow=True),
        ann.post(ACT, {"scope": "matching", "confirmed": "1", "change_id": "CHG-9"}, follow=True),
        ann.get(address(plan, "again"), follow=True),
        ann.post(address(plan, "again"), {"confirmed": "1", "change_id": "CHG-9"}, follow=True),
    ):
        assert answer.status_code == 200
        assert "no app declares the kind of change" in answer.content.decode().lower()
    assert "Plan their cancellation" not in text_of(ann, f"{LINES}{line.pk}/change/")
    assert StoredPlan.objects.count() == 1
