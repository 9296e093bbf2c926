"""A pass as a whole: its lock, its run log, failures that stay alone, flags and the circuit breaker."""

import os
import re
import signal
import socket
import threading
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.models import F
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import path

from notify import passes
from notify.backends import room_for
from notify.errors import UnknownStep
from notify.models import ERROR_CHARS_MAX, Control, MailQueue, Outcome, RunLog
from notify.passes import run_pass
from portal.models import Contact, OrderLine
from tests.crashing import WRITING, start_child
from tests.factories import NOW, make_comment, make_contact, make_line, make_many, make_order
from tests.notify.samples import Lined, Remark, do_pass, later, log_row, mailed, make_comments, make_lines, noted
from tests.racing import race, until

pytestmark = pytest.mark.django_db(transaction=True)


class Failing(Remark):
    """A step that fails before it has done anything."""

    kind = "failing"

    def candidates(self, scope: Any, **options: Any) -> Any:
        raise RuntimeError("no events today")


def test_the_log_says_running_while_a_step_runs_and_is_closed_at_the_end(add_step):
    seen: list[tuple[str, str, str, int]] = []

    class Looking(Remark):
        def candidates(self, scope: Any, **options: Any) -> Any:
            seen.extend(RunLog.objects.order_by("pk").values_list("step", "outcome", "host", "pid"))
            return super().candidates(scope, **options)

    add_step(Looking)
    make_comments(3)
    now = later()

    report = do_pass(now=now)

    host, pid = socket.gethostname(), os.getpid()
    assert seen == [("pass", "running", host, pid), ("remark", "running", host, pid)]
    whole, step = log_row(report), log_row(report, "remark")
    assert (whole.outcome, whole.error, whole.candidates, whole.mails, whole.tasks) == ("ok", None, 3, 3, 0)
    assert (step.outcome, step.error, step.candidates, step.mails, step.tasks) == ("ok", None, 3, 3, 0)
    assert (whole.started_at, whole.ms) == (now, report.ms)
    assert whole.ended_at == whole.started_at + timedelta(milliseconds=whole.ms)
    assert step.started_at >= whole.started_at
    assert step.ended_at >= step.started_at


def test_a_failing_step_is_logged_with_its_place_and_the_next_one_runs(add_step):
    add_step(Failing)
    add_step(Remark)
    (comment,) = make_comments(1)

    report = do_pass()

    row = log_row(report, "failing")
    assert row.outcome == "error"
    assert row.error.startswith("RuntimeError: no events today\nTraceback")
    assert "test_passes.py" in row.error
    assert (log_row(report).outcome, log_row(report).error) == ("error", "step failing failed")
    assert log_row(report, "remark").outcome == "ok"
    assert mailed("remark") == [comment.pk]


def test_a_step_that_fails_in_the_database_does_not_stop_the_next_one(add_step):
    class Wrong(Remark):
        kind = "wrong"

        def candidates(self, scope: Any, **options: Any) -> Any:
            with connection.cursor() as cursor:
                cursor.execute("SELECT no_such_column FROM notify_control")

    add_step(Wrong)
    add_step(Remark)
    (comment,) = make_comments(1)

    report = do_pass()

    assert [step.outcome for step in report.steps] == ["error", "ok"]
    assert mailed("remark") == [comment.pk]


def test_a_failing_step_does_not_give_the_lock_away(add_step):
    """Django calls a connection obsolete at once when CONN_MAX_AGE is 0; closing it would end the lock's session."""
    answers: list[int] = []

    class Asking(Remark):
        kind = "asking"

        def candidates(self, scope: Any, **options: Any) -> Any:
            answers.extend(race(1, lambda _: room_for(connection).try_lock(connection).code))
            return super().candidates(scope, **options)

    add_step(Failing)
    add_step(Asking)
    connection.close()

    report = do_pass()

    assert answers == [-1]
    assert [step.outcome for step in report.steps] == ["error", "ok"]


@pytest.mark.parametrize("text", ["x" * 20_000, "\0" * 20_000, "ą" * 20_000, "\ud800" + "🧾" * 10_000])
def test_an_error_of_twenty_kilobytes_is_stored_shortened(add_step, text):
    """E18: stored shortened, never a second failure."""

    class Verbose(Remark):
        kind = "verbose"

        def candidates(self, scope: Any, **options: Any) -> Any:
            raise RuntimeError(text)

    add_step(Verbose)

    report = do_pass()

    row = log_row(report, "verbose")
    assert len(row.error) == ERROR_CHARS_MAX
    assert row.error.startswith("RuntimeError: ")
    assert row.error == report.steps[0].error
    assert log_row(report).outcome == "error"


