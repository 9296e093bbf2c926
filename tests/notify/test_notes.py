"""What the engine records stands in each row twice: as codes for programs, as an English sentence for plain SQL."""

import ast
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import DEFAULT_DB_ALIAS
from django.utils import timezone, translation

from notify.dialects.base import BUSY, LockAnswer
from notify.explain.messages import lock_code_of, say_holder, say_logged, say_problem
from notify.models import MailQueue, RunLog
from notify.notes import SENTENCES, as_data, as_text, english, from_data, note, try_find
from notify.passes.lock import holders_of
from notify.passes.runner import run_pass
from tests.factories import make_comment, make_contact, make_line, make_order
from tests.mails import log, make_mail
from tests.notify.samples import Remark, make_comments
from tests.notify.test_events import Repeating

pytestmark = pytest.mark.django_db(transaction=True)
NOTIFY = Path(__file__).parents[2] / "notify"


def logged_codes() -> set[str]:
    return {one.code for notes in RunLog.objects.values_list("notes", flat=True) for one in from_data(notes)}


def assert_texts_are_those_of_the_codes() -> None:
    """Each text is what its row's codes say in English, whatever language the pass ran in."""
    rows = list(RunLog.objects.exclude(error=None))
    assert rows
    for row in rows:
        assert row.error == english(from_data(row.notes)), row.error
    assert not RunLog.objects.filter(error=None, notes__isnull=False).exists()
    for mail in MailQueue.objects.exclude(problem=""):
        assert mail.problem == english(from_data(mail.notes)), mail.problem
    assert not MailQueue.objects.filter(problem="", notes__isnull=False).exists()


def test_what_passes_log_is_stored_as_codes_beside_the_sentences(configure: Any) -> None:
    configure(BREAKER=2)
    now = datetime.now(UTC)
    for _ in range(3):
        make_line(order=make_order(registered_at=now))
    make_comment(recipient=make_contact(email=""), created_at=now)
    log(started_at=now - timedelta(minutes=5), outcome="running", ended_at=None, ms=None)

    with translation.override("pl"):
        run_pass()
        run_pass(is_stopping=lambda: True)

    assert logged_codes() == {"died", "step_warned", "blocked", "breaker", "stopped_before"}
    assert_texts_are_those_of_the_codes()
    found = try_find(RunLog.objects.get(step="order").notes, "breaker")
    assert found is not None
    assert (found.params["prepared"], found.params["waiting"]) == (2, 1)
    assert [one.code for one in from_data(MailQueue.objects.get(state="blocked", control__kind="comment").notes)] == [
        "no_recipient"
    ]


def test_a_failed_step_keeps_the_words_of_its_exception_as_a_parameter(add_step: Any) -> None:
    class Failing(Remark):
        def candidates(self, scope: Any, **kwargs: Any) -> Any:
            raise RuntimeError("no such view")

    add_step(Failing)

    run_pass()

    assert logged_codes() == {"step_failed", "exception"}
    found = try_find(RunLog.objects.get(step="remark").notes, "exception")
    assert found is not None
    assert found.params["error"] == "RuntimeError: no such view"
    assert_texts_are_those_of_the_codes()


def test_a_repeated_key_and_a_stop_within_a_step_are_codes_too(add_step: Any, configure: Any) -> None:
    add_step(Repeating)
    configure(CHUNK_ROWS=1)
    make_comments(2, line=make_line())
    run_pass(is_full=True)
    for _ in range(2):
        make_comments(1, line=make_line())
    run_pass(is_full=True, is_stopping=lambda: MailQueue.objects.count() > 1)

    assert {"repeated_keys", "stopped_after"} <= logged_codes()
    assert_texts_are_those_of_the_codes()


def test_who_holds_the_lock_is_a_list_of_codes() -> None:
    nobody = holders_of(LockAnswer(BUSY), using=DEFAULT_DB_ALIAS)
    now = datetime.now(UTC)
    whole = log(started_at=now, outcome="running", ended_at=None, ms=None, host="web 1", pid=4711)
    between = holders_of(LockAnswer(BUSY), using=DEFAULT_DB_ALIAS)
    log("comment", pass_id=whole.pass_id, started_at=now, outcome="running", ended_at=None, ms=None)
    within = holders_of(LockAnswer(BUSY, holder=note("holder_process", pid=4711, host="web 1")), using=DEFAULT_DB_ALIAS)

    codes = [[one.code for one in holders] for holders in (nobody, between, within)]
    assert codes == [["holder_unknown"], ["holder_between"], ["holder_in_step", "holder_process"]]
    assert within[0].params["step"] == "comment"
    assert english(within).endswith("in step comment; process 4711 on host web 1")


def test_a_skipped_row_gives_code_and_holder_without_its_text_being_parsed() -> None:
    holders = [note("holder_process", pid=7, host="db; held by nobody")]
    notes = as_data([note("skipped", code=-1, holder=holders)])
    row = log(outcome="skipped", error="not what the code says", notes=notes)

    assert lock_code_of(row) == "-1"
    assert say_holder(row) == "process 7 on host db; held by nobody"


def test_a_moment_is_said_by_the_readers_clock() -> None:
    oldest = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)
    row = log(error="x", notes=as_data([note("breaker", prepared=2, waiting=1, oldest=oldest)]))

    with timezone.override("Asia/Tokyo"):
        said = say_logged(row)

    assert said == "circuit breaker: 2 prepared, 1 wait, the oldest since 2026-01-31 17:00:00+0900"


def test_what_plain_sql_wrote_stays_as_it_is() -> None:
    for notes in (None, [], {}, "text", [1], [{"code": "no such code", "params": {}}], [{"code": "breaker"}]):
        assert say_logged(log(error="no such view", notes=notes)) == "no such view"
    mail = make_mail(state="blocked", problem="no recipient", notes=[{"code": "held_by", "params": {}}])
    assert say_problem(mail) == "no recipient"


def test_every_note_comes_back_from_json_as_it_was() -> None:
    notes = [note("skipped", code=-1, holder=[note("holder_unknown"), note("holder_process", pid=1, host="é")])]

    text = as_text(notes)

    assert text is not None
    assert from_data(json.loads(text)) == notes
    assert as_text([]) is None
    with pytest.raises(KeyError):
        note("no such code")


def test_plurals_agree_in_the_stored_sentence() -> None:
    assert note("repaired", count=1).english == "repaired: 1 row marked whose event already had its message"
    assert note("repaired", count=2).english == "repaired: 2 rows marked whose event already had its message"


def test_no_page_and_no_explanation_reads_a_text_by_regular_expressions() -> None:
    found = [
        f"{path.relative_to(NOTIFY)}:{node.lineno}"
        for folder in ("pages", "explain", "passes")
        for path in sorted((NOTIFY / folder).glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import) and any(name.name in ("re", "regex") for name in node.names)
    ]

    assert found == []
    assert SENTENCES


def test_a_baseline_is_said_in_the_history_and_is_neither_error_nor_warning() -> None:
    since = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)

    for report in (run_pass(is_baseline=True), run_pass(baseline_since=since)):
        row = RunLog.objects.get(pass_id=report.pass_id, step=RunLog.WHOLE)
        assert (row.outcome, row.error) == ("ok", None)
        assert say_logged(row).startswith("baseline: the events ")
    assert "2026-01-31" in say_logged(row)
