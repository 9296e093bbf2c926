"""What notifications report to /metrics and /healthz: bounded queries, each a range of an index or its first row."""

import math
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db import router
from django.db.models import Count, QuerySet, Sum
from django.utils import timezone

from kwit.admin.keyset import count_up_to
from kwit.probes import health
from kwit.probes.meters import RECENT_S, Gauge, Meter, Metric, gauge, histogram, register

from ..clock import is_paused, not_future
from ..conf import conf
from ..models import Attempt, Channel, MailQueue, Outcome, RunLog, TaskQueue
from ..notes import try_find
from ..passes.rhythm import Rhythm, find_rhythm, rhythm_since
from .badges import kinds
from .stats import GOOD, LATEST_MAX, LOG_ROWS_MAX, RAN, WAITING, Latest, latest, sent_by_kind

#: Rows counted per queue and state: an index is read that far in some tens of milliseconds.
DEPTH_MAX = 100_000
#: Channels reported; a site has one or two.
CHANNELS_MAX = 100
#: Seconds; an ordinary pass takes some hundredths of one, a baseline minutes.
DURATION_BOUNDS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


def read(now: datetime) -> Iterator[Metric]:
    """Yield every measure; about twenty bounded queries."""
    since = now - timedelta(seconds=RECENT_S)
    newest = latest(now)
    yield from passes(newest, now=now, since=since)
    yield from kinds_of(newest, now=now, since=since)
    yield from queues(now)
    yield attempts(now=now, since=since)
    yield from channels(now)


def age_s(at: datetime | None, *, now: datetime) -> float:
    """Return how long ago a moment was, in seconds: never negative, infinite when there was none."""
    return math.inf if at is None else max(0.0, (now - at).total_seconds())


def passes(newest: Latest, *, now: datetime, since: datetime) -> Iterator[Metric]:
    """Yield how the passes went."""
    good = newest.good.started_at if newest.good else None
    about = "Seconds since the last pass began that ended well; +Inf when there is none"
    yield gauge("kwit_pass_last_good_age_seconds", about, age_s(good, now=now))
    rhythm = rhythm_since(good, using=router.db_for_read(RunLog), now=now, settings=conf())
    about = "Seconds between two passes: NOTIFY_EXPECT_EVERY, or the median gap of the last day with passes"
    yield gauge("kwit_pass_expected_every_seconds", about, rhythm.every.total_seconds())
    about = "1 when no pass has ended well for longer than the site's own rhythm explains"
    yield gauge("kwit_pass_is_quiet", about, float(rhythm.is_quiet))
    full = [((kind,), age_s(newest.full.get(kind), now=now)) for kind, _word in kinds()]
    about = "Seconds since a step last scanned all events; +Inf when the log knows of none"
    yield Gauge(name="kwit_pass_last_full_age_seconds", about=about, labels=["kind"], samples=full)
    about = f"Passes skipped since the last one that ran, at most {LATEST_MAX}"
    yield gauge("kwit_passes_skipped_in_a_row", about, len(newest.skipped))
    rows = (
        RunLog.objects.believable(now).filter(step=RunLog.WHOLE, started_at__gte=since).order_by("-started_at", "-pk")
    )
    found = list(rows.values_list("outcome", "ms")[:LOG_ROWS_MAX])
    counted = Counter(outcome for outcome, _ms in found)
    yield Gauge(
        name="kwit_recent_passes",
        about="Passes that began lately, by outcome",
        labels=["outcome"],
        samples=[((outcome,), counted[outcome]) for outcome in Outcome.values],
    )
    ran_s = [ms / 1000 for outcome, ms in found if outcome in RAN and ms is not None]
    about = "How long the passes took that began lately and ran"
    yield histogram("kwit_recent_pass_duration_seconds", about, found_s=ran_s, bounds_s=DURATION_BOUNDS_S)


def kinds_of(newest: Latest, *, now: datetime, since: datetime) -> Iterator[Metric]:
    """Yield what was found, queued and sent of each kind."""
    rows = (
        RunLog.objects.believable(now).filter(started_at__gte=since).order_by("-started_at").values("pk")[:LOG_ROWS_MAX]
    )
    steps = RunLog.objects.filter(pk__in=rows).exclude(step=RunLog.WHOLE).order_by().values_list("step")
    sums = list(steps.annotate(Sum("candidates"), Sum("mails"), Sum("tasks")))
    counted, _cut_at = sent_by_kind([since])
    sent = {kind: sum(numbers) for kind, numbers in counted.items()}
    names = dict.fromkeys([*(kind for kind, _word in kinds()), *(row[0] for row in sums), *sent])
    for place, name, about in (
        (1, "kwit_recent_candidates", "Events that passes found lately and that had no message yet"),
        (2, "kwit_recent_mails_queued", "Mails that passes queued lately"),
        (3, "kwit_recent_tasks_queued", "Tasks that passes queued lately"),
    ):
        found = {row[0]: row[place] for row in sums}
        yield by_kind(name, about, names, found)
    yield by_kind("kwit_recent_mails_sent", "Mails that somebody got lately", names, sent)
    breakers = [(row.step, try_find(row.notes, "breaker")) for row in newest.waiting]
    waiting = {step: found.params["waiting"] for step, found in breakers if found}
    about = "Events that wait behind the circuit breaker since the last pass"
    yield by_kind("kwit_breaker_waiting", about, names, waiting)


