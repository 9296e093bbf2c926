"""Apply approved changes: whole or not at all, with a receipt. The only writer of changes and audit rows."""

import itertools
import shlex
import time
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, TypeVar

from django.db import DatabaseError, IntegrityError, InterfaceError, connections, router, transaction
from django.db.models import Count, Sum

from .change_types import ChangeType, get_kind
from .conf import load_settings
from .dialects import dialect_of
from .dialects.base import Standing
from .errors import ChangeIdReused, Collided, NotWritten, OutcomeUnknown, Problem, Stale
from .field_changes import change_fields
from .models import Audit, Change
from .plans import model as plans
from .plans.canonical import Target
from .plans.model import Plan

#: Attempts of a transaction that the database gives up for another one's sake. Each loses only to one that got through.
ATTEMPTS_MAX = 10
#: Attempts to get a lost connection back, and the pause before each: together about six seconds, the time in which a
#: pooler or a database on standby takes over. After that the outcome is reported as unknown.
RECONNECT_PAUSES_S = (0.1, 0.4, 1.5, 4.0)

#: Plain SQL instead of save(), which asks for created_at back: that stumbles over a row that a trigger swallowed, and
#: on SQL Server over every trigger (error 334). Whether the row is there is asked last, in `read_back`.
CLAIM = (
    "INSERT INTO receipts_changes (change_id, kind, tenant, targets, digest, actor, reason, author, approver)"
    " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)"
)

T = TypeVar("T")


class Outcome(StrEnum):
    """What became of a change."""

    APPLIED = "applied"
    CONFIRMED = "applied (confirmed by its receipt)"
    ALREADY = "already applied"


def settling_command(change_id: str, *, alias: str) -> str:
    """Return the one command that settles an unknown outcome, as a shell takes it."""
    return f"manage.py inspect_change --database {alias} -- {shlex.quote(change_id)}"


def apply_one(*, kind: str, tenant: str, target: Target, using: str | None = None) -> Target:
    """
    Change one row if it still is as approved; return it as it is now.

    The UPDATE itself compares; nothing is read before. It leaves no receipt: that is what `apply_change` is for, also
    for one target.

    Transaction: its own, or a savepoint in the caller's.
    Raises: InvalidPlan, Conflict, UnknownKind.
    """
    alias, declared = using or router.db_for_write(Change), get_kind(kind)
    plan = checked_plan(kind=declared, change_id="-", tenant=tenant, targets=[target])
    return with_retry(alias, lambda: change_one(declared, plan, alias))


def apply_change(
    *,
    kind: str,
    change_id: str,
    tenant: str,
    targets: Iterable[Target],
    actor: str = "",
    reason: str = "",
    using: str | None = None,
) -> bool:
    """
    Change every target or none, and write the receipt; return False if this very change was applied before.

    Inside the caller's ``atomic()`` it is a savepoint there: True then means "as soon as you commit". Under REPEATABLE
    READ and SERIALIZABLE a transaction of its own is repeated when another one got in between; the caller's cannot be,
    and gets a Conflict.

    Transaction: its own, or a savepoint in the caller's.
    Raises: InvalidPlan, Conflict, UnknownKind, NotWritten.
    """
    declared = get_kind(kind)
    plan = checked_plan(kind=declared, change_id=change_id, tenant=tenant, targets=targets)
    plans.check_origin(actor=actor, reason=reason)
    alias = using or router.db_for_write(Change)
    return with_retry(alias, lambda: apply_once(declared, plan, actor=actor, reason=reason, alias=alias))


def rehearse_change(
    *, kind: str, change_id: str, tenant: str, targets: Iterable[Target], using: str | None = None
) -> bool:
    """
    Do all that `apply_change` does, and undo it; return whether it would have been applied now.

    Transaction: its own, or a savepoint in the caller's; rolled back.
    Raises: as `apply_change`.
    """
    alias = using or router.db_for_write(Change)
    is_own = not connections[alias].in_atomic_block
    with transaction.atomic(using=alias):
        if is_own:
            dialect_of(connections[alias]).end_when_stopped(connections[alias])
        applied = apply_change(kind=kind, change_id=change_id, tenant=tenant, targets=targets, using=alias)
        transaction.set_rollback(True, using=alias)
    return applied


