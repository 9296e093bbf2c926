"""Plans that are kept until two people agree: stored, edited, approved, applied. The only writer of stored plans."""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.db import IntegrityError, router, transaction
from django.utils import timezone

from .apply import Outcome, apply_once, checked_plan, repeated, surely
from .change_types import get_kind
from .errors import ChangeIdReused, NotApproved, Stale
from .models import StoredPlan
from .plans import model as plans
from .plans.canonical import Target, stored_targets
from .querysets import PlanState

#: What a list says of a plan; its targets may be ten thousand.
LISTED = (
    "change_id",
    "kind",
    "tenant",
    "state",
    "author",
    "approver",
    "digest",
    "target_count",
    "created_at",
    "decided_at",
)


def get_plan(*, pk: int, using: str | None = None) -> StoredPlan:
    """Return a stored plan. Raises: StoredPlan.DoesNotExist."""
    found: StoredPlan = StoredPlan.objects.using(using or router.db_for_write(StoredPlan)).get(pk=pk)
    return found


def list_plans(*, limit: int, using: str | None = None, **wanted: str) -> list[dict[str, Any]]:
    """Return the newest plans with these values, as the commands print them: without targets and problems."""
    alias = using or router.db_for_write(StoredPlan)
    rows = StoredPlan.objects.using(alias).filter(**wanted).order_by("-pk").values("pk", *LISTED)[:limit]
    return [{"plan": row.pop("pk")} | row for row in rows]


def store_plan(
    *,
    kind: str,
    change_id: str,
    tenant: str,
    targets: Iterable[Target],
    author: str,
    reason: str = "",
    using: str | None = None,
) -> StoredPlan:
    """
    Keep a plan as a draft, for another person to approve.

    Transaction: one statement.
    Raises: InvalidPlan, UnknownKind.
    """
    plan = checked_plan(change_id=change_id, tenant=tenant, targets=targets)
    plans.check_origin(actor=author, reason=reason)
    plans.check_author(author)
    get_kind(kind)
    alias = using or router.db_for_write(StoredPlan)
    stored: StoredPlan = StoredPlan.objects.using(alias).create(
        kind=kind,
        change_id=plan.change_id,
        tenant=plan.tenant,
        targets=json.loads(plan.canonical),
        target_count=len(plan.targets),
        digest=plan.digest(kind=kind),
        author=author,
        reason=reason,
    )
    return stored


def edit_plan(
    *, pk: int, targets: Iterable[Target], author: str = "", digest: str = "", using: str | None = None
) -> None:
    """
    Replace the targets of a stored plan that is not settled; an approval is void with that.

    Whoever edits another one's plan says so with ``author`` and becomes its author: nobody approves what he wrote.
    With ``digest``, only the content that the editor was shown is replaced.

    Transaction: one conditional UPDATE.
    Raises: InvalidPlan, NotApproved.
    """
    alias = using or router.db_for_write(StoredPlan)
    stored = get_plan(pk=pk, using=alias)
    plan = checked_plan(change_id=stored.change_id, tenant=stored.tenant, targets=targets)
    if author:
        plans.check_origin(actor=author, reason="")
        plans.check_author(author)
    won = StoredPlan.objects.using(alias).try_edit(
        pk,
        targets=json.loads(plan.canonical),
        digest=plan.digest(kind=stored.kind),
        author=author,
        shown=digest,
    )
    if not won:
        raise NotApproved(f"plan {pk} is settled, or was edited meanwhile; look at it again, or store a new one")


def approve_plan(*, pk: int, approver: str, digest: str, now: datetime | None = None, using: str | None = None) -> None:
    """
    Approve exactly the content whose digest the approver was shown.

    Transaction: one conditional UPDATE.
    Raises: NotApproved when it was edited or approved meanwhile, or when the approver is the author; InvalidPlan when
    the name cannot be kept.
    """
    alias = using or router.db_for_write(StoredPlan)
    plans.check_origin(actor=approver, reason="")
    moment, plans_there = now or timezone.now(), StoredPlan.objects.using(alias)
    try:
        with transaction.atomic(using=alias):
            won = plans_there.try_approve(pk, approver=approver, digest=digest, now=moment)
    except IntegrityError as error:
        raise NotApproved(f"plan {pk} needs an approver who is not its author, and has a name") from error
    if not won:
        raise NotApproved(f"plan {pk} is no draft with this content any more; look at it again")


def apply_plan(*, pk: int, digest: str = "", now: datetime | None = None, using: str | None = None) -> bool:
    """
    Apply an approved plan; return False if this very change was applied before.

    Its state "applied" is committed together with the receipt. A refused attempt is kept with its problems: that is
    written after the transaction that failed, and outside of it. With ``digest``, only the content that the operator
    was shown is applied.

    Transaction: its own, durable.
    Raises: NotApproved, and as `apply_change`.
    """
    alias, moment = using or router.db_for_write(StoredPlan), now or timezone.now()
    stored = StoredPlan.objects.using(alias).get(pk=pk)
    plan = checked_plan(change_id=stored.change_id, tenant=stored.tenant, targets=stored_targets(stored.targets))
    content = plan.digest(kind=stored.kind)
    if digest not in ("", content):
        raise NotApproved(f"plan {pk} was edited since it was looked at; look at it again")
    declared, plans_there = get_kind(stored.kind), StoredPlan.objects.using(alias)

    def settle_and_apply() -> bool:
        # Settled first: whoever edits or applies the same plan now has to wait, and then finds it settled.
        if not plans_there.try_settle(pk, digest=content, state=PlanState.APPLIED, now=moment):
            raise NotApproved(f"plan {pk} is not approved with the content it has now")
        return apply_once(declared, plan, actor=stored.approver, reason=stored.reason, alias=alias)

    try:
        return repeated(alias, settle_and_apply, durable=True)
    except (Stale, ChangeIdReused) as refusal:
        problems = [asdict(problem) for problem in refusal.problems] or [{"problem": refusal.conflict}]
        # Losing this race is fine: whoever won it has written down what became of the plan.
        plans_there.try_settle(pk, digest=content, state=PlanState.REFUSED, now=moment, problems=problems)
        raise


def apply_plan_surely(
    *, pk: int, digest: str = "", using: str | None = None, pause: Callable[[float], None] = time.sleep
) -> Outcome:
    """
    Apply an approved plan even if the connection is lost on the way, or if somebody else has just applied it.

    Transaction: its own, durable.
    Raises: as `apply_plan`, and OutcomeUnknown when the database does not come back.
    """
    alias = using or router.db_for_write(StoredPlan)

    def apply() -> bool:
        try:
            return apply_plan(pk=pk, digest=digest, using=alias)
        except NotApproved:
            # Another operator was first, or the attempt whose answer was lost.
            if StoredPlan.objects.using(alias).is_applied(pk, digest=digest):
                return False
            raise

    return surely(apply, about=f"plan {pk}", alias=alias, pause=pause)
