"""Send what is due, once."""

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from ...delivery.dispatch import send_due
from ...errors import NotifyError
from ..command import NotifyCommand, number_from, own_stdout
from ..reports import delivery_json, delivery_text
from ..shutdown import stopping_on_sigterm


class Command(NotifyCommand):
    """Send what is due; exit 0 unless the channel is in trouble (1): then no mail has lost an attempt."""

    help = "Send what is due, once; what fails is marked and the others go on."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options of the contract."""
        self.add_database(parser, "the database to run on")
        parser.add_argument("--json", action="store_true", dest="is_json", help="print one JSON object")
        parser.add_argument("--limit", type=number_from(1), metavar="N", help="send at most N mails")
        parser.add_argument("--lanes", type=number_from(1), metavar="N", help="connections at once (NOTIFY_LANES)")

    def handle(
        self, *, database: str | None, is_json: bool, limit: int | None, lanes: int | None, **options: Any
    ) -> None:
        """Deliver; SIGTERM lets each lane finish its mail."""
        try:
            with own_stdout(is_json), stopping_on_sigterm() as is_stopping:
                report = send_due(using=database, limit=limit, lanes=lanes, is_stopping=is_stopping)
        except NotifyError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(json.dumps(delivery_json(report)) if is_json else delivery_text(report))
        if report.error:
            sys.exit(1)
