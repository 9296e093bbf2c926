"""``notify_pass`` as scripts and people use it: what it prints, and what it exits with."""

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError

from notify.management.commands import notify_pass
from notify.models import RunLog
from tests.factories import make_comment, make_contact
from tests.notify.samples import Remark, make_comments

pytestmark = pytest.mark.django_db(transaction=True)


def run_command(*arguments: str) -> tuple[int, str]:
    """Run the command; return its exit code and what it printed on stdout."""
    out = io.StringIO()
    try:
        call_command("notify_pass", *arguments, stdout=out)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue()
    return 0, out.getvalue()


@pytest.fixture
def failing_step(add_step: Any) -> None:
    def fail(self: Any, scope: Any, **options: Any) -> Any:
        raise RuntimeError("no events today")

    add_step(type("Failing", (Remark,), {"kind": "failing", "candidates": fail}))
    add_step(Remark)


def test_json_is_one_object_with_exactly_the_keys_of_the_contract():
    make_comment(recipient=make_contact())

    code, printed = run_command("--json")

    told = json.loads(printed)
    assert code == 0
    assert list(told) == ["pass_id", "outcome", "ms", "steps"]
    assert [list(step) for step in told["steps"]] == [
        ["step", "outcome", "candidates", "mails", "tasks", "ms", "error"]
    ] * 4
    assert [step["step"] for step in told["steps"]] == ["order", "rejected", "advice", "comment"]
    assert {key: value for key, value in told["steps"][3].items() if key != "ms"} == {
        "step": "comment",
        "outcome": "ok",
        "candidates": 1,
        "mails": 1,
        "tasks": 0,
        "error": None,
    }
    assert RunLog.objects.filter(pass_id=told["pass_id"]).count() == 5


def test_a_dry_run_as_json_lists_what_it_would_queue():
    comment = make_comment(recipient=make_contact(email="ann@example.org"), author="Eve")

    code, printed = run_command("--json", "--dry-run")

    told = json.loads(printed)
    assert code == 0
    assert told["would_queue"] == [
        {
            "kind": "comment",
            "key": comment.line_id,
            "key2": comment.pk,
            "state": "queued",
            "subject": f"Order {comment.line.order.number}, : new comment by Eve",
            "task": "",
            "recipients": ["ann@example.org"],
            "language": "en",
            "problem": "",
        }
    ]
    assert RunLog.objects.count() == 0


def test_a_failing_step_makes_the_exit_code_1_and_the_others_are_told_as_well(failing_step):
    make_comments(1)

    code, printed = run_command("--json")

    told = json.loads(printed)
    assert (code, told["outcome"]) == (1, "error")
    assert [(step["outcome"], step["mails"]) for step in told["steps"]] == [("error", 0), ("ok", 1)]
    assert told["steps"][0]["error"].startswith("RuntimeError: no events today")


def test_the_table_has_a_line_for_each_step_and_only_the_first_line_of_an_error(failing_step):
    code, printed = run_command()

    lines = printed.splitlines()
    assert code == 1
    assert ": error in " in lines[0]
    assert lines[1] == "step failing failed"
    assert lines[3].split() == ["step", "outcome", "candidates", "mails", "tasks", "ms", "error"]
    assert [line.split()[:2] for line in lines[4:]] == [["failing", "error"], ["remark", "ok"]]
    assert "Traceback" not in printed


def test_the_table_of_a_dry_run_shows_the_subjects():
    comment = make_comment(recipient=make_contact(email="ann@example.org"), author="Eve")

    _, printed = run_command("--dry-run")

    assert "Would queue:" in printed
    assert f"comment {comment.line_id}/{comment.pk}  queued  ann@example.org  Order" in printed


@pytest.mark.parametrize(("arguments", "code"), [([], 0), (["--fail-on-skip"], 75), (["--wait", "0.05"], 0)])
def test_a_skipped_pass_exits_0_or_75_where_that_is_asked_for(other_session_holds_the_lock, arguments, code):
    exit_code, printed = run_command("--json", *arguments)

    told = json.loads(printed)
    assert exit_code == code
    assert (told["outcome"], told["steps"]) == ("skipped", [])
    assert RunLog.objects.get(pass_id=told["pass_id"]).error.startswith("SKIPPED")


def test_a_pass_that_is_not_skipped_exits_0_with_fail_on_skip():
    assert run_command("--fail-on-skip")[0] == 0


def test_the_steps_asked_for_run_and_no_others():
    _, printed = run_command("--json", "--step", "comment", "--step", "advice")

    assert [step["step"] for step in json.loads(printed)["steps"]] == ["advice", "comment"]


def test_an_unknown_step_is_refused_with_the_known_ones():
    with pytest.raises(CommandError, match=r"no step of kind \['nothing'\].*'comment'"):
        call_command("notify_pass", "--step", "nothing")


def test_a_baseline_prints_no_mails():
    make_comment(recipient=make_contact())

    _, printed = run_command("--json", "--baseline")

    assert [(step["candidates"], step["mails"]) for step in json.loads(printed)["steps"]][3] == (1, 0)


def test_full_is_told_to_the_log():
    run_command()
    _, printed = run_command("--json", "--full")

    assert RunLog.objects.get(pass_id=json.loads(printed)["pass_id"], step="comment").is_full


def test_a_database_that_takes_no_log_is_told_in_one_line(monkeypatch):
    def refuse(**_: Any) -> None:
        raise DatabaseError("no such table: notify_run_log")

    monkeypatch.setattr(notify_pass, "run_pass", refuse)

    with pytest.raises(CommandError, match=r"no such table: notify_run_log \(see manage\.py check .*default\)"):
        run_command("--json")
