"""Plans that wait for two people: upload, preview against the rows of now, approve, apply, and the conflict."""

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import connections, transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, URLPattern, path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.csrf import csrf_exempt, csrf_protect

from kwit.admin.base import ReadOnlyAdmin
from kwit.admin.components import NONE, Cell, Detail, Fact, Link, Row, Section
from kwit.admin.filters import ChoiceFilter, Filter, FilterValues, FlagFilter, NumberFilter, equals, parse_filters
from kwit.exports import csv_lines

from ..change_types import get_kind
from ..errors import UnknownKind
from ..models import Change, StoredPlan
from ..people import APPROVE_PERMISSION
from ..plans.canonical import FieldTarget
from ..plans.model import COLUMNS, Plan
from ..querysets import PlanState
from .badges import key_of
from .field_tables import columns_of
from .plan_badges import STATES, kinds, states
from .plan_decisions import (
    APPLY_PERMISSION,
    apply_page,
    approve_page,
    may_approve,
    may_withdraw,
    reject_page,
    withdraw_page,
)
from .plan_drafts import AGAIN_STATES, again_page
from .plan_forms import quota_of
from .plan_preview import content_of, part_of, section_of, sheet_of, verdict_of
from .plan_upload import ADD_PERMISSION, UNSETTLED, edit_page, may_edit, upload_page

#: What a plan's own page is asked: only the targets that fail, and the id after which its targets begin.
VIEW = (
    FlagFilter("failing", gettext_lazy("Only failing"), lambda rows, value: rows),
    NumberFilter("after", gettext_lazy("After"), lambda rows, value: rows),
)


