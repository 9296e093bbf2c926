"""Try failed mails again."""

import getpass
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from kwit.commands import number_from

from ...models import MailQueue
from ...operations.mails import retry_mails
from ..command import NotifyCommand, mails_of


class Command(NotifyCommand):
    """Queue failed and partial mails again, for whoever has not got them."""

    help = "Queue failed and partial mails again, for recipients who do not have them."
    database_help = "the database to work on"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("ids", type=number_from(1), nargs="*", metavar="ID", help="mails; none of them with --all")
        parser.add_argument("--all", action="store_true", dest="is_all", help="every failed and partial mail")
        parser.add_argument("--actor", default="", metavar="NAME", help="who does it; default: the user who runs this")

    def handle(self, *, ids: list[int], is_all: bool, actor: str, **options: Any) -> None:
        """Retry."""
        if bool(ids) == is_all:
            raise CommandError("name some mails, or --all")
        mails = MailQueue.objects.all() if is_all else mails_of(ids, options["database"])
        count = retry_mails(mails, actor=actor or getpass.getuser(), using=options["database"])
        self.print_result({"retried": count}, f"{count} mails will be tried again.")
