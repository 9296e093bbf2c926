"""The pages of plans: what they show, whose plans, what they cost, and that a look neither waits nor writes."""

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from kwit.middleware import HEADER, STRICT, policy_text
from portal.models import OrderLine
from receipts.api import Target, apply_plan, cancel_many
from receipts.errors import Conflict
from receipts.models import StoredPlan
from tests.factories import make_line, make_many
from tests.racing import background, open_transaction
from tests.receipts.plain import target
from tests.receipts.plan_people import (
    ALL,
    PLANS,
    SEE,
    UPLOAD,
    WRITE,
    address,
    approved,
    send,
    signed_in,
    stored,
    text_of,
)

pytestmark = pytest.mark.django_db
EVIL = "<script>alert(1)</script>"


@pytest.fixture
def victor() -> Client:
    """Sign a viewer of acme in."""
    return signed_in("victor", *SEE)


def refused(*lines: OrderLine) -> StoredPlan:
    """Make a plan that was approved, applied too late, and refused; its first line has changed."""
    plan = approved(*lines)
    OrderLine.objects.filter(pk=lines[0].pk).update(qty=7)
    with pytest.raises(Conflict):
        apply_plan(pk=plan.pk)
    plan.refresh_from_db()
    return plan


def make_lines(count: int) -> list[OrderLine]:
    """Make many lines of one order."""
    order = make_line().order
    return make_many(OrderLine(order=order, tenant="acme", qty=10, revision=4) for _ in range(count))


def test_a_list_shows_state_and_people_of_each_plan_and_its_filters_narrow_it(victor: Client) -> None:
    line = make_line()
    stored(line, change_id="CHG-1")
    approved(line, change_id="CHG-2", kind="accept")

    shown = {
        query: [row.name for row in victor.get(PLANS + query).context["table"].rows]
        for query in (
            "",
            "?state=draft",
            "?state=approved",
            "?kind=accept",
            "?tenant=acme",
            "?tenant=b",
            "?change_id=CHG-1",
        )
    }

    assert shown == {
        "": ["CHG-2", "CHG-1"],
        "?state=draft": ["CHG-1"],
        "?state=approved": ["CHG-2"],
        "?kind=accept": ["CHG-2"],
        "?tenant=acme": ["CHG-2", "CHG-1"],
        "?tenant=b": [],
        "?change_id=CHG-1": ["CHG-1"],
    }
    text = text_of(victor, PLANS)
    assert all(f"<td>{name}</td>" in text for name in ("ann", "bob", "acme"))
    assert "☑</span> approved" in text


def test_a_plan_of_another_tenant_is_in_no_list_and_its_pages_are_not_there() -> None:
    stranger = signed_in("mallory", *ALL, tenants=("b",))
    line = make_line()
    plans = [stored(line), approved(line), refused(line)]

    assert stranger.get(PLANS).context["table"].rows == []
    assert stranger.get(f"{PLANS}?tenant=acme&change_id=CHG-1").context["table"].rows == []
    for plan in plans:
        answers = [stranger.get(address(plan)), stranger.get(f"{PLANS}{plan.pk}/targets.csv")]
        answers += [
            method(address(plan, page), {"digest": plan.digest, "confirmed": "1", "change_id": "X", "pasted": "{}"})
            for page in ("edit", "approve", "apply", "again")
            for method in (stranger.get, stranger.post)
        ]
        nowhere = stranger.get(f"{PLANS}999999/change/")
        assert {answer.status_code for answer in answers} == {404}
        assert answers[0].content.replace(b"/%d/" % plan.pk, b"/999999/") == nowhere.content
    assert StoredPlan.objects.count() == 3


def test_who_belongs_to_no_tenant_sees_no_plan() -> None:
    stored(make_line())
    nobody = signed_in("nobody", *ALL, tenants=())

    assert nobody.get(PLANS).context["table"].rows == []


@pytest.mark.parametrize("query", ["state=x", "kind=%00", "tenant=%00", "change_id=%00%F0", "change_id=%EF%BF%BD"])
def test_a_filter_that_makes_no_sense_finds_nothing(victor: Client, query: str) -> None:
    stored(make_line())

    assert victor.get(f"{PLANS}?{query}").context["table"].rows == []


