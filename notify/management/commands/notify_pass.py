"""Run one notification pass."""

import sys
from argparse import ArgumentParser, ArgumentTypeError
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError
from django.db import DatabaseError, connections, router

from kwit.commands import EXIT_TRY_AGAIN, seconds

from ...conf import as_moment, conf
from ...dialects import dialect_of
from ...errors import NotifyError
from ...models import RunLog
from ...passes.rhythm import find_rhythm
from ...passes.runner import PassReport, run_pass
from ..command import NotifyCommand
from ..reports import as_json, as_lines
from ..shutdown import stopping_on_sigterm


class Command(NotifyCommand):
    """Look for events once and queue one message for each; exit 0 unless a step failed."""

    # A faulty step must not keep the others from running: the pass logs it as that step's error.
    requires_system_checks = ()

    help = "Look for events once and queue exactly one message for each."
    database_help = "the database to run on"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options of the contract."""
        parser.add_argument(
            "--step", action="append", dest="kinds", metavar="KIND", help="run this step only; repeatable"
        )
        parser.add_argument(
            "--wait", type=seconds, default=0, dest="wait_s", metavar="SECONDS", help="wait for a busy lock"
        )
        parser.add_argument("--full", action="store_true", dest="is_full", help="scan all events, not only the window")
        parser.add_argument("--dry-run", action="store_true", dest="is_dry_run", help="show what would be queued")
        parser.add_argument(
            "--baseline", action="store_true", dest="is_baseline", help="mark all present events without messages"
        )
        parser.add_argument(
            "--baseline-since",
            type=moment,
            metavar="MOMENT",
            help="mark the events since this moment without messages, after a restore (docs/restoring.md)",
        )
        parser.add_argument(
            "--pass-id", type=UUID, metavar="UUID", help="the id in the run log, for programs that follow the pass"
        )
        parser.add_argument(
            "--check", action="store_true", dest="is_check", help="run nothing: say whether passes are overdue (exit 1)"
        )
        parser.add_argument("--fail-on-skip", action="store_true", help=f"exit {EXIT_TRY_AGAIN} when the lock is busy")

    def handle(self, *, database: str | None, fail_on_skip: bool, is_check: bool, **options: Any) -> None:
        """Run the pass; on SIGTERM it finishes the current chunk."""
        if is_check:
            self.check_rhythm(database or router.db_for_write(RunLog))
            return
        asked = {
            name: options[name]
            for name in ("kinds", "wait_s", "is_full", "is_dry_run", "is_baseline", "baseline_since", "pass_id")
        }
        try:
            with stopping_on_sigterm() as is_stopping:
                report = run_pass(using=database, is_stopping=is_stopping, **asked)
        except NotifyError as error:
            raise CommandError(str(error)) from error
        except DatabaseError as error:
            look = f"manage.py check --deploy --tag kwit --database {database or router.db_for_write(RunLog)}"
            raise CommandError(f"not even the run log can be written: {error} (see {look})") from error
        self.print_result(as_json(report, is_dry_run=options["is_dry_run"]), *as_lines(report))
        if code := exit_code(report, fail_on_skip=fail_on_skip):
            sys.exit(code)

    def check_rhythm(self, using: str) -> None:
        """Say whether the last good pass is overdue, by the site's own rhythm."""
        connection = connections[using]
        rhythm = find_rhythm(using=using, now=dialect_of(connection).now(connection), settings=conf())
        at = rhythm.last_good_at
        age_s = None if at is None else round((rhythm.now - at).total_seconds())
        told = {
            "last_good_at": at and at.isoformat(),
            "age_s": age_s,
            "expected_every_s": round(rhythm.every.total_seconds()),
            "is_quiet": rhythm.is_quiet,
        }
        last = "There has been no good pass yet." if at is None else f"The last good pass began {age_s} s ago."
        verdict = "Passes are overdue." if rhythm.is_quiet else "All is well."
        self.print_result(told, f"{last} One is expected every {told['expected_every_s']} s. {verdict}")
        if rhythm.is_quiet:
            sys.exit(1)


def moment(text: str) -> datetime:
    """Read a moment, in the site's time zone where it has none; a date is its first moment."""
    try:
        found = as_moment(datetime.fromisoformat(text))
    except ValueError as error:
        raise ArgumentTypeError(f"{text} is no moment like 2026-01-31T08:00") from error
    assert found is not None  # noqa: S101 - for the type checker
    return found


def exit_code(report: PassReport, *, fail_on_skip: bool) -> int:
    """Return 0 unless a step failed (1); a skipped pass is 0, or 75 when asked for."""
    if report.outcome == "skipped":
        return EXIT_TRY_AGAIN if fail_on_skip else 0
    return 1 if report.outcome == "error" else 0
