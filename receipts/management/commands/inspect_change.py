"""``manage.py inspect_change``."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from ...api import inspect_change
from ..command import ReceiptsCommand


class Command(ReceiptsCommand):
    """Print a receipt as it was committed, with its audit rows."""

    help = "Print a receipt as it was committed, with its audit rows. Exit: 0, or 1 if there is none."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("change_id", metavar="CHANGE_ID")

    def handle(self, *args: Any, **options: Any) -> None:
        receipt = inspect_change(change_id=options["change_id"], using=self.alias(options))
        if receipt is None:
            raise CommandError(f"No receipt of {options['change_id']!r} is committed.")
        rows = [
            f"  {row.target_id}: revision {row.revision_before} -> {row.revision_after}, qty {row.qty}, "
            f"{row.state_before} -> {row.state_after}"
            for row in receipt.audit
        ]
        head = f"{receipt.change_id}: {receipt.kind}, tenant {receipt.tenant}, committed {receipt.created_at}"
        origin = f"  by {receipt.actor or '-'}, reason: {receipt.reason or '-'}, digest {receipt.digest}"
        self.print_result(receipt.as_json(), head, origin, *rows)
