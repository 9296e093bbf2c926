"""
How fast the admin answers with ten million run-log rows and control rows against ten thousand.

Two databases on one server, one with few rows and one with many, are asked in turn, so that both see the same machine.
The long table is the short one with more history: the same passes an hour, so that the last day looks the same.
Receipts are measured with one million; ``KWIT_BENCH_RECEIPTS`` names another number.
"""

import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from benchmarks.harness import Figure

FEW, MANY = 10_000, 10_000_000
#: Receipts, each with one target and every other one with a verdict, of which one in a hundred differs.
MANY_RECEIPTS = int(os.environ.get("KWIT_BENCH_RECEIPTS", "1000000"))
BAR = "<= 1.5"
#: The fastest of so many requests counts: what else the machine does only adds.
REPEATS = 20

#: A pass a minute with four steps; each row number n gives the same row in both databases, newest first.
LOG = """
    INSERT INTO notify_run_log
           (pass_id, step, started_at, ended_at, ms, candidates, mails, tasks, outcome, error, is_full)
    SELECT {uuid}, {step}, {at}, {at}, CASE WHEN n % 150 = 45 THEN NULL ELSE 20 + n % 300 END,
           CASE WHEN n % 7 = 0 THEN n % 9 ELSE 0 END, CASE WHEN n % 7 = 0 THEN n % 9 ELSE 0 END, 0,
           CASE WHEN n % 150 = 45 OR n % 100 = 50 THEN 'error' WHEN n % 50 = 25 THEN 'skipped' ELSE 'ok' END,
           CASE WHEN n % 50 = 25 THEN 'SKIPPED: lock code -1, held by host a, process 1' ELSE NULL END,
           {is_full}
    FROM {numbers}{in_order}
"""
CONTROL = """
    INSERT INTO notify_control (kind, "key", key2, language, recipients)
    SELECT {kind}, n, 0, 'en', 'someone@example.org' FROM {numbers}{in_order}
"""
#: change_id, kind and tenant of row n; one tenant has a tenth of all.
NAMED = "{change_id}, CASE n % 3 WHEN 0 THEN 'accept' ELSE 'cancel' END, CASE n % 10 WHEN 7 THEN 'small' ELSE 'big' END"
RECEIPTS = """
    INSERT INTO receipts_changes (change_id, kind, tenant, created_at, targets, digest)
    SELECT {named}, {at}, '[{{"id":1,"qty":10,"revision":4}}]', '' FROM {numbers}{in_order}
"""
AUDIT = """
    INSERT INTO receipts_audit
           (change_id, target_id, revision_before, revision_after, qty, state_before, state_after)
    SELECT {change_id}, 1, 4, 5, 10, 'pending', 'cancelled' FROM {numbers}{in_order}
"""
RECONCILIATIONS = """
    {ids_given}INSERT INTO receipts_reconciliation (id, change_id, tenant, taken_at, "match", changed, missing, items)
    SELECT n + 1, {change_id}, CASE n % 10 WHEN 7 THEN 'small' ELSE 'big' END, {at}, 1, 0,
           CASE WHEN n % 100 < 2 THEN 1 ELSE 0 END, '[]' FROM {numbers} WHERE n % 2 = 1{in_order}{ids_made}
"""
VERDICTS = """
    INSERT INTO receipts_verdict (change_id, kind, tenant, created_at, reconciliation_id, found)
    SELECT {named}, {at}, n + 1, CASE WHEN n % 100 < 2 THEN 'differs' ELSE 'match' END
    FROM {numbers} WHERE n % 2 = 1{in_order}
"""
STEP = (
    "CASE n % 5 WHEN 0 THEN 'pass' WHEN 1 THEN 'order' WHEN 2 THEN 'rejected' WHEN 3 THEN 'advice' ELSE 'comment' END"
)
KIND = "CASE n % 4 WHEN 0 THEN 'order' WHEN 1 THEN 'rejected' WHEN 2 THEN 'advice' ELSE 'comment' END"
SQLITE = {
    "uuid": "printf('%032x', n / 5)",
    "at": "strftime('%Y-%m-%d %H:%M:%f', {now}, '-' || (n / 5) || ' minutes')",
    "is_full": "n % 7200 < 5",
    "change_id": "printf('CHG-%08d', n)",
    "numbers": (
        "(WITH RECURSIVE c(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM c WHERE n < {last}) SELECT n FROM c)"
    ),
}
POSTGRESQL = {
    "uuid": "lpad(to_hex(n / 5), 32, '0')::uuid",
    "at": "{now}::timestamptz - (n / 5) * interval '1 minute'",
    "is_full": "n % 7200 < 5",
    "change_id": "'CHG-' || lpad(n::text, 8, '0')",
    "numbers": "generate_series({first}, {last}) n",
}
#: GENERATE_SERIES begins with SQL Server 2022; each digit of a number is a row of a table of ten instead. Rows are only
#: numbered in the order of the SELECT where that has one, and a row's own id is taken only when asked.
MSSQL = {
    "uuid": "RIGHT(CONCAT(REPLICATE('0', 32), n / 5), 32)",
    "at": "DATEADD(minute, -CAST(n / 5 AS int), CAST({now} AS datetime2(6)))",
    "is_full": "CASE WHEN n % 7200 < 5 THEN 1 ELSE 0 END",
    "change_id": "CONCAT('CHG-', RIGHT(CONCAT('00000000', n), 8))",
    "numbers": "(SELECT {first} + {sum} AS n FROM {digits} WHERE {sum} <= {last} - {first}) AS numbers",
    "in_order": " ORDER BY n",
    "ids_given": "SET IDENTITY_INSERT receipts_reconciliation ON; ",
    "ids_made": "; SET IDENTITY_INSERT receipts_reconciliation OFF;",
}
SHAPES = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "mssql": MSSQL}


