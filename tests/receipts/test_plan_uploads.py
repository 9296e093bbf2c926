"""Plans that come in: read whole or not at all, with every problem at its row, and from nobody else's tenant."""

import io
import json
from typing import Any

import openpyxl
import pytest
from django.test import Client

from kwit.models import Action
from receipts.models import StoredPlan
from receipts.pages import plan_forms as plans_forms
from tests.factories import make_line
from tests.receipts.plan_people import (
    ALL,
    PLANS,
    SEE,
    UPLOAD,
    WRITE,
    address,
    approved,
    csv_of,
    file,
    person,
    send,
    signed_in,
    stored,
    text_of,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def ann() -> Client:
    """Sign an author of acme in."""
    return signed_in("ann", *WRITE)


def xlsx(*rows: tuple[Any, ...]) -> bytes:
    """Return a workbook with these rows."""
    book, file = openpyxl.Workbook(), io.BytesIO()
    for row in rows:
        book.active.append(row)
    book.save(file)
    return file.getvalue()


def problems(page: Any) -> list[tuple[str, ...]]:
    """Return the problems that a page shows: row, column, value, problem."""
    assert page.status_code == 400
    assert page.context["problems"], page.context["form"].errors
    return [tuple(str(cell.text) for cell in row.cells) for row in page.context["problems"].rows]


@pytest.mark.parametrize("form", ["csv", "json", "xlsx", "pasted csv", "pasted json"])
def test_a_plan_in_any_form_is_kept_as_a_draft_of_its_author(ann: Client, form: str) -> None:
    # SQL Server goes on counting from the largest id of another test, which no workbook can hold.
    one, two = make_line(pk=1), make_line(pk=2)
    rows = [{"id": line.pk, "revision": 4, "qty": 10} for line in (two, one)]
    whole = json.dumps({"change_id": "CHG-1", "tenant": "acme", "targets": rows})
    fields: dict[str, Any] = {
        "csv": {"content": csv_of(two, one)},
        "json": {"content": whole, "name": "p.json", "change_id": "", "tenant": ""},
        "xlsx": {"content": xlsx(("id", "revision", "qty"), (two.pk, 4, 10), (one.pk, 4, 10)), "name": "P.XLSX"},
        "pasted csv": {"file": None, "pasted": csv_of(two, one)},
        "pasted json": {"file": None, "pasted": whole},
    }[form]

    answer = send(ann, **fields, reason="sold out")

    plan = StoredPlan.objects.get()
    assert answer.url == address(plan)
    assert (plan.change_id, plan.tenant, plan.kind, plan.state) == ("CHG-1", "acme", "cancel", "draft")
    assert (plan.author, plan.reason, plan.target_count) == ("ann", "sold out", 2)
    assert [target["id"] for target in plan.targets] == [one.pk, two.pk]
    action = Action.objects.get()
    assert (action.actor, action.name, action.subject, action.tenant) == (
        "ann",
        "plan_upload",
        "receipts.storedplan",
        "acme",
    )
    assert (action.scope, action.asked, action.done, action.outcome) == ("CHG-1", 2, 2, "done")


def test_a_plan_that_is_sent_twice_is_one_draft(ann: Client) -> None:
    line = make_line()
    first, second = (send(ann, csv_of(line)) for _ in range(2))

    assert first.url == second.url
    assert StoredPlan.objects.count() == 1
    assert "not kept twice" in text_of(ann, second.url)


def test_every_problem_is_shown_at_its_row_and_nothing_is_stored(ann: Client) -> None:
    page = send(ann, "id;revision;qty\n1;4;10\n\n0010;1.0;\n5;4;10;9\n1;4;x\n", change_id=" CHG", tenant="")

    found = problems(page)
    assert ("—", "change_id", "' CHG'", "has a blank at an end") in found
    assert ("—", "tenant", "—", "is missing") in found
    assert ("4", "id", "'0010'", "must be an integer, not '0010'") in found
    assert ("4", "revision", "'1.0'", "must be an integer, not '1.0'") in found
    assert ("4", "qty", "''", "must be an integer, not ''") in found
    assert ("5", "—", "—", "has 4 cells instead of 3") in found
    assert ("6", "qty", "'x'", "must be an integer, not 'x'") in found
    assert [one for one in found if "more than once" in one[3]] == [
        (row, "id", "1", "id 1 stands in the plan more than once") for row in ("2", "6")
    ]
    assert [one[0] for one in found] == sorted((one[0] for one in found), key=lambda row: int(row.replace("—", "0")))
    assert not StoredPlan.objects.exists()
    assert not Action.objects.exists()


def test_a_problem_is_said_in_the_readers_language_with_what_was_given() -> None:
    reader = signed_in("jan", *WRITE, headers={"accept-language": "pl"})

    found = problems(send(reader, "id,revision,qty\n50%s,4,10\n", change_id="CHG ", tenant="acme"))

    assert ("—", "change_id", "'CHG '", "ma odstęp na początku lub na końcu") in found
    assert ("2", "id", "'50%s'", "musi być liczbą całkowitą, a nie '50%s'") in found
    assert problems(send(reader, "")) == [
        ("—", "plik", "—", "jest pusty; potrzebny jest pierwszy wiersz z id, revision, qty")
    ]


def test_problems_of_json_are_named_by_position(ann: Client) -> None:
    rows = '[{"id": 1, "revision": 4, "qty": 10}, {"id": true, "qty": "1", "extra": 1}]'
    page = send(ann, f'{{"change_id": "CHG-1", "tenant": "acme", "targets": {rows}}}', name="p.json")

    assert problems(page) == [
        ("2", "id", "True", "must be an integer, not True"),
        ("2", "revision", "—", "is missing"),
        ("2", "qty", "'1'", "must be an integer, not '1'"),
        ("2", "extra", "1", "is not known here"),
    ]


def test_what_was_typed_is_kept_after_a_problem(ann: Client) -> None:
    page = send(ann, "nonsense", change_id="CHG-77", kind="accept", reason="the reason", pasted="")
    pasted = send(ann, file=None, pasted="id,revision,qty\n0x1,4,10\n")

    text = page.content.decode()
    assert 'value="CHG-77"' in text
    assert "the reason</textarea>" in text
    assert '<option value="accept" selected>' in text
    assert "0x1,4,10" in pasted.content.decode()


def test_what_json_says_otherwise_than_the_form_is_a_problem(ann: Client) -> None:
    line = make_line()
    rows = json.dumps([{"id": line.pk, "revision": 4, "qty": 10}])
    page = send(ann, f'{{"change_id": "CHG-2", "tenant": "b", "targets": {rows}}}', name="p.json")

    assert {(one[1], one[3]) for one in problems(page)} == {
        ("change_id", "is 'CHG-2' in the file, but 'CHG-1' was asked for"),
        ("tenant", "is 'b' in the file, but 'acme' was asked for"),
    }


@pytest.mark.parametrize("name", ["p.csv", "p.json"])
def test_a_foreign_tenant_and_one_that_there_is_not_are_the_same_problem(ann: Client, name: str) -> None:
    foreign = make_line(tenant="b")
    answers = []
    for tenant in ("b", "nowhere"):
        rows = [{"id": foreign.pk, "revision": 4, "qty": 10}]
        whole = json.dumps({"change_id": "CHG-1", "tenant": tenant, "targets": rows})
        fields = (
            {"content": whole, "tenant": ""} if name == "p.json" else {"content": csv_of(foreign), "tenant": tenant}
        )
        answers.append(problems(send(ann, name=name, **fields)))

    assert answers[0] == [("—", "tenant", "'b'", "is none of your tenants")]
    assert answers[1] == [("—", "tenant", "'nowhere'", "is none of your tenants")]
    assert not StoredPlan.objects.exists()


def test_who_sees_all_tenants_may_plan_for_each() -> None:
    root = signed_in("root", *WRITE, "kwit.see_all_tenants", tenants=())

    assert send(root, csv_of(make_line(tenant="b")), tenant="b").status_code == 302


@pytest.mark.parametrize(
    "fields",
    [
        {"file": None},
        {"file": None, "pasted": "  \n"},
        {"content": "id,revision,qty\n1,4,10\n", "pasted": "id,revision,qty\n1,4,10\n"},
        {"kind": "nothing"},
        {"kind": None},
        {"reason": "x" * 2001},
        {"pasted": "\0", "file": None},
        {"change_id": "a\0b"},
    ],
)
def test_a_form_that_is_not_filled_in_right_says_so(ann: Client, fields: dict[str, Any]) -> None:
    page = send(ann, **{"content": "id,revision,qty\n1,4,10\n"} | fields)

    assert page.status_code == 200
    assert page.context["form"].errors
    assert not StoredPlan.objects.exists()


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"", "p.csv"),
        (b"", "p.json"),
        (b"", "p.xlsx"),
        (b"\xff\xfe\x00", "p.csv"),
        (b"PK\x03\x04broken", "p.xlsx"),
        (b"[" * 100_000, "p.json"),
        (b"id,revision,qty\n", "p.csv"),
        (b"id,revision,qty\n1,1,1\n", "p.txt"),
        (b"id,revision,qty\n1,1,1\n", ".csv"),
        (b'{"change_id": "\\ud800", "tenant": "acme", "targets": []}', "p.json"),
        (b"id,revision,qty\n" + b"1" * 5000 + b",1,1\n", "p.csv"),
    ],
)
def test_no_file_is_an_error_of_the_page(ann: Client, content: bytes, name: str) -> None:
    page = send(ann, content, name)

    assert page.status_code == 400
    assert page.context["problems"] or page.context["form"].errors
    assert not StoredPlan.objects.exists()


