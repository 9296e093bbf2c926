"""A session lock behind PgBouncer: each mode is recognised, session mode is no harm, and no lock stays behind."""

import contextlib
import json
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.core.checks import CheckMessage
from django.db import connection

from notify import checks
from notify.dialects import dialect_of
from notify.dialects.base import BUSY
from notify.dialects.pooler import server_pid
from notify.errors import LockUnusable
from notify.models import RunLog
from tests.crashing import child_environment, run_child
from tests.notify.proof import assert_right, mails_of_events, make_world
from tests.postgres import free_port, unprivileged_user
from tests.programs import find_program
from tests.racing import until

pytestmark = pytest.mark.django_db(transaction=True)

CONFIG = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
logfile = {folder}/log
pool_mode = {mode}
default_pool_size = {size}
server_round_robin = {is_round_robin:d}
{more}
ignore_startup_parameters = extra_float_digits
"""


@contextmanager
def pgbouncer(*, mode: str, size: int = 5, is_round_robin: bool = False, more: str = "") -> Iterator[int]:
    """Yield the port of a pooler in front of the test database, in a mode; skip where the program is missing."""
    if connection.vendor != "postgresql":
        pytest.skip("PgBouncer stands before PostgreSQL only")
    program = find_program("pgbouncer")
    if program is None:
        pytest.skip("the program pgbouncer is missing; on Debian: apt-get install pgbouncer")
    server, port = connection.settings_dict, free_port()
    with tempfile.TemporaryDirectory(prefix="kwit-pgbouncer-") as folder:
        config = Path(folder) / "pgbouncer.ini"
        config.write_text(
            CONFIG.format(
                host=server["HOST"],
                port=server["PORT"] or 5432,
                listen_port=port,
                folder=folder,
                mode=mode,
                size=size,
                is_round_robin=is_round_robin,
                more=more,
            )
        )
        (Path(folder) / "users").write_text(f'"{server["USER"]}" "{server["PASSWORD"]}"\n')
        user = unprivileged_user()
        if user is not None:
            for path in (Path(folder), config, Path(folder) / "users"):
                shutil.chown(path, user, pwd.getpwnam(user).pw_gid)
        process = subprocess.Popen(
            [program, str(config)], user=user, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            until(lambda: is_listening(port) or process.poll() is not None)
            assert process.poll() is None, (Path(folder) / "log").read_text()
            yield port
        finally:
            process.terminate()
            process.wait(10)


def is_listening(port: int) -> bool:
    """Whether something answers on this port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def pass_through(port: int) -> Any:
    """Run the command in a process whose database is the pooler."""
    environment = child_environment(HOST="127.0.0.1", PORT=str(port))
    return run_child("django.core.management:call_command", "notify_pass", "--json", "--full", environment=environment)


@contextmanager
def session_through(port: int) -> Iterator[Any]:
    """Yield a Django connection of ours that goes through the pooler."""
    other = connection.copy()
    other.settings_dict = {**other.settings_dict, "HOST": "127.0.0.1", "PORT": port}
    try:
        yield other
    finally:
        other.close()


def test_a_pass_behind_a_pooler_in_transaction_mode_ends_as_an_error_that_names_it():
    """E8: PgBouncer in transaction mode."""
    make_world(of_each=1)

    with pgbouncer(mode="transaction") as port:
        ended = pass_through(port)

    assert ended.returncode == 1, ended.stderr
    assert json.loads(ended.stdout.splitlines()[0])["outcome"] == "error"
    row = RunLog.objects.get()
    assert (row.step, row.outcome) == ("pass", "error")
    assert "PgBouncer, pool_mode=transaction" in row.error
    assert not mails_of_events()


def test_a_pass_behind_a_pooler_in_session_mode_runs():
    keys = make_world(of_each=1)

    with pgbouncer(mode="session") as port:
        ended = pass_through(port)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert_right(keys)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("is_round_robin", [False, True])
def test_the_mode_is_recognised_whatever_the_pool_looks_like(size, is_round_robin):
    with (
        pgbouncer(mode="transaction", size=size, is_round_robin=is_round_robin) as port,
        session_through(port) as first,
        session_through(port) as other,
    ):
        # Another client has been there before.
        other.ensure_connection()

        with pytest.raises(LockUnusable, match="pool_mode=transaction"):
            dialect_of(connection).check_session(first)


def test_a_full_pool_in_session_mode_is_no_reason_to_refuse_or_to_hang():
    with pgbouncer(mode="session", size=1) as port, session_through(port) as only:
        dialect_of(connection).check_session(only)

        assert dialect_of(connection).try_lock(only).is_granted


def test_without_a_pooler_nothing_is_probed():
    if connection.vendor != "postgresql":
        pytest.skip("there is nothing to probe")
    sent: list[str] = []

    with connection.execute_wrapper(lambda execute, sql, *rest: (sent.append(sql), execute(sql, *rest))[1]):
        dialect_of(connection).check_session(connection)

    assert sent == ["SELECT pg_backend_pid()"]


