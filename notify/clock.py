"""
Moments from the future: what was written under a clock that has been set back since. Everybody asks here.

The engine, pages, metrics, health checks and explanations ignore rows from the future, a pause among them, and a lease
that is longer than any can be is over. ``manage.py doctor`` names such rows (``notify.W010``).
"""

from datetime import datetime, timedelta

from django.db.models import Q

from .conf import Conf, conf

#: How far the clocks of two hosts may differ before a moment counts as one from the future.
SKEW = timedelta(minutes=1)


#: An event this much younger than its control row is another one, whose key was used before; an event that is dated
#: ahead is told before it happens.
REUSED_AFTER = timedelta(days=1)


def is_future(at: datetime | None, *, now: datetime) -> bool:
    """Whether a moment was written under a clock that has been set back since."""
    return at is not None and at > now + SKEW


def not_future(field: str, *, now: datetime) -> Q:
    """Return the condition that a moment is not from the future."""
    return Q(**{f"{field}__lte": now + SKEW})


def future(field: str, *, now: datetime) -> Q:
    """Return the condition that a moment is from the future."""
    return Q(**{f"{field}__gt": now + SKEW})


def lease_end_max(now: datetime, settings: Conf | None = None) -> datetime:
    """Return the latest moment until which a lease that is taken now can hold."""
    settings = settings or conf()
    return now + max(settings.LEASE, settings.HANDOVER_LEASE) + SKEW


def lease_over(now: datetime) -> Q:
    """Return the condition that a lease has run out, or is longer than any lease can be."""
    return Q(lease_until__lt=now) | Q(lease_until__gt=lease_end_max(now))


def is_lease_over(lease_until: datetime | None, *, now: datetime) -> bool:
    """Whether a mail has no lease, or one that is over."""
    return lease_until is None or lease_until < now or lease_until > lease_end_max(now)


def paused(now: datetime) -> Q:
    """Return the condition that a channel pauses; a pause that begins in the future is none."""
    return Q(paused_until__gt=now) & not_future("paused_at", now=now)


def is_paused(paused_until: datetime | None, paused_at: datetime | None, *, now: datetime) -> bool:
    """Whether a channel pauses."""
    return paused_until is not None and paused_until > now and not is_future(paused_at, now=now)