def test_of_very_many_problems_the_first_are_shown_with_the_number_of_all(ann: Client) -> None:
    page = send(ann, "id,revision,qty\n" + "x,x,x\n" * 1500)

    assert page.context["problems_title"] == "4500 problems; nothing was stored (the first 1000 are shown)"
    assert len(problems(page)) == 1000


def test_more_targets_than_a_change_may_have_is_one_problem(ann: Client, settings: Any) -> None:
    settings.RECEIPTS = {"MAX_TARGETS": 3}
    rows = "".join(f"{pk},1,1\n" for pk in range(1, 5))

    assert [one[3] for one in problems(send(ann, "id,revision,qty\n" + rows))] == [
        "has 4 targets; a change has from 1 to 3"
    ]
    assert "3 targets" in text_of(ann, UPLOAD)


@pytest.mark.parametrize("drained", [True, False])
def test_a_file_that_is_too_long_is_not_kept_and_what_was_typed_is(
    ann: Client, monkeypatch: pytest.MonkeyPatch, drained: bool
) -> None:
    monkeypatch.setattr(plans_forms, "PLAN_BYTES_MAX", 100_000)
    monkeypatch.setattr(plans_forms, "DRAINED_BYTES_MAX", 10**9 if drained else 1)

    page = send(ann, b"1" * 300_000, change_id="CHG-77")

    assert page.status_code == 200
    assert "The file has more than" in str(page.context["form"].errors)
    assert 'value="CHG-77"' in page.content.decode()
    assert page.context["form"].quota.taken < 300_000
    assert page.context["form"].files.get("file") is None


