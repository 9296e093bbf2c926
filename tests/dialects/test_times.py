"""A time is the same moment on every database, whatever zone it was written in and whatever the server's zone is."""

import ast
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.db import connection, models
from django.db.models import F

from kwit.db.fields import UtcNow
from notify.dialects import dialect_of
from notify.models import RunLog

APPS = ("kwit", "notify", "portal", "receipts")
MOMENT = datetime(2026, 1, 31, 8, 0, 0, 123457, tzinfo=UTC)
ROOT = Path(__file__).resolve().parents[2]


def make_row(at: datetime) -> RunLog:
    return RunLog.objects.create(pass_id="00000000-0000-0000-0000-000000000001", step="pass", started_at=at)


@pytest.mark.django_db
@pytest.mark.parametrize("hours", [0, 9, -5.5])
def test_what_is_written_is_read_back_equal_to_the_microsecond(hours):
    row = make_row(MOMENT.astimezone(timezone(timedelta(hours=hours))))

    row.refresh_from_db()

    assert row.started_at == MOMENT
    assert row.started_at.utcoffset() == timedelta(0)


@pytest.mark.django_db
@pytest.mark.parametrize("hours", [0, 9, -5.5])
def test_a_row_is_found_by_its_time_in_any_zone_and_not_a_microsecond_beside(hours):
    row, zone = make_row(MOMENT), timezone(timedelta(hours=hours))

    asked = [MOMENT + timedelta(microseconds=off) for off in (-1, 0, 1)]
    found = [RunLog.objects.filter(started_at=at.astimezone(zone)).count() for at in asked]

    assert found == [0, 1, 0]
    assert RunLog.objects.filter(started_at__lt=asked[2].astimezone(zone)).get() == row


@pytest.mark.django_db
def test_a_default_and_utcnow_are_the_clock_of_the_database_and_found_again():
    before = dialect_of(connection).now(connection)
    row = RunLog.objects.create(pass_id="00000000-0000-0000-0000-000000000001", step="pass")
    RunLog.objects.update(ended_at=UtcNow())
    row.refresh_from_db()

    assert before - timedelta(seconds=1) <= row.started_at <= row.ended_at <= before + timedelta(minutes=1)
    assert RunLog.objects.filter(started_at__lte=UtcNow()).exists()
    assert RunLog.objects.filter(started_at=row.started_at).exists()


@pytest.mark.django_db
def test_a_duration_is_added_to_the_moment():
    row = make_row(MOMENT)

    RunLog.objects.update(ended_at=F("started_at") + timedelta(seconds=5))
    row.refresh_from_db()

    assert row.ended_at == MOMENT + timedelta(seconds=5)


def time_fields() -> list[models.DateTimeField]:
    return [
        field
        for app in APPS
        for model in apps.get_app_config(app).get_models()
        for field in model._meta.local_fields
        if isinstance(field, models.DateTimeField)
    ]


def test_every_time_of_ours_is_a_datetime2_on_sql_server():
    """One that was forgotten would be a datetimeoffset there, with an offset of its own in each row."""
    server = SimpleNamespace(vendor="microsoft", data_types={"DateTimeField": "datetimeoffset"})

    assert {f"{field.model._meta.label}.{field.name}": field.db_type(server) for field in time_fields()} == {
        f"{field.model._meta.label}.{field.name}": "datetime2(6)" for field in time_fields()
    }


def test_no_app_uses_the_clock_in_the_server_s_zone():
    """``Now()`` as a value would store the local time of the server as if it were UTC."""
    using = [
        str(path.relative_to(ROOT))
        for app in APPS
        for path in (ROOT / app).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and any(alias.name == "Now" for alias in node.names)
    ]

    assert sorted(using) == ["kwit/db/fields.py"]
