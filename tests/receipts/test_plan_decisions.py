"""Approving and applying on the pages: by whom it may be, of what was shown, once, and what becomes of it."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from kwit.models import Action
from portal.models import OrderLine
from receipts import api, apply
from receipts.api import Outcome, apply_plan_with_reconnect, cancel_many, edit_plan, inspect_change
from receipts.errors import OutcomeUnknown
from receipts.models import Change, StoredPlan
from tests.factories import make_line
from tests.racing import race
from tests.receipts.plain import states, target
from tests.receipts.plan_people import (
    ALL,
    APPLY,
    APPROVE,
    SEE,
    WRITE,
    address,
    approved,
    decide,
    said,
    signed_in,
    stored,
    text_of,
)
from tests.receipts.proxy import Fault, Proxy

pytestmark = pytest.mark.django_db


@pytest.fixture
def bob() -> Client:
    """Sign an approver of acme in."""
    return signed_in("bob", *APPROVE)


@pytest.fixture
def olga() -> Client:
    """Sign somebody in who applies plans of acme."""
    return signed_in("olga", *APPLY)


def state(plan: StoredPlan) -> str:
    """Return a plan's state as it is now."""
    return StoredPlan.objects.values_list("state", flat=True).get(pk=plan.pk)


def test_a_plan_is_approved_by_another_and_applied_by_a_third_and_the_receipt_is_one_click_away(
    bob: Client, olga: Client
) -> None:
    line = make_line()
    plan = stored(line, change_id="CHG/1 <b>")

    asked = bob.post(address(plan, "approve"), {"digest": plan.digest})
    assert "Approve CHG/1 &lt;b&gt; with 1 target?" in asked.content.decode()
    assert state(plan) == "draft"
    assert said(decide(bob, plan, "approve")).startswith("Approved.")
    asked = olga.post(address(plan, "apply"), {"digest": plan.digest})
    assert "Apply CHG/1 &lt;b&gt; to 1 row?" in asked.content.decode()
    assert states(line) == [("pending", 4)]
    answer = decide(olga, plan, "apply")

    page = olga.get(answer.url).content.decode()
    assert 'Applied. <a href="/admin/receipts/change/CHG_2F1 _3Cb_3E/change/">' in page.replace("%20", " ")
    assert states(line) == [("cancelled", 5)]
    receipt = inspect_change(change_id="CHG/1 <b>")
    assert receipt is not None
    assert Change.objects.values_list("author", "approver", "actor").get() == ("ann", "bob", "olga")
    actions = Action.objects.order_by("pk").values_list("actor", "name", "asked", "done", "outcome", "tenant")
    assert list(actions) == [
        ("bob", "plan_approve", 1, 1, "done", "acme"),
        ("olga", "plan_apply", 1, 1, "done", "acme"),
    ]


@pytest.mark.parametrize("change_id", ["act", "export"])
def test_the_way_to_the_receipt_leads_there_also_when_the_change_id_is_a_word_of_our_addresses(
    olga: Client, change_id: str
) -> None:
    answer = decide(olga, approved(make_line(), change_id=change_id), "apply")

    [way] = re.findall(r'href="(.+)"', said(answer))
    assert f"Receipt {change_id}" in text_of(olga, way)


def test_nobody_approves_what_he_wrote() -> None:
    ann = signed_in("ann", *ALL)
    plan = stored(make_line())

    answer = ann.post(address(plan, "approve"), {"digest": plan.digest, "confirmed": "1"})

    assert said(answer) == "You wrote this plan: another person approves it."
    assert state(plan) == "draft"
    assert "/approve/" not in text_of(ann, address(plan))
    assert not Action.objects.exists()


@pytest.mark.parametrize("page", ["approve", "apply", "again"])
def test_who_may_only_see_and_write_decides_nothing_and_is_not_asked_to(page: str) -> None:
    carl = signed_in("carl", *(SEE if page == "again" else WRITE))
    draft, ready = stored(make_line()), approved(make_line())

    for plan in (draft, ready):
        assert f"/{page}/" not in text_of(carl, address(plan))
        assert carl.post(address(plan, page), {"digest": plan.digest, "confirmed": "1"}).status_code == 403
        assert carl.get(address(plan, page)).status_code == 403
    assert (state(draft), state(ready)) == ("draft", "approved")


