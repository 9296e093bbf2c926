"""What people decide about a plan: approved by another than its author, applied once, planned again when refused."""

import logging
from contextlib import AbstractContextManager
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import Error as DatabaseProblem
from django.db import router
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from kwit.admin.actions import ActionProgress, Confirmation, answer_non_post, record_action
from kwit.admin.base import ReadOnlyAdmin
from kwit.admin.components import Badge, Cell, Detail, Fact, Section, Text

from ..apply import Outcome, settling_command
from ..approvals import apply_plan_with_reconnect, approve_plan, is_writer, reject_plan, withdraw_plan
from ..errors import Conflict, InvalidPlan, NotApproved, NotWritten, OutcomeUnknown, ReceiptsError, UnknownKind
from ..models import Change, StoredPlan
from ..people import APPROVE_PERMISSION, person_of
from ..querysets import OPEN_STATES, PlanState
from .badges import key_of
from .plan_badges import STATES, problem_word
from .plan_forms import ReasonForm
from .plan_preview import content_of, sheet_of, verdict_of

APPLY_PERMISSION = "receipts.apply_plan"
log = logging.getLogger(__name__)


def may_approve(request: HttpRequest, plan: StoredPlan) -> bool:
    """Whether a user may approve a plan: none whose content he ever wrote."""
    return request.user.has_perm(APPROVE_PERMISSION) and not is_writer(plan, person_of(request.user))


def may_withdraw(request: HttpRequest, plan: StoredPlan) -> bool:
    """Whether a user may withdraw a plan: his own."""
    return person_of(request.user).is_same_as(plan.author, plan.author_key)


def approve_page(admin: ReadOnlyAdmin, request: HttpRequest, plan: StoredPlan) -> HttpResponse:
    """Ask once more, then approve exactly what was shown. Raises: PermissionDenied."""
    if not request.user.has_perm(APPROVE_PERMISSION):
        raise PermissionDenied
    if request.method != "POST":
        return answer_non_post(request, back=admin.url("change", plan.pk))
    shown = request.POST.get("digest", "")
    if is_writer(plan, person_of(request.user)):
        return refused(admin, request, plan, _("You wrote this plan: another person approves it."))
    if plan.state != PlanState.DRAFT or not is_shown(plan, shown):
        return refused(admin, request, plan, since_shown(plan, shown))
    if "confirmed" not in request.POST:
        question = ngettext(
            "Approve %(plan)s with %(count)d target?", "Approve %(plan)s with %(count)d targets?", count_of(plan)
        )
        explains = _("Your approval is of this very content. Whoever edits the plan afterwards voids it.")
        return confirm(admin, request, plan, _("Approve"), question, explains)
    try:
        with recording(admin, request, plan, "plan_approve") as doing:
            doing.note = f"plan={plan.pk}, digest={shown}"
            approve_plan(pk=plan.pk, approver=person_of(request.user), digest=shown)
            doing.done = count_of(plan)
    except (NotApproved, InvalidPlan):
        # Somebody edited or approved it between the look above and the UPDATE.
        plan.refresh_from_db()
        return refused(admin, request, plan, since_shown(plan, shown))
    messages.success(request, _("Approved. Nothing is changed before it is applied."))
    return redirect(admin.url("change", plan.pk))


def reject_page(admin: ReadOnlyAdmin, request: HttpRequest, plan: StoredPlan) -> HttpResponse:
    """Ask for a reason, then close a plan that should not be applied. Raises: PermissionDenied."""
    if not request.user.has_perm(APPROVE_PERMISSION):
        raise PermissionDenied
    explains = _("The plan is closed, and its author sees the reason. It can be planned again.")
    return close_page(admin, request, plan, _("Reject"), _("Reject %(plan)s?"), explains, is_own=False)


def withdraw_page(admin: ReadOnlyAdmin, request: HttpRequest, plan: StoredPlan) -> HttpResponse:
    """Ask once more, then close a plan of one's own. Raises: PermissionDenied."""
    if not may_withdraw(request, plan):
        raise PermissionDenied
    explains = _("The plan is closed, and nobody can approve or apply it any more.")
    return close_page(admin, request, plan, _("Withdraw"), _("Withdraw %(plan)s?"), explains, is_own=True)


