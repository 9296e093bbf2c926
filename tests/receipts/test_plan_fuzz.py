"""Twenty thousand mutations of a plan file in each format: a refusal with words, or the right values."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

ROOT = Path(__file__).parents[2]
#: Format, seed and files. Workbooks come in two halves, for the second core.
BATCHES = [(".json", 1, 20_000), (".csv", 2, 20_000), (".xlsx", 3, 10_000), (".xlsx", 4, 10_000)]


@pytest.mark.parametrize(("suffix", "seed", "count"), BATCHES)
def test_a_mutated_file_is_refused_or_read_right(suffix, seed, count):
    if connection.vendor != "sqlite":
        pytest.skip("reads no database; runs once, with SQLite")
    command = [sys.executable, "-m", "tests.receipts.plan_fuzz", suffix, str(seed), str(count)]

    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)

    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads(run.stdout)
    assert found["files"] == count
    # Neither is everything refused nor everything taken, or the mutations prove nothing.
    assert count / 100 < found["plans"] < count / 2