@pytest.mark.parametrize("page", ["approve", "apply"])
def test_following_a_link_decides_nothing_and_leads_to_the_plan(page: str) -> None:
    everyone, plan = signed_in("eve", *ALL), stored(make_line())

    assert everyone.get(address(plan, page)).url == address(plan)
    assert everyone.put(address(plan, page)).status_code == 405
    assert state(plan) == "draft"


@pytest.mark.parametrize("digest", ["", "0" * 64, "\0", "x" * 5000])
def test_what_was_not_shown_is_neither_approved_nor_applied(bob: Client, olga: Client, digest: str) -> None:
    draft, ready = stored(make_line()), approved(make_line(), change_id="CHG-2")

    for client, plan, page in ((bob, draft, "approve"), (olga, ready, "apply")):
        answer = client.post(address(plan, page), {"digest": digest, "confirmed": "1"})
        assert "changed after the page had been drawn" in said(answer)

    assert (state(draft), state(ready)) == ("draft", "approved")


@pytest.mark.parametrize("moment", ["before the question", "before the answer"])
def test_an_edit_after_the_page_was_drawn_keeps_the_approval_from_the_new_content(bob: Client, moment: str) -> None:
    one, two = make_line(), make_line()
    plan = stored(one)
    shown = {"digest": plan.digest}
    if moment == "before the answer":
        shown = dict(bob.post(address(plan, "approve"), shown).context["asked"].hidden)
    edit_plan(pk=plan.pk, targets=[target(two)])

    answer = bob.post(address(plan, "approve"), shown)

    assert "The plan was changed after the page had been drawn." in said(answer)
    assert state(plan) == "draft"


def test_an_edit_and_a_new_approval_keep_an_operator_from_applying_what_he_has_not_seen(olga: Client) -> None:
    one, two = make_line(), make_line()
    shown = approved(one)
    edit_plan(pk=shown.pk, targets=[target(two)])
    fresh = StoredPlan.objects.get(pk=shown.pk)
    api.approve_plan(pk=shown.pk, approver="bob", digest=fresh.digest)

    answer = olga.post(address(shown, "apply"), {"digest": shown.digest, "confirmed": "1"})

    assert "The plan was changed after the page had been drawn." in said(answer)
    assert states(one, two) == [("pending", 4), ("pending", 4)]
    with pytest.raises(api.NotApproved, match="edited since"):
        api.apply_plan(pk=shown.pk, digest=shown.digest)


def test_a_second_click_on_approve_says_that_it_is_approved(bob: Client) -> None:
    plan = stored(make_line())
    decide(bob, plan, "approve")

    answer = bob.post(address(plan, "approve"), {"digest": plan.digest, "confirmed": "1"})

    assert "it is now: approved" in said(answer)


def test_a_draft_is_not_applied(olga: Client) -> None:
    line = make_line()
    plan = stored(line)

    answer = olga.post(address(plan, "apply"), {"digest": plan.digest, "confirmed": "1"})

    assert "it is now: draft" in said(answer)
    assert states(line) == [("pending", 4)]


def test_a_second_click_on_apply_writes_nothing(olga: Client) -> None:
    line = make_line()
    plan = approved(line)
    decide(olga, plan, "apply")

    answer = olga.post(address(plan, "apply"), {"digest": plan.digest, "confirmed": "1"})

    assert "It was applied already; nothing was written now." in said(answer)
    assert states(line) == [("cancelled", 5)]


def test_a_change_that_was_applied_by_a_command_is_applied_already(olga: Client) -> None:
    line = make_line()
    plan = approved(line)
    cancel_many(change_id="CHG-1", tenant="acme", targets=[target(line)])

    assert said(decide(olga, plan, "apply")).startswith("It was applied already")
    assert state(plan) == "applied"
    assert (Action.objects.get().done, Action.objects.get().note) == (0, f"plan={plan.pk}, already applied")