def apply_with_reconnect(
    *,
    kind: str,
    change_id: str,
    tenant: str,
    targets: Iterable[Target],
    actor: str = "",
    reason: str = "",
    using: str | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Outcome:
    """
    Apply a change even if the connection is lost on the way: reconnect, and look for the receipt or apply.

    A transaction of the lost connection that the server has not given up yet still holds the change_id; the next
    attempt waits for it and then answers from its receipt. So repeating never applies twice.

    Transaction: its own; inside the caller's it is `apply_change`.
    Raises: as `apply_change`, and OutcomeUnknown when the database does not come back.
    """
    alias, kept = using or router.db_for_write(Change), tuple(targets)
    return with_reconnect(
        lambda: apply_change(
            kind=kind, change_id=change_id, tenant=tenant, targets=kept, actor=actor, reason=reason, using=alias
        ),
        about=change_id,
        alias=alias,
        pause=pause,
    )


def with_reconnect(apply: Callable[[], bool], *, about: str, alias: str, pause: Callable[[float], None]) -> Outcome:
    """
    Apply, again over a new connection when one is lost; ``apply`` returns False when it finds itself applied.

    Raises: what ``apply`` raises, as long as no connection was lost; after that OutcomeUnknown for any error of the
    database, because nobody knows what became of the first attempt.
    """
    connection, dialect = connections[alias], dialect_of(connections[alias])
    # A connection inside the caller's transaction cannot be replaced: what was lost with it is the caller's to repeat.
    pauses = (None,) if connection.in_atomic_block else (*RECONNECT_PAUSES_S, None)
    lost: Exception | None = None
    # A receipt that is there after no connection was ever made is from before: nothing of ours can have been sent.
    was_connected = False
    for pause_s in pauses:
        is_connected = False
        try:
            connection.ensure_connection()
            is_connected = True
            applied = apply()
        except (DatabaseError, InterfaceError) as error:
            if was_connected and not dialect.is_lost(error):
                raise unknown_outcome(about, error) from error
            if not dialect.is_lost(error) or connection.in_atomic_block:
                raise
            lost, was_connected = error, was_connected or is_connected
            connection.close()
            if pause_s is not None:
                pause(pause_s)
            continue
        if applied:
            return Outcome.APPLIED
        return Outcome.CONFIRMED if was_connected else Outcome.ALREADY
    if lost is not None and not was_connected:
        raise lost  # no connection was ever made: nothing was sent
    raise unknown_outcome(about, lost) from lost


def unknown_outcome(about: str, error: Exception | None) -> OutcomeUnknown:
    """Return the error that says that nobody knows whether a change was applied."""
    return OutcomeUnknown(f"the connection was lost while {about!r} was being applied: {error}")


def checked_plan(*, kind: ChangeType, change_id: str, tenant: str, targets: Iterable[Target]) -> Plan:
    """Return the plan of a kind that these arguments make, within this site's limits."""
    limit = load_settings().max_targets
    return plans.checked_plan(change_id=change_id, tenant=tenant, targets=targets, targets_max=limit, shape=kind)


def with_retry(alias: str, verb: Callable[[], T], *, durable: bool = False) -> T:
    """Run a verb in a transaction, again while the database gives it up for another transaction's sake."""
    connection = connections[alias]
    is_own = not connection.in_atomic_block
    attempts_max = ATTEMPTS_MAX if is_own else 1
    for attempt in itertools.count(1):
        try:
            with transaction.atomic(using=alias, durable=durable):
                if is_own:
                    dialect_of(connection).end_when_stopped(connection)
                return verb()
        except DatabaseError as error:
            dialect = dialect_of(connection)
            if (
                connection.in_atomic_block
                and not connection.needs_rollback
                and dialect.has_lost_transaction(connection)
            ):
                # The caller must not go on as if what it wrote before were still there.
                transaction.set_rollback(True, using=alias)
            if not dialect.is_collision(error):
                raise
            if attempt == attempts_max:
                raise Collided from error
    raise AssertionError  # for mypy: count() has no end


def change_one(kind: ChangeType, plan: Plan, alias: str) -> Target:
    """Change one row, or say why not."""
    connection, (target,) = connections[alias], plan.targets
    if not kind.is_plain:
        if stale := change_fields(kind, plan.tenant, plan.targets, alias=alias):
            raise Stale([one.as_problem() for one in stale])
        return target
    dialect, shape = dialect_of(connection), kind.shape(connection)
    row = dialect.change_row(connection, shape, plan.tenant, target)
    if row is not None:
        if kind.state_after not in (None, row.state):
            raise NotWritten(f"row {row.id} was changed, but its state is {row.state!r}; look for triggers")
        if row.revision is None or row.revision <= target.revision or row.qty != target.qty:
            raise NotWritten(
                f"row {row.id} was changed, but its revision is {row.revision} and its qty {row.qty}; look for triggers"
            )
        return Target(id=row.id, revision=int(row.revision), qty=int(row.qty))
    standing = dialect.stale_rows(connection, shape, plan.tenant, [target])
    raise Stale(explained(kind, plan, standing)) if standing else Collided


def apply_once(
    kind: ChangeType, plan: Plan, *, actor: str, reason: str, alias: str, author: str = "", approver: str = ""
) -> bool:
    """Answer from the receipt, or claim the change_id, change the rows and read the receipt back."""
    digest = plan.digest(kind=kind.name)
    if is_applied(kind, plan, digest, alias):
        return False
    try:
        # The claim comes before any lock on a row. A second one with the same change_id waits here, for the unique key.
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            claim = [plan.change_id, kind.name, plan.tenant, plan.canonical, digest, actor, reason, author, approver]
            cursor.execute(CLAIM, claim)
    except IntegrityError:
        # The other one was first and has committed. If it cannot be seen, this is an older snapshot, or a real error.
        connection = connections[alias]
        if connection.needs_rollback or dialect_of(connection).has_lost_transaction(connection):
            # With XACT_ABORT ON the error has ended the transaction; where the driver has begun another one since, the
            # savepoint was not found, and Django lets nobody ask for anything.
            raise
        if is_applied(kind, plan, digest, alias):
            return False
        raise
    change_all(kind, plan, alias)
    read_back(kind, plan, digest, alias)
    return True


def is_applied(kind: ChangeType, plan: Plan, digest: str, alias: str) -> bool:
    """Whether the receipt of this very change is there; a receipt of other content is a Conflict."""
    stored = Change.objects.using(alias).filter(pk=plan.change_id).values_list("kind", "tenant", "digest").first()
    if stored is None:
        return False
    if stored != (kind.name, plan.tenant, digest):
        raise ChangeIdReused(plan.change_id)
    return True


def change_all(kind: ChangeType, plan: Plan, alias: str) -> None:
    """Lock, compare, change and audit every row; raise when one is not as approved."""
    connection = connections[alias]
    if not kind.is_plain:
        if stale := change_fields(kind, plan.tenant, plan.targets, alias=alias, change_id=plan.change_id):
            raise Stale([one.as_problem() for one in stale])
        return
    dialect, shape = dialect_of(connection), kind.shape(connection)
    if standing := dialect.stale_rows(connection, shape, plan.tenant, plan.targets):
        raise Stale(explained(kind, plan, standing))
    try:
        changed = dialect.change_rows(connection, shape, plan.tenant, plan.targets, plan.change_id)
    except IntegrityError as error:
        if Audit._meta.db_table not in str(error):
            raise  # a rule of the site's own table
        raise NotWritten(
            f"the rows of {plan.change_id!r} were changed to what no receipt can hold; look for triggers that set "
            f"{shape.qty} to NULL or keep {shape.revision} from growing: {error}"
        ) from error
    if changed != len(plan.targets):
        raise NotWritten(
            f"all {len(plan.targets)} rows of {plan.change_id!r} were as approved, but the database changed {changed}; "
            f"look for triggers, rules and row security on {shape.table}"
        )


def explained(kind: ChangeType, plan: Plan, standing: list[Standing]) -> list[Problem]:
    """Turn rows that are not as approved into problems, each with the first reason that applies."""
    approved = {target.id: target for target in plan.targets}
    return [as_problem(first_problem(kind, approved[row.id], row), approved[row.id], row) for row in standing]


def as_problem(name: str, target: Target, row: Standing) -> Problem:
    """Return what is wrong with a row beside what was approved."""
    return Problem(
        id=target.id,
        problem=name,
        approved={"revision": target.revision, "qty": target.qty},
        current={"revision": row.revision, "qty": row.qty, "state": row.state} if row.found else None,
    )


def first_problem(kind: ChangeType, target: Target, row: Standing) -> str:
    """Name what is wrong, in the order in which a person would look."""
    if not row.found:
        return "missing"
    if row.revision != target.revision:
        return "revision_differs"
    return "qty_differs" if row.qty != target.qty else kind.stale_problem


def read_back(kind: ChangeType, plan: Plan, digest: str, alias: str) -> None:
    """Prove success by reading the receipt, as the transaction's last statement."""
    audit = Audit.objects.using(alias).filter(change_id=plan.change_id)
    if kind.is_plain and kind.state_after is not None:
        # A trigger may have put another state into the row than the kind sets: that is not this change.
        audit = audit.filter(state_after=kind.state_after)
    audited = audit.aggregate(rows=Count("pk"), qty=Sum("qty"))
    stored = Change.objects.using(alias).filter(pk=plan.change_id).values_list("digest", flat=True).first()
    # A trigger may have changed a qty, which no kind sets: what was approved is not what was committed.
    approved: dict[str, Any] = {"rows": len(plan.targets), "qty": audited["qty"]}
    if kind.is_plain:
        approved["qty"] = sum(target.qty for target in plan.targets)
    if stored != digest or audited != approved:
        raise NotWritten(f"the receipt of {plan.change_id!r} cannot be read back whole; look for triggers and rules")