def run(vendor: str, scale: float) -> Iterable[Figure]:
    """Fill two databases, one with few rows and one with many, and measure every page on both."""
    from django.db import connection, connections

    now = datetime.now(UTC)
    long = connections["default"]
    with twin(vendor) as short:
        for database, many in ((short, FEW), (long, round(MANY * scale))):
            with on(database):
                grow(vendor, (LOG, CONTROL), many, now)
        log = [*addresses(LOG_PAGES), ("run history, a page in the middle", middle_page)]
        yield from compared(short, long, log, round(MANY * scale))
        for database, many in ((short, FEW), (long, round(MANY_RECEIPTS * scale))):
            with on(database):
                grow(vendor, (RECEIPTS, AUDIT, RECONCILIATIONS, VERDICTS), many, now)
        yield from compared(short, long, addresses(RECEIPT_PAGES), round(MANY_RECEIPTS * scale))
    assert connection.alias == "default"


@contextlib.contextmanager
def twin(vendor: str) -> Iterator[BaseDatabaseWrapper]:
    """Make a second database beside the default one, with the same tables; it is gone afterwards."""
    from django.core.management import call_command
    from django.db import connections

    first = connections["default"]
    name = f"{first.settings_dict['NAME']}_few"
    connections.settings["few"] = {**first.settings_dict, "NAME": name}
    second = connections["few"]
    # Whoever is handed this connection takes it for the site's only one.
    second.alias = "default"
    if vendor != "sqlite":
        administer(first, f"CREATE DATABASE {first.ops.quote_name(name)}")
    try:
        with on(second):
            call_command("migrate", verbosity=0, run_syncdb=True)
        yield second
    finally:
        second.close()
        if vendor != "sqlite":
            administer(first, f"DROP DATABASE {first.ops.quote_name(name)}")
        del connections["few"], connections.settings["few"]


def administer(connection: BaseDatabaseWrapper, sql: str) -> None:
    """Run a statement that concerns the server, outside of every database of ours."""
    with connection._nodb_cursor() as cursor:
        cursor.execute(sql)


@contextlib.contextmanager
def on(database: BaseDatabaseWrapper) -> Iterator[None]:
    """Let the site be on this database."""
    from django.db import connections

    before = connections["default"]
    connections["default"] = database
    try:
        yield
    finally:
        connections["default"] = before


def compared(
    short: BaseDatabaseWrapper, long: BaseDatabaseWrapper, pages: list[tuple[str, Callable[[], str]]], many: int
) -> Iterable[Figure]:
    """Measure these pages on both databases in turn."""
    clients = []
    for database in (short, long):
        with on(database):
            clients.append((database, signed_in()))
    for name, address in pages:
        few, lots = fastest([partial(fetch, client, address, database) for database, client in clients])
        yield Figure(f"{name}, {many:,} rows", lots * 1000, "ms", reference=f"{FEW:,} rows", ratio=lots / few, bar=BAR)


