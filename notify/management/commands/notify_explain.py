"""Say whether and how an event was notified."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from ...errors import NotifyError
from ...explain.event import explain_key
from ..command import NotifyCommand


class Command(NotifyCommand):
    """Explain whether and when one event was notified and the state of its message, or why it was not."""

    help = "Explain whether and when one event was notified and the state of its message, or why it was not."
    database_help = "the database to read"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options of the contract."""
        parser.add_argument("kind", metavar="KIND")
        parser.add_argument("key", metavar="KEY")
        parser.add_argument("key2", nargs="?", metavar="KEY2")

    def handle(self, *, kind: str, key: str, key2: str | None, database: str | None, **options: Any) -> None:
        """Explain."""
        try:
            told = explain_key(kind=kind, key=key, key2=key2, using=database)
        except NotifyError as error:
            raise CommandError(str(error)) from error
        lines = [line for event in told.events for line in ("", *event.sentences)]
        self.print_result(told.as_json(), *lines[1:])
