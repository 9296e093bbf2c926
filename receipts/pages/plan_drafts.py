"""
Drafts from rows: a refused plan's with the values of now, and those that somebody selects in a host project's list.

A host project puts ``plan_action(kind="cancel", label=_("Plan their cancellation"))`` among the ``list_actions`` of the
``ReadOnlyAdmin`` of its own model.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from django.contrib import messages
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from kwit.admin.actions import ACTION_ROWS_MAX, Confirmation, ListAction, Selection, record_action
from kwit.admin.base import ReadOnlyAdmin
from kwit.admin.components import Cell, Row, Table, Text
from kwit.people.tenants import sees

from ..approvals import store_plan
from ..change_types import get_kind
from ..conf import load_settings
from ..errors import InvalidPlan, UnknownKind
from ..models import StoredPlan
from ..people import person_of
from ..previews import Renewed, renew_targets
from ..querysets import PlanState
from .plan_badges import in_words, problem_badge
from .plan_forms import DraftForm, suggested_id
from .plan_preview import content_of
from .plan_upload import ADD_PERMISSION

#: States from which a plan's rows may be planned again.
AGAIN_STATES = (PlanState.REFUSED, PlanState.REJECTED, PlanState.WITHDRAWN, PlanState.EXPIRED)
#: Rows named that cannot be planned; the number says how many there are.
LEFT_OUT_SHOWN = 100


def plan_action(*, kind: str, label: Text, name: str = "") -> ListAction:
    """
    Return an action that makes a draft of a plan from rows: one line in the ReadOnlyAdmin of the kind's own model.

    The kind is looked up when a page is drawn: apps declare theirs after admin classes are imported.
    """
    return ListAction(
        name=name or f"plan_{kind}",
        label=label,
        explains=gettext_lazy(
            "A draft is kept with each row's revision and quantity of now. Nothing is changed before another person "
            "has approved it and it is applied."
        ),
        permission=ADD_PERMISSION,
        eligible=partial(plannable, kind),
        page=partial(draft_page, kind),
    )


def plannable(kind: str, rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return the rows that a change of this kind could change now: none when no app declares it any more."""
    try:
        declared = get_kind(kind)
    except UnknownKind:
        return rows.none()
    if not declared.is_plain:
        state = declared.required_state
        return rows if state is None else rows.filter(**{declared.state_field: state})
    return rows.filter(**{declared.state_field: declared.required_state, f"{declared.qty_field}__isnull": False})


def draft_page(kind: str, admin: ReadOnlyAdmin, request: HttpRequest, chosen: Selection) -> HttpResponse:
    """Ask for a change id and a reason, then keep the chosen rows as a draft."""
    try:
        declared = get_kind(kind)
    except UnknownKind as error:
        return turned_down(admin, request, str(error))
    if declared.model is not admin.model._meta.concrete_model:
        raise ImproperlyConfigured(f"plan_action(kind={kind!r}) belongs to the admin of {declared.model._meta.label}")
    limit = min(load_settings().max_targets, ACTION_ROWS_MAX)
    if len(chosen.keys) > limit:
        text = _("More than %d rows match, and a plan has no more than that. Narrow the filter down.")
        return turned_down(admin, request, text % limit)
    if declared.tenant_field is None:
        return turned_down(admin, request, _("These rows belong to no tenant: upload a plan that says who may see it."))
    tenants = [str(one) for one in chosen.rows.order_by().values_list(declared.tenant_field, flat=True).distinct()[:2]]
    if len(tenants) > 1:
        return turned_down(admin, request, _("These rows are of several tenants; a plan is of one. Filter by tenant."))
    if tenants and not sees(request.user, tenants[0]):
        return turned_down(admin, request, _("These rows are of none of your tenants."))
    form = draft_form(request, kind)
    if not chosen.keys or not form.is_bound or not form.is_valid():
        return admin.confirm(
            request, chosen.action, chosen.keys, top=chosen.top, form=form, is_matching=chosen.is_matching
        )
    renewed = renew_targets(kind=kind, tenant=tenants[0], ids=chosen.keys)
    if not renewed.targets:
        return turned_down(admin, request, _("All of these rows have changed meanwhile; none can be planned."))
    return drafted(
        admin, request, form, renewed, kind=kind, tenant=tenants[0], name=chosen.action.name
    ) or admin.confirm(request, chosen.action, chosen.keys, top=chosen.top, form=form, is_matching=chosen.is_matching)


def turned_down(admin: ReadOnlyAdmin, request: HttpRequest, why: str) -> HttpResponse:
    """Say why there is no draft, and lead back to the list."""
    messages.error(request, why)
    return redirect(admin.back(request))


