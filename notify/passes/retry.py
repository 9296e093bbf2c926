"""A transaction of a pass, repeated when another one was in the way."""

import time
from collections.abc import Callable
from typing import TypeVar

from django.db import DatabaseError

from .context import PassContext

#: How often a transaction is tried when another one was in the way. With the pauses below about three seconds.
TRIES_MAX = 6
#: Seconds before the second try; doubled each time, and up to as much again at random, so that two fall out of step.
PAUSE_S = 0.05

Result = TypeVar("Result")


def with_retry(work: Callable[[], Result], context: PassContext) -> Result:
    """Do a transaction's work, again when another transaction was in the way, a bounded number of times."""
    for tried in range(1, TRIES_MAX + 1):
        try:
            return work()
        except DatabaseError as error:
            if tried == TRIES_MAX or not context.dialect.is_transient(error):
                raise
            pause = PAUSE_S * 2 ** (tried - 1)
            time.sleep(pause + context.random.uniform(0, pause))
    raise AssertionError("unreachable: the last try returns or raises")
