"""
The notification pass: idle passes over growing history, throughput against plain SQL, memory, a whole process.

Old events lie twenty days back and have been notified; new ones are of today. Every line has one old comment.
"""

import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.harness import Figure, median_seconds, seconds

#: How long ago the old events took place: outside every window.
OLD_DAYS = 20
REPEATS = 15
#: How often each contestant runs; the ratio is the median of the pairs.
ROUNDS = 5

PLAIN_CONTROLS = """
    INSERT INTO notify_control (kind, "key", key2, language, recipients, tenant)
    SELECT 'comment', n.line_id, n.newest, p.language, p.email, l.tenant
    FROM (SELECT DISTINCT c.line_id, (SELECT max(m.id) FROM portal_comment m WHERE m.line_id = c.line_id) AS newest
          FROM portal_comment c) n
    JOIN portal_comment c ON c.id = n.newest
    JOIN portal_orderline l ON l.id = c.line_id
    JOIN portal_contact p ON p.name = c.recipient
    WHERE NOT EXISTS (SELECT 1 FROM notify_control k
                      WHERE k.kind = 'comment' AND k."key" = n.line_id AND k.key2 = n.newest)
    ORDER BY c.created_at, n.line_id
"""
PLAIN_MAILS = """
    INSERT INTO notify_mail_queue (pass_id, control_id, template, subject, recipients, language, payload, tenant)
    SELECT '{pass_id}', k.id, 'comment', CASE k.language {subjects} END, {recipients}, k.language, {payload}, k.tenant
    FROM notify_control k
    JOIN portal_comment c ON c.id = k.key2
    JOIN portal_contact p ON p.name = c.recipient
    JOIN portal_orderline l ON l.id = c.line_id
    JOIN portal_order o ON o.id = l.order_id
    WHERE k.kind = 'comment' AND k.id > {last}
    ORDER BY k.id
"""
#: Where the values of the comment's templates stand in the statement above.
PLAIN_VALUES = {
    "author": "c.author",
    "body": "c.body",
    "item": "l.item",
    "number": "o.number",
    "tenant": "l.tenant",
    "timezone": "p.timezone",
}
JSON_FUNCTIONS = {"postgresql": ("jsonb_build_array", "jsonb_build_object"), "sqlite": ("json_array", "json_object")}
#: SQL Server concatenates with +, has literals of its own for what is not ASCII, and no JSON_OBJECT before 2022.
JOINED = {"postgresql": " || ", "sqlite": " || ", "mssql": " + "}
QUOTE = {"postgresql": "'", "sqlite": "'", "mssql": "N'"}
#: What a pass writes, in an order in which it can be deleted.
WRITTEN = ("notify_attempt", "notify_task_queue", "notify_mail_queue", "notify_control", "notify_run_log")
BUSINESS = ("portal_comment", "portal_advice", "portal_orderline", "portal_order", "portal_contact")


def run(vendor: str, scale: float) -> Iterator[Figure]:
    """Yield the figures; the parts build on one another's rows."""

    def rows(number: int) -> int:
        return max(100, round(number * scale))

    yield from throughput(vendor, new=rows(100_000))
    empty(vendor)
    yield from history(vendor, few=rows(10_000), many=rows(1_000_000), flagged=rows(10_000_000))
    process = median_seconds(lambda: manage("notify_pass", "--json"), repeats=REPEATS)
    yield Figure("idle manage.py notify_pass, process start to end", process, "s")
    bare = median_seconds(lambda: manage("version"), repeats=REPEATS)
    yield Figure("of which Python and Django (manage.py version)", bare, "s")


def history(vendor: str, *, few: int, many: int, flagged: int) -> Iterator[Figure]:
    """Yield what a pass costs as history grows, and its memory while it is written."""
    small = f"at {few:,}"
    seed(comments=few)
    memory_few, _ = pass_in_child(few)
    maintain(vendor)
    idle_few, flag_few = idle(), idle("order")
    yield Figure(f"idle pass, {few:,} old comments", idle_few * 1000, "ms")
    yield Figure(f"memory peak of a pass over {few:,} candidates", memory_few, "MiB")

    seed(comments=many)
    memory_many, took = pass_in_child(many)
    maintain(vendor)
    idle_many = idle()
    yield Figure(f"idle pass, {many:,} old comments", idle_many * 1000, "ms", small, idle_many / idle_few, "<= 1.5")
    ratio = memory_many / memory_few
    yield Figure(f"memory peak of a pass over {many:,} candidates", memory_many, "MiB", small, ratio, "<= 2")
    yield Figure(f"events prepared in a pass over {many:,} candidates", many / took, "1/s")

    yield Figure(f"idle flag step, {few:,} old handled lines", flag_few * 1000, "ms")
    lines = multiply_lines(vendor, flagged)
    maintain(vendor)
    flag_many = idle("order")
    ratio = flag_many / flag_few
    yield Figure(f"idle flag step, {lines:,} old handled lines", flag_many * 1000, "ms", small, ratio, "<= 1.5")
    whole = idle()
    yield Figure(f"idle pass, {many:,} old comments, {lines:,} old lines", whole * 1000, "ms", small, whole / idle_few)


