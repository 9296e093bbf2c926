"""The clock and the pass lock that each database's dialect must have."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from notify.dialects import dialect_of
from notify.dialects.base import BUSY, GRANTED
from portal.models import Contact
from tests.crashing import start_child
from tests.factories import make_contact
from tests.racing import in_another_session, race, until

pytestmark = pytest.mark.django_db(transaction=True)


def take_and_give_back() -> int:
    """Try to take the lock; give it back if it was granted; return the code."""
    dialect = dialect_of(connection)
    answer = dialect.try_lock(connection)
    if answer.is_granted:
        dialect.unlock(connection, answer.token)
    return answer.code


def hold_lock(marker: str) -> None:
    """Take the lock and keep it until killed (runs in a child); a row says that it is taken."""
    answer = dialect_of(connection).try_lock(connection)
    make_contact(name=marker if answer.is_granted else "refused")
    threading.Event().wait()


def test_the_clock_is_the_database_s_and_aware(dialect):
    before, told, after = dialect.now(connection), dialect.now(connection), datetime.now(UTC)

    assert told.tzinfo is not None
    assert before <= told
    assert abs(after - told) < timedelta(minutes=1)


def test_the_clock_moves_within_a_transaction(dialect):
    with transaction.atomic():
        first = dialect.now(connection)

        assert until(lambda: dialect.now(connection) > first)


def test_a_free_lock_is_granted_and_known_to_be_ours(dialect):
    dialect.check_session(connection)
    answer = dialect.try_lock(connection)

    assert (answer.code, answer.is_granted) == (GRANTED, True)
    assert dialect.is_locked(connection, answer.token)

    dialect.unlock(connection, answer.token)
    assert not dialect.is_locked(connection, answer.token)


def test_a_second_session_is_refused_at_once_and_gets_the_lock_when_it_is_given_back(dialect):
    answer = dialect.try_lock(connection)

    assert in_another_session(take_and_give_back) == BUSY

    dialect.unlock(connection, answer.token)
    assert in_another_session(take_and_give_back) == GRANTED


def test_the_session_that_has_the_lock_does_not_get_it_twice(dialect):
    answer = dialect.try_lock(connection)

    assert dialect.try_lock(connection).code == BUSY

    dialect.unlock(connection, answer.token)
    assert in_another_session(take_and_give_back) == GRANTED, "one release was not enough"


def test_the_lock_survives_commits_and_rollbacks(dialect):
    answer = dialect.try_lock(connection)

    with transaction.atomic():
        make_contact()
    with transaction.atomic():
        make_contact()
        transaction.set_rollback(True)

    assert dialect.is_locked(connection, answer.token)
    assert in_another_session(take_and_give_back) == BUSY
    dialect.unlock(connection, answer.token)


def test_of_many_sessions_exactly_one_gets_the_lock(dialect):
    everybody_asked = threading.Barrier(6)

    def attempt(_: int) -> int:
        answer = dialect.try_lock(connection)
        everybody_asked.wait(20)
        if answer.is_granted:
            dialect.unlock(connection, answer.token)
        return int(answer.code)

    assert sorted(race(6, attempt)) == [BUSY] * 5 + [GRANTED]


def test_a_lock_that_was_given_back_is_not_ours_when_another_session_has_it(dialect):
    """The old token neither counts as ownership nor takes the lock from the new holder."""
    answer = dialect.try_lock(connection)
    dialect.unlock(connection, answer.token)

    taken, done = threading.Event(), threading.Event()

    def other(_: int) -> bool:
        mine = dialect.try_lock(connection)
        taken.set()
        done.wait(20)
        is_mine = dialect.is_locked(connection, mine.token)
        dialect.unlock(connection, mine.token)
        return is_mine

    outcome: list[Any] = []
    thread = threading.Thread(target=lambda: outcome.extend(race(1, other)))
    thread.start()
    assert taken.wait(20)
    try:
        assert not dialect.is_locked(connection, answer.token)
        dialect.unlock(connection, answer.token)
    finally:
        done.set()
        thread.join(20)

    assert outcome == [True]


def test_giving_back_twice_is_no_error(dialect):
    answer = dialect.try_lock(connection)

    dialect.unlock(connection, answer.token)
    dialect.unlock(connection, answer.token)

    assert take_and_give_back() == GRANTED


def test_another_process_is_refused_and_a_killed_holder_gives_the_lock_back(dialect):
    child = start_child("tests.dialects.test_notify_locks:hold_lock", "holder")
    try:
        until(lambda: Contact.objects.filter(name="holder").exists())

        assert dialect.try_lock(connection).code == BUSY
    finally:
        ended = child.sigkill()

    assert ended.killed
    answer = until(lambda: (answer := dialect.try_lock(connection)).is_granted and answer)
    dialect.unlock(connection, answer.token)
