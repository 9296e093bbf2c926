"""Words for rows: filters, orders, and writes that may lose a race."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import models

from .addresses import mailbox_key, spellings
from .clock import future, lease_end_max, lease_over, not_future

if TYPE_CHECKING:
    from .models import Attempt, MailQueue, RunLog, Suppression, TaskQueue  # noqa: F401 - in the quotes below


#: Below the 2,100 parameters of SQL Server.
ADDRESSES_PER_QUERY = 1000


class RunLogQuerySet(models.QuerySet["RunLog"]):
    """Words for run-log rows."""

    def running(self) -> RunLogQuerySet:
        """Return rows whose pass or step has not ended."""
        # The second half is implied by the first; the index has it as its condition.
        return self.filter(outcome="running", ended_at__isnull=True)

    def wholes(self) -> RunLogQuerySet:
        """Return the rows that stand for a whole pass."""
        return self.filter(step=self.model.WHOLE)

    def full_since(self, step: str, first: datetime, *, now: datetime) -> RunLogQuerySet:
        """Return this step's rows that scanned all events and started since a moment."""
        return self.full().believable(now).filter(step=step, started_at__gte=first)

    def believable(self, now: datetime) -> RunLogQuerySet:
        """Return the rows that are not from the future."""
        return self.filter(not_future("started_at", now=now))

    def full(self) -> RunLogQuerySet:
        """Return the rows that scanned all events."""
        # IN, because SQLite seeks no bare boolean in an index.
        return self.filter(is_full__in=[True])

    def died(self) -> RunLogQuerySet:
        """Return the rows that a later pass had to close: no end was ever measured."""
        return self.filter(outcome="error", ms__isnull=True)

    def expired(self, before: datetime) -> RunLogQuerySet:
        """Return the rows that started before a moment, oldest first."""
        return self.filter(started_at__lt=before).order_by("started_at", "pk")

    def is_open(self, pass_id: UUID) -> bool:
        """Whether this pass's row still says running: a later holder of the lock would have closed it."""
        return self.wholes().running().filter(pass_id=pass_id).exists()


class MailQueueQuerySet(models.QuerySet["MailQueue"]):
    """Words for queued mails."""

    def due(self, now: datetime) -> MailQueueQuerySet:
        """Return the mails that could be claimed now, the longest due first."""
        unclaimed = models.Q(lease_until__isnull=True) | lease_over(now)
        return self.filter(unclaimed, state="queued", due_at__lte=now, digest_of__isnull=True).order_by("due_at", "pk")

    def lost(self, now: datetime) -> MailQueueQuerySet:
        """Return the mails in ``sending`` whose lease has expired."""
        return self.filter(lease_over(now), state="sending").order_by("pk")

    def misdated(self, now: datetime) -> MailQueueQuerySet:
        """Return the queued mails that a clock which was ahead has put off: by a lease, or by when they are due."""
        attempt = self.model._meta.get_field("tries").related_model
        tried = attempt._base_manager.using(self.db).filter(future("at", now=now), mail=models.OuterRef("pk"))
        is_misdated = future("created_at", now=now) | models.Exists(tried)
        claimed = models.Q(lease_until__gt=lease_end_max(now))
        return self.filter(claimed | (future("due_at", now=now) & is_misdated), state="queued")

    def whole(self, pk: int) -> MailQueueQuerySet:
        """Return one mail and those that travel in it as a digest."""
        return self.filter(models.Q(pk=pk) | models.Q(digest_of=pk))

    def free_for(self, worker: str, now: datetime) -> MailQueueQuerySet:
        """Return the mails that no other worker has claimed."""
        free = models.Q(lease_until__isnull=True) | lease_over(now) | models.Q(worker=worker)
        return self.filter(free)

    def try_take(self, pks: Collection[int], *, worker: str, now: datetime, digest_of: int) -> bool:
        """Add mails to a digest; return False when another worker has claimed one of them in the meantime."""
        free = self.free_for(worker, now).filter(pk__in=pks, state="queued", digest_of__isnull=True)
        return free.update(digest_of=digest_of, worker="", lease_until=None) == len(pks)


class TaskQueueQuerySet(models.QuerySet["TaskQueue"]):
    """Words for tasks."""

    def open(self) -> TaskQueueQuerySet:
        """Return the open tasks."""
        return self.filter(done_at__isnull=True)

    def try_complete(self, pk: int, *, by: str, at: datetime) -> bool:
        """Mark a task as done; return False when somebody was faster."""
        return self.open().filter(pk=pk).update(done_at=at, done_by=by) == 1

    def overdue(self, now: datetime) -> TaskQueueQuerySet:
        """Return what should have been done by now."""
        return self.open().filter(due_at__lt=now).order_by("due_at", "pk")


class AttemptQuerySet(models.QuerySet["Attempt"]):
    """Words for delivery attempts."""

    def final(self) -> AttemptQuerySet:
        """Return the attempts after which a recipient is not tried again, unless a person says so."""
        return self.filter(is_overruled=False, outcome__in=("sent", "refused", "uncertain", "suppressed"))


class SuppressionQuerySet(models.QuerySet["Suppression"]):
    """Words for suppressed addresses."""

    def among(self, addresses: Iterable[str]) -> set[tuple[str, str]]:
        """Return the entries of these addresses, each as ``mailbox_key`` and kind; an empty kind stands for all."""
        asked = sorted({spelling for address in addresses for spelling in spellings(address)})
        found = set[tuple[str, str]]()
        for start in range(0, len(asked), ADDRESSES_PER_QUERY):
            rows = self.filter(address__in=asked[start : start + ADDRESSES_PER_QUERY])
            for address, kind in rows.values_list("address", "kind"):
                found.add((mailbox_key(address, fold_local_part=True), kind))
        return found

    def for_mail(self, addresses: Iterable[str], kind: str) -> SuppressionQuerySet:
        """Return the entries that keep a mail of a kind from these addresses."""
        asked = {spelling for address in list(addresses)[:ADDRESSES_PER_QUERY] for spelling in spellings(address)}
        return self.filter(address__in=asked, kind__in=("", kind)).order_by("address", "kind")