def throughput(vendor: str, *, new: int) -> Iterator[Figure]:
    """Yield the time for new events beside as many old ones, and its ratio to plain SQL."""
    from notify.passes.runner import run_pass
    from portal.models import Comment
    from tests.babelfish import is_stand_in

    seed(comments=new)
    mark_notified()
    newest = fetch("SELECT max(id) FROM portal_comment")
    last = fetch("SELECT max(id) FROM notify_control")
    seed(comments=new, orders=0, days_ago=0)
    assert Comment.objects.filter(pk__gt=newest).values("line").distinct().count() == new

    def restore() -> None:
        delete(vendor, "notify_mail_queue", "notify_run_log")
        execute(f"DELETE FROM notify_control WHERE key2 > {newest}")
        maintain(vendor)

    def kwit() -> None:
        report = run_pass(kinds=["comment"])
        assert (report.outcome, report.steps[0].mails) == ("ok", new), report

    made, times = [], []
    for number in range(ROUNDS):
        # Who goes first alternates, so that neither always meets the warmer database.
        for contestant in (0, 1) if number % 2 else (1, 0):
            restore()
            call = (lambda: plain(vendor, last), kwit)[contestant]
            times.append((contestant, seconds(call)))
            if number == 0:
                made.append(queued())
    # The stand-in for SQL Server leaves a backslash before each quote that travels in a JSON text.
    plain_mails, mails = ([row[:2] for row in rows] if is_stand_in() else rows for rows in made)
    assert plain_mails == mails, "plain SQL and Kwit queue the same mails"
    sql, own = ([time for who, time in times if who == contestant] for contestant in (0, 1))
    ratio = statistics.median(one / other for one, other in zip(sql, own, strict=True))
    yield Figure(f"plain SQL, {new:,} new comments", statistics.median(sql), "s")
    yield Figure(f"pass, {new:,} new comments", statistics.median(own), "s")
    bar = ">= 0.5" if vendor == "postgresql" else None
    yield Figure("events prepared by a pass", new / statistics.median(own), "1/s", "plain SQL", ratio, bar)


def plain(vendor: str, last: int) -> None:
    """Do what a pass does to comments in two statements of SQL: no lock, no log, no checks, no bounded memory."""
    from django.db import transaction

    recipients, payload = plain_json(vendor)
    # SQLite and SQL Server keep a UUID as its digits; PostgreSQL reads it so.
    values = {"pass_id": uuid4().hex, "recipients": recipients}
    mails = PLAIN_MAILS.format(subjects=plain_subjects(vendor), payload=payload, last=last, **values)
    with transaction.atomic():
        execute(PLAIN_CONTROLS)
        execute(mails)


def plain_json(vendor: str) -> tuple[str, str]:
    """Return the expressions that build recipients and payload."""
    if vendor == "mssql":
        columns = ", ".join(f"{column} AS {name}" for name, column in PLAIN_VALUES.items())
        return (
            "N'[\"' + STRING_ESCAPE(k.recipients, 'json') + N'\"]'",
            f"(SELECT {columns} FOR JSON PATH, WITHOUT_ARRAY_WRAPPER)",
        )
    array, pairs_of = JSON_FUNCTIONS[vendor]
    payload = ", ".join(f"'{name}', {column}" for name, column in PLAIN_VALUES.items())
    return f"{array}(k.recipients)", f"{pairs_of}({payload})"


def plain_subjects(vendor: str) -> str:
    """Return the WHEN branches that build the subject in each language."""
    from django.conf import settings
    from django.template.loader import render_to_string
    from django.utils import translation

    branches = []
    for language, _ in settings.LANGUAGES:
        with translation.override(language):
            marked = {name: f"\0{column}\0" for name, column in PLAIN_VALUES.items()}
            text = render_to_string("notify/mail/comment.subject.txt", marked).strip()
        parts = [
            part if place % 2 else QUOTE[vendor] + part.replace("'", "''") + "'"
            for place, part in enumerate(text.split("\0"))
        ]
        branches.append(f"WHEN '{language}' THEN {JOINED[vendor].join(parts)}")
    return " ".join(branches)


def queued() -> list[tuple[Any, ...]]:
    """Return the queued mails, comparable between contestants."""
    from notify.models import MailQueue

    names = ("control__key", "control__key2", "subject", "recipients", "language", "payload", "state", "tenant")
    return [(*row[:3], str(row[3]), row[4], json.dumps(row[5], sort_keys=True), *row[6:]) for row in
            MailQueue.objects.order_by("control__key").values_list(*names).iterator()]  # fmt: skip