def test_a_pass_inside_a_transaction_is_refused_and_leaves_nothing():
    with transaction.atomic(), pytest.raises(transaction.TransactionManagementError, match="inside a transaction"):
        run_pass()

    assert RunLog.objects.count() == 0


def test_an_unknown_step_is_refused_by_name_before_anything_is_written():
    with pytest.raises(UnknownStep, match=r"\['nothing'\].*'comment'"):
        run_pass(kinds=["comment", "nothing"])

    assert RunLog.objects.count() == 0


def test_the_database_s_clock_is_used_when_no_moment_is_given():
    report = run_pass()

    assert abs(log_row(report).started_at - datetime.now(UTC)) < timedelta(minutes=1)


def test_a_busy_lock_ends_the_run_at_once_with_a_row_that_names_the_holder(add_step):
    """E11: host, process, since when and in which step."""
    in_step, go_on = threading.Event(), threading.Event()

    class Slow(Remark):
        kind = "slow"

        def candidates(self, scope: Any, **options: Any) -> Any:
            in_step.set()
            assert go_on.wait(30)
            return super().candidates(scope, **options)

    add_step(Slow)
    outcomes: list[Any] = []
    holder = threading.Thread(target=lambda: outcomes.extend(race(1, lambda _: run_pass(now=NOW))))
    holder.start()
    assert in_step.wait(30)
    try:
        skipped = do_pass()
        again = do_pass()
    finally:
        go_on.set()
        holder.join(30)

    assert [report.outcome for report in outcomes] == ["ok"]
    assert (skipped.outcome, skipped.steps) == ("skipped", ())
    row = log_row(skipped)
    assert row.error.startswith("SKIPPED: lock code -1, held by ")
    who = f"host {socket.gethostname()}, process {os.getpid()}, since 2026-01-31T08:00:00+0000, in step slow"
    assert who in row.error
    assert who in log_row(again).error, "the row of a skipped pass is not taken for the holder's"
    assert row.ended_at >= row.started_at
    assert (row.outcome, row.candidates, row.mails) == ("skipped", 0, 0)
    assert not RunLog.objects.filter(pass_id=skipped.pass_id).exclude(step="pass").exists()


def test_the_row_of_a_skipped_pass_is_never_open(other_session_holds_the_lock):
    with CaptureQueriesContext(connection) as captured:
        do_pass()

    writes = [query["sql"] for query in captured if WRITING.match(query["sql"])]
    assert len(writes) == 1
    assert "skipped" in writes[0]


def test_a_holder_without_a_row_is_named_as_that(other_session_holds_the_lock):
    report = do_pass()

    # By what the database knows: SQLite's lock file names the process, PostgreSQL the session; in memory nobody does.
    assert re.search(r"no row in the run log|database session \d+|held by process \d+ on host", report.error)


def test_waiting_for_the_lock_gets_it_when_it_is_given_back(other_session_holds_the_lock, monkeypatch):
    # The lock is given back while the pass pauses between two tries.
    monkeypatch.setattr("notify.locks.time.sleep", lambda _: other_session_holds_the_lock.set())

    assert do_pass(wait_s=30).outcome == "ok"


def test_waiting_ends_when_the_time_is_over_or_the_pass_is_asked_to_stop(other_session_holds_the_lock):
    assert do_pass(wait_s=0.05).outcome == "skipped"
    assert do_pass(wait_s=600, is_stopping=lambda: True).outcome == "skipped"


def test_a_pass_within_a_pass_on_one_connection_is_skipped(add_step):
    """E9: re-entrant in the database is not re-entrant in Kwit, and the inner one does not release the outer's lock."""
    inner: list[Any] = []

    class Nesting(Remark):
        kind = "nesting"

        def candidates(self, scope: Any, **options: Any) -> Any:
            inner.append(run_pass(now=later()))
            return super().candidates(scope, **options)

    add_step(Nesting)
    (comment,) = make_comments(1)

    outer = do_pass()

    assert [report.outcome for report in inner] == ["skipped"]
    assert outer.outcome == "ok"
    assert mailed("nesting") == [comment.pk]
    assert do_pass(kinds=[]).outcome == "ok", "and afterwards the lock is free"


def test_a_release_that_fails_after_a_step_failed_keeps_the_first_error(add_step, monkeypatch):
    """E10: the log keeps the step's error, and the pass still returns its report."""
    add_step(Failing)
    break_release(monkeypatch)

    report = do_pass()

    assert (log_row(report).outcome, log_row(report).error) == ("error", "step failing failed")
    assert "no events today" in log_row(report, "failing").error


