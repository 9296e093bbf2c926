"""The rows of the run log: closed for passes that died, with lawful times, and deleted when they are old."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from notify.models import Control, Outcome, RunLog
from notify.passes import run_log as passes
from tests.factories import NOW, make_many
from tests.notify.samples import Remark, do_pass, mailed, make_comments

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_next_holder_closes_the_rows_of_a_pass_that_died():
    dead = uuid.uuid4()
    for step in ("pass", "comment"):
        RunLog.objects.create(pass_id=dead, step=step, started_at=NOW - timedelta(hours=1))

    report = do_pass(now=NOW)

    rows = RunLog.objects.filter(pass_id=dead)
    assert {(row.outcome, row.error, row.ended_at) for row in rows} == {
        ("error", "died: the process ended without closing its pass", NOW)
    }
    assert report.outcome == "ok"


def test_no_duration_is_negative_when_the_clock_was_set_back():
    """E16: the dead pass started in what is now the future, and the step's query sets the clock back."""
    dead = RunLog.objects.create(pass_id=uuid.uuid4(), step="pass", started_at=NOW + timedelta(hours=1))

    report = do_pass(now=NOW)

    dead.refresh_from_db()
    assert dead.ended_at == dead.started_at
    assert all(row.ms is None or row.ms >= 0 for row in RunLog.objects.all())
    assert all(row.ended_at >= row.started_at for row in RunLog.objects.all())
    assert report.outcome == "ok"


@pytest.mark.parametrize(
    "moment",
    [datetime(2026, 3, 29, 1, 0, tzinfo=UTC), datetime(2026, 10, 25, 1, 0, tzinfo=UTC)],
    ids=["summer time begins", "summer time ends"],
)
def test_a_change_to_or_from_summer_time_loses_and_repeats_nothing(add_step, settings, moment):
    """E16: all times are moments, whatever the site's time zone shows."""
    settings.TIME_ZONE = "Europe/Warsaw"
    add_step(Remark)
    keys = []
    for minutes in (-90, -30, 30, 90):
        keys += [comment.pk for comment in make_comments(1, at=moment + timedelta(minutes=minutes))]
        do_pass(now=moment + timedelta(minutes=minutes + 1))

    assert mailed("remark") == keys
    assert all(row.ended_at >= row.started_at for row in RunLog.objects.all())


def old_rows(n: int, *, age: timedelta) -> list[int]:
    rows = [
        RunLog(
            pass_id=uuid.uuid4(), step="pass", started_at=NOW - age, ended_at=NOW, outcome=Outcome.OK, candidates=number
        )
        for number in range(n)
    ]
    return [row.pk for row in make_many(rows)]


def test_rows_are_kept_to_the_day_and_deleted_when_they_are_older(configure):
    """E17: both sides of the boundary."""
    configure(LOG_RETENTION_DAYS=60)
    (young,) = old_rows(1, age=timedelta(days=60))
    (old,) = old_rows(1, age=timedelta(days=60, microseconds=1))

    do_pass(now=NOW)

    left = RunLog.objects.values_list("pk", flat=True)
    assert young in left
    assert old not in left


def test_each_pass_deletes_a_bounded_number_of_rows_by_key_range(configure, monkeypatch):
    """E17: bounded per pass and per statement, the oldest first, and a gap in the keys costs no young row."""
    configure(LOG_PRUNE_BATCH=50)
    monkeypatch.setattr(passes, "PRUNE_ROWS", 20)
    old_rows(30, age=timedelta(days=100))
    (young,) = old_rows(1, age=timedelta(days=1))
    old_rows(40, age=timedelta(days=100))
    expired = RunLog.objects.expired(NOW - timedelta(days=60))

    with CaptureQueriesContext(connection) as captured:
        do_pass()

    deletes = [query["sql"] for query in captured if "DELETE FROM" in query["sql"]]
    assert (expired.count(), len(deletes)) == (20, 3)
    assert all(" >= " in delete and " <= " in delete for delete in deletes)
    do_pass()
    assert expired.count() == 0
    assert RunLog.objects.filter(pk=young).exists()


def test_control_rows_are_never_deleted():
    Control.objects.create(kind="comment", key=1, created_at=NOW - timedelta(days=4000))

    do_pass()

    assert Control.objects.filter(key=1).exists()
