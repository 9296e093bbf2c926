"""
The pass lock: one pass at a time per database, on the connection that commits.

It only saves work. What makes a pass right is the unique constraint; what makes a holder that lost its lock stop is
the check in every transaction: whether the lock and the open row of the run log are still its own.
"""

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db import DatabaseError, connections

from ..dialects import dialect_of
from ..dialects.base import LockAnswer
from ..errors import LockLost
from ..models import RunLog
from ..notes import Note, note

#: Seconds between two tries while waiting for the lock.
POLL_S = 0.1


class PassLock:
    """The lock of one pass."""

    def __init__(self, *, using: str) -> None:
        self.connection = connections[using]
        self.dialect = dialect_of(self.connection)
        self.using = using
        self.token: Any = None

    def acquire(self, *, wait_s: float, is_stopping: Callable[[], bool]) -> LockAnswer:
        """Take the lock, trying for ``wait_s`` seconds. Raises: LockUnusable."""
        self.dialect.check_session(self.connection)
        deadline = time.monotonic() + wait_s
        while True:
            answer = self.dialect.try_lock(self.connection)
            left = deadline - time.monotonic()
            if answer.is_granted or left <= 0 or is_stopping():
                self.token = answer.token
                return answer
            time.sleep(min(POLL_S, left))

    def check(self, pass_id: UUID) -> None:
        """Make sure that the pass may write. Raises: LockLost."""
        if not self.dialect.is_locked(self.connection, self.token):
            raise LockLost(note("lock_ended"))
        if not RunLog.objects.using(self.using).is_open(pass_id):
            raise LockLost(note("lock_taken"))

    def release(self) -> Note | None:
        """Release the lock; return the error, or None."""
        try:
            self.dialect.unlock(self.connection, self.token)
        except DatabaseError as error:
            # The session has ended and the lock with it. The first error of the pass is the one to report.
            self.connection.close()
            return note("lock_not_released", error=error)
        return None


def holders_of(answer: LockAnswer, *, using: str) -> list[Note]:
    """Return who holds the lock: by the run log, and by what the database itself knows."""
    running = RunLog.objects.using(using).running()
    whole = running.wholes().order_by("-pk").first()
    known = []
    if whole is not None:
        step = running.filter(pass_id=whole.pass_id).exclude(step=RunLog.WHOLE).order_by("-pk").first()
        values = {"host": whole.host, "pid": whole.pid, "since": whole.started_at}
        known.append(note("holder_in_step", **values, step=step.step) if step else note("holder_between", **values))
    if answer.holder:
        known.append(answer.holder)
    return known or [note("holder_unknown")]
