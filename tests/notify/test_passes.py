"""A pass as a whole: its run log, failures that stay alone, and web requests beside it."""

import os
import socket
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import path

from notify.dialects import dialect_of
from notify.errors import UnknownStep
from notify.models import ERROR_CHARS_MAX, RunLog
from notify.passes.runner import run_pass
from portal.models import Contact
from tests.factories import make_comment, make_contact
from tests.notify.samples import Remark, do_pass, later, log_row, mailed, make_comments, noted
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
            answers.extend(race(1, lambda _: dialect_of(connection).try_lock(connection).code))
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
    """Let the dialect give the lock back and then fail, as a session does that ends just then."""
    dialect = dialect_of(connection)
    unlock = dialect.unlock

    def failing(*arguments: Any) -> None:
        unlock(*arguments)
        raise DatabaseError("the network is gone")

    monkeypatch.setattr(dialect, "unlock", failing)


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
