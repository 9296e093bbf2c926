"""Reconcile all: asked for once more, started as a process of its own, and watched."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import router, transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from kwit.admin.actions import Confirmation, record_action, start_command
from kwit.admin.base import ReadOnlyAdmin
from kwit.admin.components import NONE, Badge, Cell, Detail, Fact, Link, Row, Section, Table
from kwit.admin.keyset import count_up_to
from kwit.db.fields import UtcNow
from kwit.people.tenants import tenants_of

from ..models import Change, ReconciliationRun
from ..plans.model import ACTOR_CHARS_MAX
from ..querysets import RunOutcome
from ..reconcile import filter_receipts
from ..runs import DIED_AFTER, ask_for_run, scope_of
from .badges import RUNS, url

RECONCILE_PERMISSION = "receipts.reconcile"
RESULTS_PERMISSION = "receipts.view_reconciliation"
#: Seconds between two looks at a run.
REFRESH_S = 2
#: The confirmation counts so far; it then says "more than".
COUNT_MAX = 10_000
STARTING = Badge(gettext_lazy("starting"), "…", "busy")


def outcome_of(run: Any) -> Badge:
    """Return how a run stands; one whose process is silent for long has died. ``run.now`` is the database's clock."""
    if run.outcome == RunOutcome.RUNNING:
        if run.now - run.beat_at > DIED_AFTER:
            return RUNS[RunOutcome.DIED]
        return STARTING if run.pid is None else RUNS[RunOutcome.RUNNING]
    return RUNS[run.outcome]


