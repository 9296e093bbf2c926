"""``manage.py plan_withdraw``."""

from argparse import ArgumentParser
from typing import Any

from ...api import withdraw_plan
from ..command import ReceiptsCommand


class Command(ReceiptsCommand):
    """Close a stored plan of one's own."""

    help = "Close a stored plan of one's own. Exit: 0, or 1 when it is closed, or somebody else's."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "plan", type=int, metavar="PLAN", help="the number that plan_store or plan_list has printed"
        )
        parser.add_argument("--actor", required=True, help="its author")
        parser.add_argument("--reason", default="", help="why")

    def handle(self, *args: Any, **options: Any) -> None:
        pk = options["plan"]
        with self.refusals():
            withdraw_plan(pk=pk, actor=options["actor"], reason=options["reason"], using=self.alias(options))
        self.print_result({"plan": pk, "withdrawn": True}, f"plan {pk}: withdrawn")
