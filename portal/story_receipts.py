"""The receipts' part of the demo's story, played on real rows through the commands."""

import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from django.core.management import CommandError, call_command

from .models import LineState, Order, OrderLine

CHANGE_ID = "CHG-1"
TENANT = "acme"


def play_receipts(say: Callable[[str], None], *, using: str) -> None:
    """
    Apply a batch, repeat it, refuse a stale one, then drift and reconcile; ``say`` is told each step.

    It makes rows of its own, and expects no receipt of the change_ids that it uses.
    """
    with tempfile.TemporaryDirectory(prefix="kwit-story-") as folder:
        story = Story(say=say, using=using, folder=Path(folder))
        one, two, three = story.lines()
        say(f"Order lines {one.pk} and {two.pk} are to be cancelled; the plan is approved as {CHANGE_ID}.")
        plan = story.plan(CHANGE_ID, one, two)
        story.run("cancel_batch", plan, "--actor", "demo", "--reason", "sold out")
        story.run("inspect_change", CHANGE_ID)
        say("The same file once more, as after a lost answer:")
        story.run("cancel_batch", plan)
        say(f"A second plan was approved for line {three.pk} and line {two.pk}, but {two.pk} has changed since:")
        story.run("cancel_batch", story.plan(f"{CHANGE_ID}-STALE", three, two))
        state = OrderLine.objects.using(using).get(pk=three.pk).state
        say(f"It was refused whole: line {three.pk} is still {state}.")
        say("A third plan cancels one more line; then that line is deleted, and one of the first two is changed.")
        last = story.line()
        story.run("cancel_batch", story.plan(f"{CHANGE_ID}-LAST", last))
        OrderLine.objects.using(using).filter(pk=two.pk).update(qty=7, revision=two.revision + 2)
        OrderLine.objects.using(using).filter(pk=last.pk).delete()
        story.run("reconcile", CHANGE_ID, f"{CHANGE_ID}-LAST", "--record", "--actor", "demo")


class Story:
    """What the steps share."""

    def __init__(self, *, say: Callable[[str], None], using: str, folder: Path) -> None:
        self.say, self.using, self.folder = say, using, folder
        self.order = Order.objects.using(using).create(number="PO-2001", tenant=TENANT)

    def line(self) -> OrderLine:
        """Make a pending line that waits for nobody."""
        return OrderLine.objects.using(self.using).create(
            order=self.order, tenant=TENANT, item="bolts", qty=10, revision=4, state=LineState.PENDING, handled=True
        )

    def lines(self) -> tuple[OrderLine, OrderLine, OrderLine]:
        """Make three of them."""
        return self.line(), self.line(), self.line()

    def plan(self, change_id: str, *lines: OrderLine) -> str:
        """Write the plan file that approves these lines as they were made."""
        rows = [{"id": line.pk, "revision": line.revision, "qty": line.qty} for line in lines]
        path = self.folder / f"{change_id}.json"
        path.write_text(json.dumps({"change_id": change_id, "tenant": TENANT, "targets": rows}))
        return str(path)

    def run(self, command: str, *arguments: str) -> None:
        """Run a command and tell what it printed; a refusal is a part of the story."""
        out, refusal = io.StringIO(), ""
        try:
            call_command(command, *arguments, "--database", self.using, stdout=out)
        except CommandError as error:
            refusal = f"{error} (exit {error.returncode})"
        shown = [Path(argument).name for argument in arguments]
        self.say(f"$ manage.py {command} {' '.join(shown)}")
        for line in (out.getvalue() + refusal).splitlines():
            self.say(f"  {line}")
