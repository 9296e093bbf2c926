"""A session lock behind PgBouncer: transaction mode is recognised and named, session mode is no harm."""

import json
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from notify.dialects import dialect_of
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
ignore_startup_parameters = extra_float_digits
"""


@contextmanager
def pgbouncer(*, mode: str, size: int = 5, is_round_robin: bool = False) -> Iterator[int]:
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
