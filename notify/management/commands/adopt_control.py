"""Take over the keys of another control table."""

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError

from ...errors import NotifyError
from ...passes.adoption import Adoption, Source, adopt
from ..command import NotifyCommand


class Command(NotifyCommand):
    """Write a control row for each key of an existing table; exit 1 and change nothing when a row is faulty."""

    help = "Copy the keys of another control table, so that nothing is notified twice at the change-over."
    database_help = "the database of both tables"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options of the contract."""
        parser.add_argument("--from", dest="table", required=True, metavar="TABLE", help="TABLE or SCHEMA.TABLE")
        kinds = parser.add_mutually_exclusive_group(required=True)
        kinds.add_argument("--kind-column", metavar="COLUMN", help="the column of the kind")
        kinds.add_argument("--kind", metavar="KIND", help="all rows are of this kind")
        parser.add_argument("--key-column", default="key", metavar="COLUMN", help="the column of the key (key)")
        parser.add_argument("--key2-column", metavar="COLUMN", help="the column of key2; without it key2 is 0")
        parser.add_argument(
            "--map", action="append", default=[], type=pair, dest="pairs", metavar="OLD=NEW", help="rename a kind"
        )
        parser.add_argument("--dry-run", action="store_true", dest="is_dry_run", help="show what would be copied")

    def handle(self, *, database: str | None, is_json: bool, is_dry_run: bool, pairs: Any, **options: Any) -> None:
        """Take the keys over."""
        columns = {name: options[name] for name in ("table", "kind_column", "kind", "key_column", "key2_column")}
        try:
            adoption = adopt(Source(**columns, kinds=dict(pairs)), is_dry_run=is_dry_run, using=database)
        except NotifyError as error:
            faulty = getattr(error, "adoption", None)
            if is_json and faulty:
                self.print_result(vars(faulty))
            raise CommandError("\n".join([str(error), *([] if faulty is None else faulty.problems)])) from error
        self.print_result(vars(adoption), *as_lines(adoption, is_dry_run=is_dry_run))


def pair(text: str) -> tuple[str, str]:
    """Read OLD=NEW."""
    old, found, new = text.partition("=")
    if not found or not new:
        raise ArgumentTypeError(f"{text!r} is not OLD=NEW")
    return old, new


def as_lines(adoption: Adoption, *, is_dry_run: bool) -> list[str]:
    """Return the report for a terminal."""
    verb = "would be taken over" if is_dry_run else "taken over"
    kinds = [f"  {kind}: {count}" for kind, count in sorted(adoption.adopted.items())]
    return [f"{adoption.rows} rows: {sum(adoption.adopted.values())} {verb}, {adoption.known} known", *kinds]
