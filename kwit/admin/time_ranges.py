"""The time range of the dashboard and its steps."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from .components import Text

PARAMETER = "range"


@dataclass(frozen=True)
class RangeChoice:
    """One entry of the picker."""

    name: str
    label: Text
    steps: int
    is_daily: bool


RANGES = (
    RangeChoice("24h", _("24 hours"), 24, is_daily=False),
    RangeChoice("7d", _("7 days"), 7, is_daily=True),
    RangeChoice("30d", _("30 days"), 30, is_daily=True),
)


@dataclass(frozen=True)
class TimeRange:
    """A range that ends now; ``edges`` are the beginnings of its steps, oldest first, on whole hours or local days."""

    range: RangeChoice
    now: datetime
    edges: tuple[datetime, ...]

    @property
    def since(self) -> datetime:
        """The beginning."""
        return self.edges[0]

    def labels(self) -> list[str]:
        """Return the label of each step."""
        shape = "%m-%d" if self.range.is_daily else "%H:%M"
        return [timezone.localtime(edge).strftime(shape) for edge in self.edges]


def get_time_range(given: Mapping[str, str], *, now: datetime) -> TimeRange:
    """Return the range of a query string; the shortest when there is none or an unknown one."""
    chosen = next((one for one in RANGES if one.name == given.get(PARAMETER)), RANGES[0])
    return TimeRange(chosen, now, edges_of(chosen, now))


def edges_of(chosen: RangeChoice, now: datetime) -> tuple[datetime, ...]:
    """Return the beginnings of a range's steps; a local day may have 23 or 25 hours."""
    local = timezone.localtime(now)
    if not chosen.is_daily:
        # In UTC: a local clock that is set back has one hour twice.
        last = local.replace(minute=0, second=0, microsecond=0).astimezone(UTC)
        return tuple(last - timedelta(hours=back) for back in range(chosen.steps - 1, -1, -1))
    days = [local.date() - timedelta(days=back) for back in range(chosen.steps - 1, -1, -1)]
    return tuple(timezone.make_aware(datetime(day.year, day.month, day.day)) for day in days)
