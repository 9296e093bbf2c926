"""A pass as a database role of its own, which may not see the sessions of others."""

import contextlib
import os
from collections.abc import Iterator

import pytest
from django.db import connection

from notify.models import RunLog
from portal.story_notify import another_session_holding_the_lock
from tests.crashing import child_environment, run_child

pytestmark = [
    pytest.mark.skipif(connection.vendor != "postgresql", reason="PostgreSQL only"),
    pytest.mark.django_db(transaction=True),
]
#: Roles belong to the whole server, which the other test processes use, too.
ROLE = f"kwit_job_{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
PASSWORD = "only-for-this-test"


@contextlib.contextmanager
def role_of_the_job() -> Iterator[None]:
    """Make the role with the rights that docs/postgresql.md says a job needs; drop it at the end."""
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'")
        try:
            cursor.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {ROLE}")
            cursor.execute(f"GRANT UPDATE (handled) ON portal_orderline TO {ROLE}")
            for table in ("notify_control", "notify_run_log", "notify_mail_queue", "notify_task_queue"):
                cursor.execute(f"GRANT INSERT, UPDATE ON {table} TO {ROLE}")
            cursor.execute(f"GRANT DELETE ON notify_run_log TO {ROLE}")
            cursor.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {ROLE}")
            yield
        finally:
            cursor.execute(f"DROP OWNED BY {ROLE}")
            cursor.execute(f"DROP ROLE {ROLE}")


def run_pass_as_the_job() -> str:
    """Run a pass as that role in a process of its own; return what it printed to stderr."""
    ended = run_child(
        "django.core.management:call_command",
        "notify_pass",
        environment=child_environment(USER=ROLE, PASSWORD=PASSWORD),
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


def test_a_pass_needs_no_more_than_the_documented_rights():
    with role_of_the_job():
        run_pass_as_the_job()

    assert set(RunLog.objects.values_list("outcome", flat=True)) == {"ok"}
    assert RunLog.objects.filter(step="pass").count() == 1


def test_a_busy_lock_of_another_role_is_a_skipped_row_with_the_session_s_number():
    with role_of_the_job(), another_session_holding_the_lock(using="default"):
        run_pass_as_the_job()

    (row,) = RunLog.objects.all()
    assert row.outcome == "skipped"
    assert row.error.startswith("SKIPPED: lock code -1, held by database session ")
    assert row.error.endswith("of another role")
