"""``manage.py receipts_audit_log``."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from tqdm import tqdm

from ...errors import ReceiptsError
from ...sealing.audit import AuditReport, audit_log
from ...sealing.keys import Keys, load_keys, parse_keys
from ...sealing.log import count_leaves
from ..command import EXIT_DIFFERS, ReceiptsCommand


class Command(ReceiptsCommand):
    """Recompute the log of sealed receipts, and compare it with every checkpoint."""

    help = (
        "Recompute the log from the tables and compare it with every stored checkpoint, and with one that was kept "
        "outside. Exit: 0 all agree, 5 something is wrong, 1 a file cannot be read."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--since", metavar="FILE", help="a checkpoint that was kept outside the database")
        parser.add_argument("--key", metavar="FILE", help="verifier keys that are known besides those of the settings")

    def handle(self, *args: Any, **options: Any) -> None:
        alias = self.alias(options)
        try:
            keys = load_keys()
            if options["key"]:
                more = parse_keys(Path(options["key"]).read_text(encoding="utf-8"))
                keys = Keys(keys.signing, (*keys.known, *more.known))
            since = Path(options["since"]).read_text(encoding="utf-8") if options["since"] else None
            with tqdm(total=count_leaves(alias), file=sys.stderr, disable=None, leave=False) as bar:
                report = audit_log(alias, keys=keys, since=since, progress=bar.update)
        except (OSError, UnicodeError, ReceiptsError) as error:
            raise CommandError(str(error)) from error
        self.print_result(as_json(report), *as_lines(report))
        if report.findings:
            raise CommandError(f"{len(report.findings)} findings.", returncode=EXIT_DIFFERS)


def as_json(report: AuditReport) -> dict[str, Any]:
    """Return a report as an object."""
    return vars(report) | {"findings": [one.as_json() for one in report.findings]}


def as_lines(report: AuditReport) -> list[str]:
    """Return a report as lines."""
    head = f"{report.leaves} receipts sealed in {report.checkpoints} checkpoints, {report.unsealed} not yet sealed"
    unsigned = [f"{report.unsigned} checkpoints are unsigned"] if report.unsigned else []
    found = [f"{one.problem}: {one.about}: {one.text}" for one in report.findings]
    return [head, *unsigned, *(found or ["Nothing found."])]
