"""``manage.py plan_approve``."""

from argparse import ArgumentParser
from typing import Any

from ...api import approve_plan
from ...people import find_approver
from ..command import ReceiptsCommand


class Command(ReceiptsCommand):
    """Approve exactly the content of a stored plan that somebody has looked at."""

    help = "Approve the content of a stored plan by its digest. Exit: 0, or 1 when it is no such draft any more."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "plan", type=int, metavar="PLAN", help="the number that plan_store or plan_list has printed"
        )
        parser.add_argument("--approver", required=True, help="an active user who may approve plans; not its author")
        parser.add_argument("--digest", required=True, help="of the content that the approver has read")

    def handle(self, *args: Any, **options: Any) -> None:
        pk, digest, alias = options["plan"], options["digest"], self.alias(options)
        with self.refusals():
            approver = find_approver(options["approver"])
            approve_plan(pk=pk, approver=approver, digest=digest, using=alias)
        self.print_result({"plan": pk, "approved": True}, f"plan {pk}: approved")
