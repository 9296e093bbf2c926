"""
What every benchmark needs: a database of its own, repeated timings, and figures as ratios to a named reference.

A benchmark module has ``run(vendor: str, scale: float) -> Iterable[Figure]``; ``python -m benchmarks`` calls them.
"""

import contextlib
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.mssql_server import connected
from tests.postgres import SERVER_OPTIONS, postgres_server

BENCH_DATABASE = "kwit_bench"


@dataclass(frozen=True)
class Figure:
    """
    One measured figure; ``ratio`` is to ``reference``, measured in the same run on the same rows.

    ``bar`` is the promise, for example ``">= 0.5"``; None where the figure is for information.
    """

    name: str
    value: float
    unit: str
    reference: str = ""
    ratio: float | None = None
    bar: str | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the ratio keeps the bar; None without one."""
        if self.bar is None or self.ratio is None:
            return None
        relation, limit = self.bar.split()
        return self.ratio >= float(limit) if relation == ">=" else self.ratio <= float(limit)


@contextlib.contextmanager
def database(vendor: str) -> Iterator[None]:
    """Start a database (PostgreSQL waits for its disk as in production), set Django up on it and migrate."""
    with contextlib.ExitStack() as stack:
        if vendor == "sqlite":
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kwit-bench-")))
            url = f"sqlite:///{scratch / 'kwit.sqlite3'}"
        elif vendor == "mssql":
            url = stack.enter_context(mssql_database(os.environ["KWIT_TEST_MSSQL_URL"]))
        else:
            SERVER_OPTIONS.update(fsync="on", full_page_writes="on", shared_buffers="512MB")
            url = os.environ.get("KWIT_TEST_POSTGRES_URL") or stack.enter_context(postgres_server())
        os.environ.update(DATABASE_URL=url, DEBUG="0", SECRET_KEY="bench", DJANGO_SETTINGS_MODULE="config.settings")
        import django
        from django.core.management import call_command
        from django.db import connections

        django.setup()
        if vendor == "mssql":
            from tests.babelfish import watch_for_it

            watch_for_it()
        try:
            # A stand-in is seen when the first connection is made; migrate reads the migrations before that.
            connections["default"].ensure_connection()
            call_command("migrate", verbosity=0, run_syncdb=True)
            yield
        finally:
            connections.close_all()


@contextlib.contextmanager
def mssql_database(url: str) -> Iterator[str]:
    """Yield the URL of a fresh database beside the named one; it is gone afterwards."""

    def on_server(sql: str) -> None:
        with contextlib.closing(connected(url)) as connection:
            connection.cursor().execute(sql)

    on_server(f"DROP DATABASE IF EXISTS {BENCH_DATABASE}")
    on_server(f"CREATE DATABASE {BENCH_DATABASE}")
    try:
        yield urlsplit(url)._replace(path=f"/{BENCH_DATABASE}").geturl()
    finally:
        on_server(f"DROP DATABASE {BENCH_DATABASE}")


def seconds(call: Callable[[], object]) -> float:
    """Return how long one call takes."""
    gc.collect()
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def median_seconds(call: Callable[[], object], *, repeats: int = 5) -> float:
    """Return the median of several calls, after one that is not counted."""
    call()
    return statistics.median(seconds(call) for _ in range(repeats))
