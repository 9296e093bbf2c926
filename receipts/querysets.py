"""Filters that chain, and conditional updates whose return value says whether they won a race."""

from datetime import datetime
from typing import Any

from django.db import models
from django.db.models import Q

from kwit.db.fields import UtcNow


class PlanState(models.TextChoices):
    DRAFT = "draft"
    APPROVED = "approved"
    APPLIED = "applied"
    REFUSED = "refused"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"


#: States in which a plan waits for a decision.
OPEN_STATES = (PlanState.DRAFT, PlanState.APPROVED)
#: States of plans about which everything is decided; a refused one also has its problems.
CLOSED_STATES = (PlanState.APPLIED, PlanState.REJECTED, PlanState.WITHDRAWN, PlanState.EXPIRED)


class Found(models.TextChoices):
    """What a reconciliation says of a receipt as a whole."""

    MATCH = "match"
    DIFFERS = "differs"
    #: The receipt and its audit rows disagree.
    BROKEN = "broken"


class RunOutcome(models.TextChoices):
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"
    DIED = "died"


class ChangeQuerySet(models.QuerySet[Any]):
    """Receipts."""

    def in_pages(self, *, page_rows: int = 500) -> Any:
        """
        Yield (change_id, kind, tenant) of every receipt, in the order of the key.

        By key range and not with one open cursor, so that it holds no transaction open however long it takes.
        """
        last = ""
        columns = self.order_by("pk").values_list("pk", "kind", "tenant")
        while page := list(columns.filter(pk__gt=last)[:page_rows]):
            yield from page
            last = page[-1][0]


class PlanQuerySet(models.QuerySet[Any]):
    """Stored plans. Each ``try_`` repeats in its WHERE what it relies on, and returns whether this caller won."""

    def is_applied(self, pk: int, *, digest: str = "") -> bool:
        """Whether a plan is applied, with this content if a digest is given."""
        found = self.filter(pk=pk, state=PlanState.APPLIED)
        return (found.filter(digest=digest) if digest else found).exists()

    def open(self) -> "PlanQuerySet":
        """Plans that somebody may still decide about."""
        return self.filter(state__in=OPEN_STATES)

    def try_edit(self, pk: int, *, edits: int, **content: Any) -> bool:
        """Replace the content of a plan that is open and was edited so often; an approval is void with that."""
        won = (
            self.open()
            .filter(pk=pk, edits=edits)
            .update(
                **content,
                edits=edits + 1,
                state=PlanState.DRAFT,
                approver="",
                approver_key="",
                approved_digest="",
                approved_at=None,
            )
        )
        return won == 1

    def try_approve(self, pk: int, *, edits: int, approver: str, approver_key: str, digest: str, now: datetime) -> bool:
        """Approve a draft as long as its content, and who wrote it, is still what the approver saw."""
        won = self.filter(pk=pk, state=PlanState.DRAFT, digest=digest, edits=edits).update(
            state=PlanState.APPROVED,
            approver=approver,
            approver_key=approver_key,
            approved_digest=digest,
            approved_at=now,
        )
        return won == 1

    def try_settle(self, pk: int, *, digest: str, state: PlanState, now: datetime, **more: Any) -> bool:
        """Write down what became of an approved plan whose content is still the approved one."""
        won = self.filter(pk=pk, state=PlanState.APPROVED, approved_digest=digest).update(
            state=state, decided_at=now, **more
        )
        return won == 1

    def try_close(self, pk: int, *, digest: str, state: PlanState, now: datetime, **more: Any) -> bool:
        """Close a plan that is open, with this content if a digest is given, without applying it."""
        found = self.open().filter(pk=pk)
        won = (found.filter(digest=digest) if digest else found).update(state=state, decided_at=now, **more)
        return won == 1

    def expire(self, *, before: datetime, now: datetime) -> int:
        """Close open plans that were written and approved before a moment; return how many."""
        waiting = self.open().filter(created_at__lt=before)
        fresh = Q(approved_at__isnull=False, approved_at__gte=before) | Q(edited_at__gte=before)
        return waiting.exclude(fresh).update(state=PlanState.EXPIRED, decided_at=now)


class RunQuerySet(models.QuerySet[Any]):
    """Runs of ``reconcile --all``. Each ``try_`` repeats that the run is under way: whoever closed it was first."""

    def try_begin(self, pk: int, *, host: str, pid: int, total: int) -> bool:
        """Take a run that was asked for; one process wins."""
        won = self.filter(pk=pk, outcome=RunOutcome.RUNNING, pid__isnull=True).update(
            host=host, pid=pid, total=total, beat_at=UtcNow()
        )
        return won == 1

    def try_beat(self, pk: int, *, done: int, differing: int, undeclared: int) -> bool:
        """Record how far a run has come, as a heartbeat of its process."""
        won = self.filter(pk=pk, outcome=RunOutcome.RUNNING).update(
            done=done, differing=differing, undeclared=undeclared, beat_at=UtcNow()
        )
        return won == 1

    def try_end(self, pk: int, *, outcome: RunOutcome, error: str = "") -> bool:
        """Close a run."""
        won = self.filter(pk=pk, outcome=RunOutcome.RUNNING).update(outcome=outcome, error=error, ended_at=UtcNow())
        return won == 1

    def try_close_dead(self, pk: int, *, beat_at: datetime) -> bool:
        """Close a run whose process has given no heartbeat since then; one that gives one meanwhile is left alone."""
        # Not "equal": SQLite keeps the moment as a text with three decimals, and compares it with one of six.
        won = self.filter(pk=pk, outcome=RunOutcome.RUNNING, beat_at__lte=beat_at).update(
            outcome=RunOutcome.DIED, ended_at=UtcNow()
        )
        return won == 1
