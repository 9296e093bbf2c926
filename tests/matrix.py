"""
Run the whole suite once per database: SQLite (a file), PostgreSQL, and SQL Server when a URL names one.

``python -m tests.matrix [--only NAME] [--no-browser] [pytest arguments]``; exits with the first failure's code after
running all.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import django

from tests.postgres import postgres_server

BROWSER = "tests/browser"


def databases(scratch: Path) -> Iterator[tuple[str, contextlib.AbstractContextManager[str]]]:
    """Yield each database's name and a context manager that gives its URL."""
    yield "sqlite", contextlib.nullcontext(f"sqlite:///{scratch / 'kwit.sqlite3'}")
    given = os.environ.get("KWIT_TEST_POSTGRES_URL")
    yield "postgresql", contextlib.nullcontext(given) if given else postgres_server()
    if mssql := os.environ.get("KWIT_TEST_MSSQL_URL"):
        yield "mssql", contextlib.nullcontext(mssql)


def run_suite(name: str, url: str, arguments: list[str], *, browser: bool = True) -> int:
    """Run everything against one database, in the browser only if asked; return the exit code."""
    versions = f"Python {sys.version.split()[0]}, Django {django.__version__}"
    print(f"\n=== {name}: {versions}", flush=True)
    if any(argument.startswith("tests") for argument in arguments):
        return run_pytest(name, url, arguments)
    # The browser's driver leaves an event loop running in its process, which the mail servers of other tests cannot
    # have; and the pages are the same on every database.
    code = run_pytest(name, url, [f"--ignore={BROWSER}", *arguments])
    is_due = browser and name == "sqlite"
    return code or (run_pytest(name, url, ["-n0", BROWSER, *arguments]) if is_due else 0)


def run_pytest(name: str, url: str, arguments: list[str]) -> int:
    """Run pytest in a process of its own; return its exit code."""
    environment = os.environ | {"DATABASE_URL": url, "COVERAGE_FILE": f".coverage.{name}"}
    parallel = [] if any(argument.startswith("-n") for argument in arguments) else ["-n", "2", "--dist", "worksteal"]
    command = [sys.executable, "-m", "pytest", *parallel, "--cov", "--cov-report=", *arguments]
    return subprocess.run(command, env=environment, check=False).returncode


def main() -> int:
    """Run every database's suite; print the combined coverage when all have passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["sqlite", "postgresql", "mssql"], help="run one database's suite")
    parser.add_argument("--no-browser", action="store_true", help="leave out the tests in a real browser")
    options, arguments = parser.parse_known_args()
    codes: dict[str, int] = {}
    # Leaves the "with" blocks below, so that the server they have started does not outlive us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="kwit-test-") as scratch:
        for name, server in databases(Path(scratch)):
            if options.only in (None, name):
                with server as url:
                    codes[name] = run_suite(name, url, arguments, browser=not options.no_browser)
    if not any(codes.values()) and not arguments:
        subprocess.run([sys.executable, "-m", "coverage", "combine", "--quiet"], check=True)
        subprocess.run([sys.executable, "-m", "coverage", "report"], check=True)
    print("\n" + ", ".join(f"{name}: {'passed' if code == 0 else f'FAILED ({code})'}" for name, code in codes.items()))
    return max(codes.values(), default=2)


if __name__ == "__main__":
    sys.exit(main())
