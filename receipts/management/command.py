"""What the commands of receipts share."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db import router
from tqdm import tqdm

from kwit.commands import EXIT_TRY_AGAIN, KwitCommand

from ..api import Outcome, apply_with_reconnect, rehearse_change
from ..apply import settling_command
from ..change_types import get_declared_kind
from ..conf import load_settings
from ..errors import Conflict, Flaw, InvalidPlan, NotApproved, NotWritten, OutcomeUnknown, UnknownKind
from ..models import Change, StoredPlan
from ..plans.model import Plan, check_origin, read_plan

EXIT_CONFLICT, EXIT_INVALID, EXIT_DIFFERS = 3, 4, 5


class ReceiptsCommand(KwitCommand):
    """Works on the database that holds the receipts."""

    content, content_setting = "receipts", "RECEIPTS_DATABASE_URL"

    def home(self) -> str:
        return router.db_for_write(Change)

    def alias(self, options: dict[str, Any]) -> str:
        """Return the database to use."""
        return options.get("database") or self.home()

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Print what the engine refuses, and end with its exit code."""
        try:
            yield
        except InvalidPlan as error:
            lines = [f"{flaw.where}: {flaw.problem}" for flaw in error.flaws]
            self.print_result({"invalid": [flaw.as_json() for flaw in error.flaws]}, *lines)
            raise CommandError("The plan is invalid; nothing was written.", returncode=EXIT_INVALID) from error
        except Conflict as error:
            problems = [vars(problem) for problem in error.problems]
            lines = [f"{one.id}: {one.problem}, approved {one.approved}, now {one.current}" for one in error.problems]
            self.print_result({"conflict": error.conflict, "problems": problems}, *(lines or [str(error)]))
            raise CommandError(f"Conflict: {error}. Nothing was written.", returncode=EXIT_CONFLICT) from error
        except (UnknownKind, NotWritten, NotApproved) as error:
            raise CommandError(str(error)) from error
        except StoredPlan.DoesNotExist as error:
            raise CommandError("There is no such plan.") from error

    def print_outcome(self, change_id: str, outcome: Outcome, *, targets: int, **more: Any) -> None:
        """Say whether a change was applied now or before."""
        content = more | {"change_id": change_id, "applied": outcome is not Outcome.ALREADY, "targets": targets}
        self.print_result(content, f"{change_id}: {outcome}, {targets} targets")

    @contextmanager
    def settling(self, options: dict[str, Any], change_id: str) -> Iterator[None]:
        """Name the one command that settles an unknown outcome."""
        try:
            yield
        except OutcomeUnknown as error:
            settle = settling_command(change_id, alias=self.alias(options))
            content = {"change_id": change_id, "unknown": str(error), "settle": settle}
            self.print_result(content, f"{change_id}: unknown")
            raise CommandError(
                f"Unknown: {error}. When the database is back, settle it with: {settle}", returncode=EXIT_TRY_AGAIN
            ) from error

    def watched(self, rows: Iterable[Any], *, total: int) -> Iterator[Any]:
        """Show progress on stderr while rows come, when a person is looking."""
        yield from tqdm(rows, total=total, file=sys.stderr, disable=None, leave=False)


class PlanCommand(ReceiptsCommand):
    """Reads a plan file."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("plan", metavar="PLAN", help="a .json, .csv or .xlsx file, or - for JSON on stdin")
        parser.add_argument("--change-id", help="with a CSV or XLSX: the change_id")
        parser.add_argument("--tenant", help="with a CSV or XLSX: the tenant")
        parser.add_argument("--reason", default="", help="why; kept in the receipt")
        parser.add_argument(
            "--accept-hidden",
            action="store_true",
            help="take hidden rows, columns and sheets; the reason says how many",
        )
        parser.add_argument(
            "--accept-formulas", action="store_true", help="take the last results of formulas; the reason says how many"
        )

    def read(self, kind: str, options: dict[str, Any]) -> Plan:
        """Read the plan of a kind from its file or from stdin."""
        name, declared = options["plan"], get_declared_kind(kind)
        try:
            data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        except OSError as error:
            raise InvalidPlan([Flaw(name, f"cannot be read: {error.strerror}")]) from error
        return read_plan(
            data,
            name=name,
            change_id=options["change_id"],
            tenant=options["tenant"],
            targets_max=load_settings().max_targets,
            accept_hidden=options["accept_hidden"],
            accept_formulas=options["accept_formulas"],
            shape=declared,
        )


class BatchCommand(PlanCommand):
    """Reads a plan file, applies it, and says what became of it."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--actor", default="", help="who does it; kept in the receipt")
        parser.add_argument("--dry-run", action="store_true", help="apply the change, then roll it back")

    def run(self, kind: str, options: dict[str, Any]) -> None:
        """Apply the plan as a change of this kind."""
        with self.refusals():
            plan = self.read(kind, options)
            if options["dry_run"]:
                return self.rehearse(kind, plan, options)
            outcome = self.apply(kind, plan, options)
            self.print_outcome(plan.change_id, outcome, targets=len(plan.targets))

    def apply(self, kind: str, plan: Plan, options: dict[str, Any]) -> Outcome:
        """Apply it, or name the one command that settles what became of it."""
        with self.settling(options, plan.change_id):
            return apply_with_reconnect(
                kind=kind,
                change_id=plan.change_id,
                tenant=plan.tenant,
                targets=plan.targets,
                actor=options["actor"],
                reason=plan.reason(options["reason"]),
                using=self.alias(options),
            )
        raise AssertionError  # for mypy: `settling` raises again

    def rehearse(self, kind: str, plan: Plan, options: dict[str, Any]) -> None:
        """Say what would happen."""
        check_origin(actor=options["actor"], reason=options["reason"])
        would = rehearse_change(
            kind=kind, change_id=plan.change_id, tenant=plan.tenant, targets=plan.targets, using=self.alias(options)
        )
        count = len(plan.targets)
        content = {"change_id": plan.change_id, "applied": False, "targets": count, "would_apply": would}
        text = "would be applied" if would else "was applied before"
        self.print_result(content, f"{plan.change_id}: {text}, {count} targets (dry run)")
