"""
Measure Kwit against named references in the same run.

``python -m benchmarks [NAME ...] [--database sqlite|postgresql|mssql]``; mssql where ``KWIT_TEST_MSSQL_URL`` names one.

Each name is a module of this folder. Each (name, database) pair runs in a process of its own, so that memory peaks are
its own. Exits 1 when a figure misses its bar.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.harness import database

NAMES = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem not in ("__init__", "__main__", "harness"))

VENDORS = ["sqlite", "postgresql", *(["mssql"] if os.environ.get("KWIT_TEST_MSSQL_URL") else [])]


def show(row: dict[str, object]) -> str:
    """Return one figure as a line of text."""
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f} x {row['reference']}"
    bar = "" if row["bar"] is None else f"[bar {row['bar']}: {'holds' if row['holds'] else 'MISSED'}]"
    return f"  {row['name']:<58} {row['value']:>12,.4g} {row['unit']:<8} {ratio} {bar}".rstrip()


def measure(name: str, vendor: str, scale: float, *, as_json: bool) -> bool:
    """Run one module on one database in this process; return whether every bar held."""
    held = True
    module = importlib.import_module(f"benchmarks.{name}")
    with database(vendor):
        for figure in module.run(vendor, scale):
            row = {**asdict(figure), "holds": figure.holds, "benchmark": name, "database": vendor}
            print(json.dumps(row) if as_json else show(row), flush=True)
            held = held and figure.holds is not False
    return held


def main() -> int:
    """Parse, run each pair in a child process, return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all by default")
    parser.add_argument("--database", choices=[*VENDORS, "mssql"], action="append")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply row counts, for a quick look")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        return 0 if measure(options.names[0], options.database[0], options.scale, as_json=options.json) else 1
    code = 0
    for name in options.names or NAMES:
        for vendor in options.database or VENDORS:
            if not options.json:
                print(f"\n{name} on {vendor}", flush=True)
            child = [sys.executable, "-m", "benchmarks", name, "--database", vendor, "--scale", str(options.scale)]
            code |= subprocess.run([*child, "--here", *(["--json"] if options.json else [])], check=False).returncode
    return code


if __name__ == "__main__":
    sys.exit(main())
