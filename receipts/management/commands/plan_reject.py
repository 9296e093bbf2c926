"""``manage.py plan_reject``."""

from argparse import ArgumentParser
from typing import Any

from ...api import reject_plan
from ...people import find_approver
from ..command import ReceiptsCommand


class Command(ReceiptsCommand):
    """Close a stored plan that should not be applied, with a reason for its author."""

    help = "Close a stored plan that should not be applied. Exit: 0, 1 when it is closed, 4 without a reason."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "plan", type=int, metavar="PLAN", help="the number that plan_store or plan_list has printed"
        )
        parser.add_argument("--actor", required=True, help="who rejects it: an active user who may approve plans")
        parser.add_argument("--reason", required=True, help="why, for its author")
        parser.add_argument("--digest", default="", help="reject only this content")

    def handle(self, *args: Any, **options: Any) -> None:
        pk, alias = options["plan"], self.alias(options)
        with self.refusals():
            actor = find_approver(options["actor"])
            reject_plan(pk=pk, actor=actor, reason=options["reason"], digest=options["digest"], using=alias)
        self.print_result({"plan": pk, "rejected": True}, f"plan {pk}: rejected")
