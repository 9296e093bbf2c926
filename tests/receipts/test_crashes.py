"""Clients that die: real processes, killed with SIGKILL; then the same change_id again."""

import contextlib
import json
from unittest import mock

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection

from portal.models import OrderLine
from receipts.api import apply_with_reconnect
from receipts.apply import with_reconnect
from receipts.errors import OutcomeUnknown
from tests.babelfish import is_stand_in, stand_in_cannot
from tests.crashing import child_environment, crash_everywhere, run_child, start_child
from tests.factories import make_line
from tests.racing import is_waiting_for_lock, open_transaction, until
from tests.receipts.plain import cancel, target, traces
from tests.receipts.proxy import Fault, Proxy

pytestmark = pytest.mark.django_db(transaction=True)

CANCEL = "tests.receipts.plain:cancel"
WHOLE, NOTHING = (1, 2, 2), (0, 0, 0)


@pytest.fixture
def lines():
    """Return two pending lines."""
    return [make_line(), make_line()]


@pytest.fixture
def server():
    """Skip where no line can be lost."""
    if connection.vendor == "sqlite":
        pytest.skip("a file has no client that waits and no network")


@pytest.fixture
def postgresql(server):
    """Skip where the proxy cannot tell a COMMIT from the rest."""
    if connection.vendor != "postgresql":
        pytest.skip("the proxy reads PostgreSQL's protocol; SQL Server's is encrypted")


def cancel_hastily(*args, **kwargs):
    """Run cancel_batch with short pauses between its attempts to reconnect (runs in a child)."""
    with mock.patch("receipts.apply.RECONNECT_PAUSES_S", (0.01, 0.02)):
        call_command("cancel_batch", *args, **kwargs)


def test_a_client_killed_at_any_write_leaves_all_or_nothing(lines):
    """R12: before or after each writing statement, COMMIT included."""
    targets = [list(target(line)) for line in lines]
    seen = []

    for ended in crash_everywhere(CANCEL, *targets):
        assert ended.killed or ended.returncode == 0, ended.stderr
        seen.append(until(lambda: settled(lines)))

    assert seen[-2:] == [WHOLE, WHOLE]
    assert set(seen[:-2]) == {NOTHING}
    # At least: claim, UPDATE, COMMIT; each before and after, and the one that got through.
    assert len(seen) >= 7
    assert ended.result is False
    assert cancel(*targets) is False


#: How many others are connected.
OTHERS = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
    "microsoft": "SELECT COUNT(*) FROM sys.dm_exec_sessions WHERE database_id = DB_ID() AND session_id <> @@SPID",
}


def settled(lines):
    """Return the traces of CHG-1 once the server has noticed that its client is dead."""
    if connection.vendor in OTHERS and not is_stand_in():
        with connection.cursor() as cursor:
            cursor.execute(OTHERS[connection.vendor])
            if cursor.fetchone()[0]:
                return None
    return traces("CHG-1", *lines)


@stand_in_cannot("UPDLOCK does nothing there, and it does not show who waits")
def test_a_client_killed_while_it_waits_for_a_row_leaves_nothing(lines, server):
    """R12: the wait is seen, the client dies, and only then the row is free."""
    targets = [list(target(line)) for line in lines]

    with open_transaction(lambda: OrderLine.objects.filter(pk=lines[1].pk).update(item="held")):
        child = start_child(CANCEL, *targets)
        until(is_waiting_for_lock)
        assert child.sigkill().killed

    assert until(lambda: settled(lines)) == NOTHING
    assert cancel(*targets) is True
    assert traces("CHG-1", *lines) == WHOLE


def test_a_client_killed_before_commit_leaves_nothing(lines):
    """R12: everything is written, COMMIT is not sent."""
    targets = [list(target(line)) for line in lines]
    other = [list(target(make_line()))]
    writes = run_child(CANCEL, *other, change_id="CHG-0").writes

    assert run_child(CANCEL, *targets, kill=f"before:{len(writes)}").killed

    assert writes[-1] == "COMMIT"
    assert until(lambda: settled(lines)) == NOTHING
    assert cancel(*targets) is True


