"""The commands: what they print, and how they exit; the contract to the letter."""

import io
import json
import os
import subprocess
import sys

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from portal.models import OrderLine
from receipts.models import Change, Reconciliation, StoredPlan
from tests.browser.story import make_user
from tests.factories import make_line
from tests.receipts.plain import cancel, states, target

pytestmark = pytest.mark.django_db


def run(*arguments, as_json=True):
    """Run a command; return (exit code, what it printed)."""
    out, code = io.StringIO(), 0
    try:
        call_command(*arguments, *(["--json"] if as_json else []), stdout=out, stderr=io.StringIO())
    except CommandError as error:
        code = error.returncode
    text = out.getvalue()
    return code, (json.loads(text) if as_json and text else text)


@pytest.fixture
def plan(tmp_path):
    """Return a function that writes a plan of CHG-1 for lines and returns its path."""

    def write(*lines, **changed):
        path = tmp_path / "plan.json"
        rows = [target(line)._asdict() for line in lines]
        path.write_text(json.dumps({"change_id": "CHG-1", "tenant": "acme", "targets": rows} | changed))
        return str(path)

    return write


def test_a_batch_is_applied_now_or_was_before(plan):
    line = make_line()
    path = plan(line)

    assert run("cancel_batch", path, "--actor", "ann", "--reason", "sold out") == (
        0,
        {"change_id": "CHG-1", "applied": True, "targets": 1},
    )
    assert run("cancel_batch", path) == (0, {"change_id": "CHG-1", "applied": False, "targets": 1})
    assert run("cancel_batch", path, as_json=False) == (0, "CHG-1: already applied, 1 targets\n")
    assert Change.objects.values_list("actor", "reason").get() == ("ann", "sold out")


def test_a_stale_batch_exits_3_and_names_each_problem(plan):
    good, stale = make_line(), make_line()
    path = plan(good, stale)
    OrderLine.objects.filter(pk=stale.pk).update(qty=12)

    assert run("cancel_batch", path) == (
        3,
        {
            "conflict": "stale",
            "problems": [
                {
                    "id": stale.pk,
                    "problem": "qty_differs",
                    "approved": {"revision": 4, "qty": 10},
                    "current": {"revision": 4, "qty": 12, "state": "pending"},
                }
            ],
        },
    )
    code, text = run("cancel_batch", path, as_json=False)
    assert code == 3
    assert f"{stale.pk}: qty_differs" in text
    assert states(good) == [("pending", 4)]


def test_a_reused_change_id_exits_3_without_problems(plan):
    cancel(target(make_line()))

    assert run("cancel_batch", plan(make_line())) == (3, {"conflict": "change_id_reused", "problems": []})


def test_an_invalid_plan_exits_4_and_names_each_place(plan):
    assert run("cancel_batch", plan(targets=[{"id": True, "revision": 4, "qty": 10}])) == (
        4,
        {"invalid": [{"where": "targets[0].id", "problem": "must be an integer, not True"}]},
    )
    assert run("cancel_batch", plan(tenant=""), as_json=False)[0] == 4


def test_a_missing_file_exits_4():
    output = io.StringIO()

    with pytest.raises(CommandError) as caught:
        call_command("cancel_batch", "no-such-plan.json", "--json", stdout=output)

    assert caught.value.returncode == 4
    assert json.loads(output.getvalue()) == {
        "invalid": [{"where": "no-such-plan.json", "problem": "cannot be read: No such file or directory"}]
    }


def test_a_dry_run_answers_and_writes_nothing(plan):
    line = make_line()
    path = plan(line)

    assert run("cancel_batch", path, "--dry-run")[1]["would_apply"] is True
    assert states(line) == [("pending", 4)]
    cancel(target(line))
    assert run("cancel_batch", path, "--dry-run") == (
        0,
        {"change_id": "CHG-1", "applied": False, "targets": 1, "would_apply": False},
    )


def test_a_csv_takes_change_id_and_tenant_as_options(tmp_path):
    line = make_line()
    path = tmp_path / "plan.csv"
    path.write_text(f"id;revision;qty\n{line.pk};4;10\n")

    answer = run("cancel_batch", str(path), "--change-id", "CHG-9", "--tenant", "acme")

    assert answer == (0, {"change_id": "CHG-9", "applied": True, "targets": 1})


def test_any_registered_kind_can_be_applied(plan):
    line = make_line()

    assert run("apply_batch", "--kind", "accept", plan(line))[0] == 0
    assert states(line) == [("accepted", 5)]
    with pytest.raises(CommandError, match="known: accept, cancel"):
        call_command("apply_batch", "--kind", "melt", plan(line))


