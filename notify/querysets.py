"""Words for rows: filters, orders, and writes that may lose a race."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import models

if TYPE_CHECKING:
    from .models import MailQueue, RunLog, TaskQueue  # noqa: F401 - in the quotes below


class RunLogQuerySet(models.QuerySet["RunLog"]):
    """Words for run-log rows."""

    def running(self) -> RunLogQuerySet:
        """Return rows whose pass or step has not ended."""
        # The second half is implied by the first; it is what the index stands on.
        return self.filter(outcome="running", ended_at__isnull=True)

    def wholes(self) -> RunLogQuerySet:
        """Return the rows that stand for a whole pass."""
        return self.filter(step=self.model.WHOLE)

    def full_between(self, step: str, first: datetime, last: datetime) -> RunLogQuerySet:
        """Return this step's rows that looked at all events and started in this time."""
        return self.filter(step=step, is_full=True, started_at__gte=first, started_at__lte=last)

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

    def of_event(self, kind: str, key: int, key2: int = 0) -> MailQueueQuerySet:
        """Return the mails of one event."""
        return self.filter(control__kind=kind, control__key=key, control__key2=key2)

    def holdable(self) -> MailQueueQuerySet:
        """Return the mails that can still be held back: they wait, and nobody is sending them."""
        return self.filter(state="queued")

    def correctable(self) -> MailQueueQuerySet:
        """Return the blocked mails that lack nothing but an address."""
        return self.filter(state="blocked").exclude(subject="")

    def releasable(self) -> MailQueueQuerySet:
        """Return the blocked mails that could be sent as they are: somebody held them back."""
        return self.correctable().exclude(recipients=[])


class TaskQueueQuerySet(models.QuerySet["TaskQueue"]):
    """Words for tasks."""

    def open(self) -> TaskQueueQuerySet:
        """Return what nobody has done yet."""
        return self.filter(done_at__isnull=True)
