"""Pass and delivery in a loop, for containers and services."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast

from django.db import DatabaseError, InterfaceError, connections, router
from django.db.models import Min

from kwit.jobs import run_jobs

from ..conf import conf
from ..delivery.dispatch import send_due
from ..delivery.results import DeliveryReport
from ..delivery.run_log import BEAT_S, record_sign_of_life
from ..dialects import dialect_of
from ..errors import OutcomeNotWritten
from ..models import MailQueue, MailState
from ..passes.runner import PassReport, run_pass

logger = logging.getLogger(__name__)

#: Seconds between two checks for a request to stop.
SLICE_S = 1.0


@dataclass(frozen=True)
class RoundReport:
    """What one round did; a part that the database did not let run is None."""

    passed: PassReport | None
    delivered: DeliveryReport | None
    error: str = ""
    #: What else there is to know: a database file was replaced.
    said: str = ""


def work(
    *,
    every_s: float,
    using: str | None = None,
    rounds_max: int | None = None,
    lanes: int | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
    tell: Callable[[RoundReport], None] = lambda report: None,
) -> int:
    """
    Run a pass and a delivery every so many seconds, sooner when woken or when a mail is due; return how many rounds.

    A database that goes away is waited for, and a file that is replaced is opened anew. Ends after ``rounds_max`` or
    when asked to stop; the mails in hand are sent.
    """
    using, rounds, files, beaten = using or router.db_for_write(MailQueue), 0, Files(), -BEAT_S
    while not is_stopping() and (rounds_max is None or rounds < rounds_max):
        said, is_gone = files.reopen_replaced(using)
        # SQLite would make an empty file.
        report = RoundReport(None, None, said) if is_gone else run_round(using, lanes, is_stopping)
        report = with_job_errors(report if is_gone else replace(report, said=said), is_stopping)
        rounds += 1
        if report.delivered is not None and time.monotonic() - beaten >= BEAT_S:
            beat(using, lanes or conf().LANES)
            beaten = time.monotonic()
        tell(report)
        if rounds_max is None or rounds < rounds_max:
            rest(using, every_s, is_stopping)
    return rounds


def beat(using: str, lanes: int) -> None:
    """Write a heartbeat of this process, even if nothing was due."""
    try:
        record_sign_of_life(using=using, lanes=lanes)
    except losses(using) as error:
        logger.warning("no sign of life can be written: %s", error)
        connections[using].close()


def run_round(using: str, lanes: int | None, is_stopping: Callable[[], bool]) -> RoundReport:
    """Run one pass and one delivery."""
    passed = None
    try:
        passed = run_pass(using=using, is_stopping=is_stopping)
        delivered = None if is_stopping() else send_due(using=using, lanes=lanes, is_stopping=is_stopping)
        return RoundReport(passed, delivered, delivered.error if delivered else "")
    except losses(using) as error:
        logger.error("the round was cut short: %s", error)
        connections[using].close()
        return RoundReport(passed, None, f"{type(error).__name__}: {error}")


def losses(using: str) -> tuple[type[Exception], ...]:
    """Return the exceptions of a lost database connection: Django's, and the driver's own."""
    return DatabaseError, InterfaceError, OutcomeNotWritten, cast(Any, connections[using]).Database.Error


class Files:
    """The database files that this process works on, so that another one in their place is noticed."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}

    def reopen_replaced(self, using: str) -> tuple[str, bool]:
        """Close connections whose file is another one by now; return what to say, and if that of ``using`` is gone."""
        said = []
        for connection in connections.all():
            try:
                identity = dialect_of(connection).file_identity(connection)
            except FileNotFoundError as error:
                if connection.alias == using:
                    return f"the database file is not there: {error}", True
                continue  # of an alias that this worker may have no use for
            before = self.known.setdefault(connection.alias, identity)
            if identity != before:
                connection.close()
                self.known[connection.alias] = identity
                said.append(f"the database file {connection.settings_dict['NAME']} was replaced; it is opened anew")
        for text in said:
            logger.warning("%s", text)
        return "; ".join(said), False


def with_job_errors(report: RoundReport, is_stopping: Callable[[], bool]) -> RoundReport:
    """Run the jobs that other apps have registered; return the round's report with their errors."""
    errors = [f"{name}: {type(error).__name__}: {error}" for name, error in run_jobs(is_stopping) if error]
    return replace(report, error="; ".join([*([report.error] if report.error else []), *errors]))


def rest(using: str, every_s: float, is_stopping: Callable[[], bool]) -> None:
    """Wait for the next round: its time, a mail's, or somebody who wakes us; a session that ends is opened anew."""
    connection, deadline = connections[using], time.monotonic() + every_s
    is_asked, is_said = False, False
    while not is_stopping() and (left := deadline - time.monotonic()) > 0:
        try:
            if not is_asked:
                deadline = min(deadline, time.monotonic() + seconds_to_next(using, every_s))
                is_asked = True
                continue
            if dialect_of(connection).wait(connection, min(SLICE_S, left)):
                return
        except losses(using) as error:
            if not is_said:
                logger.warning("cannot listen for work, trying again: %s", error)
            is_said = True
            connection.close()
            time.sleep(min(SLICE_S, left))


def seconds_to_next(using: str, every_s: float) -> float:
    """Return in how many seconds the next mail that waits is due; at least one, so that trouble is no busy loop."""
    now = dialect_of(connections[using]).now(connections[using])
    horizon = now + timedelta(seconds=every_s)
    waiting = MailQueue.objects.using(using).filter(state=MailState.QUEUED, due_at__gt=now, due_at__lte=horizon)
    next_at = waiting.aggregate(next=Min("due_at"))["next"]
    return every_s if next_at is None else max(SLICE_S, (next_at - now).total_seconds())
