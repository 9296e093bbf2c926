"""
Real client processes that die: a callable runs in a child process on the test database and is killed at a write.

In a test (with ``django_db(transaction=True)``, or the child sees nothing)::

    ended = run_child("django.core.management:call_command", "notify_pass", kill="before:3")
    assert ended.killed

    for ended in crash_everywhere("receipts.api:cancel_many", change_id="CHG-1", …):
        …check the rows, then put them back: the next child starts from what is there…

``crash_everywhere`` starts Python once and forks each child from there, so that a point costs a tenth of a second.

``kill`` is ``before:N`` or ``after:N``: SIGKILL just before the Nth writing statement is sent, or just after its answer
came. Writing statements are INSERT, UPDATE, DELETE, MERGE (also below a WITH), COPY and COMMIT, over all connections of
the child. A child that is not killed says how many writes it made. Arguments and results travel as JSON.
"""

import contextlib
import importlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.db import DEFAULT_DB_ALIAS, connections

ROOT = Path(__file__).resolve().parent.parent
#: A child that has not ended by then is stuck.
CHILD_S = 60.0
#: The ``kill`` of a process that forks children on request instead of doing the job itself.
NURSERY = "nursery"
WRITING = re.compile(
    # On SQL Server, a batch says what it sets and declares first.
    r"\s*(?:(?:WITH|SET|DECLARE|BEGIN TRY)\b.*?\b)?(?P<verb>INSERT|UPDATE|DELETE|MERGE)\b",
    re.I | re.S,
)


@dataclass(frozen=True)
class Ended:
    """How a child ended; ``result`` and ``writes`` are None for one that was killed."""

    returncode: int
    stdout: str
    stderr: str
    result: Any = None
    writes: list[str] | None = None
    kill: str = ""

    @property
    def killed(self) -> bool:
        """Whether SIGKILL ended it."""
        return self.returncode == -signal.SIGKILL


@dataclass(frozen=True)
class Child:
    """A running child process."""

    process: subprocess.Popen[str]
    answer: Path
    kill: str = ""

    def end(self, timeout_s: float = CHILD_S) -> Ended:
        """Wait for its end."""
        try:
            stdout, stderr = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            stdout, stderr = self.process.communicate()
            raise AssertionError(f"the child did not end within {timeout_s} s:\n{stdout}\n{stderr}") from None
        text = self.answer.read_text() if self.answer.exists() else ""
        self.answer.unlink(missing_ok=True)
        told = json.loads(text) if text else {}
        return Ended(self.process.returncode, stdout, stderr, kill=self.kill, **told)

    def sigkill(self) -> Ended:
        """Kill it from outside."""
        self.process.send_signal(signal.SIGKILL)
        return self.end()


def child_environment(*, using: str = DEFAULT_DB_ALIAS, **changed: str) -> dict[str, str]:
    """
    Return environment variables that point a child at the test databases.

    ``changed`` replaces settings of ``using``, for example ``HOST`` and ``PORT`` of a proxy.
    """
    keys = ("NAME", "USER", "PASSWORD", "HOST", "PORT")
    databases = {alias: {key: connections[alias].settings_dict[key] for key in keys} for alias in connections}
    databases[using] |= changed
    settings = os.environ.get("DJANGO_SETTINGS_MODULE", "tests.settings")
    told = {"KWIT_CHILD_DATABASES": json.dumps(databases, default=str), "DJANGO_SETTINGS_MODULE": settings}
    return {name: value for name, value in os.environ.items() if not name.startswith(("COV_", "COVERAGE_"))} | told


def own_database_url() -> str:
    """Return the address of the test's own database, for a process that knows nothing of tests."""
    connection = connections[DEFAULT_DB_ALIAS]
    name = str(connection.settings_dict["NAME"])
    if connection.vendor == "sqlite":
        return f"sqlite:///{name}"
    return urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}").geturl()