LOG_PAGES = {
    "dashboard": "/admin/",
    "run history, first page": "/admin/notify/runlog/",
    "run history, errors": "/admin/notify/runlog/?outcome=error",
    "run history, died": "/admin/notify/runlog/?outcome=died",
    "run history, only with work": "/admin/notify/runlog/?work=1",
    "run history, one step": "/admin/notify/runlog/?step=comment",
    "skipped runs": "/admin/notify/runlog/skipped/",
    "control table, first page": "/admin/notify/control/",
    "control table, one kind": "/admin/notify/control/?kind=comment",
    "control table, kind and key": "/admin/notify/control/?kind=comment&key=4003",
    "control table, key alone": "/admin/notify/control/?key=4003",
    "mail queue, blocked": "/admin/notify/mailqueue/?state=blocked",
}
RECEIPT_PAGES = {
    "dashboard with receipts": "/admin/",
    "receipts, first page": "/admin/receipts/change/",
    "receipts, change_id": "/admin/receipts/change/?change_id=CHG-00000777",
    "receipts, one tenant": "/admin/receipts/change/?tenant=small",
    "receipts, tenant and kind": "/admin/receipts/change/?tenant=small&kind=accept",
    "receipts, one kind": "/admin/receipts/change/?kind=cancel",
    "receipts, those that differ": "/admin/receipts/change/?differs=1",
    "receipts, those of one tenant that differ": "/admin/receipts/change/?differs=1&tenant=big",
    "receipt": "/admin/receipts/change/CHG-00000777/change/",
    "reconciliations, first page": "/admin/receipts/reconciliation/",
}


def addresses(fixed: dict[str, str]) -> list[tuple[str, Callable[[], str]]]:
    """Return what is asked for."""
    return [(name, partial(str, address)) for name, address in fixed.items()]


def middle_page() -> str:
    """Return the address of a page in the middle of the log."""
    from notify.models import RunLog

    row = RunLog.objects.filter(step="pass", pk__gte=(RunLog.objects.order_by("-pk")[0].pk // 2)).order_by("pk")[0]
    return f"/admin/notify/runlog/?after={row.started_at:%Y-%m-%dT%H:%M:%S.%f}%2B00:00~{row.pk}"


def signed_in() -> Any:
    """Return the client of somebody who may see everything."""
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.test import Client

    settings.ALLOWED_HOSTS = ["localhost"]
    user, _ = User.objects.get_or_create(username="bench", is_staff=True, is_superuser=True)
    client = Client(headers={"host": "localhost"})
    client.force_login(user)
    return client


def fetch(client: Any, address: Callable[[], str], database: BaseDatabaseWrapper) -> float:
    """Ask for a page on a database, answered in this process; return its seconds."""
    # Where the database is in this process, its own time counts; else that of the clock.
    clock = time.process_time if database.vendor == "sqlite" else time.perf_counter
    with on(database):
        asked = address()
        gc.collect()
        started = clock()
        answer = client.get(asked, secure=True)
        taken = clock() - started
    assert answer.status_code == 200, (asked, answer.status_code)
    return taken


def fastest(calls: Sequence[Callable[[], float]]) -> list[float]:
    """Return each one's shortest time of several, asked in turn."""
    rounds = [[call() for call in calls] for _ in range(REPEATS)]
    return [min(times) for times in zip(*rounds, strict=True)]


def digits(largest: int) -> dict[str, str]:
    """Return what makes the numbers from 0 to this one out of their decimal digits."""
    ten = f"(VALUES {', '.join(f'({digit})' for digit in range(10))})"
    places = range(len(str(largest)))
    tables = " CROSS JOIN ".join(f"{ten} AS d{place} (i)" for place in reversed(places))
    return {"sum": " + ".join(f"d{place}.i * {10**place}" for place in places), "digits": tables}


def grow(vendor: str, statements: tuple[str, ...], rows: int, now: datetime) -> None:
    """Add history: row n is older than row n - 1; what a table's statistics need is done as a site's would."""
    from django.db import connection

    first, last = 0, rows - 1
    begin = (now - timedelta(minutes=1)).strftime("%Y-%m-%d %H:%M:%S")
    known = {"now": f"'{begin}'", "first": first, "last": last, **digits(last - first)}
    filled = {"in_order": "", "ids_given": "", "ids_made": ""}
    filled |= {name: text.format(**known) for name, text in SHAPES[vendor].items()}
    with connection.cursor() as cursor:
        filled |= {"step": STEP, "kind": KIND, "named": NAMED.format(**filled)}
        for statement in statements:
            cursor.execute(statement.format(**filled))
        if vendor == "postgresql":
            cursor.execute("ANALYZE")
