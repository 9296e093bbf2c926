"""
Whether a pooler (PgBouncer) stands before PostgreSQL, and in which mode it lends its sessions.

A session lock holds in session mode only. Recognising the mode saves a pass that would stop at its first commit; what
makes the lock right is that each transaction asks whether it is on the session that holds it.
"""

import contextlib
import select
import time
from typing import Literal, cast

import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq.abc import PGconn

PoolMode = Literal["", "session", "transaction", "statement"]

#: Seconds. How long one probe waits to see whether a pooler lends our server session to a second client.
PROBE_WAIT_S = 2
#: How often that is checked: with other clients in the pool a single check may miss it.
PROBES_MAX = 10
#: What PgBouncer says of a transaction in statement mode.
STATEMENT_MODE = "statement pooling mode"


def pool_mode(connection: BaseDatabaseWrapper) -> PoolMode:
    """Return in which mode a pooler stands between; empty when there is none, "session" when none was seen lending."""
    if not is_pooled(connection):
        return ""
    ours = {server_pid(connection)}
    parameters = {**connection.get_connection_params(), "connect_timeout": PROBE_WAIT_S}
    for _ in range(PROBES_MAX):
        ours.add(server_pid(connection))
        try:
            # Not by Django, whose first words on a connection would wait for as long as the pooler lets them.
            with contextlib.closing(psycopg.connect(**parameters, autocommit=True)) as second:
                theirs = keep_session(second.pgconn)
                if isinstance(theirs, int) and theirs not in ours:
                    ours.add(server_pid(connection))
        except psycopg.Error as error:
            # No second session to be had: a full pool in session mode, which is no harm, or a server in trouble.
            if STATEMENT_MODE in str(error):
                return "statement"
            break
        if theirs == "statement":
            return "statement"
        if len(ours) > 1 or theirs in ours:
            return "transaction"
        if theirs is None:
            break
    return "transaction" if len(ours) > 1 else "session"


def is_pooled(connection: BaseDatabaseWrapper) -> bool:
    """Whether the connection goes through PgBouncer, which announces a process id of its own."""
    connection.ensure_connection()
    return bool(server_pid(connection) != connection.connection.info.backend_pid)


def server_pid(connection: BaseDatabaseWrapper) -> int:
    """Return the process id of the server session that answers."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cast(int, cursor.fetchone()[0])


def keep_session(raw: PGconn) -> int | Literal["statement"] | None:
    """Open a transaction and return which server session it is on; None when none answers in time."""
    raw.send_query(b"BEGIN; SELECT pg_backend_pid()")
    deadline, pid = time.monotonic() + PROBE_WAIT_S, None
    while True:
        while raw.is_busy():
            if not select.select([raw.socket], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            raw.consume_input()
        result = raw.get_result()
        if result is None:
            return pid
        if STATEMENT_MODE.encode() in result.error_message:
            return "statement"
        if result.ntuples and (value := result.get_value(0, 0)) is not None:
            pid = int(value)
