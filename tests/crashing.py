"""
Real client processes that die: a callable runs in a child process on the test database and is killed at a write.

In a test (with ``django_db(transaction=True)``, or the child sees nothing)::

    ended = run_child("django.core.management:call_command", "notify_pass", kill="before:3")
    assert ended.killed

    for ended in crash_everywhere("receipts.api:cancel_many", change_id="CHG-1", …):
        …check the rows, then put them back: the next child starts from what is there…

``kill`` is ``before:N`` or ``after:N``: SIGKILL just before the Nth writing statement is sent, or just after its answer
came. Writing statements are INSERT, UPDATE, DELETE, MERGE (also below a WITH) and COMMIT, over all connections of the
child. A child that is not killed says how many writes it made. Arguments and results travel as JSON.
"""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

ROOT = Path(__file__).resolve().parent.parent
#: A child that has not ended by then is stuck.
CHILD_S = 60.0
WRITING = re.compile(r"\s*(?:INSERT|UPDATE|DELETE|MERGE|WITH\b.*\b(?:INSERT|UPDATE|DELETE|MERGE)\b)", re.I | re.S)


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


def start_child(
    call: str, *args: Any, kill: str = "", environment: dict[str, str] | None = None, **kwargs: Any
) -> Child:
    """Start ``module:function`` with these arguments in a child process."""
    handle, answer = tempfile.mkstemp(prefix="kwit-child-")
    os.close(handle)
    job = {"call": call, "args": args, "kwargs": kwargs, "kill": kill, "answer": answer}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.crashing"],
        cwd=ROOT,
        env=(environment or child_environment()) | {"KWIT_CHILD_JOB": json.dumps(job)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return Child(process, Path(answer), kill)


def run_child(call: str, *args: Any, kill: str = "", environment: dict[str, str] | None = None, **kwargs: Any) -> Ended:
    """Run ``module:function`` with these arguments in a child process; return how it ended."""
    return start_child(call, *args, kill=kill, environment=environment, **kwargs).end()


def crash_everywhere(call: str, *args: Any, **kwargs: Any) -> Iterator[Ended]:
    """
    Kill one child after another, each at the next writing point, until one gets through.

    Yields each killed child, so that the loop's body can look at the rows and repair them; the one that got through is
    yielded last, and is the only one whose ``killed`` is False.
    """
    nth = 0
    while True:
        nth += 1
        for moment in ("before", "after"):
            ended = run_child(call, *args, kill=f"{moment}:{nth}", **kwargs)
            yield ended
            if not ended.killed:
                return


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

    def watch(self, connection: Any) -> None:
        """Count what this connection writes."""
        commit = connection._commit

        def wrapper(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
            if not WRITING.match(sql):
                return execute(sql, params, many, context)
            return self.around(sql, lambda: execute(sql, params, many, context))

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
    django.setup()
    trap = Trap(job["kill"])
    for alias in connections:
        trap.watch(connections[alias])
    module, _, name = job["call"].partition(":")
    result = getattr(importlib.import_module(module), name)(*job["args"], **job["kwargs"])
    Path(job["answer"]).write_text(json.dumps({"result": result, "writes": trap.writes}, default=str))


if __name__ == "__main__":
    main()
