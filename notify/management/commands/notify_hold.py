"""Keep queued mails from going out."""

import getpass
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.utils.translation import ngettext

from kwit.commands import number_from

from ...models import MailQueue
from ...operations.mails import hold_mails
from ..command import NotifyCommand, mails_of


class Command(NotifyCommand):
    """Keep queued mails from going out until they are released."""

    help = "Hold queued mails until they are released (notify_release)."
    database_help = "the database to work on"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("ids", type=number_from(1), nargs="*", metavar="ID", help="mails; none of them with --all")
        parser.add_argument("--all", action="store_true", dest="is_all", help="every queued mail")
        parser.add_argument("--reason", default="", metavar="TEXT", help="why; shown with the mails")
        parser.add_argument("--actor", default="", metavar="NAME", help="who does it; default: the user who runs this")

    def handle(self, *, ids: list[int], is_all: bool, reason: str, actor: str, **options: Any) -> None:
        """Hold."""
        if bool(ids) == is_all:
            raise CommandError("name some mails, or --all")
        mails = MailQueue.objects.all() if is_all else mails_of(ids, options["database"])
        count = hold_mails(mails, actor=actor or getpass.getuser(), reason=reason, using=options["database"])
        self.print_result({"held": count}, ngettext("%d mail is held.", "%d mails are held.", count) % count)
