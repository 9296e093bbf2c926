"""Deliveries: which worker sent how much over how many lanes, and when each was last heard of."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from kwit.admin.base import ReadOnlyAdmin
from kwit.admin.components import NONE, Badge, Cell, Detail, Fact, Row, Section

from ..delivery.run_log import BEAT_S, COUNTS
from ..models import Delivery
from .badges import OUTCOMES, STATES, line_of

#: A delivery says something every few seconds, but may wait as long for its mail server.
SILENT_AFTER = timedelta(seconds=120 + 2 * BEAT_S)
SILENT = Badge(_("not heard of"), "†", "bad")
COUNT_NAMES = {
    "partial": _("partly sent"),
    "retried": _("to be tried again"),
    "held": _("held"),
}


def state_of(row: Delivery, now: datetime) -> Badge:
    """Return how a delivery is."""
    if row.ended_at is None:
        return SILENT if row.seen_at < now - SILENT_AFTER else OUTCOMES["running"]
    return OUTCOMES["error"] if row.error else OUTCOMES["ok"]


@admin.register(Delivery)
class DeliveryAdmin(ReadOnlyAdmin):
    """What each delivery did, and whether its worker is still there."""

    intro = _("One line per delivery that found something to do, newest first; a worker that idles keeps its last one.")
    empty_text = _("Nothing has been delivered yet.")
    label_field = "worker"
    head = (
        _("started"),
        _("outcome"),
        _("sent"),
        _("to be tried again"),
        _("failed"),
        _("uncertain"),
        _("lanes"),
        _("worker"),
        _("last seen"),
        _("what happened"),
    )
    numbers = frozenset({2, 3, 4, 5, 6})

    def rows(self, request: HttpRequest, found: Sequence[Any]) -> list[Row]:
        """Return one line per delivery."""
        return [Row(cells=self.cells(row), key=str(row.pk), name=row.worker) for row in found]

    def cells(self, row: Delivery) -> list[Cell]:
        """Return a delivery's cells."""
        return [
            Cell(at=row.started_at, url=self.url("change", row.pk)),
            Cell(badge=state_of(row, timezone.now())),
            *(Cell(text=getattr(row, name), is_number=True) for name in ("sent", "retried", "failed", "uncertain")),
            Cell(text=row.lanes, is_number=True),
            Cell(text=row.worker),
            Cell(at=row.seen_at),
            Cell(text=line_of(row.error)),
        ]

    def detail(self, request: HttpRequest, row: Any) -> Detail:
        """Return a delivery in full."""
        cells = self.cells(row)
        facts = [
            Fact(name=_("worker"), cell=Cell(text=row.worker)),
            Fact(name=_("lanes"), cell=Cell(text=row.lanes)),
            Fact(name=_("started"), cell=Cell(at=row.started_at)),
            Fact(name=_("last seen"), cell=Cell(at=row.seen_at)),
            Fact(name=_("ended"), cell=Cell(at=row.ended_at) if row.ended_at else Cell(text=NONE)),
        ]
        counts = [
            Fact(name=COUNT_NAMES.get(name) or STATES[name].word, cell=Cell(text=getattr(row, name))) for name in COUNTS
        ]
        sections = [Section(facts=facts), Section(title=_("Mails"), facts=counts)]
        if row.error:
            sections.append(Section(title=_("What happened"), text=row.error))
        return Detail(title=row.worker, badge=cells[1].badge, sections=sections)