def test_a_conflict_leads_to_approved_and_current_values_side_by_side(olga: Client) -> None:
    one, two = make_line(), make_line()
    plan = approved(one, two)
    OrderLine.objects.filter(pk=two.pk).update(qty=7, revision=5)

    answer = decide(olga, plan, "apply")
    page = olga.get(answer.url)

    assert answer.url == f"{address(plan)}?failing=1"
    text = page.content.decode()
    assert "Refused, and nothing was written: the rows are not as approved." in text
    [row] = page.context["targets"].table.rows
    assert [str(cell.badge.word if cell.badge else cell.text) for cell in row.cells] == [
        str(two.pk),
        "revision differs",
        "4",
        "≠ 5",
        "10",
        "≠ 7",
        "pending",
    ]
    assert states(one) == [("pending", 4)]
    action = Action.objects.get()
    assert (action.outcome, action.done) == ("failed", 0)
    assert "revision_differs" in action.note


def test_a_change_id_of_another_change_is_a_conflict_that_tells_nothing_of_it(olga: Client) -> None:
    foreign, line = make_line(tenant="b"), make_line()
    cancel_many(change_id="CHG-1", tenant="b", targets=[target(foreign)], actor="secret", reason="secret")
    plan = approved(line)

    answer = decide(olga, plan, "apply")

    assert "the change id was used for another change" in said(answer)
    assert state(plan) == "refused"
    assert "secret" not in text_of(olga, address(plan))


def test_a_plan_whose_kind_nobody_declares_any_more_is_not_applied(olga: Client) -> None:
    plan = approved(make_line())
    content = api.Target(**plan.targets[0])
    digest = api.store_plan(kind="accept", change_id="X", tenant="acme", targets=[content], author="x").digest
    StoredPlan.objects.filter(pk=plan.pk).update(kind="gone")
    plan.refresh_from_db()
    from receipts.plans.canonical import canonical_targets
    from receipts.plans.canonical import digest as digest_of

    digest = digest_of(change_id="CHG-1", kind="gone", tenant="acme", targets=canonical_targets([content]))
    StoredPlan.objects.filter(pk=plan.pk).update(digest=digest, approved_digest=digest)
    plan.refresh_from_db()

    assert "no app declares the kind of change 'gone'" in said(decide(olga, plan, "apply"))
    assert state(plan) == "approved"


@pytest.mark.django_db(transaction=True)
def test_of_two_approvers_at_once_one_has_approved_and_the_other_is_told() -> None:
    plan = stored(make_line())
    clients = [signed_in(name, *APPROVE) for name in ("bob", "cora")]

    answers = race(2, lambda at: clients[at].post(address(plan, "approve"), {"digest": plan.digest, "confirmed": "1"}))

    told = sorted(said(answer) for answer in answers)
    assert told[0].startswith("Approved.")
    assert "it is now: approved" in told[1]
    assert Action.objects.filter(name="plan_approve", outcome="done").count() == 1
    approver = StoredPlan.objects.get().approver
    assert Action.objects.filter(outcome="done").get().actor == approver


@pytest.mark.django_db(transaction=True)
def test_of_two_operators_at_once_one_applies_and_the_other_finds_it_applied() -> None:
    line = make_line()
    plan = approved(line)
    clients = [signed_in(name, *APPLY) for name in ("olga", "oleg")]

    answers = race(2, lambda at: clients[at].post(address(plan, "apply"), {"digest": plan.digest, "confirmed": "1"}))

    told = sorted(said(answer) for answer in answers)
    assert told[0].startswith("Applied.")
    assert told[1].startswith("It was applied already")
    assert states(line) == [("cancelled", 5)]
    assert Change.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_an_editor_and_an_approver_at_once_never_approve_what_was_not_shown() -> None:
    one, two = make_line(), make_line()
    plan = stored(one)
    bob = signed_in("bob", *APPROVE)
    calls = [
        lambda: bob.post(address(plan, "approve"), {"digest": plan.digest, "confirmed": "1"}),
        lambda: edit_plan(pk=plan.pk, targets=[target(two)]),
    ]

    race(2, lambda at: calls[at]())

    plan.refresh_from_db()
    assert [row["id"] for row in plan.targets] == [two.pk]
    assert plan.state == "draft"