def start_child(
    call: str,
    *args: Any,
    kill: str = "",
    environment: dict[str, str] | None = None,
    warm: str = "",
    **kwargs: Any,
) -> Child:
    """Start ``module:function`` with these arguments in a child process."""
    handle, answer = tempfile.mkstemp(prefix="kwit-child-")
    os.close(handle)
    job = {"call": call, "args": args, "kwargs": kwargs, "kill": kill, "warm": warm, "answer": answer}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.crashing"],
        cwd=ROOT,
        env=(environment or child_environment()) | {"KWIT_CHILD_JOB": json.dumps(job)},
        stdin=subprocess.PIPE if kill == NURSERY else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return Child(process, Path(answer), kill)


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped."""
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] == "T"


def run_child(call: str, *args: Any, kill: str = "", environment: dict[str, str] | None = None, **kwargs: Any) -> Ended:
    """Run ``module:function`` with these arguments in a child process; return how it ended."""
    return start_child(call, *args, kill=kill, environment=environment, **kwargs).end()


def crash_everywhere(call: str, *args: Any, warm: str = "", **kwargs: Any) -> Iterator[Ended]:
    """
    Kill one child after another, each at the next writing point, until one gets through.

    ``warm`` names a ``module:function`` that all children have behind them when they start, for example to fill caches;
    it must not touch a database.

    Yields each killed child, so that the loop's body can look at the rows and repair them; the one that got through is
    yielded last, and is the only one whose ``killed`` is False.
    """
    with nursery(call, *args, warm=warm, **kwargs) as bear:
        for nth in itertools.count(1):
            for moment in ("before", "after"):
                ended = bear(f"{moment}:{nth}")
                yield ended
                if not ended.killed:
                    return


@contextlib.contextmanager
def nursery(call: str, *args: Any, warm: str = "", **kwargs: Any) -> Iterator[Callable[[str], Ended]]:
    """
    Start a process that has imported everything and opened nothing; yield a function that forks a child from it.

    The function takes the child's ``kill`` and returns how the child ended; all it printed is in ``stderr``.
    """
    child = start_child(call, *args, kill=NURSERY, warm=warm, **kwargs)
    pipes = child.process.stdin, child.process.stdout
    assert pipes[0] is not None
    assert pipes[1] is not None

    def bear(kill: str) -> Ended:
        pipes[0].write(kill + "\n")
        pipes[0].flush()
        line = pipes[1].readline()
        assert line, f"the nursery died: {child.end()}"
        return Ended(**json.loads(line), kill=kill)

    try:
        yield bear
    finally:
        ended = child.end()
        assert ended.returncode == 0, ended.stderr


@dataclass
class Trap:
    """Counts the writing statements of this process and kills it at the chosen one."""

    kill: str = ""
    writes: list[str] = field(default_factory=list)

    def around(self, sql: str, call: Callable[[], Any]) -> Any:
        """Run one writing statement, or die before or after it."""
        self.writes.append(sql.strip()[:80])
        self.spring("before")
        answer = call()
        self.spring("after")
        return answer

    def spring(self, moment: str) -> None:
        """Die if this is the place."""
        if self.kill == f"{moment}:{len(self.writes)}":
            os.kill(os.getpid(), signal.SIGKILL)

    def watch_copies(self, connection: Any) -> None:
        """Count COPY … FROM STDIN, which Django's execute wrappers do not see."""
        create_cursor = connection.create_cursor

        def watched(*args: Any, **kwargs: Any) -> Any:
            cursor = create_cursor(*args, **kwargs)
            if (copy := getattr(cursor, "copy", None)) is not None:

                @contextlib.contextmanager
                def copying(statement: str, *args: Any, **kwargs: Any) -> Iterator[Any]:
                    self.writes.append(statement[:80])
                    self.spring("before")
                    with copy(statement, *args, **kwargs) as stream:
                        yield stream
                    self.spring("after")

                cursor.copy = copying
            return cursor

        connection.create_cursor = watched

    def watch(self, connection: Any) -> None:
        """Count what this connection writes."""
        self.watch_copies(connection)
        commit = connection._commit

        def wrapper(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
            if (writing := WRITING.match(sql)) is None:
                return execute(sql, params, many, context)
            return self.around(sql[writing.start("verb") :], lambda: execute(sql, params, many, context))

        connection.execute_wrappers.append(wrapper)
        connection._commit = lambda: self.around("COMMIT", commit)


def run_fork(call: Callable[[], Any], *, kill: str = "") -> Ended:
    """
    Run a call in a fork of this process, which is faster than `run_child` by the time a Python needs to start.

    The fork leaves this process's connections alone and opens its own. Its result is not told.
    """
    with warnings.catch_warnings():
        # The fork touches no lock that another thread may hold: it opens connections, works and dies.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            trap = Trap(kill)
            for alias in connections:
                connections[alias] = connections[alias].copy(alias)
                trap.watch(connections[alias])
            call()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    return Ended(os.waitstatus_to_exitcode(status), "", "", kill=kill)


def main() -> None:
    """Do the one job that the environment names."""
    import django
    from django.conf import settings

    job = json.loads(os.environ.pop("KWIT_CHILD_JOB"))
    for alias, values in json.loads(os.environ.pop("KWIT_CHILD_DATABASES")).items():
        settings.DATABASES[alias].update(values)
    settings.DEBUG = False  # as pytest has it
    django.setup()
    call = named(job["call"])
    if job["kill"] == NURSERY:
        if job["warm"]:
            named(job["warm"])()
        for line in sys.stdin:
            sys.stdout.write(json.dumps(fork(call, job | {"kill": line.strip()})) + "\n")
            sys.stdout.flush()
        return
    do(call, job)


def named(path: str) -> Callable[..., Any]:
    """Return the function that stands behind ``module:function``."""
    module, _, name = path.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


def do(call: Callable[..., Any], job: dict[str, Any]) -> None:
    """Do the job, counting what it writes; leave the answer where the job says."""
    trap = Trap(job["kill"])
    for alias in connections:
        trap.watch(connections[alias])
    result = call(*job["args"], **job["kwargs"])
    Path(job["answer"]).write_text(json.dumps({"result": result, "writes": trap.writes}, default=str))


def fork(call: Callable[..., Any], job: dict[str, Any]) -> dict[str, Any]:
    """Let a forked process do the job; return how it ended."""
    with tempfile.TemporaryFile("w+") as output, tempfile.NamedTemporaryFile("r") as answer:
        pid = os.fork()
        if pid == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            try:
                do(call, job | {"answer": answer.name})
                connections.close_all()
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
            sys.stdout.flush()
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        output.seek(0)
        told = json.loads(answer.read() or "{}")
        return {"returncode": code, "stdout": "", "stderr": output.read(), **told}


if __name__ == "__main__":
    main()
