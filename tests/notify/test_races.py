"""
The pass is right without its lock, and with it only one runs at a time.

Positive control: a pass that looks into the queue first and writes afterwards, held at the same place, queues each
message eight times.
"""

import json
import os
import sys
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.test import override_settings

from notify.dialects import dialect_of
from notify.dialects.base import ControlRow, MailRow
from notify.models import MailQueue, RunLog
from notify.passes.runner import run_pass
from portal.models import Comment
from tests.babelfish import stand_in_cannot
from tests.crashing import run_child
from tests.factories import NOW, make_comment, make_contact, make_line
from tests.notify.proof import (
    BEGIN,
    INSERT_COMMENT,
    assert_right,
    controls,
    has_row_locks,
    is_waited_for,
    mails_of_events,
    make_world,
    readers_wait,
)
from tests.racing import RACE_S, race, until

pytestmark = pytest.mark.django_db(transaction=True)

PROCESSES = 8


def wait_for_all(folder: str, name: str) -> None:
    """Wait until all processes have come here (runs in a child)."""
    (Path(folder) / name).touch()
    until(lambda: len(list(Path(folder).iterdir())) == PROCESSES, timeout_s=60)


def held_pass(folder: str, name: str) -> dict[str, Any]:
    """Run a pass without the lock that waits after its first look until all have looked (runs in a child)."""
    dialect = dialect_of(connection)
    look = dialect.stream
    is_first = [True]

    def looked(*arguments: Any, **options: Any) -> Iterator[Any]:
        for rows in look(*arguments, **options):
            if is_first:
                is_first.clear()
                wait_for_all(folder, name)
            yield rows

    dialect.stream = looked  # type: ignore[method-assign]
    with override_settings(NOTIFY={**settings.NOTIFY, "CHUNK_ROWS": 2}):
        report = run_pass(now=NOW, is_locking=False)
    return {"outcome": report.outcome.value, "mails": sum(step.mails for step in report.steps), "error": report.error}


def held_naive_pass(folder: str, name: str) -> dict[str, Any]:
    """Look into the queue for what has no message, wait until all have looked, then queue it (runs in a child)."""
    dialect = dialect_of(connection)
    queued = {key for _, key, _ in mails_of_events()}
    waiting = [line for line in Comment.objects.values_list("line", flat=True) if line not in queued]
    wait_for_all(folder, name)
    for line in waiting:
        with transaction.atomic():
            # The same key twice is what its missing constraint would allow: each process has a control row of its own.
            made = dialect.insert_controls(connection, "naive", [ControlRow(line, int(name), "en", "")])
            row = MailRow(made[line, int(name)], "", f"line {line}", "[]", "en", "{}", "queued", "")
            dialect.insert_mails(connection, uuid4(), [row])
    return {"mails": len(waiting)}


def fork_all(name: str) -> list[Any]:
    """Fork eight processes that each call the function of that name (runs in a child); return what each gave."""
    with tempfile.TemporaryDirectory(prefix="kwit-race-") as folder, tempfile.TemporaryDirectory() as answers:
        pids = []
        for number in range(PROCESSES):
            pids.append(os.fork())
            if not pids[-1]:
                try:
                    answer = json.dumps(globals()[name](folder, str(number)))
                    (Path(answers) / str(number)).write_text(answer)
                except BaseException:
                    traceback.print_exc()
                    sys.stderr.flush()
                    os._exit(1)
                os._exit(0)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        assert codes == [0] * PROCESSES, codes
        return [json.loads((Path(answers) / str(number)).read_text()) for number in range(PROCESSES)]


def eight(name: str) -> list[Any]:
    """Let eight processes call the function at once; return what each gave."""
    ended = run_child("tests.notify.test_races:fork_all", name)
    assert ended.returncode == 0, ended.stderr
    return list(ended.result)


def test_eight_processes_passing_at_once_without_the_lock_queue_each_message_once():
    keys = make_world(of_each=5)

    results = eight("held_pass")

    assert [result["outcome"] for result in results] == ["ok"] * PROCESSES, results
    assert sum(result["mails"] for result in results) == len(keys)
    assert_right(keys)


def test_control_eight_processes_that_look_into_the_queue_first_queue_each_message_eight_times():
    make_world(of_each=5)

    eight("held_naive_pass")

    mails = Counter(MailQueue.objects.values_list("subject", flat=True))
    assert set(mails.values()) == {PROCESSES}


def test_a_comment_committed_after_a_later_one_was_notified_still_gets_its_message(second):
    """E2: a transaction that commits late is not skipped by a watermark."""
    if not has_row_locks():
        pytest.skip("SQLite has one writer at a time: nothing can commit while another transaction has written")
    if readers_wait():
        pytest.skip("READ_COMMITTED_SNAPSHOT is off: the pass would wait for the early comment, and skip nothing")
    person = make_contact(name="ann")
    early, late = make_line(), make_line()
    with second.cursor() as cursor:
        cursor.execute(BEGIN[second.vendor])
        cursor.execute(INSERT_COMMENT[second.vendor], [early.pk, NOW])
        first_id = cursor.fetchone()[0]
    comment = make_comment(line=late, recipient=person)
    assert comment.pk > first_id

    run_pass(now=NOW)
    assert controls() == {("comment", late.pk, comment.pk)}
    with second.cursor() as cursor:
        cursor.execute("COMMIT")
    run_pass(now=NOW)

    assert_right_comments({("comment", late.pk, comment.pk), ("comment", early.pk, first_id)})


