"""Is the job alive: whether the last good pass is overdue, judged by the site's own rhythm."""

import statistics
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from ..clock import SKEW
from ..conf import Conf
from ..models import Outcome, RunLog

#: Passes that are missing before a site counts as quiet: one may be skipped, and one may be late.
MISSING_MAX = 3
#: How far back from the last pass the rhythm is taken, and from how many passes at least and at most.
RHYTHM_OF = timedelta(days=1)
PASSES_MIN, PASSES_MAX = 4, 2000
GOOD = (Outcome.OK, Outcome.WARNING)


@dataclass(frozen=True)
class Rhythm:
    """When the last good pass began, how often passes run, and whether the next one is overdue."""

    now: datetime
    last_good_at: datetime | None
    #: NOTIFY_EXPECT_EVERY, or the median gap of the last day with passes; FULL_EVERY where neither is known.
    every: timedelta
    missing_max: int = MISSING_MAX

    @property
    def overdue_at(self) -> datetime | None:
        """After which moment the site counts as quiet; None when there has been no good pass."""
        return None if self.last_good_at is None else self.last_good_at + self.missing_max * self.every + SKEW

    @property
    def next_expected_at(self) -> datetime | None:
        """When the next pass is expected."""
        return None if self.last_good_at is None else self.last_good_at + self.every

    @property
    def is_quiet(self) -> bool:
        """Whether no pass has ended well for too long."""
        return self.overdue_at is None or self.now > self.overdue_at


def find_rhythm(*, using: str, now: datetime, settings: Conf) -> Rhythm:
    """Return the rhythm of a database's passes; at most three queries."""
    wholes = RunLog.objects.using(using).believable(now).wholes()
    # One seek in the index per outcome.
    newest = [
        wholes.filter(outcome=outcome).order_by("-started_at").values_list("started_at", flat=True).first()
        for outcome in GOOD
    ]
    last = max((at for at in newest if at is not None), default=None)
    return rhythm_since(last, using=using, now=now, settings=settings)


def rhythm_since(last: datetime | None, *, using: str, now: datetime, settings: Conf) -> Rhythm:
    """Return the rhythm when it is known when the last good pass began; at most one query."""
    if settings.EXPECT_EVERY is not None:
        return Rhythm(now, last, settings.EXPECT_EVERY)
    gap = median_gap(last, using=using, now=now) if last is not None else None
    return Rhythm(now, last, settings.FULL_EVERY, missing_max=1) if gap is None else Rhythm(now, last, gap)


def median_gap(last: datetime, *, using: str, now: datetime) -> timedelta | None:
    """Return the median time between two passes in the day up to the last good one; None for too few passes."""
    rows = RunLog.objects.using(using).believable(now).wholes()
    rows = rows.filter(started_at__gte=last - RHYTHM_OF, started_at__lte=last).order_by("-started_at")
    starts = list(rows.values_list("started_at", flat=True)[:PASSES_MAX])
    if len(starts) < PASSES_MIN:
        return None
    return timedelta(seconds=statistics.median((later - sooner).total_seconds() for later, sooner in pairwise(starts)))