def seed(*, comments: int, orders: int | None = None, days_ago: int = OLD_DAYS) -> None:
    """Make comments, one on each of as many new lines; with ``orders=0`` one on each line that is there."""
    from django.utils import timezone

    from portal import seeding
    from portal.seeding import Plan

    # The benchmark hangs new comments on all old lines, not on the newest few.
    seeding.POOL_ROWS = max(seeding.POOL_ROWS, comments)
    per_order = 4
    # New ones lie half a day before and after now, so that all are in the window however long the rounds take.
    until = timezone.now() - timedelta(days=days_ago) if days_ago else timezone.now() + timedelta(hours=12)
    plan = Plan(
        until=until,
        days=30 if days_ago else 1,
        contacts=0 if orders == 0 else 300,
        orders=-(-comments // per_order) if orders is None else orders,
        lines_per_order=per_order,
        comments=comments,
        is_handled=True,
    )
    seeding.seed(plan)


def multiply_lines(vendor: str, wanted: int) -> int:
    """Copy handled lines until there are enough; return how many there are."""
    copied = "order_id, tenant, item, qty, revision, state, handled, rejected_at, reason"
    off = {"postgresql": "SET session_replication_role = replica", "sqlite": "PRAGMA foreign_keys = OFF"}
    on = {"postgresql": "SET session_replication_role = origin", "sqlite": "PRAGMA foreign_keys = ON"}
    execute(off.get(vendor, "SELECT 1"))
    while (there := fetch("SELECT count(*) FROM portal_orderline")) < wanted:
        number = min(there, wanted - there, 500_000)
        top, limit = (f"TOP ({number}) ", "") if vendor == "mssql" else ("", f" LIMIT {number}")
        execute(f"INSERT INTO portal_orderline ({copied}) SELECT {top}{copied} FROM portal_orderline{limit}")
    execute(on.get(vendor, "SELECT 1"))
    return int(there)


def idle(*kinds: str) -> float:
    """Return the median time of an ordinary pass that finds nothing; the first, which looks at all, is not counted."""
    from notify.passes.runner import run_pass

    def call() -> None:
        report = run_pass(kinds=kinds or None)
        assert (report.outcome, [step for step in report.steps if step.candidates]) == ("ok", []), report

    run_pass(is_full=True)
    return median_seconds(call, repeats=REPEATS)


def mark_notified() -> None:
    """Write the control rows of all comments."""
    execute(
        'INSERT INTO notify_control (kind, "key", key2, language, recipients, tenant) '
        "SELECT 'comment', c.line_id, c.id, "
        "p.language, p.email, l.tenant FROM portal_comment c JOIN portal_contact p ON p.name = c.recipient "
        "JOIN portal_orderline l ON l.id = c.line_id"
    )


def pass_in_child(expected: int) -> tuple[float, float]:
    """Run a full pass over comments in a process of its own; return its memory peak (MiB) and its time (s)."""
    child = [sys.executable, "-m", "benchmarks.notify", str(expected)]
    done = subprocess.run(child, check=True, capture_output=True, text=True)
    told = json.loads(done.stdout)
    return told["peak_mib"], told["seconds"]


def manage(*arguments: str) -> None:
    """Run manage.py in a process of its own."""
    subprocess.run([sys.executable, "manage.py", *arguments], check=True, capture_output=True)


def maintain(vendor: str) -> None:
    """Do what autovacuum does sooner or later; SQLite has no statistics unless somebody asks, and nobody does."""
    if vendor == "postgresql":
        execute("VACUUM ANALYZE")
        execute("CHECKPOINT")


def empty(vendor: str) -> None:
    """Delete all rows."""
    delete(vendor, *WRITTEN, *BUSINESS)
    maintain(vendor)


def delete(vendor: str, *tables: str) -> None:
    """Delete all rows of tables."""
    if vendor == "postgresql":
        execute(f"TRUNCATE {', '.join(tables)} CASCADE")
    else:
        for table in tables:
            execute(f"DELETE FROM {table}")


def execute(statement: str, parameters: Sequence[Any] | None = None) -> None:
    """Run one statement."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


def fetch(statement: str) -> Any:
    """Return the one value of a query."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


def child(expected: int) -> dict[str, float]:
    """Run a full pass over comments in this process."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    from notify.passes.runner import run_pass

    reports: list[Any] = []
    took = seconds(lambda: reports.append(run_pass(kinds=["comment"], is_full=True)))
    assert reports[0].steps[0].mails == expected, reports
    return {"peak_mib": peak_mib(), "seconds": took}


def peak_mib() -> float:
    """Return the most memory that this process has had; getrusage would count its parent's, which exec hands on."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]) / 1024


if __name__ == "__main__":
    print(json.dumps(child(int(sys.argv[1]))))