def test_the_token_is_asked_for_although_the_limit_stands_before_it() -> None:
    ann = person("ann", *WRITE)
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(ann)
    plan = stored(make_line())

    assert send(strict, csv_of(make_line())).status_code == 403
    assert strict.post(address(plan, "edit"), {"file": file(csv_of(make_line()))}).status_code == 403
    token = strict.get(UPLOAD).cookies["csrftoken"].value
    assert send(strict, csv_of(make_line()), csrfmiddlewaretoken=token).status_code == 302


def test_a_viewer_uploads_nothing_and_is_not_offered_it() -> None:
    victor = signed_in("victor", *SEE, "receipts.change_storedplan")
    plan = stored(make_line())

    assert victor.get(UPLOAD).status_code == 403
    assert send(victor, csv_of(make_line())).status_code == 403
    assert victor.post(address(plan, "edit"), {"digest": plan.digest, "pasted": csv_of(make_line())}).status_code == 403
    assert "/upload/" not in text_of(victor, PLANS)
    assert "/edit/" not in text_of(victor, address(plan))
    assert StoredPlan.objects.count() == 1


def edit(client: Client, plan: StoredPlan, content: str, **more: str) -> Any:
    """Send new content for a plan."""
    return client.post(address(plan, "edit"), {"digest": plan.digest, "pasted": content} | more)