@admin.register(StoredPlan)
class StoredPlanAdmin(ReadOnlyAdmin):
    """Which changes are planned, by whom, approved by whom, and what became of them."""

    intro = gettext_lazy("A plan is written by one person and approved by another. The newest stands first.")
    empty_text = gettext_lazy("There is no such plan.")
    head = (
        gettext_lazy("change id"),
        gettext_lazy("state"),
        gettext_lazy("kind"),
        gettext_lazy("tenant"),
        gettext_lazy("targets"),
        gettext_lazy("author"),
        gettext_lazy("approver"),
        gettext_lazy("written"),
        gettext_lazy("settled"),
    )
    #: Leads from a plan to its tenant.
    tenant_lookup = "tenant"
    names_tenants = True
    numbers = frozenset({4})
    filters = (
        ChoiceFilter("state", gettext_lazy("State"), equals("state"), choices=states),
        ChoiceFilter("kind", gettext_lazy("Kind"), equals("kind"), choices=kinds),
        Filter("tenant", gettext_lazy("Tenant"), equals("tenant")),
        Filter("change_id", gettext_lazy("Change id"), equals("change_id")),
    )

    def list_queryset(self, request: HttpRequest, asked: FilterValues) -> QuerySet[Any]:
        """Leave out what may be long: a page of lines would read half a million targets."""
        return self.get_queryset(request).defer("targets", "problems", "reason")

    def get_urls(self) -> list[URLPattern]:
        """Add the pages that write; they commit by themselves, so no request-wide transaction around them."""
        return [
            self.address("upload/", self.upload_view, "upload"),
            self.address("template.csv", self.template_view, "template"),
            self.address("<int:pk>/targets.csv", self.targets_view, "targets"),
            self.address("<int:pk>/edit/", self.edit_view, "edit"),
            self.address("<int:pk>/approve/", self.approve_view, "approve"),
            self.address("<int:pk>/reject/", self.reject_view, "reject"),
            self.address("<int:pk>/withdraw/", self.withdraw_view, "withdraw"),
            self.address("<int:pk>/apply/", self.apply_view, "apply"),
            self.address("<int:pk>/again/", self.again_view, "again"),
            *super().get_urls(),
        ]

    def address(self, route: str, view: Callable[..., HttpResponse], name: str) -> URLPattern:
        """Return an address of this class."""
        wrapped = self.admin_site.admin_view(view)
        # Of each database: the one of receipts may be none of the site's.
        for alias in connections:
            wrapped = transaction.non_atomic_requests(alias)(wrapped)
        return path(route, wrapped, name=self.url_name(name))

    def links(self, request: HttpRequest) -> Sequence[Link]:
        """Return the way to a new plan."""
        return [Link(_("Upload a plan"), self.url("upload"))] if request.user.has_perm(ADD_PERMISSION) else []

    def rows(self, request: HttpRequest, found: Sequence[Any]) -> list[Row]:
        """Return one line per plan."""
        return [Row(cells=self.cells(plan), key=str(plan.pk), name=plan.change_id) for plan in found]

    def cells(self, plan: StoredPlan) -> list[Cell]:
        """Return a plan's cells."""
        return [
            Cell(text=plan.change_id, url=self.url("change", plan.pk)),
            Cell(badge=STATES[plan.state]),
            Cell(text=plan.kind),
            Cell(text=plan.tenant),
            Cell(text=NONE if plan.target_count is None else plan.target_count, is_number=True),
            Cell(text=plan.author),
            Cell(text=plan.approver or NONE),
            Cell(at=plan.created_at),
            Cell(at=plan.decided_at) if plan.decided_at else Cell(text=NONE),
        ]

    # A plan's own page.

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show a plan with a page of its targets beside their rows."""
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        plan = self.get_row(request, object_id)
        content = content_of(plan)
        page = Detail(
            title=plan.change_id,
            badge=STATES[plan.state],
            sections=self.sections(plan),
            links=self.ways(request, plan),
        )
        context = self.context(request, title=page.title, detail=page)
        context |= self.unreadable(plan) if content is None else self.compared(request, plan, content)
        return TemplateResponse(request, "receipts/pages/plan.html", context)

    def compared(self, request: HttpRequest, plan: StoredPlan, content: Plan) -> dict[str, Any]:
        """Return what the page says of the targets, and what may be done."""
        asked = parse_filters(VIEW, request.GET)
        only_failing = "failing" in asked.values
        sheet = sheet_of(plan, content)
        part = part_of(sheet, only_failing=only_failing, after=asked.values.get("after", 0))
        more = {"failing": "1"} if only_failing else {}
        verdict = verdict_of(sheet, plan)
        return {
            "verdict": verdict or [applied_or_closed(plan)],
            "verdict_title": _("How it stands"),
            "as_of": sheet.as_of,
            "is_failing": bool(sheet.failing or sheet.remarks),
            "digest": content.digest(kind=plan.kind),
            "buttons": self.buttons(request, plan),
            "choices": [
                (Link(_("All targets: %d") % len(sheet.lines), "?"), not only_failing),
                (Link(_("Only failing: %d") % len(sheet.failing), "?failing=1"), only_failing),
            ]
            if sheet.as_of is not None
            else [],
            "targets": section_of(sheet, part, plan=plan, only_failing=only_failing, url=self.row_url(request, plan)),
            "next_query": "" if part.next is None else urlencode({**more, "after": part.next}),
            "previous_query": "" if part.previous is None else urlencode({**more, "after": part.previous}),
        }

    def unreadable(self, plan: StoredPlan) -> dict[str, Any]:
        """Return what the page says of a plan whose targets, which plain SQL may have written, are none."""
        text = _("Its targets are not in the form in which plans are kept; it cannot be approved or applied.")
        return {
            "verdict": [text],
            "verdict_title": _("How it stands"),
            "is_failing": True,
            "targets": Section(title=_("Targets"), text=str(plan.targets)[:2000]),
        }

    def sections(self, plan: StoredPlan) -> list[Section]:
        """Return who planned what, and why."""
        facts = [Fact(name=name, cell=cell) for name, cell in zip(self.head[1:], self.cells(plan)[1:], strict=True)]
        if plan.approved_at:
            facts.append(Fact(name=_("approved"), cell=Cell(at=plan.approved_at)))
        if plan.decided_by:
            facts.append(Fact(name=_("decided by"), cell=Cell(text=plan.decided_by)))
        facts.append(Fact(name=_("digest"), cell=Cell(text=plan.digest, is_code=True)))
        sections = [Section(facts=facts)]
        if plan.reason:
            sections.append(Section(title=_("Reason"), text=plan.reason))
        if plan.decision_reason:
            sections.append(Section(title=_("Reason of the decision"), text=plan.decision_reason))
        return sections

    def ways(self, request: HttpRequest, plan: StoredPlan) -> list[Link]:
        """Return the ways to what belongs to a plan."""
        links = [
            Link(_("Plans of this change id"), self.url("changelist", change_id=plan.change_id)),
            Link(_("The targets as CSV"), self.url("targets", plan.pk)),
        ]
        url = (
            self.url_if_allowed(request, Change, "change", key_of(plan.change_id))
            if plan.state == PlanState.APPLIED
            else ""
        )
        return [Link(_("The receipt"), url), *links] if url else links

    def buttons(self, request: HttpRequest, plan: StoredPlan) -> list[dict[str, Any]]:
        """Return what this user may do with the plan as it is; nothing that would fail."""
        offered: list[dict[str, Any]] = []
        if plan.state == PlanState.DRAFT and may_approve(request, plan):
            offered.append({"text": _("Approve"), "url": self.url("approve", plan.pk)})
        if plan.state == PlanState.APPROVED and request.user.has_perm(APPLY_PERMISSION):
            offered.append({"text": _("Apply"), "url": self.url("apply", plan.pk)})
        if plan.state in UNSETTLED and request.user.has_perm(APPROVE_PERMISSION) and not may_withdraw(request, plan):
            offered.append({"text": _("Reject"), "url": self.url("reject", plan.pk)})
        if plan.state in UNSETTLED and may_withdraw(request, plan):
            offered.append({"text": _("Withdraw"), "url": self.url("withdraw", plan.pk)})
        if plan.state in UNSETTLED and may_edit(request, plan):
            offered.append({"text": _("Replace the targets"), "url": self.url("edit", plan.pk), "is_link": True})
        if plan.state in AGAIN_STATES and request.user.has_perm(ADD_PERMISSION):
            offered.append({"text": _("Plan again"), "url": self.url("again", plan.pk), "is_link": True})
        return offered

    def row_url(self, request: HttpRequest, plan: StoredPlan) -> Callable[[int], str]:
        """Return the way from a target to its row's own page, where the site has one."""
        try:
            model = get_kind(plan.kind).model
            pattern = self.url_if_allowed(request, model, "change", 0)
        except (UnknownKind, NoReverseMatch):
            return lambda pk: ""
        return lambda pk: pattern.replace("/0/change/", f"/{pk}/change/") if pattern else ""

    # The pages beside it.

    @csrf_exempt  # The limit stands before the body is read, the check of the token behind it.
    def upload_view(self, request: HttpRequest) -> HttpResponse:
        """Take a new plan."""
        if not self.has_view_permission(request) or not request.user.has_perm(ADD_PERMISSION):
            raise PermissionDenied
        return within_quota(request, lambda quota: upload_page(self, request, quota=quota))

    @csrf_exempt
    def edit_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Take new content for a plan."""
        plan = self.get_row(request, str(pk))
        if not may_edit(request, plan):
            raise PermissionDenied
        return within_quota(request, lambda quota: edit_page(self, request, plan, quota=quota))

    def approve_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Approve a plan."""
        return approve_page(self, request, self.get_row(request, str(pk)))

    def reject_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Reject a plan."""
        return reject_page(self, request, self.get_row(request, str(pk)))

    def withdraw_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Withdraw a plan."""
        return withdraw_page(self, request, self.get_row(request, str(pk)))

    def apply_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Apply a plan."""
        return apply_page(self, request, self.get_row(request, str(pk)))

    def again_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Plan a refused plan's rows again."""
        return again_page(self, request, self.get_row(request, str(pk)))

    def template_view(self, request: HttpRequest) -> HttpResponse:
        """Return an empty CSV."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            columns = get_kind(request.GET["kind"]).columns if "kind" in request.GET else COLUMNS
        except UnknownKind as error:
            raise Http404 from error
        return csv_file("plan.csv", ",".join(column.name for column in columns) + "\r\n")

    def targets_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Return a plan's targets as CSV, in the form in which a new plan may be sent."""
        content = content_of(self.get_row(request, str(pk)))
        targets = content.targets if content is not None else ()
        names = ["id", *columns_of(targets)] if targets else [column.name for column in COLUMNS]
        is_plain = not any(isinstance(target, FieldTarget) for target in targets)
        rows = ([target._asdict().get(name) for name in names] for target in targets)
        # Whole numbers only, which no spreadsheet takes for a formula; other values are made safe for it.
        if is_plain:
            lines = [",".join(map(str, row)) + "\r\n" for row in rows]
            return csv_file(f"plan-{pk}.csv", ",".join(names) + "\r\n" + "".join(lines))
        return csv_file(f"plan-{pk}.csv", "".join(csv_lines(names, rows)))


def applied_or_closed(plan: StoredPlan) -> str:
    """Say what became of a plan whose rows are not compared any more."""
    if plan.state == PlanState.APPLIED:
        return _("It was applied; the receipt says what was committed.")
    return _("It was closed, and nothing was written.")


def within_quota(request: HttpRequest, page: Callable[[Any], HttpResponse]) -> HttpResponse:
    """Answer with a page whose request is read up to the limit of a plan only."""
    if request.method not in ("GET", "HEAD", "POST"):
        return HttpResponseNotAllowed(["GET", "POST"])
    quota = quota_of(request)

    def answer(request: HttpRequest) -> HttpResponse:
        return page(quota)

    response: HttpResponse = csrf_protect(answer)(request)
    return response


def csv_file(name: str, text: str) -> HttpResponse:
    """Return a CSV to keep."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(text, content_type="text/csv; charset=utf-8", headers=headers)