def test_a_release_that_fails_after_a_clean_pass_is_a_warning(add_step, monkeypatch):
    """E10, the other side: nothing is kept silent either."""
    add_step(Remark)
    break_release(monkeypatch)

    report = do_pass()

    assert log_row(report).outcome == "warning"
    assert log_row(report).error == "the lock could not be released: the network is gone"


def break_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the room give the lock back and then fail, as a session does that ends just then."""
    room = room_for(connection)
    unlock = room.unlock

    def failing(*arguments: Any) -> None:
        unlock(*arguments)
        raise DatabaseError("the network is gone")

    monkeypatch.setattr(room, "unlock", failing)


def test_the_next_holder_closes_the_rows_of_a_pass_that_died():
    dead = uuid.uuid4()
    for step in ("pass", "comment"):
        RunLog.objects.create(pass_id=dead, step=step, started_at=NOW - timedelta(hours=1))

    report = do_pass(now=NOW)

    rows = RunLog.objects.filter(pass_id=dead)
    assert {(row.outcome, row.error, row.ended_at) for row in rows} == {
        ("error", "died: the process ended without closing its pass", NOW)
    }
    assert report.outcome == "ok"


def test_no_duration_is_negative_when_the_clock_was_set_back():
    """E16: the dead pass started in what is now the future, and the step's query sets the clock back."""
    dead = RunLog.objects.create(pass_id=uuid.uuid4(), step="pass", started_at=NOW + timedelta(hours=1))

    report = do_pass(now=NOW)

    dead.refresh_from_db()
    assert dead.ended_at == dead.started_at
    assert all(row.ms is None or row.ms >= 0 for row in RunLog.objects.all())
    assert all(row.ended_at >= row.started_at for row in RunLog.objects.all())
    assert report.outcome == "ok"


@pytest.mark.parametrize(
    "moment",
    [datetime(2026, 3, 29, 1, 0, tzinfo=UTC), datetime(2026, 10, 25, 1, 0, tzinfo=UTC)],
    ids=["summer time begins", "summer time ends"],
)
def test_a_change_to_or_from_summer_time_loses_and_repeats_nothing(add_step, settings, moment):
    """E16: all times are moments, whatever the site's time zone shows."""
    settings.TIME_ZONE = "Europe/Warsaw"
    add_step(Remark)
    keys = []
    for minutes in (-90, -30, 30, 90):
        keys += [comment.pk for comment in make_comments(1, at=moment + timedelta(minutes=minutes))]
        do_pass(now=moment + timedelta(minutes=minutes + 1))

    assert mailed("remark") == keys
    assert all(row.ended_at >= row.started_at for row in RunLog.objects.all())


def old_rows(n: int, *, age: timedelta) -> list[int]:
    rows = [
        RunLog(
            pass_id=uuid.uuid4(), step="pass", started_at=NOW - age, ended_at=NOW, outcome=Outcome.OK, candidates=number
        )
        for number in range(n)
    ]
    return [row.pk for row in make_many(rows)]


def test_rows_are_kept_to_the_day_and_deleted_when_they_are_older(configure):
    """E17: both sides of the boundary."""
    configure(LOG_RETENTION_DAYS=60)
    (young,) = old_rows(1, age=timedelta(days=60))
    (old,) = old_rows(1, age=timedelta(days=60, microseconds=1))

    do_pass(now=NOW)

    left = RunLog.objects.values_list("pk", flat=True)
    assert young in left
    assert old not in left


def test_each_pass_deletes_a_bounded_number_of_rows_by_key_range(configure, monkeypatch):
    """E17: bounded per pass and per statement, the oldest first, and a gap in the keys costs no young row."""
    configure(LOG_PRUNE_BATCH=50)
    monkeypatch.setattr(passes, "PRUNE_ROWS", 20)
    old_rows(30, age=timedelta(days=100))
    (young,) = old_rows(1, age=timedelta(days=1))
    old_rows(40, age=timedelta(days=100))
    expired = RunLog.objects.expired(NOW - timedelta(days=60))

    with CaptureQueriesContext(connection) as captured:
        do_pass()

    deletes = [query["sql"] for query in captured if "DELETE FROM" in query["sql"]]
    assert (expired.count(), len(deletes)) == (20, 3)
    assert all(" >= " in delete and " <= " in delete for delete in deletes)
    do_pass()
    assert expired.count() == 0
    assert RunLog.objects.filter(pk=young).exists()


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_pass_closes_its_rows_and_gives_the_lock_back(add_step, interruption):
    class Interrupted(Remark):
        kind = "interrupt"

        def events(self, scope: Any) -> Any:
            raise interruption

    add_step(Remark)
    add_step(Interrupted)
    make_comments(1)

    with pytest.raises(interruption):
        do_pass()

    rows = {row.step: row for row in RunLog.objects.all()}
    assert {step: row.outcome for step, row in rows.items()} == {"remark": "ok", "interrupt": "error", "pass": "error"}
    assert rows["pass"].error == rows["interrupt"].error == f"interrupted: {interruption.__name__}"
    assert all(row.ms >= 0 and row.ended_at >= row.started_at for row in rows.values())
    add_step(Remark)
    assert do_pass(kinds=["remark"]).outcome == "ok"