def draft_form(request: HttpRequest, kind: str, *, reason: str = "") -> DraftForm:
    """Return the form as it was sent, or with a suggestion."""
    if "confirmed" in request.POST:
        return DraftForm(request.POST, user=request.user)
    return DraftForm(initial={"change_id": suggested_id(kind), "reason": reason}, user=request.user)


def drafted(
    admin: ReadOnlyAdmin, request: HttpRequest, form: DraftForm, renewed: Renewed, *, kind: str, tenant: str, name: str
) -> HttpResponse | None:
    """Keep the draft, record who made it, and lead to it; None when the form has something to say."""
    actor, change_id = request.user.get_username(), form.cleaned_data["change_id"]
    asked = len(renewed.targets) + len(renewed.left_out)
    try:
        with record_action(
            actor=actor,
            name=name,
            subject=StoredPlan._meta.label_lower,
            scope=change_id,
            asked=asked,
            tenant=tenant,
        ) as doing:
            row = store_plan(
                kind=kind,
                change_id=change_id,
                tenant=tenant,
                targets=renewed.targets,
                author=person_of(request.user),
                reason=form.cleaned_data["reason"],
            )
            doing.done, doing.note = len(renewed.targets), f"kind={kind}, plan={row.pk}"
    except InvalidPlan as error:
        for flaw in error.flaws:
            form.add_error(None, f"{in_words(flaw.where)}: {in_words(flaw.problem)}")
        return None
    text = ngettext("A draft of %d target is kept.", "A draft of %d targets is kept.", doing.done) % doing.done
    messages.success(request, text)
    if renewed.left_out:
        left = len(renewed.left_out)
        messages.warning(request, ngettext("%d row is left out.", "%d rows are left out.", left) % left)
    url = admin.url_if_allowed(request, StoredPlan, "change", row.pk)
    return redirect(url or admin.back(request))


def again_page(admin: ReadOnlyAdmin, request: HttpRequest, plan: StoredPlan) -> HttpResponse:
    """Make a new draft of a refused plan's rows with their values of now. Raises: PermissionDenied."""
    if not request.user.has_perm(ADD_PERMISSION):
        raise PermissionDenied
    if request.method not in ("GET", "HEAD", "POST"):
        return HttpResponseNotAllowed(["GET", "POST"])
    content, back = content_of(plan), admin.url("change", plan.pk)
    if plan.state not in AGAIN_STATES or content is None:
        messages.error(request, _("Only a plan that was closed without being applied is planned again."))
        return redirect(back)
    try:
        renewed = renew_targets(kind=plan.kind, tenant=plan.tenant, ids=[target.id for target in content.targets])
    except UnknownKind as error:
        messages.error(request, str(error))
        return redirect(back)
    form = draft_form(request, plan.kind, reason=plan.reason)
    if renewed.targets and form.is_bound and form.is_valid():
        done = drafted(admin, request, form, renewed, kind=plan.kind, tenant=plan.tenant, name="plan_again")
        if done is not None:
            return done
    asked = Confirmation(
        title=_("Plan %s again") % plan.change_id,
        question=_("Plan it again with the rows of now?"),
        explains=_("A new draft takes each row's revision and quantity of now, and another person decides afresh."),
        button=_("Plan again"),
        number=len(renewed.targets),
        notes=again_notes(renewed),
        form=form,
        hidden=[("confirmed", "1")],
        table=left_out_table(renewed.left_out),
        back=back,
    )
    context = admin.context(request, title=asked.title, asked=asked, named_rows=LEFT_OUT_SHOWN)
    return TemplateResponse(request, "receipts/pages/again.html", context)


def again_notes(renewed: Renewed) -> list[Text]:
    """Say how many rows the draft will have, and how many it cannot have."""
    count, left = len(renewed.targets), len(renewed.left_out)
    notes: list[Text] = [ngettext("The draft will have %d target.", "The draft will have %d targets.", count) % count]
    if left:
        notes.append(ngettext("%d row cannot be planned.", "%d rows cannot be planned.", left) % left)
    return notes


def left_out_table(left_out: Sequence[tuple[int, str]]) -> Table:
    """Return the rows that cannot be planned, with the reason."""
    rows = [
        Row(cells=[Cell(text=pk, is_number=True), Cell(badge=problem_badge(why))])
        for pk, why in left_out[:LEFT_OUT_SHOWN]
    ]
    return Table(head=[_("id"), _("why")], rows=rows, numbers=frozenset({0}))
