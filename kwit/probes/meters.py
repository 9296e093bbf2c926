"""
What /metrics tells: each engine registers what it measures, in values that know nothing of a format.

Everything is computed when it is asked for, from the database, so that any number of web workers tell the same.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

#: How far back the figures with ``recent`` in their name look.
RECENT_S = 3600


@dataclass(frozen=True, kw_only=True)
class Gauge:
    """One figure, per combination of its labels; it may fall as well as rise."""

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
    """One engine's measures: a fixed number of bounded queries."""

    name: str
    read: Callable[[datetime], Iterable[Metric]]


def gauge(name: str, about: str, value: float) -> Gauge:
    """Return a figure without labels."""
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
    """What a meter said; ``is_up`` is False when its database does not answer."""

    meter: str
    is_up: bool
    seconds: float
    measures: Sequence[Metric] = field(default_factory=tuple)
