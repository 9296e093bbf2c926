"""Calls with plain arguments and results, as a child process takes them, and what tests of changes share."""

from typing import Any

from portal.models import OrderLine
from receipts import api
from receipts.models import Audit, Change


def target(line: OrderLine, **changed: Any) -> api.Target:
    """Return the target that approves a line as it is."""
    return api.Target(**{"id": line.pk, "revision": line.revision, "qty": line.qty} | changed)


def cancel(*targets: Any, change_id: str = "CHG-1", tenant: str = "acme", **more: Any) -> bool:
    """Cancel these targets as the change CHG-1 of acme."""
    rows = [api.Target(*one) for one in targets]
    return api.cancel_many(change_id=change_id, tenant=tenant, targets=rows, **more)


def states(*lines: OrderLine) -> list[tuple[str, int]]:
    """Return state and revision of lines as they are now."""
    rows = OrderLine.objects.filter(pk__in=[line.pk for line in lines]).values_list("pk", "state", "revision")
    found = {pk: (state, revision) for pk, state, revision in rows}
    return [found[line.pk] for line in lines]


def traces(change_id: str, *lines: OrderLine) -> tuple[int, int, int]:
    """Count what there is of a change: receipts, audit rows, cancelled rows."""
    return (
        Change.objects.filter(pk=change_id).count(),
        Audit.objects.filter(change_id=change_id).count(),
        [state for state, _ in states(*lines)].count("cancelled"),
    )