@pytest.mark.parametrize("query", ["after=x", "after=%00", "before=1~2", f"after={2**70}"])
def test_a_place_that_no_list_of_ours_has_is_a_bad_request_or_an_empty_page(victor: Client, query: str) -> None:
    stored(make_line())

    assert victor.get(f"{PLANS}?{query}").status_code in (200, 400)


@pytest.mark.parametrize(
    "query", ["after=x", "after=%00", "failing=2", f"after={2**70}", "after=-5", "failing=1&after=9"]
)
def test_a_plans_own_page_takes_any_query(victor: Client, query: str) -> None:
    assert victor.get(f"{address(stored(make_line()))}?{query}").status_code == 200


def test_a_list_reads_no_targets_counts_nothing_and_costs_the_same_for_few_and_many(
    victor: Client, django_assert_max_num_queries: Any, django_assert_num_queries: Any
) -> None:
    line = make_line()
    stored(line)
    victor.get(PLANS)
    with django_assert_max_num_queries(6) as few:
        victor.get(PLANS)
    for number in range(60):
        stored(line, change_id=f"CHG-{number}")

    with django_assert_num_queries(len(few)) as many:
        assert len(victor.get(PLANS).context["table"].rows) == 50

    sql = " ".join(query["sql"] for query in many)
    assert "COUNT(" not in sql.upper()
    assert '"targets"' not in sql
    assert victor.get(PLANS).context["next_query"]


@pytest.mark.parametrize("query", ["", "?state=draft", "?kind=cancel", "?tenant=acme", "?tenant=acme&state=draft"])
@pytest.mark.parametrize("is_bound", [True, False])
def test_no_list_reads_or_sorts_a_whole_table(query: str, is_bound: bool, django_assert_max_num_queries: Any) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("plans of queries are read on SQLite: it has no statistics, so that few rows give the plan of many")
    victor = signed_in("victor", *SEE, *([] if is_bound else ["kwit.see_all_tenants"]))
    stored(make_line())
    looked_at = 0
    for url in (PLANS, "/admin/portal/orderline/"):
        with django_assert_max_num_queries(12) as queries:
            victor.get(url + query.replace("draft", "pending") if "order" in url else url + query)

        for query_ in queries:
            if "receipts_plan" in query_["sql"] or "portal_orderline" in query_["sql"]:
                with connection.cursor() as cursor:
                    cursor.execute(f"EXPLAIN QUERY PLAN {query_['sql']}".replace("%", "%%"), ())
                    plan = [row[3] for row in cursor.fetchall()]
                assert not any("TEMP B-TREE" in one for one in plan), (query_["sql"], plan)
                looked_at += 1
    assert looked_at >= 2


@pytest.mark.parametrize("state", ["draft", "refused"])
def test_a_plan_costs_the_same_queries_for_ten_targets_and_for_a_thousand(
    victor: Client, state: str, django_assert_max_num_queries: Any, django_assert_num_queries: Any
) -> None:
    make = stored if state == "draft" else refused
    few_lines, many_lines = make_lines(10), make_lines(1000)
    few, many = make(*few_lines), make(*many_lines)
    victor.get(address(few))

    with django_assert_max_num_queries(8) as counted:
        victor.get(address(few))
    with django_assert_num_queries(len(counted)):
        page = victor.get(address(many))

    assert len(page.context["targets"].table.rows) == 100


def test_the_preview_says_for_each_target_whether_it_would_fail_now_and_why(victor: Client) -> None:
    good, revision, qty, done, gone, foreign = (make_line() for _ in range(6))
    plan = stored(good, revision, qty, done, gone, foreign)
    OrderLine.objects.filter(pk=revision.pk).update(revision=5)
    OrderLine.objects.filter(pk=qty.pk).update(qty=11)
    OrderLine.objects.filter(pk=done.pk).update(state="accepted")
    gone_pk = gone.pk
    gone.delete()
    OrderLine.objects.filter(pk=foreign.pk).update(tenant="b")

    page = victor.get(address(plan))
    only = victor.get(address(plan), {"failing": "1"})

    words = {row.cells[0].text: str(row.cells[1].badge.word) for row in page.context["targets"].table.rows}
    assert words == {
        good.pk: "as approved",
        revision.pk: "revision differs",
        qty.pk: "quantity differs",
        done.pk: "not pending",
        gone_pk: "missing",
        foreign.pk: "missing",
    }
    assert [row.cells[0].text for row in only.context["targets"].table.rows] == sorted(words)[1:]
    text = page.content.decode()
    assert "It would be refused now. Targets that are not as approved: 5 of 6." in text
    assert "≠ 11" in text
    assert "≠ accepted" in text


