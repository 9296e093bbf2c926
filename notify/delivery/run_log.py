"""
The row of each delivery that found something to do: whose, over how many lanes, what came of it, when last heard of.

It only informs: when it cannot be written, the mails go out all the same.
"""

import logging
import os
import socket
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import Error, connections

from ..conf import Conf
from ..dialects import dialect_of
from ..models import ERROR_CHARS_MAX, Delivery
from ..text import stored
from .results import DeliveryReport

logger = logging.getLogger(__name__)

#: Seconds between two signs of life of one delivery.
BEAT_S = 5.0
#: Rows of the past that one delivery deletes at most.
PRUNE_ROWS = 1000
#: What a row has of a report.
COUNTS = ("sent", "partial", "retried", "failed", "uncertain", "blocked", "held")


@dataclass
class DeliveryLog:
    """The row of one delivery; made when there is something to do."""

    using: str
    worker: str
    lanes: int
    conf: Conf
    pk: int | None = None
    _beaten: float = field(default=0.0)

    def beat(self, report: DeliveryReport, *, now: datetime) -> None:
        """Write the heartbeat of the delivery and its counts so far, every few seconds. Transaction: its own."""
        if self.pk is not None and time.monotonic() - self._beaten < BEAT_S:
            return
        self._beaten = time.monotonic()
        if self.pk is None:
            self.write(lambda: self.open(now))
        else:
            self.write(lambda: self.update(report, seen_at=now))

    def close(self, report: DeliveryReport, *, now: datetime) -> None:
        """Close the delivery's row with its counts; does nothing if there was nothing to do. Transaction: its own."""
        if self.pk is None and (report.error or report.uncertain):
            self.write(lambda: self.open(now))
        if self.pk is not None:
            self.write(lambda: self.update(report, seen_at=now, ended_at=now))

    def open(self, now: datetime) -> None:
        """Make the row, and delete some that have been kept for long enough."""
        host, pid = socket.gethostname()[:255], os.getpid()
        row = Delivery(worker=self.worker, lanes=self.lanes, started_at=now, seen_at=now, host=host, pid=pid)
        row.save(using=self.using, force_insert=True)
        self.pk = row.pk
        rows = Delivery.objects.using(self.using)
        expired = rows.filter(started_at__lt=now - timedelta(days=self.conf.LOG_RETENTION_DAYS)).order_by("pk")
        rows.filter(pk__in=list(expired.values_list("pk", flat=True)[:PRUNE_ROWS])).delete()

    def update(self, report: DeliveryReport, **values: Any) -> None:
        """Write the counts of the delivery so far."""
        counts = {name: getattr(report, name) for name in COUNTS}
        rows = Delivery.objects.using(self.using).filter(pk=self.pk or 0)
        rows.update(**counts, **values, error=stored(report.error, ERROR_CHARS_MAX))

    def write(self, call: Any) -> None:
        """Write, or say that it could not be written."""
        try:
            call()
        except Error as error:
            logger.warning("the delivery is not logged: %s", error)


def record_sign_of_life(*, using: str, lanes: int) -> None:
    """
    Say that this process, which delivers again and again, is there although nothing was due.

    Transaction: its own. Raises: DatabaseError.
    """
    connection, host, pid = connections[using], socket.gethostname()[:255], os.getpid()
    now, rows = dialect_of(connection).now(connection), Delivery.objects.using(using)
    # A number of a process comes again: of the rows of this one, the newest is not older than the process.
    last = rows.filter(host=host, pid=pid, started_at__gte=now - uptime()).order_by("-pk").values_list("pk", flat=True)
    if (pk := last.first()) is not None:
        rows.filter(pk=pk).update(seen_at=now)
        return
    worker = f"{host[:253]}:{pid}:idle"
    values = {"worker": worker, "host": host, "pid": pid, "lanes": lanes}
    rows.create(**values, started_at=now, seen_at=now, ended_at=now)


def uptime() -> timedelta:
    """Return for how long this process has been running, and a minute for clocks that differ."""
    return timedelta(seconds=time.monotonic() - STARTED + 60)


STARTED = time.monotonic()
