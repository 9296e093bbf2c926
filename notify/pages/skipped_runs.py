"""Skipped passes, grouped: skips in a row are one line."""

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from django.db.models import OuterRef, Subquery
from django.utils.timesince import timesince

from kwit.admin.components import NONE, Cell, Row

from ..explain.messages import lock_code_of, say_holder
from ..models import Outcome, RunLog

#: Rows read per page; a page has as many lines or fewer.
SKIPS_PER_PAGE = 100
#: Holders named per line; a lock that goes from hand to hand has more.
HOLDERS_MAX = 3
#: Every outcome that ends a run of skips.
OTHERS = (Outcome.OK, Outcome.WARNING, Outcome.ERROR, Outcome.RUNNING)


def skip_rows(found: Sequence[Any], *, beside: Sequence[Any] = (), url: Callable[..., str]) -> list[Row]:
    """
    Return one line per run of skips; ``found`` is newest first. One query: an index seek per row and outcome.

    ``beside`` are the skips next to these on other pages: a run that goes on there says so.
    """
    last = passes_before([*found, *beside])
    elsewhere = {last[row.pk] for row in beside}
    return [
        group_row(list(group), goes_on=before in elsewhere, url=url)
        for before, group in groupby(found, key=lambda row: last[row.pk])
    ]


def passes_before(found: Sequence[RunLog]) -> dict[int, datetime | None]:
    """Return for each skip when the last pass before it started that was not skipped."""
    before = {
        f"before_{outcome.value}": Subquery(
            RunLog.objects.filter(step=RunLog.WHOLE, outcome=outcome, started_at__lte=OuterRef("started_at"))
            .order_by("-started_at", "-pk")
            .values("started_at")[:1]
        )
        for outcome in OTHERS
    }
    rows = RunLog.objects.filter(pk__in=[row.pk for row in found]).annotate(**before)
    return {pk: max(filter(None, moments), default=None) for pk, *moments in rows.values_list("pk", *before)}


def group_row(group: Sequence[RunLog], *, goes_on: bool, url: Callable[..., str]) -> Row:
    """Return the line of one run of skips."""
    newest, oldest = group[0], group[-1]
    codes = list(dict.fromkeys(lock_code_of(row) for row in group))
    holders = list(dict.fromkeys(say_holder(row) for row in group))
    more = f" … (+{len(holders) - HOLDERS_MAX})" if len(holders) > HOLDERS_MAX else ""
    return Row(
        cells=[
            Cell(at=oldest.started_at, url=url("change", oldest.pk)),
            Cell(at=newest.started_at, url=url("change", newest.pk)),
            Cell(text=f"{len(group)}+" if goes_on else len(group), is_number=True),
            Cell(text=timesince(oldest.started_at, newest.started_at) if len(group) > 1 else NONE),
            Cell(text=", ".join(codes), is_code=True),
            Cell(text=" | ".join(holders[:HOLDERS_MAX]) + more),
        ],
        key=str(newest.pk),
    )
