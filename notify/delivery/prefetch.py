"""
Drafts: mails made ready to fly, the next one while the last one is being written down.

Much of a mail's time goes by waiting for the commit. A thread uses it to render and pack the next mail, which touches
neither the queue nor the wire.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

from django.db import connections

from ..conf import Conf
from ..models import MailQueue
from ..steps import step_of
from ..transports.base import Transport
from .planner import Flight, Ground, plan_flights
from .results import Settlement
from .schedule import digest_window

logger = logging.getLogger(__name__)

#: Seconds that a draft may wait for its turn; after them its date would be old, and quiet hours may have begun.
FRESH_S = 1.0


@dataclass(kw_only=True)
class Draft:
    """A mail whose first flight is planned and packed, or what went wrong with it."""

    settlement: Settlement
    transport: Transport
    #: The flights after the first.
    rest: Iterator[Flight]
    first: tuple[Flight, Any] | None = None
    error: Exception | None = None

    def flights(self) -> Iterator[tuple[Flight, Any]]:
        """Yield each flight with what goes over the wire. Raises: whatever planning, rendering and packing raise."""
        if self.error is not None:
            raise self.error
        if self.first is not None:
            yield self.first
            for flight in self.rest:
                yield flight, self.transport.pack(flight.letter)


def make_draft(
    mail: MailQueue, final: dict[str, str], ground: Ground, transport: Transport, *, is_ahead: bool = False
) -> Draft:
    """Plan a mail and pack its first flight; an error is kept for whoever asks for the flights."""
    settlement = Settlement(mail, final=final, channel=transport.name)
    draft = Draft(settlement=settlement, transport=transport, rest=plan_flights(mail, settlement, ground))
    try:
        if (flight := next(draft.rest, None)) is not None:
            draft.first = flight, transport.pack(flight.letter)
    except Exception as error:  # whatever a template or a value raises
        draft.error = error
    except BaseException as error:
        # Ctrl-C and an engine's time limit come to the thread that delivers; in ours it was the template.
        if not is_ahead:
            raise
        draft.error = RuntimeError(f"{type(error).__name__}: {error}")
        draft.error.__cause__ = error
    return draft


class Ahead(NamedTuple):
    """A draft that is being made, or is made."""

    mail_id: int
    #: When it was begun, by the monotonic clock.
    begun_at: float
    draft: "Future[Draft]"

    @property
    def is_fresh(self) -> bool:
        """Whether it still says what would be said now."""
        return time.monotonic() - self.begun_at < FRESH_S


class Drafts:
    """The drafts of claimed mails, taken in their order; ``look_ahead`` has the next one made by a thread."""

    def __init__(self, mails: Sequence[MailQueue], *, make: Callable[[MailQueue, bool], Draft], conf: Conf) -> None:
        self.mails, self.make, self.conf = mails, make, conf
        self.place = {mail.pk: place for place, mail in enumerate(mails)}
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="notify-drafts")
        self.next: MailQueue | None = None
        self.ahead: Ahead | None = None
        self.is_used = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_used:
            # A template may have read something of the site's, and each thread has connections of its own.
            self.thread.submit(connections.close_all)
        # Whoever leaves by an error has something to write down, and does not wait for a draft that nobody wants.
        self.thread.shutdown(wait=kind is None)

    def take(self, mail: MailQueue) -> Draft:
        """Return a mail's draft."""
        place = self.place[mail.pk] + 1
        self.next = self.mails[place] if place < len(self.mails) else None
        ahead, self.ahead = self.ahead, None
        if ahead is not None and ahead.mail_id == mail.pk and ahead.is_fresh:
            return ahead.draft.result()
        return copy_context().run(self.make, mail, False)

    def look_ahead(self) -> None:
        """Begin with the draft after the one taken last, once."""
        mail, self.next = self.next, None
        # Who travels together is asked of the queue, and only when it is the mail's turn.
        if mail is not None and digest_window(step_of(mail.control.kind), self.conf) is None:
            try:
                draft = self.thread.submit(copy_context().run, self.make, mail, True)
            except RuntimeError as error:  # the machine has no more threads: that is not this mail's fault
                logger.warning("no mail is made ahead: %s", error)
                return
            self.is_used = True
            self.ahead = Ahead(mail.pk, time.monotonic(), draft)