def by_kind(name: str, about: str, names: Any, found: dict[str, int]) -> Gauge:
    """Return a number per kind, 0 for those without."""
    samples = [((kind,), found.get(kind, 0)) for kind in names]
    return Gauge(name=name, about=about, labels=["kind"], samples=samples)


def queues(now: datetime) -> Iterator[Metric]:
    """Yield how much waits and how long."""
    depths, oldest = [], []
    for state in WAITING:
        rows = MailQueue.objects.filter(state=state)
        depths.append(((state.value,), count_up_to(rows, most=DEPTH_MAX)))
        due_at = rows.order_by("due_at", "pk").values_list("due_at", flat=True).first()
        oldest.append(((state.value,), 0.0 if due_at is None else age_s(due_at, now=now)))
    about = f"Mails in a state that is not over, at most {DEPTH_MAX + 1} of each"
    yield Gauge(name="kwit_mails", about=about, labels=["state"], samples=depths)
    about = "Seconds since the mail was due that has waited longest in its state; 0 when none is overdue"
    yield Gauge(name="kwit_mail_oldest_due_age_seconds", about=about, labels=["state"], samples=oldest)
    about = f"Tasks that nobody has done yet, at most {DEPTH_MAX + 1}"
    yield gauge("kwit_tasks_open", about, count_up_to(TaskQueue.objects.open(), most=DEPTH_MAX))


def attempts(*, now: datetime, since: datetime) -> Gauge:
    """Return what the servers said lately, by outcome and first digit of the code."""
    newest = (
        Attempt.objects.filter(not_future("at", now=now), at__gte=since).order_by("-at").values("pk")[:LOG_ROWS_MAX]
    )
    rows: QuerySet[Any, Any] = Attempt.objects.filter(pk__in=newest).order_by().values_list("outcome", "code")
    counted: Counter[tuple[str, str]] = Counter()
    for outcome, code, number in rows.annotate(n=Count("pk")):
        counted[outcome, class_of(code)] += number
    return Gauge(
        name="kwit_recent_attempts",
        about="Recipients that were tried lately, by outcome and class of the server's code",
        labels=["outcome", "code_class"],
        samples=sorted(counted.items()),
    )


def class_of(code: int | None) -> str:
    """Return the class of an SMTP reply; ``none`` where no server had a say, ``other`` for what is no such code."""
    if code is None:
        return "none"
    return f"{code // 100}xx" if 200 <= code < 600 else "other"


def channels(now: datetime) -> Iterator[Metric]:
    """Yield which way out pauses."""
    found = list(Channel.objects.order_by("name")[:CHANNELS_MAX])
    paused = [((row.name,), float(is_paused(row.paused_until, row.paused_at, now=now))) for row in found]
    about = "1 while a channel pauses; a channel is here once it has paused"
    yield Gauge(name="kwit_channel_paused", about=about, labels=["channel"], samples=paused)
    failures = [((row.name,), row.failures) for row in found]
    about = "Failures of a channel in a row"
    yield Gauge(name="kwit_channel_failures_in_a_row", about=about, labels=["channel"], samples=failures)


def last_good_pass(alias: str) -> datetime | None:
    """Return when the last good pass began."""
    rows = RunLog.objects.using(alias).believable(timezone.now()).filter(step=RunLog.WHOLE).order_by("-started_at")
    # One seek in the index per outcome.
    newest = [rows.filter(outcome=outcome).values_list("started_at", flat=True).first() for outcome in GOOD]
    return max((at for at in newest if at is not None), default=None)


def is_overdue(started_at: datetime | None, seconds: int) -> str:
    """Return what is wrong when the last good pass began longer ago than this, or there has been none."""
    since = timezone.now() - timedelta(seconds=seconds)
    return "" if started_at is not None and started_at >= since else f"no pass has ended well within {seconds} seconds"


def rhythm_of(alias: str) -> Rhythm:
    """Return how often passes run, and when the last good one began."""
    return find_rhythm(using=alias, now=timezone.now(), settings=conf())


def is_quiet(rhythm: Rhythm, seconds: int) -> str:
    """Return what is wrong when passes have been overdue for so many seconds, by the site's own rhythm."""
    overdue_at = rhythm.overdue_at
    if overdue_at is not None and timezone.now() <= overdue_at + timedelta(seconds=seconds):
        return ""
    return f"no pass has ended well, although one runs every {round(rhythm.every.total_seconds())} seconds"


register(Meter(name="notify", read=read))
health.register(
    health.Question(name="pass_overdue", alias=lambda: router.db_for_read(RunLog), measure=rhythm_of, judge=is_quiet)
)
health.register(
    health.Question(
        name="pass_within", alias=lambda: router.db_for_read(RunLog), measure=last_good_pass, judge=is_overdue
    )
)
