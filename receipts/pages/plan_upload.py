"""Pages that bring content in: a new plan, and new content for one that is not settled."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from kwit.admin.actions import record_action
from kwit.admin.base import ReadOnlyAdmin
from kwit.admin.components import Link

from ..approvals import edit_plan, store_plan
from ..change_types import each_kind
from ..errors import InvalidPlan, NotApproved
from ..models import StoredPlan
from ..people import person_of
from ..plans.model import Plan
from ..querysets import PlanState
from .plan_forms import ContentForm, PlanForm, Quota, flaws_table, flaws_title, the_only_tenant

ADD_PERMISSION = "receipts.add_storedplan"
#: Needed beside it to edit a plan that another person wrote.
CHANGE_PERMISSION = "receipts.change_storedplan"
UNSETTLED = (PlanState.DRAFT, PlanState.APPROVED)


def may_edit(request: HttpRequest, plan: StoredPlan) -> bool:
    """Whether a user may replace a plan's content: his own, or with the permission for those of others."""
    is_own = person_of(request.user).is_same_as(plan.author, plan.author_key)
    user = request.user
    return user.has_perm(ADD_PERMISSION) and (is_own or user.has_perm(CHANGE_PERMISSION))


def upload_page(admin: ReadOnlyAdmin, request: HttpRequest, *, quota: Quota | None) -> HttpResponse:
    """Ask for a plan; keep it as a draft, or show each of its problems and keep nothing."""
    if request.method != "POST":
        form = PlanForm(user=request.user, initial={"tenant": the_only_tenant(request.user)})
        return upload_form(admin, request, form)
    form = PlanForm(request.POST, request.FILES, user=request.user, quota=quota)
    if not form.is_valid():
        return upload_form(admin, request, form)
    try:
        plan = form.plan()
        reason = plan.reason(form.cleaned_data["reason"])
        return stored(admin, request, plan, kind=form.cleaned_data["kind"], reason=reason)
    except InvalidPlan as error:
        return upload_form(admin, request, form, error)


def stored(admin: ReadOnlyAdmin, request: HttpRequest, plan: Plan, *, kind: str, reason: str) -> HttpResponse:
    """Keep a plan as a draft of this user's, and lead to it. Raises: InvalidPlan."""
    actor, count = request.user.get_username(), len(plan.targets)
    kept = StoredPlan.objects.filter(
        change_id=plan.change_id, digest=plan.digest(kind=kind), state=PlanState.DRAFT, author=actor
    ).first()
    if kept is not None:
        messages.info(request, _("This very plan is a draft of yours already; it is not kept twice."))
        return redirect(admin.url("change", kept.pk))
    with record_action(
        actor=actor,
        name="plan_upload",
        subject=admin.opts.label_lower,
        scope=plan.change_id,
        asked=count,
        tenant=plan.tenant,
    ) as doing:
        row = store_plan(
            kind=kind,
            change_id=plan.change_id,
            tenant=plan.tenant,
            targets=plan.targets,
            author=person_of(request.user),
            reason=reason,
        )
        doing.done, doing.note = count, f"kind={kind}, plan={row.pk}"
    messages.success(request, _("Kept as a draft. Another person approves it."))
    return redirect(admin.url("change", row.pk))


def upload_form(
    admin: ReadOnlyAdmin, request: HttpRequest, form: PlanForm, error: InvalidPlan | None = None
) -> HttpResponse:
    """Show the form for a plan with what was typed, and the problems of what was sent."""
    return form_page(
        admin,
        request,
        form,
        error,
        title=_("Upload a plan"),
        intro=_("A plan says which rows are to be changed, each with the revision and quantity that were looked at."),
        button=_("Keep as a draft"),
        links=[
            Link(_("An empty CSV to fill in: %s") % kind.name, admin.url("template", kind=kind.name))
            for kind in each_kind()
        ],
        back=admin.url("changelist"),
    )


