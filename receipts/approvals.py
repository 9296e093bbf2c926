"""Plans that are kept until two people agree: stored, edited, approved, applied. The only writer of stored plans."""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from django.db import router
from django.utils import timezone

from .apply import Outcome, apply_once, checked_plan, with_reconnect, with_retry
from .change_types import get_kind
from .conf import load_settings
from .errors import ChangeIdReused, Flaw, InvalidPlan, NotApproved, Stale, Words
from .models import StoredPlan
from .people import Person, find_person
from .plans import model as plans
from .plans.canonical import Target, stored_targets
from .querysets import OPEN_STATES, PlanState

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
    author: str | Person,
    reason: str = "",
    is_reverting: bool = False,
    using: str | None = None,
) -> StoredPlan:
    """
    Keep a plan as a draft, for another person to approve; an author given by name is looked for among the users.
    ``is_reverting`` is for ``revert_plan``, whose values come from a receipt.

    Transaction: one statement.
    Raises: InvalidPlan, UnknownKind.
    """
    writer = find_person(author)
    found = get_kind(kind)
    if not (found.is_validated or is_reverting):
        raise InvalidPlan([Flaw("kind", Words("takes a change back; revert_plan drafts its plans from a receipt"))])
    plan = checked_plan(kind=found, change_id=change_id, tenant=tenant, targets=targets)
    plans.check_origin(actor=writer.name, reason=reason)
    plans.check_author(writer.name)
    digest = plan.digest(kind=kind)
    alias = using or router.db_for_write(StoredPlan)
    stored: StoredPlan = StoredPlan.objects.using(alias).create(
        kind=kind,
        change_id=plan.change_id,
        tenant=plan.tenant,
        targets=json.loads(plan.canonical),
        target_count=len(plan.targets),
        digest=digest,
        author=writer.name,
        author_key=writer.key,
        writers=[[digest, writer.key, writer.name]],
        reason=reason,
    )
    return stored


def edit_plan(
    *,
    pk: int,
    targets: Iterable[Target],
    author: str | Person = "",
    digest: str = "",
    now: datetime | None = None,
    using: str | None = None,
) -> bool:
    """
    Replace the targets of an open plan, and return True; an approval is void with that.

    Whoever edits another one's plan says so with ``author`` and becomes its author: nobody approves what he wrote. The
    same targets again change nothing, neither the author nor an approval; then it returns False. With ``digest``, only
    the content that the editor was shown is replaced.

    Transaction: one conditional UPDATE.
    Raises: InvalidPlan, NotApproved.
    """
    alias = using or router.db_for_write(StoredPlan)
    stored = get_plan(pk=pk, using=alias)
    plan = checked_plan(kind=get_kind(stored.kind), change_id=stored.change_id, tenant=stored.tenant, targets=targets)
    writer = find_person(author) if author else Person(stored.author, stored.author_key)
    if author:
        plans.check_origin(actor=writer.name, reason="")
        plans.check_author(writer.name)
    is_open = stored.state in OPEN_STATES and digest in ("", stored.digest)
    content = plan.digest(kind=stored.kind)
    if is_open and content == stored.digest:
        return False
    if not get_kind(stored.kind).is_validated:
        raise NotApproved(f"plan {pk} takes a change back: its values come from a receipt, and nobody edits them")
    won = is_open and StoredPlan.objects.using(alias).try_edit(
        pk,
        edits=stored.edits,
        edited_at=now or timezone.now(),
        targets=json.loads(plan.canonical),
        target_count=len(plan.targets),
        digest=content,
        author=writer.name,
        author_key=writer.key,
        writers=with_writer(stored, content, writer),
    )
    if not won:
        raise NotApproved(f"plan {pk} is settled, or was edited meanwhile; look at it again, or store a new one")
    return True


def with_writer(stored: StoredPlan, digest: str, writer: Person) -> list[list[str]]:
    """Return who wrote which content of a plan, with one more."""
    before = stored.writers or [[stored.digest, stored.author_key, stored.author]]
    entry = [digest, writer.key, writer.name]
    return before if entry in before else [*before, entry]


def is_writer(stored: StoredPlan, person: Person) -> bool:
    """Whether a person is the author of a plan, or ever wrote the content that it has now."""
    if person.is_same_as(stored.author, stored.author_key):
        return True
    writers = stored.writers if isinstance(stored.writers, list) else []
    return any(person.is_same_as(name, key) for digest, key, name in writers if digest == stored.digest)


def approve_plan(
    *, pk: int, approver: str | Person, digest: str, now: datetime | None = None, using: str | None = None
) -> None:
    """
    Approve exactly the content whose digest the approver was shown.

    Who may approve at all is for the caller to know; `people.find_approver` asks the site's users.

    Transaction: one conditional UPDATE.
    Raises: NotApproved when it was edited or approved meanwhile, or when the approver ever wrote this content;
    InvalidPlan when the name cannot be kept.
    """
    alias, moment = using or router.db_for_write(StoredPlan), now or timezone.now()
    person = find_person(approver)
    plans.check_origin(actor=person.name, reason="")
    expire_plans(now=moment, using=alias)
    stored = get_plan(pk=pk, using=alias)
    if not person.name.strip() or is_writer(stored, person):
        raise NotApproved(f"plan {pk} needs an approver who is not its author and wrote none of it, and has a name")
    won = StoredPlan.objects.using(alias).try_approve(
        pk, edits=stored.edits, approver=person.name, approver_key=person.key, digest=digest, now=moment
    )
    if not won:
        raise NotApproved(f"plan {pk} is no draft with this content any more; look at it again")


