"""
The pass that loses its lock half-way stops before it writes again, and says so.

On PostgreSQL the session that holds the lock is ended by ``pg_terminate_backend``; on SQLite the lock file is deleted.
Positive control: a pass without its guard goes on writing beside the new holder.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db import Error, connection

from notify.dialects import dialect_of
from notify.dialects.base import LockAnswer
from notify.errors import LockLost
from notify.models import Control, RunLog
from notify.notes import Note, note
from notify.passes import lock as locks
from notify.passes.runner import PassReport, run_pass
from tests.factories import NOW
from tests.notify.proof import assert_right, clear_notified, controls, make_world
from tests.racing import until

pytestmark = pytest.mark.django_db(transaction=True)

#: A step with flags and a step with tasks: enough for every kind of statement.
TWO_STEPS = ("order", "rejected")
LOST = "the pass lock was lost"


@pytest.fixture(autouse=True)
def small_chunks(settings: Any) -> None:
    settings.NOTIFY = {**settings.NOTIFY, "CHUNK_ROWS": 2}


@pytest.fixture
def second() -> Iterator[Any]:
    """Another session on the same database."""
    other = connection.copy()
    yield other
    other.close()


def only_on(*vendors: str) -> None:
    if connection.vendor not in vendors:
        pytest.skip(f"a fault that only {' and '.join(vendors)} can have")


SESSION = {"postgresql": "SELECT pg_backend_pid()", "microsoft": "SELECT @@SPID"}


def own_session() -> int:
    """Return the number of this connection's session."""
    with connection.cursor() as cursor:
        cursor.execute(SESSION[connection.vendor])
        return int(cursor.fetchone()[0])


def terminate(session: int, *, by: Any) -> None:
    """End another session and wait until it is gone."""
    with by.cursor() as cursor:
        if by.vendor == "microsoft":
            cursor.execute(f"KILL {session:d}")
            until(lambda: not is_there(session, by=cursor))
        else:
            cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [session])
            assert cursor.fetchone() == (True,)


def is_there(session: int, *, by: Any) -> bool:
    """Whether SQL Server still has a session: it undoes what the session has written before it lets it go."""
    by.execute("SELECT COUNT(*) FROM sys.dm_exec_sessions WHERE session_id = %s", [session])
    return bool(by.fetchone()[0])


def rows_by(other: Any) -> list[int]:
    """Return how many control, mail and task rows another session sees."""
    with other.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT count(*) FROM notify_control), (SELECT count(*) FROM notify_mail_queue), "
            "(SELECT count(*) FROM notify_task_queue)"
        )
        return list(cursor.fetchone())


