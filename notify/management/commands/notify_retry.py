"""Try failed mails again."""

import getpass
import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from ...models import MailQueue
from ...operations.mails import retry_mails
from ..command import NotifyCommand, mails_of, number_from


class Command(NotifyCommand):
    """Queue failed and partial mails again, for whoever has not got them."""

    help = "Queue failed and partial mails again, for whoever has not got them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("ids", type=number_from(1), nargs="*", metavar="ID", help="mails; none of them with --all")
        parser.add_argument("--all", action="store_true", dest="is_all", help="every failed and partial mail")
        parser.add_argument("--actor", default="", metavar="NAME", help="who does it; default: the user who runs this")
        self.add_database(parser, "the database to work on")
        parser.add_argument("--json", action="store_true", dest="is_json", help="print one JSON object")

    def handle(self, *, ids: list[int], is_all: bool, actor: str, is_json: bool, **options: Any) -> None:
        """Retry."""
        if bool(ids) == is_all:
            raise CommandError("name some mails, or --all")
        mails = MailQueue.objects.all() if is_all else mails_of(ids, options["database"])
        count = retry_mails(mails, actor=actor or getpass.getuser(), using=options["database"])
        self.stdout.write(json.dumps({"retried": count}) if is_json else f"{count} mails will be tried again.")
