"""What every pass asks is answered through an index, however long the history."""

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from notify.models import RunLog
from notify.pages.stats import full_scans
from notify.steps import FlaggedStep, Scope, registered
from portal.models import Comment, OrderLine
from tests.factories import NOW

BIG = ("portal_order", "portal_orderline", "portal_comment", "portal_advice", "notify_control", "notify_run_log")
STEPS = [step for step in registered() if type(step).__module__ == "portal.notifications"]

pytestmark = pytest.mark.django_db


def scanned(queryset, *, is_windowed: bool = True) -> set[str]:
    """Return the big tables that the database would read from end to end."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            # A small table is read whole because that is cheaper; with this only where there is no other way.
            cursor.execute("SET LOCAL enable_seqscan = off")
        found = re.findall(r"Seq Scan on (\w+)", queryset.explain())
    elif connection.vendor == "sqlite":
        # An index of a condition (ix_…) holds only the rows that wait.
        found = re.findall(r"SCAN (\w+)(?! USING (?:COVERING )?INDEX ix_)", queryset.explain())
        if not is_windowed:
            # "Every row whose time is not NULL" is a search, too.
            found += re.findall(r"SEARCH (\w+) USING INDEX \w+ \(\w+>\?\)", queryset.explain())
    else:
        pytest.skip("the ORM cannot explain there")
    return {table for table in found if table in BIG}


def test_control_a_question_without_an_index_reads_the_table():
    assert scanned(Comment.objects.filter(body="x")) == {"portal_comment"}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.kind)
def test_an_ordinary_pass_finds_candidates_through_an_index(step):
    scope = Scope(now=NOW, since=NOW - timedelta(days=1) if step.is_windowed else None)

    candidates = step.candidates(scope, not_before=None, using=None)

    assert scanned(candidates, is_windowed=step.is_windowed) == set()


@pytest.mark.parametrize("step", [s for s in STEPS if isinstance(s, FlaggedStep)], ids=lambda step: step.kind)
def test_rows_left_behind_are_found_through_an_index(step):
    batch = step.left_behind(using=None).values("pk")[:2000]

    assert scanned(batch) == set()
    assert scanned(OrderLine.objects.filter(pk__in=batch)) == set()


@pytest.mark.skipif(connection.vendor != "sqlite", reason="SQLite has no statistics: few rows give the plan of many")
def test_the_last_look_at_all_events_is_sought_for_each_step():
    with CaptureQueriesContext(connection) as asked:
        full_scans(NOW)

    [query] = asked.captured_queries
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {query['sql']}")
        plan = [row[3] for row in cursor.fetchall()]
    assert len(plan) == 1
    assert "ix_notify_run_log_full (step=? AND is_full=? AND started_at>? AND started_at<?)" in plan[0]


def test_the_run_log_is_asked_through_indexes():
    log = RunLog.objects.all()

    assert scanned(log.running().wholes()) == set()
    assert scanned(log.full_since("comment", NOW - timedelta(days=1), now=NOW)) == set()
    assert scanned(log.expired(NOW).values("pk")[:2000]) == set()