def test_control_rows_are_never_deleted():
    Control.objects.create(kind="comment", key=1, created_at=NOW - timedelta(days=4000))

    do_pass()

    assert Control.objects.filter(key=1).exists()


def test_the_circuit_breaker_takes_the_oldest_first_and_says_how_many_wait(add_step, configure):
    add_step(type("Broken", (Lined,), {"breaker": True}))
    configure(BREAKER=2, CHUNK_ROWS=1)
    lines = make_lines(5)

    first = do_pass(now=NOW + timedelta(hours=1))

    assert mailed("lined") == [lines[0].pk, lines[1].pk]
    assert first.outcome == "warning"
    assert first.steps[0].error == "circuit breaker: 2 prepared, 3 wait, the oldest since 2026-01-31T08:02:00+0000"
    do_pass(now=NOW + timedelta(hours=1))
    last = do_pass(now=NOW + timedelta(hours=1))
    assert mailed("lined") == [line.pk for line in lines]
    assert (last.outcome, last.steps[0].candidates) == ("ok", 1)


def test_exactly_as_many_as_the_breaker_allows_are_no_warning(add_step):
    add_step(type("Broken", (Lined,), {"breaker": 3}))
    make_lines(3)

    assert do_pass().outcome == "ok"


def test_events_without_a_time_wait_for_the_breaker_like_others(add_step):
    add_step(type("Broken", (Lined,), {"breaker": 1}))
    make_lines(3, rejected_at=None)

    report = do_pass()

    assert report.steps[0].error == "circuit breaker: 1 prepared, 2 wait, the oldest since an unknown time"


@pytest.mark.parametrize("is_dry_run", [False, True])
def test_groups_that_cannot_be_prepared_do_not_keep_the_places_of_those_behind(add_step, refusing_trigger, is_dry_run):
    """The oldest is refused for ever; each pass still prepares as many as the breaker allows."""

    add_step(type("Broken", (Lined,), {"breaker": 2}))
    bad = make_lines(1)
    good = make_lines(3, at=NOW + timedelta(minutes=10))
    refusing_trigger("notify_control", "key", bad[0].pk)

    report = do_pass(now=NOW + timedelta(hours=1), is_dry_run=is_dry_run)

    assert report.outcome == "error"
    assert report.steps[0].mails == 2
    if not is_dry_run:
        assert noted("lined") == [good[0].pk, good[1].pk]
        do_pass(now=NOW + timedelta(hours=1))
        assert noted("lined") == [line.pk for line in good]


def test_blocked_groups_are_settled_and_do_not_come_back(add_step):
    class Addressless(Lined):
        breaker = 2

        def events(self, scope: Any) -> Any:
            return OrderLine.objects.filter(handled=False).values(
                key=F("pk"), event_at=F("rejected_at"), recipients=F("reason")
            )

    add_step(Addressless)
    lines = make_lines(3)

    do_pass()
    do_pass()

    assert noted("lined") == [line.pk for line in lines]
    assert set(MailQueue.objects.values_list("state", flat=True)) == {"blocked"}


def test_lines_are_marked_in_batches_after_the_messages_are_committed(configure):
    configure(MARK_BATCH=2)
    order = make_order(registered_at=NOW, supplier=make_contact())
    for _ in range(5):
        make_line(order=order)

    with CaptureQueriesContext(connection) as captured:
        report = do_pass()

    statements = [query["sql"] for query in captured]
    marking = f"UPDATE {connection.ops.quote_name('portal_orderline')}"
    marks = [number for number, sql in enumerate(statements) if marking in sql]
    queued = max(number for number, sql in enumerate(statements) if "INTO notify_control" in sql)
    committed = next(number for number in range(queued, len(statements)) if statements[number] == "COMMIT")
    assert len([number for number in marks if number > committed]) == 3
    assert OrderLine.objects.filter(handled=False).count() == 0
    assert report.outcome == "ok"


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_batch_is_left_over_whatever_the_number(configure, n):
    configure(MARK_BATCH=2)
    order = make_order(registered_at=NOW)
    for _ in range(n):
        make_line(order=order)

    do_pass()

    assert OrderLine.objects.filter(handled=False).count() == 0


