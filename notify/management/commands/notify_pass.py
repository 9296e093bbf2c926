"""Run one notification pass."""

import json
import signal
import sys
import threading
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ...errors import NotifyError
from ...passes import PassReport, run_pass
from ...reports import as_json, as_table

#: EX_TEMPFAIL of sysexits.h: try again later.
EXIT_SKIPPED = 75


class Command(BaseCommand):
    """Look for events once and queue one message for each; exit 0 unless a step failed."""

    help = "Look for events once and queue exactly one message for each."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options of the contract."""
        parser.add_argument("--database", metavar="ALIAS", help="the database to run on")
        parser.add_argument("--json", action="store_true", dest="is_json", help="print one JSON object")
        parser.add_argument(
            "--step", action="append", dest="kinds", metavar="KIND", help="run this step only; repeatable"
        )
        parser.add_argument(
            "--wait", type=float, default=0, dest="wait_s", metavar="SECONDS", help="wait for a busy lock"
        )
        parser.add_argument(
            "--full", action="store_true", dest="is_full", help="look at all events, not at the window only"
        )
        parser.add_argument("--dry-run", action="store_true", dest="is_dry_run", help="say what would be queued")
        parser.add_argument(
            "--baseline", action="store_true", dest="is_baseline", help="mark all present events without messages"
        )
        parser.add_argument("--fail-on-skip", action="store_true", help=f"exit {EXIT_SKIPPED} when the lock is busy")

    def handle(self, *, database: str | None, is_json: bool, fail_on_skip: bool, **options: Any) -> None:
        """Run the pass; SIGTERM lets it finish the chunk in hand."""
        stopping = threading.Event()
        before = signal.signal(signal.SIGTERM, lambda *_: stopping.set())
        asked = {name: options[name] for name in ("kinds", "wait_s", "is_full", "is_dry_run", "is_baseline")}
        try:
            report = run_pass(using=database, is_stopping=stopping.is_set, **asked)
        except NotifyError as error:
            raise CommandError(str(error)) from error
        finally:
            # A process that calls the command (a scheduler, the demo) goes on after it and must still end on SIGTERM.
            signal.signal(signal.SIGTERM, before)
        self.stdout.write(
            json.dumps(as_json(report, is_dry_run=options["is_dry_run"])) if is_json else as_table(report)
        )
        sys.exit(exit_code(report, fail_on_skip=fail_on_skip))


def exit_code(report: PassReport, *, fail_on_skip: bool) -> int:
    """Return 0 unless a step failed (1); a skipped pass is 0, or 75 when asked for."""
    if report.outcome == "skipped":
        return EXIT_SKIPPED if fail_on_skip else 0
    return 1 if report.outcome == "error" else 0
