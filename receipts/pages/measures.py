"""What receipts tell /metrics: bounded queries."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from django.utils import timezone

from desk.measures import Gauge, Measure, Meter, register, single

from ..kinds import each_kind
from ..models import Change, Reconciliation

#: Receipts read to count those of the day.
RECEIPTS_READ_MAX = 50_000
#: Stored reconciliations looked at, the newest.
RECONCILIATIONS_READ_MAX = 1000


def read(now: datetime) -> Iterator[Measure]:
    """Yield everything there is to say; two queries."""
    midnight = timezone.localtime(now).replace(hour=0, minute=0, second=0, microsecond=0)
    found = Change.objects.filter(created_at__gte=midnight).order_by("-created_at").values_list("kind", flat=True)
    counted = Counter(found[:RECEIPTS_READ_MAX])
    kinds = dict.fromkeys([*(kind.name for kind in each_kind()), *sorted(counted)])
    about = f"Receipts committed since midnight in the site's time zone, at most {RECEIPTS_READ_MAX}"
    samples = [((kind,), counted[kind]) for kind in kinds]
    yield Gauge(name="kwit_receipts_today", about=about, labels=["kind"], samples=samples)
    yield from differences()


def differences() -> Iterator[Measure]:
    """Yield what the newest stored reconciliations found, each receipt by its last one."""
    rows = Reconciliation.objects.order_by("-pk").values_list("change_id", "changed", "missing")
    latest: dict[str, tuple[int, int]] = {}
    for change_id, changed, missing in rows[:RECONCILIATIONS_READ_MAX]:
        latest.setdefault(change_id, (changed, missing))
    differing = [found for found in latest.values() if any(found)]
    looked = f"in the newest {RECONCILIATIONS_READ_MAX} stored reconciliations, each receipt by its last one"
    yield single("kwit_receipts_differing", f"Receipts that differ from their rows, {looked}", len(differing))
    yield Gauge(
        name="kwit_reconciliation_differences",
        about=f"Targets that differ from their receipts, {looked}",
        labels=["category"],
        samples=[
            (("changed",), sum(changed for changed, _missing in differing)),
            (("missing",), sum(missing for _changed, missing in differing)),
        ],
    )


register(Meter(name="receipts", read=read))
