"""
Metrics as values independent of a format; each app registers a meter.

They are computed from the database on request, so that all web workers answer the same.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

#: Seconds covered by metrics with ``recent`` in their name.
RECENT_S = 3600


@dataclass(frozen=True, kw_only=True)
class Gauge:
    """One value per combination of labels; it may fall as well as rise."""

    name: str
    about: str
    labels: Sequence[str] = ()
    #: (values of the labels, value)
    samples: Sequence[tuple[Sequence[str], float]] = ()


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """How many of the recent durations were at most this long; ``buckets`` are (seconds, how many up to then)."""

    name: str
    about: str
    buckets: Sequence[tuple[float, int]]
    count: int
    sum_s: float


Metric = Gauge | Histogram


@dataclass(frozen=True, kw_only=True)
class Meter:
    """The metrics of one app: a fixed number of bounded queries."""

    name: str
    read: Callable[[datetime], Iterable[Metric]]


def gauge(name: str, about: str, value: float) -> Gauge:
    """Return a gauge without labels."""
    return Gauge(name=name, about=about, samples=[((), value)])


def histogram(name: str, about: str, *, found_s: Sequence[float], bounds_s: Sequence[float]) -> Histogram:
    """Sort durations into buckets."""
    buckets = [(bound, sum(one <= bound for one in found_s)) for bound in bounds_s]
    return Histogram(name=name, about=about, buckets=buckets, count=len(found_s), sum_s=sum(found_s))


_registered: dict[str, Meter] = {}


def register(meter: Meter) -> None:
    """Add a meter; one of the same name is replaced."""
    _registered[meter.name] = meter


def meters() -> list[Meter]:
    """Return the meters in the order of their registration."""
    return list(_registered.values())


@dataclass(frozen=True)
class MeterReading:
    """The metrics of a meter; ``is_up`` is False when its database does not answer."""

    meter: str
    is_up: bool
    seconds: float
    metrics: Sequence[Metric] = field(default_factory=tuple)