def test_a_look_at_a_plan_writes_nothing(victor: Client, django_assert_max_num_queries: Any) -> None:
    plan = stored(make_line())

    with django_assert_max_num_queries(20) as queries:
        victor.get(address(plan))

    # On SQL Server the rows to look up are put into a table variable, which is gone with the statement.
    told = [query["sql"].replace("\nSET NOCOUNT ON;\nDECLARE @asked TABLE", "SELECT") for query in queries]
    assert [sql for sql in told if not sql.startswith(("SELECT", "\n        SELECT"))] == []
    written = [sql for sql in told if re.search(r"\b(INSERT INTO (?!@asked\b)|UPDATE\b|DELETE\b|UPDLOCK\b)", sql)]
    assert written == []


@pytest.mark.django_db(transaction=True)
def test_a_look_at_a_plan_waits_for_nobody_who_holds_its_rows() -> None:
    line, victor = make_line(), signed_in("victor", *SEE)
    plan = stored(line)

    with open_transaction(lambda: OrderLine.objects.filter(pk=line.pk).update(qty=99)):
        page = background(lambda: text_of(victor, address(plan))).end(20)

    assert "is as approved" in page


def test_targets_come_in_pages_forth_and_back(victor: Client) -> None:
    lines = make_lines(250)
    plan = stored(*lines)

    seen, query, sizes = [], "", []
    while True:
        page = victor.get(f"{address(plan)}?{query}")
        seen += [row.cells[0].text for row in page.context["targets"].table.rows]
        sizes.append(len(page.context["targets"].table.rows))
        if not page.context["next_query"]:
            break
        query = page.context["next_query"]
    back = victor.get(f"{address(plan)}?{page.context['previous_query']}")

    assert seen == [line.pk for line in lines]
    assert sizes == [100, 100, 50]
    assert [row.cells[0].text for row in back.context["targets"].table.rows] == seen[100:200]
    assert victor.get(f"{address(plan)}?{back.context['previous_query']}").context["previous_query"] == ""


def test_a_change_id_that_has_a_receipt_is_said(victor: Client) -> None:
    one, two = make_line(), make_line()
    cancel_many(change_id="CHG-1", tenant="acme", targets=[target(one)])

    same, other = stored(one), stored(two)

    assert "This very change was applied before" in text_of(victor, address(same))
    assert "The change id was used for another change" in text_of(victor, address(other))


def test_a_refused_attempt_can_be_looked_at_later_as_it_was_then(victor: Client) -> None:
    one, two = make_line(), make_line()
    plan = refused(one, two)
    OrderLine.objects.all().delete()

    text = text_of(victor, address(plan))

    assert "Targets that were not as approved: 1 of 2." in text
    assert "≠ 7" in text
    assert text.count("quantity differs") == 1


def test_a_plan_of_an_undeclared_kind_is_shown(victor: Client) -> None:
    plan = stored(make_line())
    StoredPlan.objects.update(kind="gone")

    assert "No app declares the kind of change “gone” any more." in text_of(victor, address(plan))


def need_primitives(value: Any) -> None:
    """Skip where the database itself keeps out what is neither a list nor an object."""
    if not (isinstance(value, list | dict) or connection.features.supports_primitives_in_json_field):
        pytest.skip("SQL Server keeps such a plan out itself: ISJSON is 1 for lists and objects only")


