"""A statement that the site does not let run long enough, and a pass whose process has been stopped."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import pytest
from django.db import DatabaseError, connection, transaction

from notify.dialects import base, dialect_of
from notify.models import RunLog
from notify.passes.retry import TRIES_MAX
from notify.passes.runner import run_pass
from portal.models import OrderLine
from tests.crashing import is_stopped, start_child
from tests.factories import NOW, make_line
from tests.notify.proof import mails_of_events, make_world
from tests.racing import until
from tests.test_docs import ROOT

pytestmark = pytest.mark.django_db(transaction=True)
#: Each row takes that long; all of a kind together take longer than a statement may.
ROW_S, STATEMENT_MS, ROWS = 0.02, 250, 30


@contextlib.contextmanager
def slow_rows(table: str, verb: str) -> Iterator[None]:
    """Make each row of a table slow to write, and limit what a statement may take."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$BEGIN PERFORM pg_sleep({ROW_S}); RETURN NEW; END $$"
        )
        cursor.execute(f"CREATE TRIGGER slow BEFORE {verb} ON {table} FOR EACH ROW EXECUTE FUNCTION slow()")
        cursor.execute(f"SET statement_timeout = {STATEMENT_MS}")
        try:
            yield
        finally:
            cursor.execute("RESET statement_timeout")
            cursor.execute(f"DROP TRIGGER slow ON {table}")
            cursor.execute("DROP FUNCTION slow()")


@pytest.fixture
def postgresql_only() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL cancels a statement by itself")


@pytest.mark.usefixtures("postgresql_only")
def test_a_chunk_that_never_fits_the_statement_timeout_gets_smaller():
    keys = [key for key in make_world(of_each=ROWS) if key[0] == "advice"]

    with slow_rows("notify_control", "INSERT"):
        report = run_pass(now=NOW, kinds=["advice"])

    assert report.outcome == "ok", report
    assert mails_of_events() == dict.fromkeys(keys, 1)


@pytest.mark.usefixtures("postgresql_only")
def test_so_do_the_batches_in_which_flags_are_raised():
    make_world(of_each=ROWS)

    with slow_rows("portal_orderline", "UPDATE"):
        report = run_pass(now=NOW, kinds=["order"])

    assert report.outcome == "ok", report
    assert OrderLine.objects.filter(handled=True).count() >= ROWS


@pytest.mark.usefixtures("postgresql_only")
def test_one_row_that_does_not_fit_fails_its_step_and_says_so(monkeypatch):
    make_world(of_each=2)
    monkeypatch.setattr("tests.notify.test_slow_statements.ROW_S", 0.5)

    with slow_rows("notify_control", "INSERT"):
        report = run_pass(now=NOW, kinds=["advice"])

    assert report.outcome == "error"
    assert "statement timeout" in RunLog.objects.get(step="advice").error


def stop_in_a_transaction(pk: int) -> None:
    """Lock a row as a pass does, then stop like a process that gets SIGSTOP (runs in a child)."""
    base.STOPPED_WAIT_MS = 500
    with transaction.atomic():
        dialect_of(connection).yield_to_others(connection)
        OrderLine.objects.filter(pk=int(pk)).update(handled=True)
        os.kill(os.getpid(), signal.SIGSTOP)


def test_a_stopped_pass_does_not_hold_business_rows_for_ever(monkeypatch):
    if connection.vendor != "postgresql":
        pytest.skip("on SQLite the others' own timeout is the limit, SQL Server has none")
    line = make_line()
    child = start_child("tests.notify.test_slow_statements:stop_in_a_transaction", line.pk)
    try:
        until(lambda: is_stopped(child.process.pid))
        began = time.monotonic()
        with transaction.atomic(), connection.cursor() as cursor:
            # The positive control would wait for as long as the process is stopped.
            cursor.execute(f"SET LOCAL lock_timeout = {base.STOPPED_WAIT_MS * 2}")
            OrderLine.objects.filter(pk=line.pk).update(qty=7)
        assert time.monotonic() - began < base.STOPPED_WAIT_MS / 1000 + 5
    finally:
        child.sigkill()
    line.refresh_from_db()
    assert (line.qty, line.handled) == (7, False)


def test_a_session_that_is_ended_so_is_lost_and_nothing_of_it_is_kept(monkeypatch):
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL ends such a session")
    monkeypatch.setattr("notify.dialects.postgresql.STOPPED_WAIT_MS", 50)
    line, dialect = make_line(), dialect_of(connection)

    def stopped() -> None:
        with transaction.atomic():
            dialect.yield_to_others(connection)
            OrderLine.objects.filter(pk=line.pk).update(qty=7)
            time.sleep(0.5)
            OrderLine.objects.filter(pk=line.pk).update(qty=8)

    with pytest.raises(DatabaseError) as ended:
        stopped()
    connection.close()

    assert dialect.is_lost(ended.value)
    line.refresh_from_db()
    assert line.qty == 10


def test_the_docs_have_the_numbers_of_the_code():
    text = " ".join((ROOT / "docs" / "postgresql.md").read_text().split())

    assert f"waits at most {base.ROW_LOCK_WAIT_MS} ms for a row" in text
    assert f"repeats its chunk, up to {TRIES_MAX} times" in text
    assert f"after {base.STOPPED_WAIT_MS // 1000} seconds" in text
    assert f"`pg_try_advisory_lock({', '.join(map(str, lock_numbers()))})`" in text


def lock_numbers() -> tuple[int, int]:
    from notify.dialects import postgresql

    return postgresql.LOCK_CLASS, postgresql.LOCK_OBJECT
