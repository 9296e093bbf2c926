"""Pass and delivery in a loop."""

import sys
from argparse import ArgumentParser
from typing import Any

from kwit.commands import number_from, seconds

from ...models import Outcome
from ..command import NotifyCommand
from ..reports import as_json, delivery_json
from ..shutdown import reporting_once, stopping_on_sigterm
from ..worker import RoundReport, work


class Command(NotifyCommand):
    """Run a pass and a delivery again and again, for containers and services; SIGTERM ends it cleanly."""

    help = "Run passes and deliveries in a loop until SIGTERM; PostgreSQL's NOTIFY kwit wakes it."
    # A step that is faulty fails alone; checking all of them at each start would only take time.
    requires_system_checks = ()
    database_help = "the database to run on"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options of the contract."""
        parser.add_argument("--every", type=seconds, default=60, metavar="SECONDS", help="the most between two rounds")
        parser.add_argument("--rounds", type=number_from(1), metavar="N", help="stop after N rounds")
        parser.add_argument("--lanes", type=number_from(1), metavar="N", help="connections at once (NOTIFY_LANES)")

    def handle(
        self, *, every: float, rounds: int | None, lanes: int | None, database: str | None, **options: Any
    ) -> None:
        """Run until stopped; on SIGTERM it finishes the current chunk, or each lane its current mail."""

        failed = False

        def tell(report: RoundReport) -> None:
            nonlocal failed
            failed = has_failed(report)
            self.print_result(round_json(report), round_text(report))

        with self.own_stdout(), reporting_once(), stopping_on_sigterm() as is_stopping:
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
        "notice": report.said or None,
    }


def round_text(report: RoundReport) -> str:
    """Return one round as a line."""
    told = [report.said] if report.said else []
    if report.passed:
        mails = sum(step.mails for step in report.passed.steps)
        told.append(f"pass {report.passed.outcome.value}, {mails} queued")
    if report.delivered:
        sent = report.delivered
        told.append(f"{sent.sent} sent, {sent.retried} to retry, {sent.failed} failed, {sent.uncertain} uncertain")
    return "; ".join([*told, *([f"error: {report.error}"] if report.error else [])])