def test_inspecting_prints_the_receipt_with_its_audit_rows():
    line = make_line()
    cancel(target(line), actor="ann")

    code, receipt = run("inspect_change", "CHG-1")

    assert code == 0
    assert receipt["targets"] == [{"id": line.pk, "revision": 4, "qty": 10}]
    assert receipt["audit"] == [
        {
            "target_id": line.pk,
            "revision_before": 4,
            "revision_after": 5,
            "qty": 10,
            "state_before": "pending",
            "state_after": "cancelled",
        }
    ]
    assert {"change_id", "kind", "tenant", "digest", "actor", "reason", "created_at"} < set(receipt)
    assert f"{line.pk}: revision 4 -> 5" in run("inspect_change", "CHG-1", as_json=False)[1]


def test_inspecting_what_is_not_there_exits_1():
    assert run("inspect_change", "CHG-1") == (1, {"error": "No receipt of 'CHG-1' is committed."})


def test_reconciling_exits_0_while_all_match_and_5_when_any_differs():
    one, two = make_line(), make_line()
    cancel(target(one))
    cancel(target(two), change_id="CHG-2")

    code, answer = run("reconcile", "--all")
    assert code == 0
    assert [change["match"] for change in answer["changes"]] == [1, 1]

    OrderLine.objects.filter(pk=two.pk).update(revision=6)
    code, answer = run("reconcile", "CHG-2", "CHG-1")
    recorded = {"revision": 5, "qty": 10, "state": "cancelled"}
    assert code == 5
    assert answer == {
        "changes": [
            {
                "change_id": "CHG-2",
                "match": 0,
                "changed": 1,
                "missing": 0,
                "broken": 0,
                "problems": [],
                "items": [
                    {"id": two.pk, "category": "changed", "recorded": recorded, "current": recorded | {"revision": 6}}
                ],
            },
            {
                "change_id": "CHG-1",
                "match": 1,
                "changed": 0,
                "missing": 0,
                "broken": 0,
                "problems": [],
                "items": [{"id": one.pk, "category": "match", "recorded": recorded, "current": recorded}],
            },
        ]
    }
    code, text = run("reconcile", "--all", as_json=False)
    assert code == 5
    assert f"{two.pk}: changed: revision 5 -> 6" in text
    OrderLine.objects.filter(pk=two.pk).delete()
    assert f"{two.pk}: missing" in run("reconcile", "CHG-2", as_json=False)[1]


def test_reconciling_can_keep_its_results():
    cancel(target(make_line()))

    run("reconcile", "--all", "--record", "--actor", "ann")

    assert Reconciliation.objects.values_list("change_id", "actor", "match").get() == ("CHG-1", "ann", 1)


def test_reconciling_nothing_is_an_empty_list():
    assert run("reconcile", "--all") == (0, {"changes": []})


@pytest.mark.parametrize("arguments", [["CHG-1"], ["CHG-1", "--all"], []])
def test_reconciling_needs_receipts_that_exist(arguments):
    with pytest.raises(CommandError):
        call_command("reconcile", *arguments)


@pytest.mark.django_db(transaction=True)
def test_the_shell_sees_the_same_exit_codes_and_reads_json_from_stdin():
    from tests.crashing import child_environment

    line = make_line()
    plan = json.dumps({"change_id": "CHG-1", "tenant": "acme", "targets": [target(line)._asdict()]})
    child = [sys.executable, "-c", SHELL]
    environment = child_environment() | {"PYTHONPATH": os.getcwd()}

    def shell(text):
        return subprocess.run([*child], input=text, env=environment, capture_output=True, text=True, check=False)

    done, stale, wrong = shell(plan), shell(plan.replace("CHG-1", "CHG-2")), shell("{")

    assert (done.returncode, json.loads(done.stdout)["applied"]) == (0, True), done.stderr
    assert (stale.returncode, json.loads(stale.stdout)["conflict"]) == (3, "stale")
    assert (wrong.returncode, json.loads(wrong.stdout)["invalid"][0]["where"]) == (4, "the file")
    assert connection.vendor in ("sqlite", "postgresql", "microsoft")


#: What manage.py does, on the test's database.
SHELL = """
import json, os
from django.conf import settings
for alias, values in json.loads(os.environ["KWIT_CHILD_DATABASES"]).items():
    settings.DATABASES[alias].update(values)
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "cancel_batch", "-", "--json"])
"""


