"""``manage.py plan_store``."""

from argparse import ArgumentParser
from typing import Any

from ...api import store_plan
from ..command import PlanCommand


class Command(PlanCommand):
    """Keep a plan as a draft, for another person to approve."""

    help = "Keep a plan as a draft, for another person to approve. Exit: 0, or 4 invalid plan."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--kind", required=True, help="the kind of change, as an app's changes.py declares it")
        parser.add_argument("--author", required=True, help="who wrote it; somebody else approves it")

    def handle(self, *args: Any, **options: Any) -> None:
        with self.refusals():
            plan = self.read(options["kind"], options)
            stored = store_plan(
                kind=options["kind"],
                change_id=plan.change_id,
                tenant=plan.tenant,
                targets=plan.targets,
                author=options["author"],
                reason=plan.reason(options["reason"]),
                using=self.alias(options),
            )
            content = {"plan": stored.pk, "change_id": plan.change_id, "digest": stored.digest}
            text = f"plan {stored.pk}: {plan.change_id}, {len(plan.targets)} targets, digest {stored.digest}"
            self.print_result(content | {"targets": len(plan.targets)}, text)
