"""What each database's dialect must call a refusal, and what is worth another try."""

import threading
import uuid
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from notify.dialects import dialect_of
from notify.dialects.base import MailRow
from notify.models import MailQueue
from portal.models import OrderLine
from tests.dialects.rows import control_id
from tests.factories import make_line
from tests.racing import race

pytestmark = pytest.mark.django_db(transaction=True)


def test_queue_rows_that_break_a_rule_are_a_refusal_and_none_is_kept(dialect):
    good = MailRow(control_id(dialect), "t", "s", "[]", "en", "{}", "queued", "")

    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        dialect.insert_mails(connection, uuid.uuid4(), [good, good._replace(state="unheard")])

    assert dialect.is_refusal(refused.value)
    assert not dialect.is_transient(refused.value)
    assert MailQueue.objects.count() == 0


def test_a_queue_row_cannot_be_of_no_event(dialect):
    with pytest.raises(IntegrityError), transaction.atomic():
        dialect.insert_mails(connection, uuid.uuid4(), [MailRow(10**9, "t", "s", "[]", "en", "{}", "queued", "")])


def test_a_row_lock_that_is_not_given_is_worth_another_try(dialect):
    line = make_line()
    held, tried = threading.Event(), threading.Event()

    def holder() -> None:
        with transaction.atomic():
            OrderLine.objects.filter(pk=line.pk).update(qty=1)
            held.set()
            tried.wait(20)

    thread = threading.Thread(target=lambda: race(1, lambda _: holder()))
    thread.start()
    assert held.wait(20)
    try:
        with short_patience(), pytest.raises(DatabaseError) as refused:
            update_as_a_pass(line)
    finally:
        tried.set()
        thread.join(20)

    assert dialect.is_transient(refused.value)
    assert not dialect.is_refusal(refused.value)


def update_as_a_pass(line: OrderLine) -> None:
    with transaction.atomic():
        dialect_of(connection).yield_to_others(connection)
        OrderLine.objects.filter(pk=line.pk).update(qty=2)


class short_patience:  # noqa: N801 - reads as the sentence it stands in
    """SQLite waits by its busy timeout, 20 s in the settings; a test does not."""

    def __enter__(self) -> None:
        self.set(50)

    def __exit__(self, *_: Any) -> None:
        self.set(20_000)

    def set(self, timeout_ms: int) -> None:
        if connection.vendor == "sqlite":
            with connection.cursor() as cursor:
                cursor.execute(f"PRAGMA busy_timeout = {timeout_ms}")


def test_a_deadlock_is_worth_another_try_and_the_pass_is_its_victim(dialect):
    if not connection.features.has_select_for_update:
        pytest.skip("one writer at a time: there are no deadlocks")
    first, second = make_line(), make_line()
    both_hold = threading.Barrier(2)

    def racer(number: int) -> None:
        mine, other = (first, second) if number == 0 else (second, first)
        with transaction.atomic():
            if number == 0:
                dialect.yield_to_others(connection)
            OrderLine.objects.filter(pk=mine.pk).update(qty=1)
            both_hold.wait(20)
            OrderLine.objects.filter(pk=other.pk).update(qty=2)

    outcomes = race(2, racer)

    errors = [outcome for outcome in outcomes if outcome is not None]
    assert len(errors) == 1
    assert dialect.is_transient(errors[0])


def test_what_repeating_does_not_cure_is_not_transient(dialect):
    with pytest.raises(DatabaseError) as wrong, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT no_such_column FROM notify_control")

    assert not dialect.is_transient(wrong.value)
    assert not dialect.is_refusal(wrong.value)


def test_a_refusal_by_a_trigger_is_a_refusal(dialect, refusing_trigger):
    refusing_trigger("notify_mail_queue", "subject", "refuse me")
    row = MailRow(control_id(dialect), "t", "refuse me", "[]", "en", "{}", "queued", "")

    with pytest.raises(DatabaseError) as refused, transaction.atomic():
        dialect.insert_mails(connection, uuid.uuid4(), [row])

    assert dialect.is_refusal(refused.value)
    assert not dialect.is_transient(refused.value)


def test_a_text_that_is_too_long_is_a_refusal_where_the_database_minds(dialect):
    if connection.vendor == "sqlite":
        pytest.skip("takes texts of any length")
    row = MailRow(control_id(dialect), "t", "x" * 256, "[]", "en", "{}", "queued", "")

    # SQL Server 2019 and later call it a ProgrammingError.
    with pytest.raises(DatabaseError) as refused, transaction.atomic():
        dialect.insert_mails(connection, uuid.uuid4(), [row])

    assert dialect.is_refusal(refused.value)
