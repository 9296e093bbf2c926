"""Run history: one line per pass with its steps folded below; skipped runs; a pass started by hand."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlencode
from uuid import UUID, uuid4

from django.contrib import admin
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import router, transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from kwit.admin.actions import Confirmation, record_action, start_command
from kwit.admin.base import ReadOnlyAdmin
from kwit.admin.components import NONE, Badge, Cell, Detail, Fact, Link, Row, Section, Table, Text
from kwit.admin.filters import (
    ChoiceFilter,
    DateTimeFilter,
    FilterValues,
    FlagFilter,
    Rows,
    UuidFilter,
    equals,
    parse_integer,
)
from kwit.admin.keyset import AFTER, BEFORE, beyond, ordered, page_of

from ..explain.messages import say_logged
from ..models import MailQueue, Outcome, RunLog, TaskQueue
from .badges import DIED, OUTCOMES, kinds, line_of, outcome_of
from .skipped_runs import SKIPS_PER_PAGE, skip_rows

ORDER = ("-started_at", "-id")
DIED_NAME = "died"
#: Seconds between two refreshes of a running pass.
REFRESH_S = 2
#: Seconds after which a pass that has not begun is not going to.
BEGIN_S = 30
RUN_PERMISSION = "notify.run_pass"


def outcomes() -> Iterable[tuple[str, Text]]:
    """Return what can be asked for: every outcome, and the passes that died."""
    return [*((name, badge.word) for name, badge in OUTCOMES.items()), (DIED_NAME, DIED.word)]


def with_outcome(rows: Rows, name: str) -> Rows:
    """Return the rows with an outcome."""
    # Ended without a measured duration: said this way, the partial index of such rows is the obvious one.
    return rows.filter(ms__isnull=True, ended_at__isnull=False) if name == DIED_NAME else rows.filter(outcome=name)


@admin.register(RunLog)
class RunLogAdmin(ReadOnlyAdmin):
    """What each pass and each of its steps did."""

    intro = gettext_lazy("One line per pass, newest first. Open a line to see its steps.")
    head = (
        gettext_lazy("started"),
        gettext_lazy("step"),
        gettext_lazy("outcome"),
        gettext_lazy("candidates"),
        gettext_lazy("mails"),
        gettext_lazy("tasks"),
        gettext_lazy("ms"),
        gettext_lazy("what happened"),
    )
    numbers = frozenset({3, 4, 5, 6})
    filters = (
        ChoiceFilter("outcome", gettext_lazy("Outcome"), with_outcome, choices=outcomes),
        ChoiceFilter("step", gettext_lazy("Step"), equals("step"), choices=kinds),
        DateTimeFilter("since", gettext_lazy("From"), equals("started_at__gte")),
        DateTimeFilter("until", gettext_lazy("To"), equals("started_at__lte"), is_end=True),
        FlagFilter("work", gettext_lazy("Only with work"), lambda rows, value: rows.filter(candidates__gt=0)),
        UuidFilter("pass", gettext_lazy("Pass"), equals("pass_id")),
    )

    def order_for(self, asked: FilterValues) -> Sequence[str]:
        """Return newest first; each filter has an index with this order."""
        return ORDER

    def list_queryset(self, request: HttpRequest, asked: FilterValues) -> QuerySet[Any]:
        """Return whole passes, or one step's rows when a step is asked for."""
        rows = self.get_queryset(request)
        return rows if "step" in asked.values else rows.filter(step=RunLog.WHOLE)

    def links(self, request: HttpRequest) -> Sequence[Link]:
        """Return the ways to skipped runs and to a pass started by hand."""
        found = [
            Link(_("Skipped runs"), self.url("skipped")),
            Link(_("Died passes"), self.url("changelist", outcome="died")),
        ]
        if request.user.has_perm(RUN_PERMISSION):
            found.append(Link(_("Run a pass now"), self.url("run")))
        return found

    def rows(self, request: HttpRequest, found: Sequence[Any]) -> list[Row]:
        """Return the passes, each with its steps."""
        steps = self.steps_of([row.pass_id for row in found if row.step == RunLog.WHOLE])
        longest = max((row.ms or 0 for row in found), default=0)
        return [self.row(row, longest=longest, steps=steps.get(row.pass_id, [])) for row in found]

    def steps_of(self, passes: Sequence[UUID]) -> dict[UUID, list[RunLog]]:
        """Return the steps of these passes in the order they ran; one query."""
        steps: dict[UUID, list[RunLog]] = defaultdict(list)
        rows = self.model._default_manager.filter(pass_id__in=passes).exclude(step=RunLog.WHOLE)
        for step in rows.order_by("pk"):
            steps[step.pass_id].append(step)
        return steps

    def row(self, row: RunLog, *, longest: int, steps: Sequence[RunLog] = ()) -> Row:
        """Return one line."""
        fold = None
        if steps:
            slowest = max(step.ms or 0 for step in steps)
            fold = Table(head=self.head, rows=[self.row(s, longest=slowest) for s in steps], numbers=self.numbers)
        return Row(
            cells=self.cells(row, longest=longest),
            key=str(row.pk),
            name=f"{row.started_at:%Y-%m-%d %H:%M:%S} {row.step}",
            fold=fold,
            fold_name=ngettext("%d step", "%d steps", len(steps)) % len(steps),
        )

    def cells(self, row: RunLog, *, longest: int) -> list[Cell]:
        """Return a row's cells; numbers lead to what they count."""
        ms = NONE if row.ms is None else row.ms
        bar = 100 * row.ms / longest if row.ms is not None and longest else None
        return [
            Cell(at=row.started_at, url=self.url("change", row.pk)),
            Cell(text=_("all") if row.step == RunLog.WHOLE else row.step),
            Cell(badge=outcome_of(row)),
            Cell(text=row.candidates, is_number=True),
            Cell(text=row.mails, is_number=True),
            Cell(text=row.tasks, is_number=True),
            Cell(text=ms, is_number=True, bar=bar),
            Cell(text=line_of(say_logged(row))),
        ]

    def detail(self, request: HttpRequest, row: Any) -> Detail:
        """Return a pass or a step in full."""
        sections = [Section(facts=self.facts(request, row))]
        if row.error:
            sections.append(Section(title=_("What happened"), text=say_logged(row)))
        if row.step == RunLog.WHOLE:
            steps = self.steps_of([row.pass_id]).get(row.pass_id, [])
            slowest = max((step.ms or 0 for step in steps), default=0)
            table = Table(head=self.head, rows=[self.row(s, longest=slowest) for s in steps], numbers=self.numbers)
            sections.append(Section(title=_("Steps"), table=table))
        name = _("Pass") if row.step == RunLog.WHOLE else row.step
        return Detail(
            title=f"{name} {timezone.localtime(row.started_at):%Y-%m-%d %H:%M:%S}",
            badge=outcome_of(row),
            sections=sections,
            previous=self.neighbour(request, row, _("Previous pass"), backwards=False),
            next=self.neighbour(request, row, _("Next pass"), backwards=True),
            refresh_s=REFRESH_S if row.outcome == Outcome.RUNNING else 0,
        )

    def facts(self, request: HttpRequest, row: RunLog) -> list[Fact]:
        """Return what is known of a row."""
        prepared = {"pass": str(row.pass_id)}
        mails = self.url_if_allowed(request, MailQueue, "changelist", **prepared)
        tasks = self.url_if_allowed(request, TaskQueue, "changelist", **prepared)
        return [
            Fact(name=_("outcome"), cell=Cell(badge=outcome_of(row))),
            Fact(name=_("started"), cell=Cell(at=row.started_at)),
            Fact(name=_("ended"), cell=Cell(at=row.ended_at) if row.ended_at else Cell(text=NONE)),
            Fact(name=_("ms"), cell=Cell(text=NONE if row.ms is None else row.ms)),
            Fact(name=_("candidates"), cell=Cell(text=row.candidates)),
            Fact(name=_("mails"), cell=Cell(text=row.mails, url=mails)),
            Fact(name=_("tasks"), cell=Cell(text=row.tasks, url=tasks)),
            Fact(name=_("scanned all events"), cell=Cell(text=_("yes") if row.is_full else _("no"))),
            Fact(name=_("host and process"), cell=Cell(text=f"{row.host or '?'} · {row.pid or '?'}")),
            Fact(
                name=_("pass id"),
                cell=Cell(text=row.pass_id, is_code=True, url=self.url("pass", row.pass_id)),
            ),
        ]

    def neighbour(self, request: HttpRequest, row: RunLog, text: str, *, backwards: bool) -> Link | None:
        """Return the way to the pass (or the same step's row) before or after this one."""
        rows = self.get_queryset(request).filter(step=row.step)
        place = f"{row.started_at.isoformat()}~{row.pk}"
        found = ordered(beyond(rows, ORDER, place, backwards=backwards), ORDER, backwards=backwards).first()
        return None if found is None else Link(text, self.url("change", found.pk))

    # Pages beside the list.

    def get_urls(self) -> list[URLPattern]:
        """Add the skipped runs, the pass by its id, and the pass started by hand."""
        wrap = self.admin_site.admin_view
        return [
            path("skipped/", wrap(self.skipped_view), name=self.url_name("skipped")),
            path("pass/<uuid:pass_id>/", wrap(self.pass_view), name=self.url_name("pass")),
            path("run/", transaction.non_atomic_requests(wrap(self.run_view)), name=self.url_name("run")),
            *super().get_urls(),
        ]

    def skipped_view(self, request: HttpRequest) -> HttpResponse:
        """Show skipped passes, those in a row as one line."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        rows = self.get_queryset(request).filter(step=RunLog.WHOLE, outcome=Outcome.SKIPPED)
        place = {name: request.GET.get(name, "") for name in (AFTER, BEFORE)}
        page = page_of(rows, order=ORDER, size=SKIPS_PER_PAGE, **place)
        older = list(ordered(beyond(rows, ORDER, page.next), ORDER)[:1]) if page.next else []
        newer = beyond(rows, ORDER, page.previous, backwards=True) if page.previous else rows.none()
        beside = [*older, *ordered(newer, ORDER, backwards=True)[:1]]
        context = self.context(
            request,
            title=_("Skipped runs"),
            intro=_("A pass is skipped when another one holds the lock. Skips in a row are one line."),
            nothing=_("No pass was skipped."),
            table=Table(head=SKIP_HEAD, rows=skip_rows(page.rows, beside=beside, url=self.url), numbers=frozenset({2})),
            next_query=urlencode({AFTER: page.next}) if page.next else "",
            previous_query=urlencode({BEFORE: page.previous}) if page.previous else "",
        )
        return TemplateResponse(request, "kwit/list.html", context)

    def pass_view(self, request: HttpRequest, pass_id: UUID) -> HttpResponse:
        """Lead to a pass by its id; one that was just started may not have begun."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        whole = self.get_queryset(request).filter(pass_id=pass_id, step=RunLog.WHOLE).first()
        if whole is not None:
            return redirect(self.url("change", whole.pk))
        tried = waited_s(request.GET.get("tried", ""))
        is_waiting = tried < BEGIN_S
        text = (
            _("The process has been started; the pass has not written its row yet.")
            if is_waiting
            else _(
                "No pass of this id is in the run log. If it was started here, its process ended before it could "
                "write: look into the log of the web server."
            )
        )
        page = Detail(
            title=_("Pass"),
            badge=Badge(_("starting"), "…", "busy") if is_waiting else None,
            sections=[Section(facts=[Fact(name=_("pass id"), cell=Cell(text=pass_id, is_code=True))], text=text)],
            refresh_s=REFRESH_S if is_waiting else 0,
        )
        refresh_url = self.url("pass", pass_id, tried=tried + REFRESH_S)
        context = self.context(request, title=page.title, detail=page, refresh_url=refresh_url)
        return TemplateResponse(request, "kwit/detail.html", context)

    def run_view(self, request: HttpRequest) -> HttpResponse:
        """Ask, then start a pass in a process of its own."""
        if not request.user.has_perm(RUN_PERMISSION) or not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST" and "confirmed" in request.POST:
            pass_id = uuid4()
            actor = request.user.get_username()
            with record_action(
                actor=actor, name="run_pass", subject=self.opts.label_lower, scope=str(pass_id), asked=1
            ) as doing:
                alias = router.db_for_write(RunLog)
                start_command("notify_pass", "--json", "--pass-id", str(pass_id), "--database", alias)
                doing.done = 1
            return redirect(self.url("pass", pass_id, tried=0))
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "POST"])
        running = self.get_queryset(request).filter(step=RunLog.WHOLE, outcome=Outcome.RUNNING).order_by("-pk")[:1]
        asked = Confirmation(
            title=_("Run a pass now"),
            question=_("Run a pass now?"),
            explains=_(
                "It looks for events with all steps and queues one message for each. It runs in a process of its own; "
                "if another pass holds the lock, it is logged as skipped."
            ),
            button=_("Run a pass now"),
            notes=[_("A pass is running at this moment.")] if running else [],
            hidden=[("confirmed", "1")],
            table=Table(head=self.head, rows=self.rows(request, list(running)), numbers=self.numbers),
            back=self.url("changelist"),
        )
        return TemplateResponse(request, "kwit/confirm.html", self.context(request, title=asked.title, asked=asked))


SKIP_HEAD = (
    gettext_lazy("from"),
    gettext_lazy("to"),
    gettext_lazy("skipped"),
    gettext_lazy("for"),
    gettext_lazy("code"),
    gettext_lazy("held by"),
)


def waited_s(text: str) -> int:
    """Return for how many seconds the page of a new pass has waited. Raises: BadRequest."""
    try:
        return min(abs(parse_integer(text)), BEGIN_S) if text else BEGIN_S
    except ValueError as error:
        raise BadRequest("tried is not a number of seconds") from error
