"""Make the ready-made groups viewer, operator, approver and auditor."""

from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from ...commands import KwitCommand
from ...people.groups import ALL_TENANTS_GROUP, Made, make_groups


class Command(KwitCommand):
    """Make the ready-made groups, or bring them up to date."""

    help = "Create or update the groups viewer, operator, approver and auditor."
    database_help = "the database that has the groups"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--all-tenants",
            action="store_true",
            help=f"also create the group {ALL_TENANTS_GROUP}, whose members see the rows of every tenant",
        )

    def handle(self, *, all_tenants: bool, database: str | None, **options: Any) -> None:
        """Make them."""
        try:
            made = make_groups(all_tenants=all_tenants, using=database)
        except LookupError as error:
            raise CommandError(str(error)) from error
        self.print_result({"groups": [asdict(one) for one in made]}, *map(self.line, made))

    def line(self, made: Made) -> str:
        """Return the changes of a group as text for a terminal."""
        signs = [f"+{label}" for label in made.added] + [f"-{label}" for label in made.removed]
        return f"{made.group}: {'made' if made.is_new else 'there'}, {' '.join(signs) or 'nothing to do'}"
