"""What only PostgreSQL's dialect has: sessions of other roles, server-side cursors."""

from collections.abc import Iterator

import pytest
from django.db import connection

from notify.dialects.base import BUSY
from notify.dialects.postgresql import NotifyPostgresql
from notify.notes import english, note
from tests.racing import race

postgresql = NotifyPostgresql()

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="PostgreSQL only"),
]


@pytest.fixture
def plain_role() -> Iterator[str]:
    """A role that may not look into other roles' sessions."""
    name = f"kwit_plain_{connection.settings_dict['NAME']}"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {name}")
        yield name
        cursor.execute("RESET ROLE")
        cursor.execute(f"DROP ROLE {name}")


def test_a_role_that_may_not_see_the_holder_s_session_is_refused_like_any_other(plain_role):
    answer = postgresql.try_lock(connection)

    def attempt(_: int) -> tuple[int, str]:
        with connection.cursor() as cursor:
            cursor.execute(f"SET ROLE {plain_role}")
        refused = postgresql.try_lock(connection)
        return refused.code, english([refused.holder])

    ((code, holder),) = race(1, attempt)

    assert code == BUSY
    assert f"database session {answer.token}" in holder
    assert "another role" in holder
    postgresql.unlock(connection, answer.token)


def test_a_refusal_names_the_database_session_that_has_the_lock():
    """E11: what the database itself knows of the holder."""
    answer = postgresql.try_lock(connection)

    (holder,) = race(1, lambda _: english([postgresql.try_lock(connection).holder]))

    assert f"database session {answer.token}" in holder
    assert "connected since" in holder
    postgresql.unlock(connection, answer.token)


def test_the_session_s_own_lock_is_named_as_that():
    answer = postgresql.try_lock(connection)

    assert postgresql.try_lock(connection).holder == note("holder_this_session")
    postgresql.unlock(connection, answer.token)


def test_a_new_session_is_not_the_one_that_was_granted_the_lock():
    answer = postgresql.try_lock(connection)
    connection.close()

    assert not postgresql.is_locked(connection, answer.token)
    postgresql.unlock(connection, answer.token)
