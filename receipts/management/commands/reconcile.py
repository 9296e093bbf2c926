"""``manage.py reconcile``."""

import json
import signal
import threading
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from kwit.commands import EXIT_TRY_AGAIN

from ...api import InvalidPlan, UnknownKind, reconcile, record_reconciliation
from ...change_types import get_kind
from ...plans.model import check_origin
from ...querysets import RunOutcome
from ...reconcile import Reconciled, count_receipts, kinds_of_receipts
from ...runs import carry_out
from ..command import EXIT_DIFFERS, ReceiptsCommand


class Command(ReceiptsCommand):
    """Compare receipts with the rows as they are now."""

    help = (
        "Compare receipts with the rows as they are now. Exit: 0 all match, 5 some differ, 1 there is no such receipt, "
        "75 a run was stopped."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("change_ids", nargs="*", default=[], metavar="CHANGE_ID")
        which.add_argument("--all", action="store_true", help="every receipt there is")
        parser.add_argument("--record", action="store_true", help="store the results in receipts_reconciliation")
        parser.add_argument("--actor", default="", help="with --record: who compared")
        parser.add_argument("--run", type=int, metavar="ID", help="with --all: the run that the admin has asked for")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["run"] is not None:
            return self.carry_out(options)
        alias, differing, separator = self.alias(options), 0, ""
        ids = None if options["all"] else options["change_ids"]
        total = count_receipts(using=alias) if ids is None else len(ids)
        try:
            # All that can be wrong is asked before the JSON object is opened.
            check_origin(actor=options["actor"], reason="")
            for kind in kinds_of_receipts(change_ids=ids, using=alias):
                get_kind(kind)
            results = reconcile(change_ids=ids, using=alias)
            self.begin(options)
            for result in self.watched(results, total=total):
                self.show(result, options, separator)
                separator, differing = ", ", differing + (not result.is_match)
                if options["record"]:
                    record_reconciliation(result, actor=options["actor"], using=alias)
        except (LookupError, UnknownKind, InvalidPlan) as error:
            raise CommandError(str(error)) from error
        self.end(options)
        if differing:
            raise CommandError(f"{differing} of {total} changes differ from their receipts.", returncode=EXIT_DIFFERS)

    def carry_out(self, options: dict[str, Any]) -> None:
        """Carry out a run and keep its results; SIGTERM ends it after the receipt in hand."""
        if not options["all"]:
            raise CommandError("--run goes with --all")
        asked = threading.Event()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: asked.set())
            # SQL Server's driver takes a call of the system that a signal has interrupted for a lost connection.
            signal.siginterrupt(signal.SIGTERM, False)
        try:
            run = carry_out(options["run"], using=self.alias(options), is_stopping=asked.is_set)
        except LookupError as error:
            raise CommandError(str(error)) from error
        names = ("done", "total", "differing", "undeclared", "outcome")
        content = {"run": run.pk} | {name: getattr(run, name) for name in names}
        text = f"run {run.pk}: {run.outcome}, {run.done} of {run.total} compared, {run.differing} differ"
        self.print_result(content, text)
        if run.outcome != RunOutcome.DONE:
            raise CommandError(f"The run has ended early: {run.outcome}.", returncode=EXIT_TRY_AGAIN)
        if run.differing:
            raise CommandError(f"{run.differing} of {run.total} changes differ.", returncode=EXIT_DIFFERS)

    def begin(self, options: dict[str, Any]) -> None:
        """Open the JSON object; it is written as the results come, however many there are."""
        if self.is_json:
            self.has_printed = True
            self.stdout.write('{"changes": [', ending="")

    def show(self, result: Reconciled, options: dict[str, Any], separator: str) -> None:
        """Print one receipt's result."""
        if self.is_json:
            self.stdout.write(separator + json.dumps(result.as_json()), ending="")
        else:
            for line in result.as_lines():
                self.stdout.write(line)

    def end(self, options: dict[str, Any]) -> None:
        """Close the JSON object."""
        if self.is_json:
            self.stdout.write("]}")