def close_page(
    admin: ReadOnlyAdmin,
    request: HttpRequest,
    plan: StoredPlan,
    button: Text,
    question: str,
    explains: Text,
    *,
    is_own: bool,
) -> HttpResponse:
    """Ask for a reason, then reject or withdraw what was shown."""
    if request.method != "POST":
        return answer_non_post(request, back=admin.url("change", plan.pk))
    shown = request.POST.get("digest", "")
    if plan.state not in OPEN_STATES or not is_shown(plan, shown):
        return refused(admin, request, plan, since_shown(plan, shown))
    form = ReasonForm(request.POST if "confirmed" in request.POST else None, is_required=not is_own)
    if not form.is_valid():
        return confirm(admin, request, plan, button, question, explains, form=form)
    person, reason = person_of(request.user), form.cleaned_data["reason"]
    try:
        with recording(admin, request, plan, "plan_withdraw" if is_own else "plan_reject") as doing:
            doing.note = f"plan={plan.pk}"
            if is_own:
                withdraw_plan(pk=plan.pk, actor=person, reason=reason)
            else:
                reject_plan(pk=plan.pk, actor=person, reason=reason, digest=shown)
            doing.done = count_of(plan)
    except (NotApproved, InvalidPlan):
        plan.refresh_from_db()
        return refused(admin, request, plan, since_shown(plan, shown))
    messages.success(request, _("Withdrawn.") if is_own else _("Rejected; its author sees the reason."))
    return redirect(admin.url("change", plan.pk))


def apply_page(admin: ReadOnlyAdmin, request: HttpRequest, plan: StoredPlan) -> HttpResponse:
    """Ask once more, then apply what was shown: applied, already applied, conflict or unknown."""
    if not request.user.has_perm(APPLY_PERMISSION):
        raise PermissionDenied
    if request.method != "POST":
        return answer_non_post(request, back=admin.url("change", plan.pk))
    shown = request.POST.get("digest", "")
    if plan.state not in (PlanState.APPROVED, PlanState.APPLIED) or not is_shown(plan, shown):
        return refused(admin, request, plan, since_shown(plan, shown))
    if plan.state == PlanState.APPLIED:
        return applied(admin, request, plan, Outcome.ALREADY)
    if "confirmed" not in request.POST:
        question = ngettext("Apply %(plan)s to %(count)d row?", "Apply %(plan)s to %(count)d rows?", count_of(plan))
        explains = _("All rows are changed or none, and a receipt is written. It cannot be undone here.")
        return confirm(admin, request, plan, _("Apply"), question, explains)
    return applied_now(admin, request, plan, shown)


def applied_now(admin: ReadOnlyAdmin, request: HttpRequest, plan: StoredPlan, shown: str) -> HttpResponse:
    """Apply, and say what became of it."""
    unknown: OutcomeUnknown | None = None
    try:
        with recording(admin, request, plan, "plan_apply") as doing:
            doing.note = f"plan={plan.pk}"
            try:
                outcome = apply_plan_with_reconnect(pk=plan.pk, actor=person_of(request.user), digest=shown)
            except ReceiptsError as error:
                unknown = error if isinstance(error, OutcomeUnknown) else None
                doing.note += f", {type(error).__name__}: {error}"
                raise
            doing.done = 0 if outcome is Outcome.ALREADY else count_of(plan)
            doing.note += f", {outcome}"
    except Conflict as error:
        messages.error(request, _("Refused, and nothing was written: %s.") % problem_word(error.conflict))
        return redirect(admin.url("change", plan.pk, failing="1"))
    except NotApproved:
        plan.refresh_from_db()
        return refused(admin, request, plan, since_shown(plan, shown))
    except (UnknownKind, NotWritten, InvalidPlan) as error:
        return refused(admin, request, plan, _("Nothing was written: %s") % error)
    except (OutcomeUnknown, DatabaseProblem):
        if unknown is None:
            raise
        # The database that does not answer may be the one of the record, too.
        log.exception("nobody knows yet whether plan %s was applied", plan.pk)
        return nobody_knows(admin, request, plan, unknown)
    return applied(admin, request, plan, outcome)


