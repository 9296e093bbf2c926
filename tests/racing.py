"""
Races with real connections: threads meet at a barrier, and each has a database connection of its own.

Nothing here sleeps to make a race likely. ``until`` polls for a fact that another session can see.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

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


def until(fact: Callable[[], Any], *, timeout_s: float = 20.0) -> Any:
    """Ask again and again until ``fact()`` is true; return it, or fail after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not (answer := fact()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {fact}"
        pause.wait(0.01)
    return answer
