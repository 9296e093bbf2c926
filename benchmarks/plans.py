"""
Reading a plan file: 10,000 honest rows in each format, against the bare library in the same process.

What Kwit adds is a process of its own with its limits, the checks of every cell, and the answer's way back.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable

from benchmarks.harness import Figure, median_seconds

#: Seconds in which ten thousand rows of a workbook are read.
XLSX_S_MAX = 2.0


def files(count: int) -> dict[str, bytes]:
    """Return a plan of so many targets in each format."""
    import openpyxl

    rows = [(pk, 4, 10) for pk in range(1, count + 1)]
    book, file = openpyxl.Workbook(), io.BytesIO()
    book.active.append(("id", "revision", "qty"))
    for row in rows:
        book.active.append(row)
    book.save(file)
    targets = [{"id": row[0], "revision": row[1], "qty": row[2]} for row in rows]
    return {
        ".xlsx": file.getvalue(),
        ".csv": ("id,revision,qty\n" + "".join(f"{pk},{revision},{qty}\n" for pk, revision, qty in rows)).encode(),
        ".json": json.dumps({"change_id": "BENCH", "tenant": "bench", "targets": targets}).encode(),
    }


def bare(suffix: str, data: bytes) -> int:
    """Read a file with the bare library, and look at nothing in it."""
    import openpyxl

    if suffix == ".xlsx":
        return sum(1 for _ in openpyxl.load_workbook(io.BytesIO(data), read_only=True).active.iter_rows())
    if suffix == ".csv":
        return sum(1 for _ in csv.reader(io.StringIO(data.decode())))
    return len(json.loads(data)["targets"])


def run(vendor: str, scale: float) -> Iterable[Figure]:
    """Yield the figures; no database takes part, so one is enough."""
    if vendor != "sqlite":
        return
    from receipts.plans.model import read_plan

    count = max(2, int(10_000 * scale))
    for suffix, data in files(count).items():
        names = {} if suffix == ".json" else {"change_id": "BENCH", "tenant": "bench"}

        def mine(suffix: str = suffix, data: bytes = data, names: dict[str, str] = names) -> None:
            assert len(read_plan(data, name=f"plan{suffix}", targets_max=count, **names).targets) == count

        reference: Callable[[], object] = lambda suffix=suffix, data=data: bare(suffix, data)  # noqa: E731
        took = median_seconds(mine)
        name = f"read a plan of {count:,} targets, {suffix}"
        yield Figure(name, took * 1000, "ms", "the bare library in this process", took / median_seconds(reference))
        if suffix == ".xlsx":
            bar = "<= 1" if scale >= 1 else None
            yield Figure(name, took * 1000, "ms", f"{XLSX_S_MAX:g} s", took / XLSX_S_MAX, bar)