def test_a_client_killed_after_commit_was_sent_has_its_receipt(lines, postgresql):
    """R12: the server commits, the answer never arrives, the client dies; the second call answers False."""
    targets = [list(target(line)) for line in lines]

    with through_proxy(Fault.SILENCE) as (proxy, environment):
        child = start_child(CANCEL, *targets, environment=environment)
        assert proxy.hit.wait(30)
        until(lambda: traces("CHG-1", *lines) == WHOLE)
        assert child.process.poll() is None
        assert child.sigkill().killed

    assert cancel(*targets) is False
    assert traces("CHG-1", *lines) == WHOLE


@contextlib.contextmanager
def through_proxy(fault):
    """Start a proxy before the test's server; give it and the environment of a child that uses it."""
    settings = connection.settings_dict
    with Proxy(settings["HOST"], int(settings["PORT"] or 5432), fault) as proxy:
        yield proxy, child_environment(HOST="127.0.0.1", PORT=str(proxy.port))


@pytest.fixture
def plan(lines, tmp_path):
    """Return a plan file that cancels both lines."""
    path = tmp_path / "plan.json"
    rows = [target(line)._asdict() for line in lines]
    path.write_text(json.dumps({"change_id": "CHG-1", "tenant": "acme", "targets": rows}))
    return path


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [(Fault.ANSWER_LOST, "applied (confirmed by its receipt)"), (Fault.COMMIT_LOST, "applied")],
)
def test_a_batch_survives_a_connection_that_drops_around_commit(lines, plan, postgresql, fault, outcome):
    with through_proxy(fault) as (proxy, environment):
        ended = run_child("django.core.management:call_command", "cancel_batch", str(plan), environment=environment)

    assert proxy.hit.is_set()
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == f"CHG-1: {outcome}, 2 targets"
    assert traces("CHG-1", *lines) == WHOLE


def test_a_batch_whose_database_stays_away_is_unknown_and_says_what_settles_it(lines, plan, postgresql):
    with through_proxy(Fault.GONE) as (_proxy, environment):
        ended = run_child(f"{__name__}:cancel_hastily", str(plan), "--json", environment=environment)

    answer = json.loads(ended.stdout)
    assert answer["change_id"] == "CHG-1"
    assert "connection was lost" in answer["unknown"]
    assert "manage.py inspect_change --database default -- CHG-1" in answer["settle"]
    assert answer["settle"] in ended.stderr
    until(lambda: traces("CHG-1", *lines) == WHOLE)


def test_a_receipt_from_before_is_not_taken_for_the_answer_to_what_was_never_sent(lines, server):
    cancel(*map(target, lines))
    port = connection.settings_dict["PORT"]
    connection.close()

    def come_back(pause_s):
        connection.settings_dict["PORT"] = port

    connection.settings_dict["PORT"] = "1"
    try:
        approved = [target(line) for line in lines]
        outcome = apply_with_reconnect(
            kind="cancel", change_id="CHG-1", tenant="acme", targets=approved, pause=come_back
        )
    finally:
        connection.settings_dict["PORT"] = port

    assert outcome == "already applied"


def test_a_batch_whose_database_was_never_there_is_an_error_and_not_unknown(plan, server):
    """Nothing was sent: there is nothing to settle."""
    ended = run_child(f"{__name__}:cancel_hastily", str(plan), environment=child_environment(PORT="1"))

    assert "Unknown" not in ended.stderr
    assert "CommandError: database" in ended.stderr


class Timeout(Exception):
    """What psycopg raises at a statement_timeout."""

    sqlstate = "57014"


def test_any_error_after_a_loss_leaves_the_outcome_unknown(postgresql):
    """The COMMIT may have got through, and the attempt that would have found its receipt meets another error."""
    connection.ensure_connection()
    timeout = OperationalError("canceling statement due to statement timeout")
    timeout.__cause__ = Timeout()
    errors = iter([OperationalError("server closed the connection unexpectedly"), timeout])

    def apply():
        raise next(errors)

    with pytest.raises(OutcomeUnknown, match="statement timeout"):
        with_reconnect(apply, about="CHG-1", alias="default", pause=lambda pause_s: None)


def test_an_error_before_any_loss_stays_what_it_is(postgresql):
    timeout = OperationalError("canceling statement due to statement timeout")
    timeout.__cause__ = Timeout()

    def apply():
        raise timeout

    with pytest.raises(OperationalError, match="statement timeout"):
        with_reconnect(apply, about="CHG-1", alias="default", pause=lambda pause_s: None)
