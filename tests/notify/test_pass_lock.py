"""The pass lock: who finds it busy is told who holds it, waits if asked to, and never gets it twice."""

import os
import re
import socket
import threading
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from notify.models import RunLog
from notify.passes.runner import run_pass
from tests.crashing import WRITING
from tests.factories import NOW
from tests.notify.samples import Remark, do_pass, later, log_row, mailed, make_comments
from tests.racing import race

pytestmark = pytest.mark.django_db(transaction=True)


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
    monkeypatch.setattr("notify.passes.lock.time.sleep", lambda _: other_session_holds_the_lock.set())

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