@contextmanager
def load(port: int, *, clients: int = 4) -> Iterator[None]:
    """Keep clients busy with short transactions through the pooler, as the web processes of a site do."""
    server, ending = connection.settings_dict, threading.Event()

    def keep_busy() -> None:
        options = {"user": server["USER"], "password": server["PASSWORD"], "dbname": server["NAME"]}
        while not ending.is_set():
            with (
                contextlib.suppress(psycopg.Error),
                psycopg.connect(host="127.0.0.1", port=port, autocommit=True, **options) as client,
            ):
                for _ in range(20):
                    # One statement is a transaction of its own, in each mode.
                    client.execute("SELECT pg_sleep(0.002)")
                    ending.wait(0.001)

    threads = [threading.Thread(target=keep_busy, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        for thread in threads:
            thread.join(10)


@pytest.mark.parametrize("mode", ["session", "transaction", "statement"])
def test_the_doctor_names_each_mode_under_load(mode):
    with pgbouncer(mode=mode, size=6) as port, load(port), session_through(port) as ours:
        found = [(one.id, one.msg) for one in messages_of(ours)]

    assert len(found) == 1
    assert found[0][0] == ("notify.I002" if mode == "session" else "notify.E022")
    assert f"pool_mode={mode}" in found[0][1]


def messages_of(ours: Any) -> list[CheckMessage]:
    """Return what the check of the lock says of a connection."""
    with mock.patch.object(checks, "connections", {"default": ours}):
        return checks.check_lock(None, databases=["default"])


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_no_pass_runs_through_a_pooler_under_load_and_none_leaves_its_lock_behind(mode):
    keys = make_world(of_each=1)

    with pgbouncer(mode=mode, size=4) as port, load(port):
        ended = [pass_through(port) for _ in range(4)]

    assert [one.returncode for one in ended] == [1] * 4
    rows = RunLog.objects.filter(step="pass")
    assert all(f"pool_mode={mode}" in row.error for row in rows)
    assert not mails_of_events()
    assert_lock_is_free()
    assert keys


def test_passes_through_a_pooler_in_session_mode_run_under_load():
    keys = make_world(of_each=1)

    with pgbouncer(mode="session", size=8) as port, load(port):
        ended = [pass_through(port) for _ in range(2)]

    assert [one.returncode for one in ended] == [0, 0], ended[0].stdout
    assert_right(keys)
    assert_lock_is_free()


def assert_lock_is_free() -> None:
    """No server session, pooled or not, has the lock of passes."""
    assert dialect_of(connection).is_lock_free(connection)


@pytest.mark.parametrize("clients", [0, 4])
def test_a_lock_that_slipped_past_the_probe_proves_its_session_and_is_given_back(clients):
    """Beside others the probe cannot be certain; what it misses must neither let two pass nor stay in the pool."""
    with pgbouncer(mode="transaction", size=4, is_round_robin=True) as port, load(port, clients=clients):
        for _ in range(15):
            with session_through(port) as first, session_through(port) as second:
                dialect = dialect_of(connection)
                answers = [(each, dialect.try_lock(each)) for each in (first, second)]
                granted = [(each, answer.token) for each, answer in answers if answer.is_granted]

                assert len(granted) <= 1
                for each, token in granted:
                    with transaction_on(each):
                        on_its_session = server_pid(each) == token
                        assert dialect.is_locked(each, token) == on_its_session
                    dialect.unlock(each, token)
            assert_lock_is_free()


@contextmanager
def transaction_on(other: Any) -> Iterator[None]:
    """Open a transaction on a connection that Django does not know by an alias."""
    other.set_autocommit(False)
    try:
        yield
    finally:
        other.rollback()
        other.set_autocommit(True)


def test_a_lock_that_a_dead_client_left_in_the_pool_is_released_by_the_next_who_meets_it():
    with pgbouncer(mode="transaction", size=1) as port:
        leave_lock(port)
        with session_through(port) as after, pytest.raises(LockUnusable, match="pool_mode=transaction"):
            dialect_of(connection).check_session(after)
    assert_lock_is_free()


def test_a_lock_that_a_pooler_without_a_reset_keeps_is_released_by_the_next_who_is_given_the_session():
    with pgbouncer(mode="session", size=1, more="server_reset_query =") as port:
        leave_lock(port)
        with session_through(port) as after:
            answer = dialect_of(connection).try_lock(after)

            assert answer.is_granted
            assert dialect_of(connection).try_lock(after).code == BUSY, "its own it does not release"
            dialect_of(connection).unlock(after, answer.token)
        assert_lock_is_free()


def leave_lock(port: int) -> None:
    """Take the lock through the pooler and leave without giving it back."""
    with session_through(port) as died:
        assert dialect_of(connection).try_lock(died).is_granted
    assert not dialect_of(connection).is_lock_free(connection), "the pooler keeps the session, and the lock with it"