@pytest.mark.django_db(transaction=True)
def test_an_answer_about_a_committed_change_fits_any_terminal():
    from tests.crashing import child_environment

    line = make_line()
    plan = json.dumps({"change_id": "ŻÓŁW-1", "tenant": "acme", "targets": [target(line)._asdict()]})
    environment = child_environment() | {"PYTHONPATH": os.getcwd(), "PYTHONIOENCODING": "ascii"}

    done = subprocess.run(
        [sys.executable, "-c", SHELL], input=plan, env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["change_id"] == "ŻÓŁW-1"


def test_a_plan_goes_its_way_by_commands(plan):
    line = make_line()
    make_user("bob", "receipts.approve_plan")
    make_user("eve")
    gone = make_user("gone", "receipts.approve_plan")
    gone.is_active = False
    gone.save()
    code, stored = run("plan_store", plan(line), "--kind", "cancel", "--author", "ann", "--reason", "sold out")
    pk, digest = str(stored["plan"]), stored["digest"]
    assert (code, stored["change_id"], stored["targets"]) == (0, "CHG-1", 1)
    assert run("plan_apply", pk)[0] == 1
    for nobody in ("ann", "eve", "gone", "BOB", ""):
        assert run("plan_approve", pk, "--approver", nobody, "--digest", digest)[0] == 1
    assert run("plan_approve", pk, "--approver", "bob", "--digest", "0" * 64)[0] == 1
    assert run("plan_approve", pk, "--approver", "bob", "--digest", digest) == (
        0,
        {"plan": stored["plan"], "approved": True},
    )

    listed = run("plan_list", "--state", "approved", "--tenant", "acme")[1]["plans"]
    applied = {"plan": stored["plan"], "change_id": "CHG-1", "targets": 1}
    assert [(one["plan"], one["state"], one["approver"], one["target_count"]) for one in listed] == [
        (stored["plan"], "approved", "bob", 1)
    ]
    assert run("plan_apply", pk, "--digest", "0" * 64)[0] == 1
    assert run("plan_apply", pk, "--digest", digest, "--actor", "olga") == (0, applied | {"applied": True})
    assert Change.objects.values_list("author", "approver", "actor").get() == ("ann", "bob", "olga")
    assert run("plan_apply", pk) == (0, applied | {"applied": False})
    assert states(line) == [("cancelled", 5)]
    assert run("plan_list", "--change-id", "CHG-9", as_json=False) == (0, "There is no such plan.\n")


def test_a_stored_plan_that_came_too_late_exits_3_and_an_invalid_one_4(plan):
    line = make_line()
    make_user("bob", "receipts.approve_plan")
    _, stored = run("plan_store", plan(line), "--kind", "cancel", "--author", "ann")
    run("plan_approve", str(stored["plan"]), "--approver", "bob", "--digest", stored["digest"])
    OrderLine.objects.filter(pk=line.pk).update(qty=7)

    code, refused = run("plan_apply", str(stored["plan"]))

    assert (code, refused["conflict"], refused["problems"][0]["problem"]) == (3, "stale", "qty_differs")
    assert run("plan_list", "--state", "refused")[1]["plans"][0]["plan"] == stored["plan"]
    code, invalid = run("plan_store", plan(line, tenant=""), "--kind", "cancel", "--author", "ann")
    assert (code, invalid) == (4, {"invalid": [{"where": "tenant", "problem": "is empty"}]})
    assert run("plan_apply", "999999")[0] == 1
    assert run("plan_store", plan(line), "--kind", "nothing", "--author", "ann")[0] == 1


def test_a_plan_is_rejected_by_who_may_approve_and_withdrawn_by_its_author(plan):
    make_user("bob", "receipts.approve_plan")
    make_user("eve")
    numbers = [
        str(run("plan_store", plan(make_line()), "--kind", "cancel", "--author", "ann")[1]["plan"]) for _ in "12"
    ]

    assert run("plan_reject", numbers[0], "--actor", "eve", "--reason", "no")[0] == 1
    assert run("plan_reject", numbers[0], "--actor", "bob", "--reason", " ")[0] == 4
    assert run("plan_reject", numbers[0], "--actor", "bob", "--reason", "too many", "--digest", "0" * 64)[0] == 1
    assert run("plan_reject", numbers[0], "--actor", "bob", "--reason", "too many")[0] == 0
    assert run("plan_reject", numbers[0], "--actor", "bob", "--reason", "again")[0] == 1
    assert run("plan_withdraw", numbers[1], "--actor", "bob")[0] == 1
    assert run("plan_withdraw", numbers[1], "--actor", "ann")[0] == 0

    kept = StoredPlan.objects.order_by("pk").values_list("state", "decided_by", "decision_reason")
    assert list(kept) == [("rejected", "bob", "too many"), ("withdrawn", "ann", "")]
    assert run("plan_apply", numbers[0])[0] == 1
