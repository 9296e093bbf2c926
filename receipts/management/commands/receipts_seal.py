"""``manage.py receipts_seal``."""

import signal
import sys
import threading
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from tqdm import tqdm

from ...errors import ReceiptsError
from ...sealing.log import whole_note
from ...sealing.seal import seal_receipts
from ...sealing.sealer import SealReport
from ..command import ReceiptsCommand


class Command(ReceiptsCommand):
    """Seal committed receipts: append them to the log, sign a checkpoint, publish it."""

    help = (
        "Append committed receipts to the log, sign a checkpoint and publish it. Exit: 0 sealed, or nothing to seal, "
        "or another process is sealing; 1 the log does not continue what was signed, or a place or witness has failed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--full", action="store_true", help="scan all receipts; done once a day anyway")
        parser.add_argument(
            "--witness",
            action="append",
            default=[],
            metavar="URL|FILE",
            help="ask this witness too, or take the cosignatures from this file; may be given more than once",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        asked = threading.Event()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: asked.set())
            signal.siginterrupt(signal.SIGTERM, False)
        with tqdm(file=sys.stderr, disable=None, leave=False, unit=" receipts") as bar:
            try:
                report = seal_receipts(
                    using=self.alias(options),
                    is_full=options["full"] or None,
                    witnesses=options["witness"],
                    is_stopping=asked.is_set,
                    progress=bar.update,
                )
            except ReceiptsError as error:
                raise CommandError(str(error)) from error
        self.print_result(as_json(report), *as_lines(report))
        if report.errors:
            raise CommandError("; ".join(report.errors))


def as_json(report: SealReport) -> dict[str, Any]:
    """Return a report as an object."""
    checkpoint = report.checkpoint
    return {
        "sealed": report.sealed,
        "size": report.size,
        "busy": report.is_busy,
        "checkpoint": checkpoint.number if checkpoint else None,
        "signed_by": list(report.signed_by),
        "cosigned_by": report.cosigned_by,
        "published": report.published,
        "note": whole_note(checkpoint) if checkpoint else None,
        "errors": report.errors,
    }


def as_lines(report: SealReport) -> list[str]:
    """Return a report as lines, the new checkpoint among them: whoever keeps them has a copy outside the database."""
    if report.is_busy:
        return ["Another process is sealing."]
    made = report.checkpoint
    number = f"checkpoint {made.number}" if made else "no new checkpoint"
    signed = ", ".join(report.signed_by) or "unsigned"
    lines = [f"{report.sealed} sealed, {report.size} in all; {number} ({signed})"]
    lines += [f"published to {target}" for target in report.published]
    lines += [f"cosigned by {name}" for name in report.cosigned_by]
    return [*lines, *(["", *whole_note(made).splitlines()] if made else [])]