@pytest.fixture
def through(monkeypatch: pytest.MonkeyPatch, transactional_db: None) -> Iterator[Any]:
    """Return a function that puts a failing line between this thread and its server."""
    if connection.vendor != "postgresql":
        pytest.skip("there is a line to lose to PostgreSQL only")
    monkeypatch.setattr(apply, "RECONNECT_PAUSES_S", (0.01, 0.02))
    settings = connection.settings_dict
    kept = {name: settings[name] for name in ("HOST", "PORT")}
    proxies: list[Proxy] = []

    def put(fault: Fault) -> None:
        proxy = Proxy(settings["HOST"], int(settings["PORT"] or 5432), fault)
        proxies.append(proxy.__enter__())
        connection.close()
        settings.update(HOST="127.0.0.1", PORT=str(proxy.port))

    yield put
    for proxy in proxies:
        proxy.stop_listening()
    connection.close()
    settings.update(kept)


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.COMMIT_LOST])
def test_a_lost_answer_is_settled_by_looking_again(through: Any, fault: Fault) -> None:
    line = make_line()
    plan = approved(line)
    through(fault)

    outcome = apply_plan_with_reconnect(pk=plan.pk)

    assert outcome is (Outcome.CONFIRMED if fault is Fault.ANSWER_LOST else Outcome.APPLIED)
    assert states(line) == [("cancelled", 5)]
    assert state(plan) == "applied"


def test_an_unknown_outcome_names_what_settles_it(through: Any, olga: Client) -> None:
    line = make_line()
    plan = approved(line, change_id="CHG-1 $(id)")
    through(Fault.GONE)

    answer = olga.post(address(plan, "apply"), {"digest": plan.digest, "confirmed": "1"})

    assert answer.status_code == 503
    text = answer.content.decode()
    assert "Nobody knows yet whether CHG-1 $(id) is applied" in text
    assert "manage.py inspect_change --database default -- 'CHG-1 $(id)'" in unescape(text)
    assert f'href="{address(plan)}"' in text


def test_a_database_that_does_not_come_back_is_an_unknown_outcome(through: Any) -> None:
    plan = approved(make_line())
    through(Fault.GONE)

    with pytest.raises(OutcomeUnknown, match="plan"):
        apply_plan_with_reconnect(pk=plan.pk)


def test_a_plan_is_rejected_with_a_reason_by_who_may_approve_it(bob: Client, olga: Client) -> None:
    plan = stored(make_line())

    assert olga.post(address(plan, "reject"), {"digest": plan.digest}).status_code == 403
    asked = bob.post(address(plan, "reject"), {"digest": plan.digest})
    assert asked.context["asked"].form.fields["reason"].required
    again = decide(bob, plan, "reject", reason="")
    assert again.status_code == 200
    assert state(plan) == "draft"
    assert said(decide(bob, plan, "reject", reason="too <b>many</b>")).startswith("Rejected")

    assert state(plan) == "rejected"
    page = bob.get(address(plan)).content.decode()
    assert "too &lt;b&gt;many&lt;/b&gt;" in page
    assert "It was closed, and nothing was written." in page
    assert Action.objects.values_list("actor", "name", "done").get() == ("bob", "plan_reject", 1)


def test_a_plan_is_withdrawn_by_its_author_only(bob: Client) -> None:
    ann = signed_in("ann", *WRITE)
    plan = approved(make_line())

    assert bob.post(address(plan, "withdraw"), {"digest": plan.digest}).status_code == 403
    assert said(decide(ann, plan, "withdraw", reason="")).startswith("Withdrawn")

    assert state(plan) == "withdrawn"
    assert "is now: withdrawn" in said(ann.post(address(plan, "withdraw"), {"digest": plan.digest}))
