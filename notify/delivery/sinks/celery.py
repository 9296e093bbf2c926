"""Celery delivers: needs the extra ``celery`` and a Celery app in the site."""

from collections.abc import Sequence

from celery import shared_task
from kombu.exceptions import OperationalError

from ...errors import SinkUnusable
from .base import deliver_claimed


# Late: a worker that dies gives the portion back to the broker. A second run is harmless because of the claim.
@shared_task(name="notify.deliver_claimed", acks_late=True, ignore_result=True)  # type: ignore[untyped-decorator]
def deliver(worker: str, ids: Sequence[int], using: str) -> None:
    """Deliver one portion."""
    deliver_claimed(worker, ids, using)


class CelerySink:
    """Hands portions to the site's Celery app."""

    def hand_over(self, *, worker: str, ids: Sequence[int], using: str) -> None:
        """Send one task. Raises: SinkUnusable when the broker cannot be reached."""
        try:
            deliver.apply_async(args=[worker, list(ids), using], retry=False)
        except OperationalError as error:
            raise SinkUnusable(f"the broker cannot be reached: {error}") from error
