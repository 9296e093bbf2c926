"""
Sealing, beside what it must not slow down.

100,000 receipts of one row each are sealed by one run; a proof is read from a small and from the large log; and changes
of two targets are applied beside a small log and beside the large one.
"""

import statistics
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from benchmarks.harness import Figure, median_seconds, seconds
from benchmarks.receipts import TENANT, fresh_targets, with_engine

#: Changes that are applied beside each log.
ROUNDS = 40


def make_receipts(count: int, *, start: int) -> None:
    """Write receipts with one audit row each, as applying would leave them."""
    from receipts.models import Audit, Change
    from receipts.plans.canonical import Target, canonical_targets, digest

    moment = datetime.now(UTC) - timedelta(hours=1)
    for first in range(start, start + count, 5_000):
        changes, rows = [], []
        for number in range(first, min(first + 5_000, start + count)):
            targets = [Target(number + 1, 4, 10)]
            name = f"SEAL-{number:09d}"
            content = digest(change_id=name, kind="cancel", tenant=TENANT, targets=canonical_targets(targets))
            changes.append(
                Change(
                    change_id=name,
                    kind="cancel",
                    tenant=TENANT,
                    targets=[one._asdict() for one in targets],
                    digest=content,
                    actor="ann",
                    reason="sold out",
                    created_at=moment + timedelta(milliseconds=number),
                )
            )
            rows.append(
                Audit(
                    change_id=name,
                    target_id=number + 1,
                    revision_before=4,
                    revision_after=5,
                    qty=10,
                    state_before="pending",
                    state_after="cancelled",
                )
            )
        Change.objects.bulk_create(changes)
        Audit.objects.bulk_create(rows)


def run(vendor: str, scale: float) -> Iterable[Figure]:
    """Yield the figures; the bars are those of 100,000 receipts."""
    from receipts.sealing.keys import Keys
    from receipts.sealing.log import make_proof
    from receipts.sealing.notes import SigningKey
    from receipts.sealing.seal import seal_receipts

    keys = Keys((SigningKey.generate("example.com/bench"),))
    small, large = 100, max(1_000, int(100_000 * scale))

    make_receipts(small, start=0)
    seal_receipts(keys=keys)
    proof_small = median_seconds(lambda: make_proof("SEAL-000000050", "default"), repeats=20)
    before = apply_times()

    make_receipts(large, start=small)
    taken = seconds(lambda: seal_receipts(keys=keys))
    bar = "<= 60" if scale >= 1 else None
    yield Figure(f"seal {large:,} receipts", taken, "s", "seconds", taken, bar)

    proof_large = median_seconds(lambda: make_proof(f"SEAL-{large // 2:09d}", "default"), repeats=20)
    yield Figure(
        f"proof of one receipt of {large:,}", proof_large * 1000, "ms", "of 100", proof_large / proof_small, "<= 3"
    )
    nothing = median_seconds(lambda: seal_receipts(keys=keys))
    yield Figure("a run with nothing to seal", nothing * 1000, "ms", "", None, None)

    after = apply_times()
    yield Figure(
        "cancel_many, 2 targets, beside the log",
        statistics.median(after) * 1000,
        "ms",
        "beside an empty one",
        statistics.median(after) / statistics.median(before),
        None,
    )


def apply_times() -> list[float]:
    """Return how long changes of two targets take."""
    batches = [(f"BENCH-{fresh_targets(1)[0][0]}", fresh_targets(2)) for _ in range(ROUNDS)]
    return [seconds(lambda batch=batch: with_engine(*batch)) for batch in batches]
