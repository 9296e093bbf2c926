"""The order lines, and the draft of a plan from those that somebody selects: what a host project writes."""

from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib import admin
from django.db import router
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kwit.admin.base import ReadOnlyAdmin
from kwit.admin.components import NONE, Badge, Cell, Detail, Fact, Link, Row, Section, Text
from kwit.admin.filters import ChoiceFilter, Filter, equals
from notify.models import Control
from notify.pages.explain import explain_url
from receipts.models import StoredPlan
from receipts.pages.plan_drafts import plan_action

from .models import LineState, OrderLine
from .notifications import CommentAdded, LineRejected, OrderRegistered

STATES: dict[str, Badge] = {
    LineState.PENDING: Badge(gettext_lazy("pending"), "…", "busy"),
    LineState.ACCEPTED: Badge(gettext_lazy("accepted"), "✓", "good"),
    LineState.REJECTED: Badge(gettext_lazy("rejected"), "✗", "bad"),
    LineState.CANCELLED: Badge(gettext_lazy("cancelled"), "■", "idle"),
}


def states() -> Iterable[tuple[str, Text]]:
    """Return the states as choices."""
    return [(name, badge.word) for name, badge in STATES.items()]


@admin.register(OrderLine)
class OrderLineAdmin(ReadOnlyAdmin):
    """What is ordered, and how far each line has come."""

    intro = gettext_lazy(
        "The newest stands first. Select pending lines, or filter for them, to plan their cancellation."
    )
    head = (
        gettext_lazy("line"),
        gettext_lazy("order"),
        gettext_lazy("tenant"),
        gettext_lazy("item"),
        gettext_lazy("quantity"),
        gettext_lazy("revision"),
        gettext_lazy("state"),
    )
    #: Leads from a line to its tenant.
    tenant_lookup = "tenant"
    names_tenants = True
    numbers = frozenset({4, 5})
    filters = (
        Filter("tenant", gettext_lazy("Tenant"), equals("tenant")),
        Filter("order", gettext_lazy("Order"), equals("order__number")),
        ChoiceFilter("state", gettext_lazy("State"), equals("state"), choices=states),
    )
    list_actions = (
        plan_action(kind="cancel", label=gettext_lazy("Plan their cancellation")),
        plan_action(kind="accept", label=gettext_lazy("Plan their acceptance")),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the lines of the user's tenants, from the database in which changes are applied to them."""
        return super().get_queryset(request).using(router.db_for_read(StoredPlan)).select_related("order")

    def rows(self, request: HttpRequest, found: Sequence[Any]) -> list[Row]:
        """Return one line per order line."""
        return [Row(cells=self.cells(line), key=str(line.pk), name=str(line)) for line in found]

    def cells(self, line: OrderLine) -> list[Cell]:
        """Return a line's cells."""
        return [
            Cell(text=line.pk, url=self.url("change", line.pk)),
            Cell(text=line.order.number, url=self.url("changelist", order=line.order.number)),
            Cell(text=line.tenant),
            Cell(text=line.item),
            Cell(text=NONE if line.qty is None else line.qty, is_number=True),
            Cell(text=line.revision, is_number=True),
            Cell(badge=STATES[line.state]),
        ]

    def detail(self, request: HttpRequest, row: Any) -> Detail:
        """Return a line in full."""
        facts = [Fact(name=name, cell=cell) for name, cell in zip(self.head, self.cells(row), strict=True)]
        sections = [Section(facts=facts)]
        if row.reason:
            sections.append(Section(title=_("Reason"), text=row.reason))
        links = self.explanations(request, row)
        return Detail(title=_("Line %d") % row.pk, badge=STATES[row.state], sections=sections, links=links)

    def explanations(self, request: HttpRequest, row: OrderLine) -> list[Link]:
        """Return the ways to why somebody was, or was not, notified of a line and of its order."""
        if row._state.db != router.db_for_read(Control):
            return []  # notifications have rows of their own, in a database of their own
        events = {CommentAdded.kind: row.pk, LineRejected.kind: row.pk, OrderRegistered.kind: row.order_id}
        ways = ((kind, explain_url(self, request, kind=kind, key=key)) for kind, key in events.items())
        return [Link(_("Explain: %s") % kind, url) for kind, url in ways if url]
