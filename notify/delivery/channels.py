"""Channels that pause: when nothing can be sent whatever the mail, all wait and no mail loses an attempt."""

import contextlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import IntegrityError, router, transaction
from django.db.models import F, Q, QuerySet

from ..clock import is_paused, paused
from ..conf import Conf
from ..models import ERROR_CHARS_MAX, Channel
from ..text import stored
from ..transports.factory import find_transport
from .schedule import pause_until

#: Workers that may each have reserved a second's mails, or one mail: far more than deliver at once anywhere.
RESERVED_MAX = 200

__all__ = ["Pause", "get_pause", "pause_channel", "record_success", "resume_channel"]


@dataclass(frozen=True)
class Pause:
    """Until when a channel pauses, why, and how many times in a row it has."""

    until: datetime | None
    reason: str
    failures: int

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to wait for."""
        return self.until is None


def get_pause(name: str, *, now: datetime, using: str | None = None) -> Pause:
    """Return how a channel is; one that has never paused has no row."""
    row = Channel.objects.using(using or router.db_for_read(Channel)).filter(name=name).first()
    if row is None:
        return Pause(None, "", 0)
    is_pausing = is_paused(row.paused_until, row.paused_at, now=now)
    return Pause(row.paused_until if is_pausing else None, row.reason if is_pausing else "", row.failures)


def pause_channel(name: str, *, reason: str, now: datetime, conf: Conf, using: str | None = None) -> Pause:
    """
    Pause a channel, longer each time in a row; return the pause that is in force.

    Several workers meet the same trouble at once: the first one's pause counts. Transaction: its own.
    """
    using = using or router.db_for_write(Channel)
    rows = rows_of(name, using)
    failures = rows.values_list("failures", flat=True).get()
    resting = Q(paused_until__isnull=True) | ~paused(now)
    with transaction.atomic(using=using, durable=True):
        rows.filter(resting, failures=failures).update(
            paused_at=now,
            paused_until=pause_until(now, failures=failures, conf=conf),
            reason=stored(reason, ERROR_CHARS_MAX),
            failures=F("failures") + 1,
        )
    return get_pause(name, now=now, using=using)


def rows_of(name: str, using: str) -> QuerySet[Channel]:
    """Return a channel's row, made if need be. Transaction: its own."""
    rows = Channel.objects.using(using).filter(name=name)
    if not rows.exists():
        # Another worker may make it in this moment.
        with contextlib.suppress(IntegrityError), transaction.atomic(using=using):
            Channel.objects.using(using).create(name=name)
    return rows


def reserve_times(name: str, *, count: int, rate: float, now: datetime, using: str) -> list[datetime]:
    """
    Return the next moments at which a mail may go through a channel at this rate, taken from all workers.

    A worker that dies loses what it has taken: as long as ``count`` mails take. Transaction: its own, one statement.
    """
    rows, pause = rows_of(name, using), timedelta(seconds=1 / rate)
    while True:
        next_at = rows.values_list("next_at", flat=True).get()
        # One that no number of workers can have reached comes of a clock that was wrong.
        is_known = next_at is not None and next_at <= now + RESERVED_MAX * max(pause, timedelta(seconds=1))
        first = max(now, next_at) if is_known and next_at is not None else now
        unchanged = rows.filter(next_at__isnull=True) if next_at is None else rows.filter(next_at=next_at)
        if unchanged.update(next_at=first + count * pause) == 1:
            return [first + place * pause for place in range(count)]
        # Another worker was faster: its times are not ours.


def resume_channel(name: str, *, using: str | None = None) -> bool:
    """End a pause now; return False when there was none. The count of failures stays until a mail gets through."""
    using = using or router.db_for_write(Channel)
    with transaction.atomic(using=using, durable=True):
        rows = Channel.objects.using(using).filter(name=name, paused_until__isnull=False)
        return rows.update(paused_until=None) == 1


def known_channels(conf: Conf, *, using: str | None = None) -> set[str]:
    """Return the names of the channels that have paused once, and of the one that the settings name."""
    rows = Channel.objects.using(using or router.db_for_read(Channel))
    return {*rows.values_list("name", flat=True), find_transport(conf).name}


def record_success(name: str, *, using: str | None = None) -> None:
    """Forget a channel's failures: a mail got through. Transaction: its own."""
    using = using or router.db_for_write(Channel)
    with transaction.atomic(using=using, durable=True):
        Channel.objects.using(using).filter(name=name).update(paused_until=None, paused_at=None, reason="", failures=0)
