"""What an engine must be able to do to deliver for us."""

from collections.abc import Sequence
from typing import Protocol

from ..runner import deliver_due


class Sink(Protocol):
    """
    An engine that runs ``deliver_claimed(worker, ids, using)`` somewhere, soon.

    It may lose it, run it twice, or run it late: the claim decides whether anything is left to do.
    """

    def hand_over(self, *, worker: str, ids: Sequence[int], using: str) -> None:
        """Hand over one portion. Raises: OSError or SinkUnusable when the engine cannot be reached."""


def deliver_claimed(worker: str, ids: Sequence[int], using: str) -> int:
    """Deliver mails that were claimed under this name; return how many were sent."""
    return deliver_due(using=using, only=(worker, ids)).sent
