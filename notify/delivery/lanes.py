"""
Lanes: threads that each plan and send one mail at a time over a connection of their own.

A lane writes nothing. It asks before each part goes on the wire and reports what came of the mail; the one thread that
runs the delivery writes for all lanes.
"""

import logging
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from datetime import datetime
from queue import Empty, SimpleQueue

from django.db import connections

from ..conf import Conf
from ..errors import ChannelDown, ClaimLost
from ..models import AttemptOutcome
from ..notes import Note, note
from ..text import one_line
from ..transports.base import Email, Reply, Result, Transport, VerdictUnclear
from .claims import Claim
from .planner import Envelope, Plan, PlanContext, Send, plan_mail
from .results import UNSENT, Try, as_tries

logger = logging.getLogger(__name__)

#: Seconds after which an idle connection is closed. Servers wait longer, and count open connections.
IDLE_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Job:
    """One mail for a lane."""

    claim: Claim
    suppressed: frozenset[tuple[str, str]]
    #: The random part of the mail's Message-IDs, if it has none yet.
    token: str


@dataclass(frozen=True, kw_only=True)
class Begin:
    """A lane asks to send this part; ``tries`` are the results of earlier parts that are not yet written."""

    claim: Claim
    envelope: Envelope
    tries: tuple[Try, ...]
    #: Whether nothing of the mail has been on the wire in this run.
    is_first: bool
    #: True: it is on the wire now. False: it is not ours any more, or no mail is to begin.
    answer: "SimpleQueue[bool | Exception]"


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A lane is done with a mail."""

    claim: Claim
    #: None when it could not be planned.
    plan: Plan | None
    #: What came of its recipients, and how many of these have been handed on to be written.
    tries: tuple[Try, ...]
    written: int
    #: How many parts went over the wire.
    sent: int
    #: Whether its row says that it is on the wire.
    is_begun: bool
    #: Why it was not sent and may be tried again: the channel's trouble, or perhaps the channel's.
    trouble: ChannelDown | None = None
    #: The unexpected error, before anything was sent.
    problem: Note | None = None
    #: Whether it was not begun: another worker has it, or delivery is ending.
    is_lost: bool = False
    #: Whether this lane ends with it: it has no connection and gets none.
    is_lane_over: bool = False


@dataclass(kw_only=True)
class Progress:
    """How far a lane has come with one mail."""

    plan: Plan | None = None
    tries: list[Try] = field(default_factory=list)
    #: How many of ``tries`` have been handed on to be written.
    handed_on: int = 0
    sent: int = 0
    is_begun: bool = False
    #: The part that is being sent, while its result is unknown.
    on_wire: Envelope | None = None

    def unwritten(self) -> tuple[Try, ...]:
        """Return what has not been handed on, and hand it on."""
        fresh = tuple(self.tries[self.handed_on :])
        self.handed_on = len(self.tries)
        return fresh


@dataclass(kw_only=True)
class Lane:
    """One thread with one connection."""

    number: int
    transport: Transport
    conf: Conf
    now: Callable[[], datetime]
    #: Jobs for any lane; None ends the lane that takes it.
    jobs: "SimpleQueue[Job | None]"
    #: What lanes say to the thread that writes.
    events: "SimpleQueue[Begin | Finished]"
    answer: "SimpleQueue[bool | Exception]" = field(default_factory=SimpleQueue)
    context: Context = field(default_factory=copy_context)
    #: Mails since the connection was opened.
    mails: int = 0

    def start(self) -> threading.Thread:
        """Begin to take jobs. Raises: RuntimeError, when the machine has no more threads."""
        thread = threading.Thread(target=self.run, name=f"notify-lane-{self.number}", daemon=True)
        thread.start()
        return thread

    def run(self) -> None:
        """Take jobs until stopped, or until there is no connection."""
        try:
            while (job := self.next_job()) is not None:
                # What a template sets for its thread, a language or a time zone, ends with its mail.
                finished = self.context.copy().run(self.deliver, job)
                self.events.put(finished)
                if finished.is_lane_over:
                    return
        finally:
            self.transport.close()
            # A template may have read something of the site's, and each thread has connections of its own.
            connections.close_all()

    def next_job(self) -> Job | None:
        """Wait for a job; close a connection that is not used."""
        try:
            return self.jobs.get(timeout=IDLE_S)
        except Empty:
            self.close()
            return self.jobs.get()

    def close(self) -> None:
        """Close the connection; the next mail opens another."""
        self.transport.close()
        self.mails = 0

    def deliver(self, job: Job) -> Finished:
        """Plan and send one mail; an exception is reported as its result."""
        progress, claim = Progress(), job.claim

        def finish(**what: object) -> Finished:
            return Finished(
                claim=claim,
                plan=progress.plan,
                tries=tuple(progress.tries),
                written=progress.handed_on,
                sent=progress.sent,
                is_begun=progress.is_begun,
                **what,  # type: ignore[arg-type]
            )

        try:
            now = self.now()
            if claim.joining:
                # How much the server takes at once decides how many of them travel together.
                self.transport.open()
            context = PlanContext(
                conf=self.conf,
                now=now,
                token=job.token,
                octets_max=getattr(self.transport, "size_max", None),
                suppressed=job.suppressed,
            )
            progress.plan = plan = plan_mail(claim, context)
            progress.tries += as_tries(UNSENT, getattr(plan, "unsent", ()), at=now)
            if isinstance(plan, Send):
                self.send_all(plan.envelopes, claim, progress)
        except ClaimLost:
            return finish(is_lost=True)
        except ChannelDown as error:
            if isinstance(error, VerdictUnclear) and progress.on_wire is not None:
                progress.tries += as_tries(progress.on_wire.part, error.results, at=self.now())
            # Trouble that may be the mail's own has closed the connection, not the lane: the next mail opens another.
            return finish(trouble=error, is_lane_over=not isinstance(error, VerdictUnclear))
        except BaseException as error:  # one bad mail must not stop the others; what ends a process comes to its thread
            logger.exception("mail %s", claim.mail.pk)
            what, trace = f"{type(error).__name__}: {error}", traceback.format_exc()
            if progress.on_wire is None:
                reply = Reply(text=trace)
                progress.tries += as_tries(UNSENT, [Result("", AttemptOutcome.ERROR, reply)], at=self.now())
                return finish(problem=note("cannot_be_made", error=one_line(what)))
            envelope, reply = progress.on_wire, Reply(text=f"{what}\n{trace}")
            unknown = [Result(who, AttemptOutcome.UNCERTAIN, reply) for who in envelope.email.recipients]
            progress.tries += as_tries(envelope.part, unknown, at=self.now())
        return finish()

    def send_all(self, envelopes: Sequence[Envelope], claim: Claim, progress: Progress) -> None:
        """Send a mail part by part. Raises: ChannelDown, ClaimLost; whatever packing and sending raise."""
        for envelope in envelopes:
            packed = self.transport.pack(envelope.email)
            if self.mails >= self.conf.CONNECTION_MAILS:
                self.close()
            self.transport.open()
            # Before the commit goes only what no mail can come of; the server takes it in while the database writes.
            self.transport.announce(envelope.email, packed)
            is_first, fresh = not progress.is_begun, progress.unwritten()
            self.events.put(Begin(claim=claim, envelope=envelope, tries=fresh, is_first=is_first, answer=self.answer))
            is_begun = self.answer.get()
            if isinstance(is_begun, Exception):
                raise is_begun
            if not is_begun:
                raise ClaimLost(f"mail {claim.mail.pk}")
            progress.is_begun, progress.on_wire = True, envelope
            results = self.send(envelope.email, packed)
            progress.tries += as_tries(envelope.part, results, at=self.now())
            progress.on_wire = None
            progress.sent += 1

    def send(self, email: Email, packed: object) -> Sequence[Result]:
        """Send one part. Raises: ChannelDown; whatever the transport raises."""
        give_up_at = time.monotonic() + self.conf.LEASE.total_seconds() / 2
        self.mails += 1
        return self.transport.send(email, packed, give_up_at=give_up_at)
