"""Django's Tasks framework delivers: needs Django 6 and a TASKS setting whose backend runs things elsewhere."""

from collections.abc import Sequence

from django.tasks import task

from .base import deliver_claimed


@task()
def deliver(worker: str, ids: Sequence[int], using: str) -> None:
    """Deliver one portion."""
    deliver_claimed(worker, ids, using)


class TasksSink:
    """Hands portions to the site's default task backend."""

    def hand_over(self, *, worker: str, ids: Sequence[int], using: str) -> None:
        """Enqueue one task."""
        deliver.enqueue(worker=worker, ids=list(ids), using=using)
