"""What a pass that finds nothing costs each minute, beside a plain command of a fresh project on the same database."""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from django.core.management import call_command
from django.db import connection

from benchmarks.harness import Figure

ROOT = Path(__file__).resolve().parent.parent
REPEATS = 7
#: Makes the fresh project use the database of this benchmark.
SETTINGS = """
DATABASES = {{"default": {{"ENGINE": {ENGINE!r}, "NAME": {NAME!r}, "USER": {USER!r}, "PASSWORD": {PASSWORD!r},
             "HOST": {HOST!r}, "PORT": {PORT!r}}}}}
"""


def processor_ms(folder: Path, *arguments: str, environment: Mapping[str, str]) -> float:
    """Return the median of the processor time that ``manage.py`` takes, after one run that is not counted."""
    taken = []
    for _ in range(REPEATS + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "manage.py", *arguments], cwd=folder, env=environment, check=True, capture_output=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return statistics.median(taken[1:]) * 1000


def run(vendor: str, scale: float) -> Iterable[Figure]:
    """Measure an idle ``notify_pass`` against ``showmigrations``."""
    plain = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    if vendor == "mssql":
        return
    with tempfile.TemporaryDirectory(prefix="kwit-bench-") as folder:
        call_command("startproject", "fresh", folder)
        with (Path(folder) / "fresh" / "settings.py").open("a") as settings:
            settings.write(SETTINGS.format(**connection.settings_dict))
        reference = processor_ms(Path(folder), "showmigrations", environment=plain)
    idle = processor_ms(ROOT, "notify_pass", environment=plain)
    yield Figure("showmigrations of a fresh project", reference, "ms")
    yield Figure("notify_pass that finds nothing", idle, "ms", "showmigrations", idle / reference, "<= 1.5")
