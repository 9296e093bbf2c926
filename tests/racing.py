"""
Races with real connections: threads meet at a barrier, and each has a database connection of its own.

Nothing here sleeps to make a race likely. ``until`` polls for a fact that another session can see.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections, transaction

from tests.babelfish import is_stand_in

#: How long a race may last before the test fails instead of hanging.
RACE_S = 60.0


def race(n: int, call: Callable[[int], Any], *, using: str = DEFAULT_DB_ALIAS, timeout_s: float = RACE_S) -> list[Any]:
    """
    Run ``call(0)`` … ``call(n - 1)`` at the same moment, each on its own connection; return what each gave.

    An exception is a result, too: it stands in the list instead of a return value. The test needs
    ``django_db(transaction=True)``, for what one connection has not committed no other can see.
    """
    barrier = threading.Barrier(n)
    outcomes: list[Any] = [None] * n

    def run(number: int) -> None:
        try:
            connections[using].ensure_connection()
            barrier.wait(timeout_s)
            outcomes[number] = call(number)
        except Exception as error:
            outcomes[number] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(n)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
        assert not thread.is_alive(), f"the race did not end within {timeout_s} s; so far: {outcomes}"
    return outcomes


def in_another_session(call: Any) -> Any:
    """Run a call in a thread with a connection of its own; raise what it raised."""
    (outcome,) = race(1, lambda _: call())
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def until(fact: Callable[[], Any], *, timeout_s: float = 20.0) -> Any:
    """Ask again and again until ``fact()`` is true; return it, or fail after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not (answer := fact()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {fact}"
        pause.wait(0.01)
    return answer


WAITING = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity"
    " WHERE wait_event_type = 'Lock' AND datname = current_database()",
    "microsoft": "SELECT COUNT(*) FROM sys.dm_os_waiting_tasks WHERE wait_type LIKE 'LCK%'",
}


@dataclass
class Background:
    """A call under way in a thread with a connection of its own."""

    thread: threading.Thread
    outcome: list[Any]

    def end(self, timeout_s: float = RACE_S) -> Any:
        """Wait for its end; return what it returned, or the exception it raised."""
        self.thread.join(timeout_s)
        assert not self.thread.is_alive(), f"the call did not end within {timeout_s} s"
        return self.outcome[0]


def background(call: Callable[[], Any]) -> Background:
    """Start a call in a thread with a connection of its own."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(call())
        except Exception as error:
            outcome.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return Background(thread, outcome)


@contextlib.contextmanager
def open_transaction(call: Callable[[], Any], *, commit: bool = True, using: str = DEFAULT_DB_ALIAS) -> Iterator[Any]:
    """Run a call in another connection's transaction that stays open during the ``with``; then commit or roll back."""
    done, release = threading.Event(), threading.Event()
    inside: list[Any] = []

    def hold() -> None:
        with transaction.atomic(using=using):
            try:
                inside.append(call())
            finally:
                done.set()
            assert release.wait(RACE_S)
            transaction.set_rollback(not commit, using=using)

    holder = background(hold)
    assert done.wait(RACE_S)
    try:
        yield inside[0] if inside else None
    finally:
        release.set()
        failure = holder.end()
        assert failure is None, failure


def is_waiting_for_lock(*, using: str = DEFAULT_DB_ALIAS, sessions: int = 1) -> bool:
    """Whether that many sessions wait for a lock, as far as the database shows it; SQLite shows nothing."""
    connection = connections[using]
    if connection.vendor == "sqlite" or is_stand_in():
        return True
    with connection.cursor() as cursor:
        cursor.execute(WAITING[connection.vendor])
        return bool(cursor.fetchone()[0] >= sessions)
