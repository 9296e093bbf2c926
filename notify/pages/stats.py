"""
The dashboard's statistics: a fixed number of queries, each a range of an index or a bounded count.

A range with more run-log rows than ``LOG_ROWS_MAX`` (a day: ``DAY_ROWS_MAX``) is read from its newest end, and the page
says so.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Case, Count, IntegerField, Max, QuerySet, Sum, Value, When
from django.utils import timezone

from kwit.admin.keyset import count_up_to
from kwit.admin.time_ranges import TimeRange
from kwit.people.tenants import User, tenants_of, within

from ..clock import not_future, paused
from ..conf import conf
from ..models import Attempt, AttemptOutcome, Channel, MailQueue, MailState, Outcome, RunLog, TaskQueue
from ..notes import try_find
from ..steps import registered

#: Run-log rows read for one page: a pass a minute with four steps fills seven days of it, read within a tenth second.
LOG_ROWS_MAX = 50_000
#: The same for a day, which the first page shows: ten rows a minute, read within a thirtieth of a second.
DAY_ROWS_MAX = 15_000
#: Counts go this far; the page then says "more than".
COUNT_MAX = 1000
#: Passes read to see how many were skipped in a row.
LATEST_MAX = 200
#: Paused channels shown; a site has one or two.
CHANNELS_MAX = 10
#: How a pass ends that has done its work, and how one that has run at all.
GOOD = (Outcome.OK, Outcome.WARNING)
RAN = (*GOOD, Outcome.ERROR)
#: In which states mails are counted; the others are over.
WAITING = (MailState.QUEUED, MailState.SENDING, MailState.BLOCKED, MailState.FAILED, MailState.UNCERTAIN)


@dataclass(frozen=True)
class Sums:
    """What the run log of a range adds up to, per step of the range."""

    passes: dict[str, list[int]]
    queued: dict[str, list[int]]
    candidates: dict[str, list[int]]
    tasks: dict[str, list[int]]
    median_ms: list[float | None]
    p95_ms: list[float | None]
    #: Where reading began when the range has more rows than are read.
    cut_at: datetime | None


@dataclass(frozen=True)
class Latest:
    """The newest passes."""

    good: RunLog | None
    newest: RunLog | None
    running: RunLog | None
    skipped: Sequence[RunLog]
    waiting: Sequence[RunLog]
    full: dict[str, datetime]


@dataclass(frozen=True)
class Depths:
    """How many mails there are in each state (``COUNT_MAX`` + 1 for more), and which one waits longest."""

    mails: dict[str, int]
    tasks: int
    oldest: MailQueue | None
    pauses: Sequence[Channel]


def sums_of(window: TimeRange) -> Sums:
    """Add up the run log of a range; three queries."""
    rows = RunLog.objects.believable(window.now).filter(started_at__gte=window.since)
    most = LOG_ROWS_MAX if window.range.is_daily else min(LOG_ROWS_MAX, DAY_ROWS_MAX)
    cut_at = rows.order_by("-started_at").values_list("started_at", flat=True)[most : most + 1].first()
    if cut_at is not None:
        rows = rows.filter(started_at__gte=cut_at)
    # By key and through a slice: SQLite would rather read the whole log along the index that begins like the groups.
    newest = rows.order_by("-started_at").values("pk")[: most * 2]
    place = place_of(window.edges)
    placed: QuerySet[Any] = RunLog.objects.filter(pk__in=newest).annotate(place=place)
    passes, queued, candidates, tasks = (defaultdict[str, list[int]](lambda: [0] * len(window.edges)) for _ in range(4))
    totals = placed.values("place", "step", "outcome").annotate(
        n=Count("pk"), mails=Sum("mails"), found=Sum("candidates"), todo=Sum("tasks")
    )
    for one in totals.order_by():
        if one["step"] == RunLog.WHOLE:
            passes[one["outcome"]][one["place"]] += one["n"]
        else:
            queued[one["step"]][one["place"]] += one["mails"]
            candidates[one["step"]][one["place"]] += one["found"]
            tasks[one["step"]][one["place"]] += one["todo"]
    median, p95 = durations(rows.annotate(place=place), len(window.edges))
    return Sums(dict(passes), dict(queued), dict(candidates), dict(tasks), median, p95, cut_at)


def place_of(edges: Sequence[datetime], *, column: str = "started_at", unknown: int = 0) -> Case:
    """
    Return the expression of a row's step in the range: plain comparisons, which every database does natively.

    ``unknown`` is the step of a row that has no time yet.
    """
    steps = reversed(list(enumerate(edges)))
    whens = [When(**{f"{column}__gte": edge}, then=Value(place)) for place, edge in steps]
    missing = When(**{f"{column}__isnull": True}, then=Value(unknown))
    return Case(*whens, missing, default=Value(0), output_field=IntegerField())


def durations(rows: QuerySet[Any], steps: int) -> tuple[list[float | None], list[float | None]]:
    """Return median and 95th percentile of the passes that ran, per step of the range."""
    by_place: dict[int, list[int]] = defaultdict(list)
    ran = rows.filter(step=RunLog.WHOLE, outcome__in=RAN, ms__isnull=False)
    for place, ms in ran.order_by().values_list("place", "ms"):
        by_place[place].append(ms)
    medians: list[float | None] = [None] * steps
    p95s: list[float | None] = [None] * steps
    for place, found in by_place.items():
        found.sort()
        medians[place] = statistics.median(found)
        p95s[place] = found[math.ceil(len(found) * 0.95) - 1]
    return medians, p95s


def latest(now: datetime) -> Latest:
    """Return the newest passes; five queries."""
    wholes = RunLog.objects.believable(now).filter(step=RunLog.WHOLE)
    newest_first = wholes.order_by("-started_at", "-pk")
    good = [newest_first.filter(outcome=outcome).first() for outcome in GOOD]
    found = list(newest_first[:LATEST_MAX])
    skipped = []
    for row in found:
        if row.outcome != Outcome.SKIPPED:
            break
        skipped.append(row)
    ran = next((row for row in found if row.outcome not in (Outcome.SKIPPED, Outcome.RUNNING)), None)
    steps = RunLog.objects.filter(pass_id=ran.pass_id).exclude(step=RunLog.WHOLE) if ran else RunLog.objects.none()
    return Latest(
        good=max((row for row in good if row), key=lambda row: row.started_at, default=None),
        newest=ran,
        running=next((row for row in found if row.outcome == Outcome.RUNNING), None),
        skipped=skipped,
        waiting=[row for row in steps.order_by("pk") if try_find(row.notes, "breaker")],
        full=full_scans(now),
    )


def full_scans(now: datetime) -> dict[str, datetime]:
    """Return when each step last scanned all events, as far as FULL_EVERY and a week back."""
    since = now - conf().FULL_EVERY - timedelta(days=7)
    kinds = [step.kind for step in registered()]
    # Without the steps' names SQLite would read the whole index, of ten million rows as well.
    rows = RunLog.objects.full().believable(now).filter(step__in=kinds, started_at__gte=since).values("step")
    return dict(rows.annotate(last=Max("started_at")).order_by().values_list("step", "last"))


def depths(user: User) -> Depths:
    """
    Count what waits, fails or is in doubt, each up to a bound, and see which channel pauses; eight queries.

    Members of tenants get the numbers of these, and no channel: the server's words may quote another tenant's mail.
    """
    mails, tasks = within(MailQueue.objects.all(), user), within(TaskQueue.objects.open(), user)
    numbers = {state.value: count_up_to(mails.filter(state=state), most=COUNT_MAX) for state in WAITING}
    queued = mails.filter(state=MailState.QUEUED)
    oldest = queued.select_related("control").order_by("due_at", "pk").first()
    pauses = Channel.objects.filter(paused(timezone.now())).order_by("name")
    shown = list(pauses[:CHANNELS_MAX]) if tenants_of(user) is None else []
    return Depths(numbers, count_up_to(tasks, most=COUNT_MAX), oldest, shown)


def sent_by_kind(edges: Sequence[datetime]) -> tuple[dict[str, list[int]], datetime | None]:
    """
    Return how many mails of each kind somebody got, per step of a range, and where counting began when that is later.

    A mail counts once, when it was over; one that others still wait for counts in the newest step.

    Three queries: attempts by their time, the mails that they were for, and those that travelled with these as digests.
    """
    believable = not_future("at", now=timezone.now())
    sent = Attempt.objects.filter(believable, at__gte=edges[0], outcome=AttemptOutcome.SENT).order_by("-at")
    cut_at = sent.values_list("at", flat=True)[LOG_ROWS_MAX : LOG_ROWS_MAX + 1].first()
    counted: dict[str, list[int]] = defaultdict(lambda: [0] * len(edges))
    place = place_of(edges, column="sent_at", unknown=len(edges) - 1)
    for way in ("pk__in", "digest_of__in"):
        mails = MailQueue.objects.filter(**{way: sent.values("mail")[:LOG_ROWS_MAX]}).annotate(place=place)
        totals = mails.order_by().values_list("control__kind", "place").annotate(n=Count("pk"))
        for kind, at, number in totals:
            counted[kind][at] += number
    return dict(counted), cut_at