@pytest.mark.parametrize("targets", [{}, [], "x", [1], [{"id": 1}], [{"id": "1", "revision": 1, "qty": None}]])
def test_targets_that_plain_sql_has_spoilt_are_shown_and_offered_to_nobody(targets: Any) -> None:
    need_primitives(targets)
    bob = signed_in("bob", *ALL)
    plan = stored(make_line())
    StoredPlan.objects.update(targets=targets, target_count=None)

    text = text_of(bob, address(plan))
    answer = bob.post(address(plan, "approve"), {"digest": plan.digest, "confirmed": "1"})

    assert "cannot be approved or applied" in text
    assert "/approve/" not in text
    assert answer.status_code == 302
    assert StoredPlan.objects.get().state == "draft"
    assert bob.get(f"{PLANS}{plan.pk}/targets.csv").content == b"id,revision,qty\r\n"
    assert "—" in text_of(bob, PLANS)


@pytest.mark.parametrize("problems", [[], [{}], [{"problem": EVIL}], [{"id": "x"}], [1], {"a": 1}, "x", [[EVIL]]])
def test_problems_that_plain_sql_has_spoilt_are_shown_as_text(victor: Client, problems: Any) -> None:
    need_primitives(problems)
    plan = refused(make_line())
    StoredPlan.objects.update(problems=problems)

    assert EVIL not in text_of(victor, address(plan))


def test_hostile_texts_are_text_everywhere() -> None:
    ann = signed_in("ann", *WRITE)
    line = make_line()

    answer = send(ann, f"id,revision,qty\n{line.pk},4,10\n", change_id=EVIL, reason=EVIL)
    wrong = send(ann, f"id,revision,qty\n{EVIL},4,10\n", name=f"{EVIL}.csv", change_id=EVIL, tenant=EVIL, reason=EVIL)

    for text in (
        text_of(ann, answer.url),
        text_of(ann, PLANS),
        wrong.content.decode(),
        text_of(ann, PLANS, change_id=EVIL),
    ):
        assert EVIL not in text
        assert "&lt;script&gt;" in text


def test_what_is_exported_has_whole_numbers_only(victor: Client) -> None:
    plan = stored(Target(2**63 - 1, 0, 0), Target(1, 2, 3), change_id="=cmd|' /C calc'!A0")

    export = victor.get(f"{PLANS}{plan.pk}/targets.csv")
    empty = victor.get(f"{PLANS}template.csv")

    assert export.content == b"id,revision,qty\r\n1,2,3\r\n9223372036854775807,0,0\r\n"
    assert export["Content-Disposition"] == f'attachment; filename="plan-{plan.pk}.csv"'
    assert empty.content == b"id,revision,qty\r\n"


@pytest.mark.parametrize("page", ["", "upload/", "template.csv", "change", "edit", "again", "targets.csv"])
def test_each_page_has_the_policy(page: str) -> None:
    ann = signed_in("ann", *ALL)
    plan = refused(make_line()) if page == "again" else stored(make_line())
    url = f"{PLANS}{plan.pk}/{page}/".replace(".csv/", ".csv") if page in ("change", "edit", "again") else PLANS + page
    url = f"{PLANS}{plan.pk}/targets.csv" if page == "targets.csv" else url

    answer = ann.get(url)

    assert answer.status_code == 200
    assert answer[HEADER] == policy_text(STRICT)


def test_nobody_without_the_permission_to_see_gets_in(client: Client) -> None:
    plan = stored(make_line())
    blind = signed_in("blind", "receipts.add_storedplan", "receipts.approve_plan", "receipts.apply_plan")
    urls = [PLANS, UPLOAD, f"{PLANS}template.csv", f"{PLANS}{plan.pk}/targets.csv", address(plan)]
    urls += [address(plan, page) for page in ("edit", "approve", "apply", "again")]

    assert {blind.get(url).status_code for url in urls} == {403}
    assert {blind.post(url, {"digest": plan.digest, "confirmed": "1"}).status_code for url in urls[5:]} == {403}
    assert {client.get(url).url.partition("?")[0] for url in urls} == {"/admin/login/"}


def test_nothing_of_plans_is_added_changed_or_deleted_by_the_admins_own_pages() -> None:
    ann = signed_in("ann", *ALL, "receipts.delete_storedplan")
    plan = stored(make_line())

    assert ann.get(f"{PLANS}add/").status_code == 403
    assert ann.post(address(plan), {"state": "applied"}).status_code == 405
    assert ann.post(f"{PLANS}{plan.pk}/delete/", {"post": "yes"}).status_code == 403
    assert StoredPlan.objects.get().state == "draft"
