"""``manage.py plan_apply``."""

from argparse import ArgumentParser
from typing import Any

from ...api import apply_plan_with_reconnect, get_plan
from ..command import ReceiptsCommand


class Command(ReceiptsCommand):
    """Apply an approved plan: every row of it or none."""

    help = (
        "Apply an approved plan: every row of it or none. Exit: 0 applied now or before, 1 not approved, 3 conflict, "
        "75 unknown."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "plan", type=int, metavar="PLAN", help="the number that plan_store or plan_list has printed"
        )
        parser.add_argument("--actor", default="", help="who applies it; kept in the receipt")
        parser.add_argument("--digest", default="", help="apply only this content")

    def handle(self, *args: Any, **options: Any) -> None:
        with self.refusals():
            plan = get_plan(pk=options["plan"], using=self.alias(options))
            with self.settling(options, plan.change_id):
                outcome = apply_plan_with_reconnect(
                    pk=plan.pk, actor=options["actor"], digest=options["digest"], using=self.alias(options)
                )
            self.print_outcome(plan.change_id, outcome, targets=len(plan.targets), plan=plan.pk)
