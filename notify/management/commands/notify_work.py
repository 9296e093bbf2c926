"""Pass and delivery in a loop."""

import json
import sys
from argparse import ArgumentParser
from typing import Any

from ...models import Outcome
from ..command import NotifyCommand, number_from, own_stdout, seconds
from ..reports import as_json, delivery_json
from ..shutdown import stopping_on_sigterm
from ..worker import RoundReport, work


class Command(NotifyCommand):
    """Run a pass and a delivery again and again, for containers and services; SIGTERM ends it cleanly."""

    help = "Run a pass and a delivery again and again, until SIGTERM; PostgreSQL's NOTIFY kwit wakes it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options of the contract."""
        parser.add_argument("--every", type=seconds, default=60, metavar="SECONDS", help="the most between two rounds")
        parser.add_argument("--rounds", type=number_from(1), metavar="N", help="stop after N rounds")
        parser.add_argument("--lanes", type=number_from(1), metavar="N", help="connections at once (NOTIFY_LANES)")
        self.add_database(parser, "the database to run on")
        parser.add_argument("--json", action="store_true", dest="is_json", help="print one JSON object a round")

    def handle(
        self,
        *,
        every: float,
        rounds: int | None,
        lanes: int | None,
        database: str | None,
        is_json: bool,
        **options: Any,
    ) -> None:
        """Work until told to stop; SIGTERM lets it finish the chunk in hand, or each lane its mail."""

        failed = False

        def tell(report: RoundReport) -> None:
            nonlocal failed
            failed = has_failed(report)
            self.stdout.write(json.dumps(round_json(report)) if is_json else round_text(report))
            self.stdout.flush()

        with own_stdout(is_json), stopping_on_sigterm() as is_stopping:
            work(every_s=every, using=database, rounds_max=rounds, lanes=lanes, is_stopping=is_stopping, tell=tell)
        # Who runs it for good has its errors in the log, and stops it when all is well, too.
        if rounds is not None and failed:
            sys.exit(1)


def has_failed(report: RoundReport) -> bool:
    """Whether something went wrong that notify_pass or notify_deliver would end with 1 for."""
    return bool(report.error) or (report.passed is not None and report.passed.outcome == Outcome.ERROR)


def round_json(report: RoundReport) -> dict[str, Any]:
    """Return one round as an object."""
    return {
        "pass": as_json(report.passed) if report.passed else None,
        "delivery": delivery_json(report.delivered) if report.delivered else None,
        "error": report.error or None,
    }


def round_text(report: RoundReport) -> str:
    """Return one round as a line."""
    told = []
    if report.passed:
        mails = sum(step.mails for step in report.passed.steps)
        told.append(f"pass {report.passed.outcome.value}, {mails} queued")
    if report.delivered:
        sent = report.delivered
        told.append(f"{sent.sent} sent, {sent.retried} to retry, {sent.failed} failed, {sent.uncertain} uncertain")
    return "; ".join([*told, *([f"error: {report.error}"] if report.error else [])])
