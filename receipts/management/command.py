"""What the commands of receipts share: two options, and how an answer is printed."""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.core.serializers.json import DjangoJSONEncoder
from django.db import DatabaseError, connections, router
from tqdm import tqdm

from ..api import Outcome, apply_surely, rehearse_change
from ..apply import settling_command
from ..conf import load_settings
from ..errors import Conflict, Flaw, InvalidPlan, NotApproved, NotWritten, OutcomeUnknown, UnknownKind
from ..models import Change, StoredPlan
from ..plans.model import Plan, check_origin, read_plan

EXIT_CONFLICT, EXIT_INVALID, EXIT_DIFFERS = 3, 4, 5
#: EX_TEMPFAIL of sysexits.h: try again.
EXIT_UNKNOWN = 75


class ReceiptsCommand(BaseCommand):
    """Has ``--database`` and ``--json``; prints the answer on stdout, everything else on stderr."""

    is_told = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--database",
            metavar="ALIAS",
            choices=tuple(connections),
            help="where receipts and rows are; by default where the router sends them",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def execute(self, *args: Any, **options: Any) -> str | None:
        """
        Warn when another database is named than the site's, then run the command.

        Raises: CommandError, also for what the database refuses.
        """
        if text := self.elsewhere(options.get("database")):
            (options.get("stderr") or self.stderr).write(text + "\n")
        try:
            return super().execute(*args, **options)
        except CommandError as error:
            self.tell_error(error, options)
            raise
        except DatabaseError as error:
            refused = CommandError(f"database {self.alias(options)!r}: {str(error).strip()}")
            self.tell_error(refused, options)
            raise refused from error

    def tell_error(self, error: CommandError, options: dict[str, Any]) -> None:
        """Print an error for a program, unless the command has told its own by then."""
        if options.get("json") and not self.is_told:
            self.stdout.write(json.dumps({"error": str(error)}))

    def elsewhere(self, alias: str | None) -> str:
        """Say that the site keeps receipts in another database than this one; an empty text when it does not."""
        home = router.db_for_write(Change)
        if alias in (None, home):
            return ""
        return (
            f"Warning: --database {alias}, but this site keeps receipts in {home!r} "
            f"(RECEIPTS_DATABASE_URL or a router): its receipts are not the ones worked on here."
        )

    def alias(self, options: dict[str, Any]) -> str:
        """Return the database to use."""
        return options.get("database") or router.db_for_write(Change)

    def answer(self, options: dict[str, Any], content: Any, text: str) -> None:
        """Print an answer for a program or for a person."""
        self.is_told = True
        self.stdout.write(json.dumps(content, cls=DjangoJSONEncoder) if options["json"] else self.printable(text))

    def printable(self, text: str) -> str:
        """Escape what the terminal cannot show: an answer about a committed change must not end in an error."""
        encoding = getattr(self.stdout, "encoding", None) or "utf-8"
        return text.encode(encoding, "backslashreplace").decode(encoding)

    @contextmanager
    def refusals(self, options: dict[str, Any]) -> Iterator[None]:
        """Print what the engine refuses, and end with its exit code."""
        try:
            yield
        except InvalidPlan as error:
            text = "\n".join(f"{flaw.where}: {flaw.problem}" for flaw in error.flaws)
            self.answer(options, {"invalid": [flaw.as_json() for flaw in error.flaws]}, text)
            raise CommandError("The plan is invalid; nothing was written.", returncode=EXIT_INVALID) from error
        except Conflict as error:
            problems = [vars(problem) for problem in error.problems]
            text = "\n".join(
                f"{one.id}: {one.problem}, approved {one.approved}, now {one.current}" for one in error.problems
            )
            self.answer(options, {"conflict": error.conflict, "problems": problems}, text or str(error))
            raise CommandError(f"Conflict: {error}. Nothing was written.", returncode=EXIT_CONFLICT) from error
        except (UnknownKind, NotWritten, NotApproved) as error:
            raise CommandError(str(error)) from error
        except StoredPlan.DoesNotExist as error:
            raise CommandError("There is no such plan.") from error

    def answer_outcome(
        self, options: dict[str, Any], change_id: str, outcome: Outcome, *, targets: int, **more: Any
    ) -> None:
        """Say whether a change was applied now or before."""
        content = more | {"change_id": change_id, "applied": outcome is not Outcome.ALREADY, "targets": targets}
        self.answer(options, content, f"{change_id}: {outcome}, {targets} targets")

    @contextmanager
    def settling(self, options: dict[str, Any], change_id: str) -> Iterator[None]:
        """Name the one command that settles an unknown outcome."""
        try:
            yield
        except OutcomeUnknown as error:
            settle = settling_command(change_id, alias=self.alias(options))
            content = {"change_id": change_id, "unknown": str(error), "settle": settle}
            self.answer(options, content, f"{change_id}: unknown")
            raise CommandError(
                f"Unknown: {error}. When the database is back, settle it with: {settle}", returncode=EXIT_UNKNOWN
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

    def read(self, options: dict[str, Any]) -> Plan:
        """Read the plan from its file or from stdin."""
        name = options["plan"]
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
        )


class BatchCommand(PlanCommand):
    """Reads a plan file, applies it, and says what became of it."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--actor", default="", help="who does it; kept in the receipt")
        parser.add_argument("--reason", default="", help="why; kept in the receipt")
        parser.add_argument("--dry-run", action="store_true", help="do everything, then undo it")

    def run(self, kind: str, options: dict[str, Any]) -> None:
        """Apply the plan as a change of this kind."""
        with self.refusals(options):
            plan = self.read(options)
            if options["dry_run"]:
                return self.rehearse(kind, plan, options)
            outcome = self.apply(kind, plan, options)
            self.answer_outcome(options, plan.change_id, outcome, targets=len(plan.targets))

    def apply(self, kind: str, plan: Plan, options: dict[str, Any]) -> Outcome:
        """Apply it, or name the one command that settles what became of it."""
        with self.settling(options, plan.change_id):
            return apply_surely(
                kind=kind,
                change_id=plan.change_id,
                tenant=plan.tenant,
                targets=plan.targets,
                actor=options["actor"],
                reason=options["reason"],
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
        self.answer(options, content, f"{plan.change_id}: {text}, {count} targets (dry run)")