@admin.register(ReconciliationRun)
class ReconciliationRunAdmin(ReadOnlyAdmin):
    """Comparisons of all receipts with their rows."""

    intro = gettext_lazy("One line per comparison of all receipts, newest first.")
    empty_text = gettext_lazy("Nobody has compared all receipts yet.")
    head = (
        gettext_lazy("started"),
        gettext_lazy("by"),
        gettext_lazy("outcome"),
        gettext_lazy("compared"),
        gettext_lazy("of"),
        gettext_lazy("differ"),
        gettext_lazy("ended"),
    )
    numbers = frozenset({3, 4, 5})

    #: Whose runs they are stands in their scope.
    is_for_everybody = True

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Whoever sees reconciliations sees the runs that have made them."""
        return request.user.has_perm(RESULTS_PERMISSION)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the runs over the reader's own tenants, with the database's time."""
        runs: QuerySet[Any] = super().get_queryset(request).annotate(now=UtcNow())
        tenants = tenants_of(request.user)
        return runs if tenants is None else runs.filter(scope=scope_of(tenants))

    def links(self, request: HttpRequest) -> Sequence[Link]:
        """Return the way to a new one."""
        found = [Link(_("Single reconciliations"), url("reconciliation"))]
        if request.user.has_perm(RECONCILE_PERMISSION):
            found.append(Link(_("Reconcile all"), url("reconciliationrun", "start")))
        return found

    def rows(self, request: HttpRequest, found: Sequence[Any]) -> list[Row]:
        """Return one line per run."""
        return [Row(cells=self.cells(run)) for run in found]

    def cells(self, run: Any) -> list[Cell]:
        """Return a run's cells."""
        bar = 100 * min(run.done / run.total, 1) if run.total else None
        return [
            Cell(at=run.started_at, url=self.url("change", run.pk)),
            Cell(text=run.actor),
            Cell(badge=outcome_of(run)),
            Cell(text=run.done, is_number=True, bar=bar),
            Cell(text=NONE if run.total is None else run.total, is_number=True),
            Cell(text=run.differing, is_number=True, url=url("change", differs=1)),
            Cell(at=run.ended_at) if run.ended_at else Cell(text=NONE),
        ]

    def detail(self, request: HttpRequest, row: Any) -> Detail:
        """Return how far a run is, and whether its process lives."""
        badge = outcome_of(row)
        facts = [Fact(name=name, cell=cell) for name, cell in zip(self.head, self.cells(row), strict=True)]
        process = f"{row.host or '?'} · {row.pid or '?'}"
        facts += [
            Fact(name=_("last sign of life"), cell=Cell(at=row.beat_at)),
            Fact(name=_("host and process"), cell=Cell(text=process)),
            Fact(name=_("tenants"), cell=Cell(text=", ".join(row.tenants) if row.tenants else _("all"))),
        ]
        if row.undeclared:
            facts.append(Fact(name=_("of a kind no longer declared"), cell=Cell(text=row.undeclared)))
        sections = [Section(facts=facts)]
        if badge == RUNS[RunOutcome.DIED]:
            sections.append(Section(lines=[DIED_TEXT]))
        if row.error:
            sections.append(Section(title=_("What happened"), text=row.error))
        return Detail(
            title=_("Reconciliation of all, %s") % row,
            badge=badge,
            sections=sections,
            links=[Link(_("Receipts that differ"), url("change", differs=1)), *self.links(request)],
            refresh_s=REFRESH_S if badge in (STARTING, RUNS[RunOutcome.RUNNING]) else 0,
        )

    def get_urls(self) -> list[URLPattern]:
        """Add the start, which commits by itself: the process it starts must see the row."""
        start = transaction.non_atomic_requests(self.admin_site.admin_view(self.start_view))
        return [path("start/", start, name=self.url_name("start")), *super().get_urls()]

    def start_view(self, request: HttpRequest) -> HttpResponse:
        """Ask, then start a run; when one is under way already, show that."""
        if not request.user.has_perm(RECONCILE_PERMISSION) or not self.has_view_permission(request):
            raise PermissionDenied
        tenants = tenants_of(request.user)
        if request.method == "POST" and "confirmed" in request.POST and tenants != frozenset():
            return self.start(request, tenants)
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "POST"])
        rows = filter_receipts(tenants, router.db_for_read(Change) or "default")
        number = count_up_to(rows, most=COUNT_MAX)
        running = list(self.get_queryset(request).filter(outcome=RunOutcome.RUNNING).order_by("-pk")[:5])
        asked = Confirmation(
            title=_("Reconcile all"),
            question=question_of(number),
            explains=_(
                "Each receipt is compared with its rows as they are now, and each result is kept. Nothing is changed "
                "otherwise. It runs in a process of its own, which may take long; its page says how far it is."
            ),
            button=_("Reconcile all"),
            number=number,
            notes=[_("One is under way; you will be shown that one.")] if running else [],
            hidden=[("confirmed", "1")],
            table=Table(head=self.head, rows=self.rows(request, running), numbers=self.numbers),
            back=self.url("changelist"),
        )
        context = self.context(request, title=asked.title, asked=asked, named_rows=COUNT_MAX + 1)
        return TemplateResponse(request, "kwit/confirm.html", context)

    def start(self, request: HttpRequest, tenants: frozenset[str] | None) -> HttpResponse:
        """Start a run unless there is one, and lead to it."""
        actor, alias = request.user.get_username(), router.db_for_write(ReconciliationRun)
        run, is_new = ask_for_run(tenants=tenants, actor=actor[:ACTOR_CHARS_MAX], using=alias)
        if not is_new:
            messages.info(request, _("This one is under way already, started by %s.") % (run.actor or "?"))
            return redirect(self.url("change", run.pk))
        tenant = next(iter(tenants)) if tenants is not None and len(tenants) == 1 else ""
        try:
            with record_action(
                actor=actor,
                name="reconcile_all",
                subject=self.opts.label_lower,
                scope=str(run.pk),
                asked=1,
                tenant=tenant,
            ) as doing:
                start_command("reconcile", "--all", "--json", "--run", str(run.pk), "--database", alias)
                doing.done = 1
        except OSError as error:
            runs = ReconciliationRun.objects.using(alias)
            runs.try_end(run.pk, outcome=RunOutcome.FAILED, error=f"no process could be started: {error}")
        return redirect(self.url("change", run.pk))


DIED_TEXT = gettext_lazy(
    "Its process has not been heard of for two minutes: it was killed, or its host has stopped. What it had compared "
    "is kept. Start it again to compare all."
)


def question_of(number: int) -> str:
    """Return the question with the number of receipts, as far as they are counted."""
    if number > COUNT_MAX:
        return _("Compare more than %d receipts with their rows?") % COUNT_MAX
    return ngettext("Compare %d receipt with its rows?", "Compare %d receipts with their rows?", number) % number
