"""Let blocked and uncertain mails go, or end a channel's pause."""

import getpass
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from kwit.commands import number_from

from ...conf import conf
from ...delivery.channels import known_channels, resume_channel
from ...delivery.epoch import accept_restored
from ...errors import NotifyError
from ...operations.mails import confirm_mails, correct_mail, release_mails
from ..command import NotifyCommand, mails_of


class Command(NotifyCommand):
    """Let blocked and uncertain mails go, correct or confirm one, or end a channel's pause."""

    help = "Release, correct or confirm blocked and uncertain mails, or end a channel's pause."
    database_help = "the database to work on"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("ids", type=number_from(1), nargs="*", metavar="ID", help="mails")
        parser.add_argument("--to", metavar="ADDRESSES", help="correct the recipients of the one mail first")
        parser.add_argument("--subject", metavar="TEXT", help="correct the subject of the one mail first")
        parser.add_argument(
            "--confirm", action="store_true", dest="is_confirmed", help="record uncertain mails as sent; send nothing"
        )
        parser.add_argument("--channel", metavar="NAME", help="end the pause of this channel")
        parser.add_argument(
            "--restored", action="store_true", dest="is_restored", help="deliver again from a restored database"
        )
        parser.add_argument("--actor", default="", metavar="NAME", help="who does it; default: the user who runs this")

    def handle(self, *, ids: list[int], **options: Any) -> None:
        """Release."""
        using, actor = options["database"], options["actor"] or getpass.getuser()
        to, subject, done = options["to"], options["subject"], {"released": 0, "confirmed": 0, "resumed": 0}
        if not ids and not options["channel"] and not options["is_restored"]:
            raise CommandError("name some mails, --channel or --restored")
        if (to or subject) and len(ids) != 1:
            raise CommandError("--to and --subject correct one mail: name that one")
        mails = mails_of(ids, using)
        if options["is_restored"]:
            try:
                done["accepted"] = int(accept_restored(using=using, settings=conf()))
            except (OSError, ValueError) as error:
                raise CommandError(f"the file of EPOCH_FILE: {error}") from error
        if channel := options["channel"]:
            if channel not in (known := known_channels(conf(), using=using)):
                raise CommandError(f"there is no channel {channel!r}, only {', '.join(sorted(known))}")
            done["resumed"] = int(resume_channel(channel, using=using))
        try:
            if to is not None or subject is not None:
                correct_mail(ids[0], recipients=to, subject=subject, actor=actor, using=using)
        except NotifyError as error:
            raise CommandError(str(error)) from error
        verb, name = (confirm_mails, "confirmed") if options["is_confirmed"] else (release_mails, "released")
        done[name] = verb(mails, actor=actor, using=using) if ids else 0
        self.print_result(done, ", ".join(f"{n} {what}" for what, n in done.items()))