@contextmanager
def before_statement(nth: int, act: Callable[[], None]) -> Iterator[list[str]]:
    """Do something just before the nth statement (COMMIT included) of this connection; yield what was sent."""
    sent: list[str] = []
    commit = connection._commit

    def note(sql: str) -> None:
        sent.append(sql)
        if len(sent) == nth:
            act()

    def wrapper(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        note(sql)
        return execute(sql, params, many, context)

    def noted_commit() -> None:
        note("COMMIT")
        commit()

    connection._commit = noted_commit
    try:
        with connection.execute_wrapper(wrapper):
            yield sent
    finally:
        del connection._commit


def test_a_pass_whose_session_is_ended_at_any_statement_writes_no_more_messages_and_says_so(second):
    """E7: the session that holds the lock is ended in mid pass."""
    only_on("postgresql", "microsoft")
    keys = {key for key in make_world() if key[0] in TWO_STEPS}
    nth, told = 0, 0

    while True:
        nth += 1
        clear_notified()
        session, before = own_session(), []

        def end(session: int = session, before: list[list[int]] = before) -> None:
            terminate(session, by=second)
            before.append(rows_by(second))

        with before_statement(nth, end) as sent:
            report = try_pass()
        if not before:
            break
        where = f"{nth}: {sent[nth - 1]}"
        assert rows_by(second) == before[0], f"written after the lock was lost at {where}"
        logged = RunLog.objects.filter(step="pass").first()
        if report is None:
            assert logged is None, where
        elif report.outcome == "error":
            assert logged.outcome == "error", where
            assert LOST in logged.error or "could not be closed" in logged.error, (where, logged.error)
            told += 1
        else:
            # The last statements: all was written under the lock, only the log and the release were left.
            assert set(controls()) == keys, where

        assert run_pass(now=NOW, kinds=TWO_STEPS).outcome in ("ok", "warning"), where
        assert_right(keys, context=where)

    assert told > 30, f"a pass has {nth} statements, and most of them are in its middle"


def try_pass() -> PassReport | None:
    """Run a pass of two steps; None when it could not even begin."""
    try:
        return run_pass(now=NOW, kinds=TWO_STEPS)
    except Error:
        connection.close()
        return None


def test_control_without_its_guard_the_pass_goes_on_writing_on_a_new_session(second, monkeypatch):
    only_on("postgresql", "microsoft")
    make_world()
    monkeypatch.setattr(locks.PassLock, "check", lambda self, pass_id: None)
    session, before = own_session(), []

    def end() -> None:
        terminate(session, by=second)
        before.append(rows_by(second))

    with before_statement(25, end):
        run_pass(now=NOW)

    assert rows_by(second) > before[0]


def lock_file() -> Path:
    """Return the file that the lock of this SQLite database is on."""
    path = dialect_of(connection).lock_path(connection)
    assert path is not None
    return path


class AtChunk:
    """Does something when the pass asks for the nth time whether it should stop: before a step or a chunk."""

    def __init__(self, nth: int, act: Callable[[], None]) -> None:
        self.left, self.act = nth, act

    def __call__(self) -> bool:
        self.left -= 1
        if self.left == 0:
            self.act()
        return False


@pytest.mark.parametrize("nth", range(1, 12))
def test_a_pass_whose_lock_file_is_deleted_stops_before_its_next_write(nth):
    only_on("sqlite")
    keys, before = make_world(), []

    def delete() -> None:
        lock_file().unlink()
        before.append(controls())

    report = run_pass(now=NOW, is_stopping=AtChunk(nth, delete))

    assert before, "the pass did not ask that often"
    assert controls() == before[0]
    assert report.outcome == "error"
    assert LOST in RunLog.objects.get(step="pass").error
    assert run_pass(now=NOW).outcome in ("ok", "warning")
    assert_right(keys)


@pytest.mark.parametrize("nth", [2, 3, 7, 11])
def test_only_the_new_holder_writes_after_the_lock_file_was_deleted(nth):
    """E12: somebody deletes the lock file while it is held."""
    only_on("sqlite")
    keys, taken = make_world(), []

    def take_over() -> None:
        lock_file().unlink()
        taken.append(run_pass(now=NOW))

    report = run_pass(now=NOW, is_stopping=AtChunk(nth, take_over))

    assert taken[0].outcome in ("ok", "warning")
    assert report.outcome == "error"
    assert_right(keys)
    logged = RunLog.objects.get(step="pass", pass_id=report.pass_id)
    assert LOST in logged.error
    late = Control.objects.filter(mails__pass_id=report.pass_id, pk__gt=min(made_by(taken[0]), default=2**62))
    assert not late.exists(), "the old holder wrote after the new one had begun"


def made_by(report: PassReport) -> list[int]:
    """Return the control rows that a pass has made."""
    return list(Control.objects.filter(mails__pass_id=report.pass_id).values_list("pk", flat=True))


def test_a_pass_that_was_taken_for_dead_stops_even_when_it_still_has_its_lock():
    keys = make_world()

    def close_as_dead() -> None:
        RunLog.objects.running().update(outcome="error", ended_at=NOW, error="died: closed by somebody")

    report = run_pass(now=NOW, is_stopping=AtChunk(3, close_as_dead))

    assert report.outcome == "error"
    assert "another pass has taken it" in report.error
    assert len(controls()) < len(keys)
    assert run_pass(now=NOW).outcome in ("ok", "warning")
    assert_right(keys)


def release_in_vain(lock: locks.PassLock) -> Note:
    real(lock)
    return note("lock_not_released", error="gone")


def test_the_log_keeps_the_first_error_when_the_lock_cannot_be_released_either(monkeypatch):
    make_world(of_each=1)
    monkeypatch.setattr(
        locks.PassLock, "release", lambda self: (real(self), note("lock_not_released", error="gone"))[1]
    )

    def fail(self: Any, *arguments: Any, **options: Any) -> None:
        raise RuntimeError("the first error")

    monkeypatch.setattr("portal.notifications.CommentAdded.events", fail)
    report = run_pass(now=NOW)

    assert report.outcome == "error"
    assert RunLog.objects.get(step="pass").error == "step comment failed"
    assert "the first error" in RunLog.objects.get(step="comment").error


def test_a_release_that_fails_is_told_when_nothing_else_went_wrong(monkeypatch):
    make_world(of_each=1)
    monkeypatch.setattr(
        locks.PassLock, "release", lambda self: (real(self), note("lock_not_released", error="gone"))[1]
    )

    report = run_pass(now=NOW)

    assert report.outcome == "ok"
    row = RunLog.objects.get(step="pass")
    assert (row.outcome, row.error) == ("warning", "the lock could not be released: gone")


real = locks.PassLock.release


def test_the_lock_of_an_ended_session_is_nobodys(second):
    only_on("postgresql", "microsoft")
    dialect = dialect_of(connection)
    answer: LockAnswer = dialect.try_lock(connection)
    lock = locks.PassLock(using="default")
    lock.token = answer.token

    terminate(own_session(), by=second)

    released = lock.release()
    assert released is not None
    assert released.code == "lock_not_released"
    until(lambda: dialect.try_lock(second).is_granted)
    with pytest.raises(LockLost):
        lock.check(uuid4())