def edit_page(admin: ReadOnlyAdmin, request: HttpRequest, plan: StoredPlan, *, quota: Quota | None) -> HttpResponse:
    """Ask for new content of a plan that is not settled. Raises: PermissionDenied."""
    if not may_edit(request, plan):
        raise PermissionDenied
    if plan.state not in UNSETTLED:
        messages.error(request, _("The plan is settled; upload a new one."))
        return redirect(admin.url("change", plan.pk))
    if request.method != "POST":
        return edit_form(admin, request, plan, ContentForm(), plan.digest)
    form, shown = ContentForm(request.POST, request.FILES, quota=quota), request.POST.get("digest", "")
    if not form.is_valid():
        return edit_form(admin, request, plan, form, shown)
    try:
        content = form.read(kind=plan.kind, change_id=plan.change_id, tenant=plan.tenant)
        return edited(admin, request, plan, content, shown=shown)
    except InvalidPlan as error:
        return edit_form(admin, request, plan, form, shown, error)


def edited(admin: ReadOnlyAdmin, request: HttpRequest, plan: StoredPlan, content: Plan, *, shown: str) -> HttpResponse:
    """Replace a plan's content as long as it is what the editor saw, and lead back to it."""
    actor, count = request.user.get_username(), len(content.targets)
    try:
        with record_action(
            actor=actor,
            name="plan_edit",
            subject=admin.opts.label_lower,
            scope=plan.change_id,
            asked=count,
            tenant=plan.tenant,
        ) as doing:
            doing.note = f"plan={plan.pk}"
            if not shown:
                raise NotApproved("no page of ours sends an edit without the digest that it has shown")
            # Whoever wrote the content is its author, also of another one's plan: nobody approves what he wrote.
            is_new = edit_plan(pk=plan.pk, targets=content.targets, author=person_of(request.user), digest=shown)
            doing.done = count
    except NotApproved:
        messages.error(request, _("The plan was changed or settled after the page had been drawn. Nothing was done."))
        return redirect(admin.url("change", plan.pk))
    if not is_new:
        messages.info(request, _("The plan has this content already; nothing was changed."))
        return redirect(admin.url("change", plan.pk))
    messages.success(request, _("The plan has new content."))
    if plan.state == PlanState.APPROVED:
        messages.warning(request, _("The approval by %s is void: it was of the old content.") % plan.approver)
    return redirect(admin.url("change", plan.pk))


def edit_form(
    admin: ReadOnlyAdmin,
    request: HttpRequest,
    plan: StoredPlan,
    form: ContentForm,
    shown: str,
    error: InvalidPlan | None = None,
) -> HttpResponse:
    """Show the form for new content."""
    notes = []
    if plan.state == PlanState.APPROVED:
        notes.append(_("%s has approved this plan. New content voids the approval.") % plan.approver)
    if not person_of(request.user).is_same_as(plan.author, plan.author_key):
        notes.append(_("%s wrote this plan. With new content you are its author and cannot approve it.") % plan.author)
    return form_page(
        admin,
        request,
        form,
        error,
        title=_("Replace the targets of %s") % plan.change_id,
        intro=_("The new targets replace the old ones. Change id, tenant and kind stay."),
        button=_("Replace the targets"),
        notes=notes,
        hidden=[("digest", shown)],
        links=[Link(_("The targets of now as CSV"), admin.url("targets", plan.pk))],
        back=admin.url("change", plan.pk),
    )


def form_page(
    admin: ReadOnlyAdmin, request: HttpRequest, form: ContentForm, error: InvalidPlan | None, **more: Any
) -> HttpResponse:
    """Show a form with what was typed, and above it every problem at its row."""
    flaws = error.flaws if error else ()
    context = admin.context(
        request,
        form=form,
        problems=flaws_table(flaws) if flaws else None,
        problems_title=flaws_title(flaws) if flaws else "",
        **more,
    )
    status = 400 if flaws else 200
    return TemplateResponse(request, "receipts/pages/upload.html", context, status=status)