def reject_plan(
    *,
    pk: int,
    actor: str | Person,
    reason: str,
    digest: str = "",
    now: datetime | None = None,
    using: str | None = None,
) -> None:
    """
    Close an open plan that should not be applied, with a reason for its author.

    Transaction: one conditional UPDATE.
    Raises: InvalidPlan without a reason; NotApproved when it is closed, or not as shown any more.
    """
    if not reason.strip():
        raise InvalidPlan([Flaw("reason", Words("is empty: the author needs to know what to change"))])
    close_plan(
        pk=pk, actor=find_person(actor), reason=reason, state=PlanState.REJECTED, digest=digest, now=now, using=using
    )


def withdraw_plan(
    *, pk: int, actor: str | Person, reason: str = "", now: datetime | None = None, using: str | None = None
) -> None:
    """
    Close an open plan of one's own.

    Transaction: one conditional UPDATE.
    Raises: NotApproved for another one's plan, and when it is closed.
    """
    person = find_person(actor)
    stored = get_plan(pk=pk, using=using)
    if not person.is_same_as(stored.author, stored.author_key):
        raise NotApproved(f"plan {pk} is not yours; whoever may approve it can reject it")
    close_plan(pk=pk, actor=person, reason=reason, state=PlanState.WITHDRAWN, digest="", now=now, using=using)


def close_plan(
    *,
    pk: int,
    actor: Person,
    reason: str,
    state: PlanState,
    digest: str,
    now: datetime | None,
    using: str | None,
) -> None:
    """Close an open plan. Raises: InvalidPlan, NotApproved."""
    plans.check_origin(actor=actor.name, reason=reason)
    plans.check_author(actor.name)
    alias, moment = using or router.db_for_write(StoredPlan), now or timezone.now()
    expire_plans(now=moment, using=alias)
    decision = {"decided_by": actor.name, "decided_by_key": actor.key, "decision_reason": reason}
    if not StoredPlan.objects.using(alias).try_close(pk, digest=digest, state=state, now=moment, **decision):
        get_plan(pk=pk, using=alias)
        raise NotApproved(f"plan {pk} is closed, or was edited meanwhile; look at it again")


def expire_plans(*, now: datetime | None = None, using: str | None = None) -> int:
    """
    Close plans that have waited longer than ``RECEIPTS_PLAN_EXPIRES`` since they were last written or approved.

    Transaction: one statement. It runs before every decision, so that no plan that has expired is approved or applied.
    """
    days, moment = load_settings().plan_expires, now or timezone.now()
    if not days:
        return 0
    plans_there = StoredPlan.objects.using(using or router.db_for_write(StoredPlan))
    return int(plans_there.expire(before=moment - timedelta(days=days), now=moment))


def apply_plan(
    *,
    pk: int,
    actor: str | Person = "",
    digest: str = "",
    now: datetime | None = None,
    using: str | None = None,
) -> bool:
    """
    Apply an approved plan; return False if this very change was applied before.

    The receipt names its author, its approver, and ``actor``, who applies it.

    Its state "applied" is committed together with the receipt. A refused attempt is kept with its problems: that is
    written after the transaction that failed, and outside of it. With ``digest``, only the content that the operator
    was shown is applied.

    Transaction: its own, durable.
    Raises: NotApproved, and as `apply_change`.
    """
    alias, moment = using or router.db_for_write(StoredPlan), now or timezone.now()
    person = find_person(actor) if actor else Person("")
    plans.check_origin(actor=person.name, reason="")
    expire_plans(now=moment, using=alias)
    stored = get_plan(pk=pk, using=alias)
    plan = checked_plan(
        kind=get_kind(stored.kind),
        change_id=stored.change_id,
        tenant=stored.tenant,
        targets=stored_targets(stored.targets),
    )
    content = plan.digest(kind=stored.kind)
    if digest not in ("", content):
        raise NotApproved(f"plan {pk} was edited since it was looked at; look at it again")
    declared, plans_there = get_kind(stored.kind), StoredPlan.objects.using(alias)
    decision = {"decided_by": person.name, "decided_by_key": person.key}

    def settle_and_apply() -> bool:
        # Settled first: whoever edits or applies the same plan now has to wait, and then finds it settled.
        if not plans_there.try_settle(pk, digest=content, state=PlanState.APPLIED, now=moment, **decision):
            raise NotApproved(f"plan {pk} is not approved with the content it has now")
        return apply_once(
            declared,
            plan,
            actor=person.name,
            author=stored.author,
            approver=stored.approver,
            reason=stored.reason,
            alias=alias,
        )

    try:
        return with_retry(alias, settle_and_apply, durable=True)
    except (Stale, ChangeIdReused) as refusal:
        problems = [asdict(problem) for problem in refusal.problems] or [{"problem": refusal.conflict}]
        # Losing this race is fine: whoever won it has written down what became of the plan.
        plans_there.try_settle(pk, digest=content, state=PlanState.REFUSED, now=moment, problems=problems, **decision)
        raise


def apply_plan_with_reconnect(
    *,
    pk: int,
    actor: str | Person = "",
    digest: str = "",
    using: str | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Outcome:
    """
    Apply an approved plan even if the connection is lost on the way, or if somebody else has just applied it.

    Transaction: its own, durable.
    Raises: as `apply_plan`, and OutcomeUnknown when the database does not come back.
    """
    alias = using or router.db_for_write(StoredPlan)

    def apply() -> bool:
        try:
            return apply_plan(pk=pk, actor=actor, digest=digest, using=alias)
        except NotApproved:
            # Another operator was first, or the attempt whose answer was lost.
            if StoredPlan.objects.using(alias).is_applied(pk, digest=digest):
                return False
            raise

    return with_reconnect(apply, about=f"plan {pk}", alias=alias, pause=pause)
