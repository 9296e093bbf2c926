"""``manage.py inspect_change``."""

import re
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from ...api import inspect_change
from ...receipt import Receipt
from ...sealing.log import Inconsistent, make_proof
from ..command import EXIT_DIFFERS, ReceiptsCommand


class Command(ReceiptsCommand):
    """Print a receipt as it was committed, with its audit rows."""

    help = (
        "Print a receipt as it was committed, with its audit rows. "
        "Exit: 0, 1 if there is none, 5 if the receipt and its audit rows disagree."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("change_id", metavar="CHANGE_ID")
        parser.add_argument("--proof", action="store_true", help="also write the .tlog-proof of the sealed receipt")
        parser.add_argument("--output", metavar="FILE", help="with --proof: where to; -: on stdout, and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        change_id = options["change_id"]
        receipt = inspect_change(change_id=change_id, using=self.alias(options))
        if receipt is None:
            raise CommandError(f"No receipt of {change_id!r} is committed.")
        content, lines = receipt.as_json(), as_lines(receipt)
        if options["proof"]:
            try:
                proof = make_proof(change_id, self.alias(options))
            except Inconsistent as error:
                raise CommandError(str(error)) from error
            if proof is None:
                raise CommandError(f"{change_id!r} is not yet sealed; run manage.py receipts_seal.")
            if options["output"] == "-":
                self.print_result({"proof": proof}, *proof.splitlines())
                return
            safe = re.sub(r"[^\w.-]+", "_", change_id).lstrip(".")
            file = options["output"] or f"{safe}.tlog-proof"
            try:
                Path(file).write_text(proof, encoding="utf-8")
            except OSError as error:
                raise CommandError(f"{file}: {error.strerror}") from error
            content, lines = content | {"proof": file}, [*lines, f"  proof written to {file}"]
        self.print_result(content, *lines)
        if problems := receipt.problems:
            raise CommandError(f"Broken: {'; '.join(map(str, problems))}.", returncode=EXIT_DIFFERS)


def as_lines(receipt: Receipt) -> list[str]:
    """Return a receipt as lines."""
    rows = [
        f"  {row.target_id}: {row.fields_text()}"
        if row.fields
        else f"  {row.target_id}: revision {row.revision_before} -> {row.revision_after}, qty {row.qty}, "
        f"{row.state_before} -> {row.state_after}"
        for row in receipt.audit
    ]
    head = f"{receipt.change_id}: {receipt.kind}, tenant {receipt.tenant}, committed {receipt.created_at}"
    origin = f"  by {receipt.actor or '-'}, reason: {receipt.reason or '-'}, digest {receipt.digest}"
    return [head, origin, *rows]
