"""Record reports about mails after they were sent: bounces, complaints and confirmations."""

import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from kwit.commands import number_from

from ...conf import conf
from ...delivery.feedback import Intake, take_message
from ...delivery.reports import REPORT_OCTETS_MAX
from ..command import NotifyCommand
from ..mailboxes import MailboxUnusable, read_imap, read_maildir


class Command(NotifyCommand):
    """Record bounces, complaints and receipts."""

    help = (
        "Read reports about mails that were sent: one message on stdin, or the new ones of a Maildir or an IMAP folder."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        source = parser.add_mutually_exclusive_group()
        source.add_argument("--maildir", metavar="DIR", help="read the new messages of this Maildir")
        source.add_argument("--imap", metavar="URL", help="read the unseen messages there; - reads the URL from stdin")
        parser.add_argument("--recipient", default="", metavar="ADDRESS", help="recipient of the message on stdin")
        parser.add_argument("--limit", type=number_from(1), default=1000, metavar="N", help="read at most N messages")

    def handle(self, **options: Any) -> None:
        """Read."""
        if not conf().BOUNCE_ADDRESS:
            raise CommandError("NOTIFY_BOUNCE_ADDRESS is not set, so no mail has an address for reports")
        using, total = options["database"], Intake()

        def take(content: bytes) -> None:
            total.add(take_message(content, addressed_to=[options["recipient"]], using=using))

        try:
            if options["maildir"]:
                read_maildir(options["maildir"], take, limit=options["limit"])
            elif options["imap"]:
                url = sys.stdin.readline().strip() if options["imap"] == "-" else options["imap"]
                read_imap(url, take, limit=options["limit"])
            else:
                take(sys.stdin.buffer.read(REPORT_OCTETS_MAX + 1))
        except MailboxUnusable as error:
            raise CommandError(str(error)) from error
        figures = asdict(total)
        self.print_result(figures, ", ".join(f"{count} {name}" for name, count in figures.items()))
