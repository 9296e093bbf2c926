"""Row-level security that keeps a pass from seeing events: the doctor says so before somebody wonders."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from notify.checks import check_row_security
from tests.factories import make_comment, make_contact

pytestmark = [
    pytest.mark.skipif(connection.vendor != "postgresql", reason="PostgreSQL only"),
    pytest.mark.django_db,
]
ROLE = f"kwit_filtered_{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"


@contextmanager
def policy(condition: str | None) -> Iterator[None]:
    """Work as a role to which a policy applies, or none at all; all of it ends with the test's transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # a table with checks that are still to come cannot be altered
        cursor.execute(f"CREATE ROLE {ROLE}")
        cursor.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {ROLE}")
        cursor.execute("ALTER TABLE portal_comment ENABLE ROW LEVEL SECURITY")
        if condition:
            cursor.execute(f"CREATE POLICY shown ON portal_comment USING ({condition})")
        cursor.execute(f"SET LOCAL ROLE {ROLE}")
        try:
            yield
        finally:
            cursor.execute("RESET ROLE")


@pytest.mark.parametrize(
    ("condition", "found"),
    [(None, "notify.E026"), ("author = 'nobody'", "notify.E026"), ("author = 'author'", "notify.W014")],
)
def test_the_doctor_finds_what_is_hidden_from_this_role(condition, found):
    make_comment(recipient=make_contact())

    with policy(condition):
        (message,) = check_row_security(None, databases=["default"])

    assert message.id == found
    assert "portal_comment" in message.msg


def test_a_role_to_which_no_policy_applies_sees_all_and_is_told_nothing():
    make_comment(recipient=make_contact())
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE portal_comment ENABLE ROW LEVEL SECURITY")

    assert check_row_security(None, databases=["default"]) == []