def test_a_comment_that_appears_with_an_older_time_than_a_notified_one_still_gets_its_message():
    person = make_contact()
    newer = make_comment(recipient=person, created_at=NOW)
    run_pass(now=NOW)
    older = make_comment(recipient=person, created_at=NOW - timedelta(hours=23))
    run_pass(now=NOW)

    assert_right_comments({("comment", comment.line_id, comment.pk) for comment in (newer, older)})


def assert_right_comments(keys: set[tuple[str, int, int]]) -> None:
    assert mails_of_events() == Counter(keys)


@pytest.fixture
def second() -> Iterator[Any]:
    """Another session on the same database."""
    other = connection.copy()
    other.inc_thread_sharing()
    yield other
    other.close()


@stand_in_cannot("HOLDLOCK does nothing there")
@pytest.mark.parametrize("ending", ["ROLLBACK", "COMMIT"])
def test_a_key_that_another_pass_has_inserted_is_waited_for_and_taken_only_when_it_is_rolled_back(second, ending):
    """The other session plays a pass that has written control and queue row and has not committed yet."""
    person = make_contact()
    comment = make_comment(recipient=person)
    key = ("comment", comment.line_id, comment.pk)
    dialect = dialect_of(connection)
    with second.cursor() as cursor:
        cursor.execute(BEGIN[second.vendor])
    made = dialect.insert_controls(second, "comment", [ControlRow(comment.line_id, comment.pk, "en", "x")])
    row = MailRow(made[key[1:]], "", "by the other", "[]", "en", "{}", "queued", "")
    dialect.insert_mails(second, uuid4(), [row])

    writing = threading.Event()

    def note_write(execute: Any, sql: str, *arguments: Any) -> Any:
        if "INSERT" in sql:
            writing.set()
        return execute(sql, *arguments)

    def act(number: int) -> Any:
        if number == 0:
            with connection.execute_wrapper(note_write):
                return run_pass(now=NOW, is_locking=False, kinds=["comment"])
        # On SQLite the pass waits with its first write of all.
        assert writing.wait(RACE_S)
        if has_row_locks():
            until(lambda: is_waited_for(second))
        with second.cursor() as cursor:
            cursor.execute(ending)
        return None

    report, ended = race(2, act)

    assert ended is None
    assert report.outcome == "ok", report
    assert mails_of_events() == {key: 1}
    by_other = MailQueue.objects.filter(subject="by the other").count()
    assert (report.steps[0].mails, by_other) == ((1, 0) if ending == "ROLLBACK" else (0, 1))


def test_of_passes_at_once_exactly_one_runs_and_each_other_is_skipped_naming_the_holder():
    """E11: a skipped pass says who holds the lock."""
    keys = make_world()

    def act(number: int) -> Any:
        return run_pass(now=NOW, is_stopping=hold if number == 0 else lambda: False)

    def hold() -> bool:
        # The holder goes on only when the other three have their answer.
        until(lambda: RunLog.objects.filter(outcome="skipped").count() == 3)
        return False

    def start(number: int) -> Any:
        if number:
            until(lambda: RunLog.objects.running().filter(step="pass").exists())
        return act(number)

    reports = race(4, start)

    assert [report.outcome for report in reports] == ["ok", "skipped", "skipped", "skipped"]
    assert_right(keys)
    holder = RunLog.objects.get(step="pass", outcome="ok")
    skipped = RunLog.objects.filter(outcome="skipped")
    for row in skipped:
        assert row.error.startswith("SKIPPED: lock code -1, held by ")
        assert f"host {holder.host}, process {holder.pid}, since {holder.started_at:%Y-%m-%dT%H:%M:%S}" in row.error
        assert row.step == "pass"
        assert row.ms < 5000
    assert not RunLog.objects.filter(pass_id__in=[row.pass_id for row in skipped]).exclude(step="pass").exists()


def test_the_skipped_row_names_the_step_in_which_the_holder_is():
    make_world()
    inner: list[Any] = []

    def nest() -> bool:
        if not inner and RunLog.objects.running().filter(step="advice").exists():
            inner.append(run_pass(now=NOW))
        return False

    run_pass(now=NOW, is_stopping=nest)

    assert inner[0].outcome == "skipped"
    assert "in step advice" in RunLog.objects.get(outcome="skipped").error


def test_a_pass_within_a_pass_on_one_connection_is_skipped_and_the_outer_one_goes_on():
    """E9: the lock is re-entrant in the database, not in Kwit."""
    keys, inner = make_world(), []

    def nest() -> bool:
        inner.append(run_pass(now=NOW))
        return False

    outer = run_pass(now=NOW, is_stopping=nest)

    assert {report.outcome for report in inner} == {"skipped"}
    assert outer.outcome == "ok"
    assert_right(keys)
    assert run_pass(now=NOW).outcome == "ok", "the lock was given back by the outer pass"


def test_a_pass_that_waits_gets_the_lock_as_soon_as_it_is_free():
    keys = make_world()

    refused = threading.Event()

    def hold() -> bool:
        assert refused.wait(RACE_S)
        return False

    def note_refusal() -> bool:
        refused.set()
        return False

    def act(number: int) -> Any:
        if number == 0:
            return run_pass(now=NOW, is_stopping=hold)
        until(lambda: RunLog.objects.running().filter(step="pass").exists())
        return run_pass(now=NOW, wait_s=30, is_stopping=note_refusal)

    reports = race(2, act)

    assert [report.outcome for report in reports] == ["ok", "ok"]
    assert_right(keys)
