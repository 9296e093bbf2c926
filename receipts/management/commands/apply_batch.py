"""``manage.py apply_batch``."""

from argparse import ArgumentParser
from typing import Any

from ..command import BatchCommand


class Command(BatchCommand):
    """Make a change of any registered kind: every row of a plan or none."""

    help = "Change every row of a plan or none. Exit: 0 applied now or before, 3 conflict, 4 invalid plan, 75 unknown."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--kind", required=True, help="the kind of change, as an app's changes.py declares it")

    def handle(self, *args: Any, **options: Any) -> None:
        self.run(options["kind"], options)
