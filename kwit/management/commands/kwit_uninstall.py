"""Remove Kwit's tables, permissions, content types, groups and files from the site."""

from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from ...commands import KwitCommand
from ...uninstall import Inventory, UninstallRefused, take_inventory, uninstall

CONFIRMATION = "remove"


class Command(KwitCommand):
    """Remove Kwit's tables, permissions, content types, groups and files from the site."""

    help = "Remove Kwit's tables, permissions, content types, groups and files from the site."
    database_help = "the only database to remove them from; by default every database of the site"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--dry-run", action="store_true", dest="is_dry_run", help="list everything, remove nothing")
        parser.add_argument("--with-receipts", action="store_true", help="remove receipts as well")
        parser.add_argument("--no-input", action="store_false", dest="is_interactive", help="do not ask")

    def handle(self, *, is_dry_run: bool, with_receipts: bool, is_interactive: bool, **options: Any) -> None:
        """Name everything, then remove it unless that is refused."""
        alias: str | None = options["database"]
        found = take_inventory(alias)
        if not is_dry_run:
            if is_interactive:
                self.ask(found)
            try:
                found = uninstall(alias, with_receipts=with_receipts)
            except UninstallRefused as error:
                raise CommandError(str(error)) from error
        self.print_result({**asdict(found), "removed": not is_dry_run}, *self.lines_of(found))

    def ask(self, found: Inventory) -> None:
        """Have the removal confirmed. Raises: CommandError."""
        for line in self.lines_of(found):
            self.stderr.write(line)
        if input(f"Type “{CONFIRMATION}” to remove all this: ") != CONFIRMATION:
            raise CommandError("nothing was removed")

    def lines_of(self, found: Inventory) -> list[str]:
        """Return an inventory for a person."""
        lines = [f"table {name} (database {alias})" for alias, names in found.tables.items() for name in names]
        for word, names in (
            ("permission", found.permissions),
            ("content type", found.content_types),
            ("group", found.groups),
            ("kept, with permissions of other apps: group", found.kept_groups),
            ("file", found.files),
        ):
            lines += [f"{word} {name}" for name in names]
        return lines or ["nothing of Kwit is here"]
