"""Small steps and rows for the tests of the engine, apart from the portal's own."""

from datetime import datetime, timedelta
from itertools import count
from typing import Any

from django.db.models import F, QuerySet, Value

from notify.models import Control, MailQueue, RunLog
from notify.passes.runner import PassReport, run_pass
from notify.steps import FlaggedStep, Scope, Step
from portal.models import Comment, OrderLine
from tests.factories import NOW, make_line, make_many

_seconds = count(1)


class Remark(Step):
    """Each comment is an event of its own: key=comment. The base of the steps that tests throw away."""

    kind = "remark"
    template = "comment"

    def events(self, scope: Scope) -> QuerySet[Any, Any]:
        return Comment.objects.values(
            "author", "body", key=F("pk"), event_at=F("created_at"), recipients=Value("ann@example.org")
        )


class Lined(FlaggedStep):
    """Each line that waits is an event: key=line, event time=rejected_at, flag=handled."""

    kind = "lined"
    template = "comment"
    flag_key = "id"

    def events(self, scope: Scope) -> QuerySet[Any, Any]:
        return OrderLine.objects.filter(handled=False).values(
            "item", key=F("pk"), event_at=F("rejected_at"), recipients=Value("ann@example.org")
        )

    def flagged(self) -> QuerySet[Any]:
        return OrderLine.objects.all()


def make_comments(n: int, *, at: datetime = NOW, line: OrderLine | None = None, **fields: Any) -> list[Comment]:
    """Make n comments on one line, a millisecond apart, the oldest first."""
    line = line or make_line()
    return make_many(
        Comment(**{"line": line, "author": "bob", "created_at": at + timedelta(milliseconds=number)} | fields)
        for number in range(n)
    )


def make_lines(n: int, *, at: datetime = NOW, **fields: Any) -> list[OrderLine]:
    """Make n waiting lines of one order, a minute apart, the oldest first."""
    order = make_line(handled=True).order
    values = {"order": order, "tenant": "acme", "qty": 1, "handled": False}
    return make_many(
        OrderLine(**values | {"rejected_at": at + timedelta(minutes=number)} | fields) for number in range(n)
    )


def later(now: datetime = NOW) -> datetime:
    """Return a moment after all that were returned before: a pass must not see its forerunner in the future."""
    return now + timedelta(seconds=next(_seconds))


def do_pass(**options: Any) -> PassReport:
    """Run a pass shortly after NOW."""
    return run_pass(**{"now": later()} | options)


def mailed(kind: str) -> list[int]:
    """Return the keys of a kind that have a mail, each as often as it has one, in the order of the queue."""
    return list(MailQueue.objects.filter(control__kind=kind).order_by("pk").values_list("control__key", flat=True))


def noted(kind: str) -> list[int]:
    """Return the keys of a kind that have a control row, in the order of their making."""
    return list(Control.objects.filter(kind=kind).order_by("pk").values_list("key", flat=True))


def log_row(report: PassReport, step: str = RunLog.WHOLE) -> RunLog:
    """Return the row that a pass left for itself or for one of its steps."""
    return RunLog.objects.get(pass_id=report.pass_id, step=step)
