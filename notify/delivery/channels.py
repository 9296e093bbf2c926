"""Ways out that pause: when nothing can be sent whatever the mail, everybody waits and no mail loses an attempt."""

from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError, router, transaction
from django.db.models import F, Q

from ..clock import is_paused, paused
from ..conf import Conf
from ..models import ERROR_CHARS_MAX, Channel
from ..text import stored
from ..transports.factory import find_transport
from .schedule import pause_until

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
    is_pausing = is_paused(row.paused_until, now=now)
    return Pause(row.paused_until if is_pausing else None, row.reason if is_pausing else "", row.failures)


def pause_channel(name: str, *, reason: str, now: datetime, conf: Conf, using: str | None = None) -> Pause:
    """
    Pause a channel, longer each time in a row; return the pause that is in force.

    Several workers meet the same trouble at once: the first one's pause counts. Transaction: its own.
    """
    using = using or router.db_for_write(Channel)
    rows = Channel.objects.using(using).filter(name=name)
    try:
        with transaction.atomic(using=using):
            Channel.objects.using(using).get_or_create(name=name)
    except IntegrityError:
        pass  # another worker made it in this moment
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