def test_a_new_line_of_an_order_that_was_told_is_marked_without_a_second_mail():
    order = make_order(registered_at=NOW)
    make_line(order=order)
    do_pass()
    new = make_line(order=order)

    report = do_pass()

    new.refresh_from_db()
    assert new.handled
    assert mailed("order") == [order.pk]
    assert report.outcome == "warning"
    assert report.steps[0].error == "repaired: 1 rows marked whose event already had its message"


def test_lines_that_another_session_has_locked_for_a_moment_are_marked_all_the_same():
    """Marking gives way to people and tries again, like a chunk of messages."""
    order = make_order(registered_at=NOW, supplier=make_contact())
    line = make_line(order=order)
    held, release = threading.Event(), threading.Event()

    def hold(_: int) -> None:
        with transaction.atomic():
            OrderLine.objects.filter(pk=line.pk).update(reason="changed by a person")
            held.set()
            release.wait(30)

    thread = threading.Thread(target=race, args=(1, hold))
    thread.start()
    assert held.wait(30)
    # Whoever waits for the lock of the row is in the way of nobody: the holder commits while the pass waits.
    threading.Timer(0.2, release.set).start()
    try:
        report = do_pass()
    finally:
        release.set()
        thread.join(30)

    line.refresh_from_db()
    assert (line.handled, line.reason) == (True, "changed by a person")
    assert report.outcome == "ok"


def write_comment(request: Any) -> HttpResponse:
    """A view as sites have them."""
    with transaction.atomic():
        make_comment(author=request.GET["author"])
        make_contact(name=request.GET["author"])
    return HttpResponse("written")


urlpatterns = [path("comment/", write_comment)]


def test_a_web_request_writes_while_a_pass_runs(add_step, configure, settings):
    """E13: both succeed, in turns; each chunk of the pass meets a request."""
    settings.ROOT_URLCONF = __name__
    add_step(Remark)
    configure(CHUNK_ROWS=5)
    comments = make_comments(50)
    codes: list[int] = []
    running, done = threading.Event(), threading.Event()

    def browse(_: int) -> None:
        running.wait(30)
        while not done.is_set() or not codes:
            codes.append(Client().get("/comment/", {"author": f"web{len(codes)}"}).status_code)

    requests = threading.Thread(target=race, args=(1, browse))
    requests.start()
    met: list[int] = []

    def is_stopping() -> bool:
        running.set()
        before = len(codes)
        until(lambda: len(codes) > before)
        met.append(len(codes))
        return False

    try:
        report = do_pass(is_stopping=is_stopping)
    finally:
        running.set()
        done.set()
        requests.join(30)

    assert report.outcome == "ok"
    assert set(codes) == {200}
    assert len(met) >= 10
    assert set(mailed("remark")) >= {comment.pk for comment in comments}
    assert len(mailed("remark")) == len(noted("remark"))
    assert Contact.objects.filter(name__startswith="web").count() == len(codes)


def stop_in_the_first_chunk() -> None:
    """Run a pass of chunks of one row that gets SIGTERM while the first is being written (runs in a child)."""
    from django.conf import settings
    from django.core.management import call_command

    from notify import steps

    settings.NOTIFY = {**settings.NOTIFY, "CHUNK_ROWS": 1}
    steps._registered.clear()
    steps.register(Remark)
    steps.register(type("Second", (Remark,), {"kind": "second"}))

    def send_signal(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "INTO notify_control" in sql:
            os.kill(os.getpid(), signal.SIGTERM)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(send_signal):
        call_command("notify_pass", "--json")


def test_sigterm_finishes_the_chunk_in_hand_closes_the_log_and_releases_the_lock():
    comments = make_comments(3)

    child = start_child("tests.notify.test_passes:stop_in_the_first_chunk")
    ended = child.end()

    assert ended.returncode == 0, ended.stderr
    assert mailed("remark") == [comments[0].pk], "the chunk in hand is finished, the next is not begun"
    whole = RunLog.objects.get(step="pass")
    assert whole.outcome == "warning"
    assert "stopped on request before step second" in whole.error
    step = RunLog.objects.get(step="remark")
    assert step.error == "stopped on request after 1 candidates"
    assert not step.is_full
    assert not RunLog.objects.running().exists()

    assert do_pass(kinds=["comment"]).outcome != "skipped", "the lock is free"
