"""What receipts contribute to the dashboard: bounded counts, each leading to the list behind it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from kwit.admin.components import Finding, Tile
from kwit.admin.dashboard import Panel, PanelContent, register
from kwit.admin.filters import day_edge
from kwit.admin.keyset import count_text, count_up_to
from kwit.admin.time_ranges import TimeRange
from kwit.people.tenants import of_model

from ..models import Change, Verdict
from ..querysets import Found
from .badges import BROKEN, DIFFERS, NEVER, receipt_url, url

#: Counts go this far; the page then says "more than".
COUNT_MAX = 1000
#: Receipts looked at from either end for the oldest that was never compared.
LOOKED_AT = 1000
#: After so long, a receipt should have been compared with its rows once.
NORMAL = timedelta(days=7)


@dataclass(frozen=True)
class Figures:
    """How receipts stand now; counts go up to ``COUNT_MAX`` + 1."""

    today: int
    since: datetime
    differing: int
    broken: int
    #: change_id and time of the oldest receipt that was never compared with its rows.
    oldest: tuple[str, datetime] | None


def figures_of(request: HttpRequest, *, now: datetime) -> Figures:
    """Return the figures of the reader's tenants; five queries."""
    receipts = of_model(request.user, Change)
    since = day_edge(timezone.localdate(now), is_end=False)
    verdicts = of_model(request.user, Verdict)
    return Figures(
        today=count_up_to(receipts.filter(created_at__gte=since), most=COUNT_MAX),
        since=since,
        differing=count_up_to(verdicts.filter(found=Found.DIFFERS), most=COUNT_MAX),
        broken=count_up_to(verdicts.filter(found=Found.BROKEN), most=COUNT_MAX),
        oldest=oldest_never_compared(receipts),
    )


def oldest_never_compared(receipts: QuerySet[Any]) -> tuple[str, datetime] | None:
    """
    Return the oldest receipt without a verdict among the oldest and the newest ones; two queries.

    They lie at the old end where nobody reconciles, and at the new end where somebody does.
    """
    for order in (("created_at", "change_id"), ("-created_at", "-change_id")):
        some = receipts.order_by(*order).values("pk")[:LOOKED_AT]
        lacking = Change.objects.filter(~Exists(Verdict.objects.filter(pk=OuterRef("pk"))), pk__in=some)
        if found := lacking.order_by("created_at", "change_id").values_list("change_id", "created_at").first():
            change_id, created_at = found
            return change_id, created_at
    return None


def build_receipts(request: HttpRequest, window: TimeRange) -> PanelContent:
    """Build the panel of the receipts; six queries."""
    found = figures_of(request, now=window.now)
    tiles = [
        Tile(
            _("receipts today"),
            count_text(found.today, most=COUNT_MAX),
            url("change", since=found.since.isoformat(timespec="seconds")),
        ),
        Tile(
            _("differ from their rows"),
            count_text(found.differing, most=COUNT_MAX),
            url("change", differs=1),
            badge=DIFFERS,
        ),
    ]
    if found.broken:
        tiles.append(Tile(_("broken"), count_text(found.broken, most=COUNT_MAX), url("change", broken=1), badge=BROKEN))
    if found.oldest is not None:
        ago = _("%s ago") % timesince(found.oldest[1], window.now)
        tiles.append(Tile(_("oldest never compared"), ago, receipt_url(found.oldest[0]), badge=NEVER))
    return PanelContent(context={"tiles": tiles}, findings=list(findings_of(found, window.now)))


def findings_of(found: Figures, now: datetime) -> Iterator[Finding]:
    """Yield what is not well."""
    if found.broken:
        text = ngettext(
            "%s receipt disagrees with its own audit rows.",
            "%s receipts disagree with their own audit rows.",
            found.broken,
        )
        what_to_do = _(
            "Somebody has changed the tables of receipts, or restored a part of them. Compare them with a backup and "
            "with the sealed log."
        )
        yield Finding(
            badge=BROKEN,
            text=text % count_text(found.broken, most=COUNT_MAX),
            what_to_do=what_to_do,
            url=url("change", broken=1),
        )
    if found.differing:
        text = ngettext(
            "The rows of %s receipt are not as it says.",
            "The rows of %s receipts are not as they say.",
            found.differing,
        )
        what_to_do = _("Open what differs, and ask who changed the rows since; then reconcile the receipt again.")
        yield Finding(
            badge=DIFFERS,
            text=text % count_text(found.differing, most=COUNT_MAX),
            what_to_do=what_to_do,
            url=url("change", differs=1),
        )
    if found.oldest is not None and now - found.oldest[1] > NORMAL:
        text = _("A receipt has not been compared with its rows for %s.") % timesince(found.oldest[1], now)
        what_to_do = _("Reconcile all now, and let manage.py reconcile --all --record run every night.")
        yield Finding(badge=NEVER, text=text, what_to_do=what_to_do, url=receipt_url(found.oldest[0]))


register(
    Panel(
        name="receipts",
        title=gettext_lazy("Receipts"),
        template="kwit/tiles_panel.html",
        permission="receipts.view_change",
        is_for_tenants=True,
        build=build_receipts,
    )
)
