"""Send what is due, once."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from kwit.commands import EXIT_TRY_AGAIN, number_from

from ...delivery.dispatch import send_due
from ...errors import NotifyError, OutcomeNotWritten
from ..command import NotifyCommand
from ..reports import delivery_json, delivery_lines
from ..shutdown import reporting_once, stopping_on_sigterm


class Command(NotifyCommand):
    """Send what is due; exit 0 unless the channel is in trouble (1): then no mail has lost an attempt."""

    help = "Send due mails once; a failed mail is marked and the others continue."
    # A step that is faulty fails alone; checking all of them at each start would only take time.
    requires_system_checks = ()
    database_help = "the database to run on"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options of the contract."""
        parser.add_argument("--limit", type=number_from(1), metavar="N", help="send at most N mails")
        parser.add_argument("--lanes", type=number_from(1), metavar="N", help="connections at once (NOTIFY_LANES)")

    def handle(self, *, database: str | None, limit: int | None, lanes: int | None, **options: Any) -> None:
        """Deliver; on SIGTERM each lane finishes its current mail."""
        try:
            with self.own_stdout(), reporting_once(), stopping_on_sigterm() as is_stopping:
                report = send_due(using=database, limit=limit, lanes=lanes, is_stopping=is_stopping)
        except OutcomeNotWritten as error:
            raise CommandError(str(error), returncode=EXIT_TRY_AGAIN) from error
        except NotifyError as error:
            raise CommandError(str(error)) from error
        self.print_result(delivery_json(report), *delivery_lines(report))
        if report.error:
            sys.exit(1)
