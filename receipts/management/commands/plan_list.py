"""``manage.py plan_list``."""

from argparse import ArgumentParser
from typing import Any

from ...api import list_plans
from ...querysets import PlanState
from ..command import ReceiptsCommand

#: More rows than there can be.
LIMIT_MAX = 2**31 - 1


class Command(ReceiptsCommand):
    """List stored plans, the newest first."""

    help = "List stored plans, the newest first."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--state", choices=PlanState.values, help="only those in this state")
        parser.add_argument("--kind", help="only those of this kind")
        parser.add_argument("--tenant", help="only those of this tenant")
        parser.add_argument("--change-id", help="only those of this change_id")
        parser.add_argument("--limit", type=int, default=50, help="at most this many (default: %(default)s)")

    def handle(self, *args: Any, **options: Any) -> None:
        wanted = {name: options[name] for name in ("state", "kind", "tenant", "change_id") if options[name]}
        found = list_plans(limit=min(max(0, options["limit"]), LIMIT_MAX), using=self.alias(options), **wanted)
        lines = [
            "{plan}: {change_id}, {kind}, tenant {tenant}, {state}, by {author}, digest {digest}".format(**one)
            for one in found
        ]
        self.print_result({"plans": found}, *(lines or ["There is no such plan."]))
