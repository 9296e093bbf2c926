"""What receipts tell /metrics: bounded queries."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from django.db import router
from django.utils import timezone

from kwit.admin.filters import day_edge
from kwit.probes.meters import Gauge, Meter, Metric, gauge, register

from ..change_types import each_kind
from ..models import Change, Verdict
from ..querysets import Found
from ..sealing.watch import unsealed_s

#: Receipts read to count those of the day.
RECEIPTS_READ_MAX = 50_000
#: Differing receipts looked at, the newest; a site has few, and wants none.
DIFFERING_READ_MAX = 1000


def read(now: datetime) -> Iterator[Metric]:
    """Yield everything there is to say; a bounded number of rows."""
    midnight = day_edge(timezone.localdate(now), is_end=False)
    found = Change.objects.filter(created_at__gte=midnight).order_by("-created_at").values_list("kind", flat=True)
    counted = Counter(found[:RECEIPTS_READ_MAX])
    kinds = dict.fromkeys([*(kind.name for kind in each_kind()), *sorted(counted)])
    about = f"Receipts committed since midnight in the site's time zone, at most {RECEIPTS_READ_MAX}"
    samples = [((kind,), counted[kind]) for kind in kinds]
    yield Gauge(name="kwit_receipts_today", about=about, labels=["kind"], samples=samples)
    yield from differences()
    about = "Age of the oldest committed receipt that no checkpoint covers; 0 when all are sealed"
    yield gauge("kwit_receipts_unsealed_seconds", about, unsealed_s(router.db_for_read(Change)))


def differences() -> Iterator[Metric]:
    """Yield what the last reconciliation of each receipt found, where it found a difference."""
    broken = Verdict.objects.filter(found=Found.BROKEN)[:DIFFERING_READ_MAX].count()
    looked = f"by each receipt's last stored reconciliation, of at most {DIFFERING_READ_MAX} receipts"
    yield gauge("kwit_receipts_broken", f"Receipts that disagree with their own audit rows, {looked}", broken)
    rows = Verdict.objects.filter(found=Found.DIFFERS).order_by("-created_at", "-change")
    found = list(rows.values_list("reconciliation__changed", "reconciliation__missing")[:DIFFERING_READ_MAX])
    yield gauge("kwit_receipts_differing", f"Receipts that differ from their rows, {looked}", len(found))
    sums = [("changed", sum(changed for changed, _ in found)), ("missing", sum(missing for _, missing in found))]
    yield Gauge(
        name="kwit_reconciliation_differences",
        about=f"Targets that differ from their receipts, {looked}",
        labels=["category"],
        samples=[((category,), number) for category, number in sums],
    )


register(Meter(name="receipts", read=read))
