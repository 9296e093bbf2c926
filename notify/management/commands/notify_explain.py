"""Say whether and how an event was notified."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from ...explain.event import explain_event
from ..command import NotifyCommand


class Command(NotifyCommand):
    """Say for one event whether and when it was notified, what became of the message, or why it was not."""

    help = "Say for one event whether and when it was notified, what became of the message, or why it was not."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options of the contract."""
        parser.add_argument("kind", metavar="KIND")
        parser.add_argument("key", type=int, metavar="KEY")
        parser.add_argument("key2", type=int, nargs="?", metavar="KEY2")
        self.add_database(parser, "the database to look at")
        parser.add_argument("--json", action="store_true", dest="is_json", help="print one JSON object")

    def handle(
        self, *, kind: str, key: int, key2: int | None, database: str | None, is_json: bool, **options: Any
    ) -> None:
        """Explain."""
        told = explain_event(kind=kind, key=key, key2=key2, using=database)
        if is_json:
            self.stdout.write(json.dumps(told.as_json(), cls=DjangoJSONEncoder, ensure_ascii=False))
        else:
            self.stdout.write("\n\n".join("\n".join(event.sentences) for event in told.events))
