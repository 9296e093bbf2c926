"""Delete finished mails that are older than the site keeps them."""

from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError
from django.db import connections

from kwit.commands import number_from

from ...conf import conf
from ...dialects import dialect_of
from ...retention import prune_mails
from ..command import NotifyCommand


class Command(NotifyCommand):
    """Delete old mails."""

    help = "Delete finished mails older than NOTIFY_MAIL_RETENTION_DAYS: bodies first, then mails with their attempts."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--days", type=number_from(1), metavar="N", help="older than N days, whatever the setting")
        parser.add_argument("--limit", type=number_from(1), metavar="N", help="delete at most N mails")

    def handle(self, **options: Any) -> None:
        """Delete."""
        days, using = options["days"] or conf().MAIL_RETENTION_DAYS, options["database"] or self.home()
        if days is None:
            raise CommandError("NOTIFY_MAIL_RETENTION_DAYS is not set; name --days")
        connection = connections[using]
        now = dialect_of(connection).now(connection)
        figures = asdict(prune_mails(now=now, days=days, limit=options["limit"], using=using))
        self.print_result(figures, ", ".join(f"{count} {name}" for name, count in figures.items()))
