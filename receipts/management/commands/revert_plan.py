"""``manage.py revert_plan``."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from ...api import revert_plan
from ..command import ReceiptsCommand


class Command(ReceiptsCommand):
    """Draft the plan that takes a change back."""

    help = (
        "Draft the plan that would put the rows of a receipt back as they were. Exit: 0, 1 no receipt, 3 a row has "
        "changed since, 4 it cannot be planned."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("change_id", metavar="CHANGE_ID", help="of the receipt")
        parser.add_argument("--author", required=True, help="who wants it; somebody else approves it")
        parser.add_argument("--new-change-id", default="", help="of the plan; by default UNDO- and that of the receipt")
        parser.add_argument("--reason", default="", help="why; kept in the receipt")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with self.refusals():
                stored = revert_plan(
                    change_id=options["change_id"],
                    author=options["author"],
                    new_change_id=options["new_change_id"],
                    reason=options["reason"],
                    using=self.alias(options),
                )
        except LookupError as error:
            raise CommandError(str(error)) from error
        content = {"plan": stored.pk, "change_id": stored.change_id, "digest": stored.digest}
        text = f"plan {stored.pk}: {stored.change_id}, {stored.target_count} targets, digest {stored.digest}"
        self.print_result(content | {"targets": stored.target_count}, text)
