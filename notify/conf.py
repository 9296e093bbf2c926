"""
Every setting of the engine: type, default, unit.

They are read from the dict ``settings.NOTIFY``; a name that is not one of them is refused.
"""

from dataclasses import dataclass, fields
from datetime import date, datetime, time, timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

#: What each annotation below admits, and how a message calls it.
ADMITTED: dict[Any, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number above 0"),
    timedelta: ((timedelta,), "a timedelta above 0"),
    bool: ((bool,), "True or False"),
    datetime | None: ((datetime, date, type(None)), "a date, a datetime or None"),
}


@dataclass(frozen=True, kw_only=True)
class Conf:
    """The engine's settings; each field's comment gives its unit and where the default comes from."""

    #: Days. Run-log rows older than this are deleted by each pass.
    LOG_RETENTION_DAYS: int = 60
    #: Rows. At most this many run-log rows are deleted by one pass.
    LOG_PRUNE_BATCH: int = 5000
    #: Groups. At most this many events of a step with a circuit breaker are prepared in one pass.
    BREAKER: int = 500
    #: Rows per statement when marking rows as handled.
    MARK_BATCH: int = 2000
    #: How far back an ordinary pass looks for events, by event time.
    LOOKBACK: timedelta = timedelta(days=1)
    #: A step looks at all events when it last did so longer ago than this.
    FULL_EVERY: timedelta = timedelta(days=1)
    #: Events older than this are never notified.
    NOT_BEFORE: datetime | None = None
    #: Events per transaction. 5,000 keeps a transaction well under a second and the memory of a pass flat.
    CHUNK_ROWS: int = 5000
    #: Whether ``OK@example.org`` and ``ok@example.org`` are one recipient (the domain is always compared without case).
    FOLD_LOCAL_PART: bool = True

    def __post_init__(self) -> None:
        """Refuse a value of the wrong type or below 1, naming the setting."""
        for field in fields(self):
            admitted, described = ADMITTED[field.type]
            value = getattr(self, field.name)
            wrong = not isinstance(value, admitted) or (isinstance(value, bool) and field.type is int)
            is_too_small = value < 1 if field.type is int and not wrong else False
            if wrong or is_too_small or (isinstance(value, timedelta) and value <= timedelta(0)):
                raise ImproperlyConfigured(f"NOTIFY[{field.name!r}] must be {described}, not {value!r}")
        object.__setattr__(self, "NOT_BEFORE", as_moment(self.NOT_BEFORE))


def as_moment(value: date | datetime | None) -> datetime | None:
    """Return an aware datetime; a date means its first moment in the current time zone."""
    if value is None:
        return None
    if not isinstance(value, datetime):
        value = datetime.combine(value, time.min)
    return timezone.make_aware(value) if timezone.is_naive(value) else value


def conf() -> Conf:
    """Return the settings of now. Raises: ImproperlyConfigured, naming the setting."""
    given: dict[str, Any] = getattr(settings, "NOTIFY", {})
    known = {field.name for field in fields(Conf)}
    if unknown := sorted(set(given) - known):
        raise ImproperlyConfigured(f"NOTIFY has unknown settings {unknown}; known are {sorted(known)}")
    return Conf(**given)