def test_new_content_replaces_a_drafts_targets_and_shows_its_problems(ann: Client) -> None:
    one, two = make_line(), make_line()
    plan = stored(one)

    wrong = edit(ann, plan, "id,revision,qty\nx,4,10\n")
    other = edit(ann, plan, json.dumps({"change_id": "CHG-9", "tenant": "acme", "targets": []}))
    right = edit(ann, plan, csv_of(two))

    assert problems(wrong) == [("2", "id", "'x'", "must be an integer, not 'x'")]
    assert "is 'CHG-9' in the file, but 'CHG-1' was asked for" in {one[3] for one in problems(other)}
    assert right.url == address(plan)
    plan.refresh_from_db()
    assert [target["id"] for target in plan.targets] == [two.pk]
    assert Action.objects.get().name == "plan_edit"


def test_an_edit_voids_the_approval_and_says_so(ann: Client) -> None:
    plan = approved(make_line())
    assert "bob has approved this plan. New content voids the approval." in text_of(ann, address(plan, "edit"))

    answer = ann.post(address(plan, "edit"), {"digest": plan.digest, "pasted": csv_of(make_line())}, follow=True)

    assert "The approval by bob is void" in answer.content.decode()
    plan.refresh_from_db()
    assert (plan.state, plan.approver, plan.approved_digest) == ("draft", "", "")


def test_another_ones_draft_needs_a_permission_and_makes_its_editor_the_author(ann: Client) -> None:
    carl, dora = signed_in("carl", *WRITE), signed_in("dora", *ALL)
    plan = stored(make_line())

    assert edit(carl, plan, csv_of(make_line())).status_code == 403
    assert "/edit/" not in text_of(carl, address(plan))
    assert "ann wrote this plan." in text_of(dora, address(plan, "edit"))
    assert edit(dora, plan, csv_of(make_line())).status_code == 302

    plan.refresh_from_db()
    assert plan.author == "dora"
    assert "/approve/" not in text_of(dora, address(plan))
    dora.post(address(plan, "approve"), {"digest": plan.digest, "confirmed": "1"})
    plan.refresh_from_db()
    assert plan.state == "draft"


def test_an_edit_of_what_was_edited_meanwhile_does_nothing(ann: Client) -> None:
    one, two, three = make_line(), make_line(), make_line()
    shown = stored(one)
    edit(ann, shown, csv_of(two))

    late = edit(ann, shown, csv_of(three))
    blind = edit(ann, shown, csv_of(three), digest="")

    assert {late.url, blind.url} == {address(shown)}
    shown.refresh_from_db()
    assert [target["id"] for target in shown.targets] == [two.pk]
    assert list(Action.objects.order_by("pk").values_list("outcome", flat=True)) == ["done", "failed", "failed"]


def test_a_settled_plan_is_edited_by_nobody(ann: Client) -> None:
    plan = stored(make_line())
    StoredPlan.objects.update(
        state="applied",
        approver="bob",
        approved_digest=plan.digest,
        approved_at=plan.created_at,
        decided_at=plan.created_at,
    )

    assert edit(ann, plan, csv_of(make_line())).url == address(plan)
    assert ann.get(address(plan, "edit")).url == address(plan)

    plan.refresh_from_db()
    assert (plan.state, plan.target_count) == ("applied", 1)
    assert "/edit/" not in text_of(ann, address(plan))