def applied(admin: ReadOnlyAdmin, request: HttpRequest, plan: StoredPlan, outcome: Outcome) -> HttpResponse:
    """Say that it is applied, and where the receipt is."""
    text = {
        Outcome.APPLIED: _("Applied."),
        Outcome.CONFIRMED: _("Applied. The connection was lost on the way; the receipt confirms it."),
        Outcome.ALREADY: _("It was applied already; nothing was written now."),
    }[outcome]
    if url := admin.url_if_allowed(request, Change, "change", key_of(plan.change_id)):
        text = format_html('{} <a href="{}">{}</a>', text, url, _("The receipt"))
    messages.success(request, text)
    return redirect(admin.url("change", plan.pk))


def nobody_knows(admin: ReadOnlyAdmin, request: HttpRequest, plan: StoredPlan, error: OutcomeUnknown) -> HttpResponse:
    """Say that the outcome is unknown, and what settles it; it asks no database."""
    settle = settling_command(plan.change_id, alias=router.db_for_write(Change))
    facts = [
        Fact(name=_("change id"), cell=Cell(text=plan.change_id, is_code=True)),
        Fact(
            name=_("this page, when the database is back"),
            cell=Cell(text=_("the plan"), url=admin.url("change", plan.pk)),
        ),
        Fact(name=_("or this command"), cell=Cell(text=settle, is_code=True)),
    ]
    lines = [
        _("The connection to the database was lost while the plan was being applied, and it did not come back."),
        _(
            "All rows are changed or none; which of both, the database says when it answers again. Applying the plan "
            "once more is safe."
        ),
    ]
    page = Detail(
        title=_("Nobody knows yet whether %s is applied") % plan.change_id,
        badge=Badge(_("unknown"), "?", "bad"),
        sections=[Section(facts=facts, lines=lines), Section(text=str(error))],
    )
    context = admin.context(request, title=page.title, detail=page)
    return TemplateResponse(request, "kwit/detail.html", context, status=503)


def refused(admin: ReadOnlyAdmin, request: HttpRequest, plan: StoredPlan, why: str) -> HttpResponse:
    """Say why nothing was done, and show the plan as it is now."""
    messages.error(request, why)
    return redirect(admin.url("change", plan.pk))


def since_shown(plan: StoredPlan, shown: str) -> str:
    """Say what happened to a plan since its page was drawn."""
    if plan.digest != shown or not is_shown(plan, shown):
        return _("The plan was changed after the page had been drawn. Nothing was done; look at it again.")
    return _("The plan is not what it was when the page was drawn; it is now: %s.") % STATES[plan.state].word


def is_shown(plan: StoredPlan, shown: str) -> bool:
    """Whether a digest is that of the plan's content, computed anew."""
    content = content_of(plan)
    return content is not None and content.digest(kind=plan.kind) == shown


def count_of(plan: StoredPlan) -> int:
    """Return how many targets a plan has."""
    return len(plan.targets)


def recording(
    admin: ReadOnlyAdmin, request: HttpRequest, plan: StoredPlan, name: str
) -> AbstractContextManager[ActionProgress]:
    """Return the record of a decision about a plan."""
    actor, subject = request.user.get_username(), admin.opts.label_lower
    return record_action(
        actor=actor, name=name, subject=subject, scope=plan.change_id, asked=count_of(plan), tenant=plan.tenant
    )


def confirm(
    admin: ReadOnlyAdmin,
    request: HttpRequest,
    plan: StoredPlan,
    button: Text,
    question: str,
    explains: Text,
    *,
    form: Any = None,
) -> HttpResponse:
    """Show the number and how the rows stand now, and ask once more."""
    content = content_of(plan)
    notes = verdict_of(sheet_of(plan, content), plan) if content is not None else []
    asked = Confirmation(
        title=button,
        question=question % {"plan": plan.change_id, "count": count_of(plan)},
        explains=explains,
        button=button,
        notes=notes,
        form=form,
        hidden=[("digest", request.POST["digest"]), ("confirmed", "1")],
        back=admin.url("change", plan.pk),
    )
    return TemplateResponse(request, "kwit/confirm.html", admin.context(request, title=asked.title, asked=asked))
