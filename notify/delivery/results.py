"""What came of a mail: results by recipient -> attempts, the mail's next state, the figures of a run; pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from random import Random
from typing import Any

from ..conf import Conf
from ..dialects.base import AttemptRow
from ..messages.builder import problem_text
from ..models import ADDRESS_LENGTH_MAX, ERROR_CHARS_MAX, AttemptOutcome, HeldFor, MailQueue, MailState
from ..notes import Note, as_data, from_data, note
from ..text import one_line, stored
from ..transports.base import Reply, Result
from ..transports.replies import is_mailbox_gone
from .schedule import retry_at


@dataclass(frozen=True)
class Try:
    """One recipient's result, where and when."""

    part: int
    result: Result
    at: datetime


@dataclass
class Settlement:
    """What came of one mail so far; ``values`` is what its row gets."""

    mail: MailQueue
    #: Recipients that earlier attempts have done with, and how.
    final: dict[str, str] = field(default_factory=dict)
    channel: str = ""
    tries: list[Try] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    #: Ids of the mails that travel in this one as a digest.
    followers: tuple[int, ...] = ()
    #: How many of ``tries`` have been handed on to be written already.
    written: int = 0
    #: Whether a part is on the wire, and to whom, while nobody knows what came of it.
    airborne: tuple[int, Sequence[str]] | None = None

    def add(self, part: int, results: Iterable[Result], *, at: datetime) -> None:
        """Add what became of recipients."""
        self.tries += [Try(part, result, at) for result in results]
        self.airborne = None

    def parted(self) -> "Settlement":
        """Return a settlement that only records the attempts made since the last one."""
        fresh = self.tries[self.written :]
        self.written = len(self.tries)
        return replace(self, tries=fresh, written=0, values={})

    def put_back(self) -> "Settlement":
        """Leave the mail as if this attempt had not been: it was the channel's fault."""
        self.values = {"state": MailState.QUEUED}
        return self

    def hold(self, reason: HeldFor, until: datetime) -> None:
        """Let the mail wait."""
        self.values = {"state": MailState.QUEUED, "held_for": reason, "due_at": until}

    def block(self, *notes: Note) -> None:
        """Leave the mail to a person."""
        self.values = blocked_values(*notes)

    @property
    def has_passed(self) -> bool:
        """Whether the channel has taken something: it works."""
        return any(each.result.outcome == AttemptOutcome.SENT for each in self.tries)


@dataclass
class DeliveryReport:
    """What one run of delivery did, in mails; ``letters`` counts transactions with the server."""

    sent: int = 0
    partial: int = 0
    retried: int = 0
    failed: int = 0
    uncertain: int = 0
    blocked: int = 0
    held: int = 0
    handed_over: int = 0
    letters: int = 0
    #: Until when the channel pauses and why; None when it does not.
    paused_until: datetime | None = None
    pause_reason: str = ""
    #: The one error of the run: the channel's.
    error: str = ""

    def count(self, settlement: Settlement) -> None:
        """Add one mail."""
        state, mails = settlement.values["state"], 1 + len(settlement.followers)
        if state == MailState.QUEUED:
            name = "held" if "held_for" in settlement.values else "retried"
        else:
            name = MailState(state).value
        setattr(self, name, getattr(self, name) + mails)


def conclude(settlement: Settlement, *, conf: Conf, now: datetime, random: Random) -> Settlement:
    """Decide a mail's next state from what became of each recipient, unless it is held or blocked already."""
    if settlement.values:
        return settlement
    mail, outcomes = settlement.mail, {name: AttemptOutcome(outcome) for name, outcome in settlement.final.items()}
    attempts = mail.attempts + any(each.part >= 0 for each in settlement.tries)
    is_resending = conf.ON_UNCERTAIN == "resend" and attempts < conf.ATTEMPTS_MAX
    open_, free = 0, True
    for each in settlement.tries:
        outcome = each.result.outcome
        if outcome == AttemptOutcome.DEFERRED or (outcome == AttemptOutcome.UNCERTAIN and is_resending):
            open_ += 1
            free = free and each.result.is_free
            outcomes.pop(each.result.recipient, None)
        else:
            outcomes[each.result.recipient] = outcome
    settlement.values = {"attempts": mail.attempts if open_ and free else attempts}
    if open_ and (free or attempts < conf.ATTEMPTS_MAX):
        settlement.values["state"] = MailState.QUEUED
        if not free:
            settlement.values["due_at"] = retry_at(now, attempts=attempts, conf=conf, random=random)
    else:
        settlement.values |= end_values(set(outcomes.values()), bool(open_), now=now, mail=mail)
    return settlement


def blocked_values(*notes: Note) -> dict[str, Any]:
    """Return what the row of a mail gets that is left to a person, with the reasons."""
    return {"state": MailState.BLOCKED, "problem": problem_text(notes), "notes": as_data(notes)}


def end_values(outcomes: set[AttemptOutcome], is_given_up: bool, *, now: datetime, mail: MailQueue) -> dict[str, Any]:
    """Return what the row of a mail gets that will not be tried again."""
    if AttemptOutcome.UNCERTAIN in outcomes:
        return {"state": MailState.UNCERTAIN}
    if outcomes == {AttemptOutcome.SENT} and not is_given_up:
        return {"state": MailState.SENT, "sent_at": now}
    if AttemptOutcome.SENT in outcomes:
        return {"state": MailState.PARTIAL, "sent_at": now}
    if outcomes and outcomes == {AttemptOutcome.SUPPRESSED} and not is_given_up:
        return blocked_values(note("all_suppressed"))
    if not outcomes and not is_given_up:
        return blocked_values(*(from_data(mail.notes) or [note("no_recipient")]))
    return {"state": MailState.FAILED}


def record_unexpected(settlement: Settlement, error: Exception, trace: str, *, at: datetime) -> None:
    """Say on a mail what nobody expected: it is blocked if nothing was sent, uncertain if perhaps something was."""
    what = f"{type(error).__name__}: {error}"
    if settlement.airborne is None:
        settlement.add(-1, [Result("", AttemptOutcome.ERROR, Reply(text=trace))], at=at)
        settlement.block(note("cannot_be_made", error=one_line(what)))
        return
    part, addressed = settlement.airborne
    reply = Reply(text=f"{what}\n{trace}")
    settlement.add(part, [Result(address, AttemptOutcome.UNCERTAIN, reply) for address in addressed], at=at)


def as_attempts(settlement: Settlement, *, worker: str) -> Iterator[AttemptRow]:
    """Yield the rows for what has not been written yet."""
    for each in settlement.tries[settlement.written :]:
        reply = each.result.reply
        yield AttemptRow(
            mail_id=settlement.mail.pk,
            number=settlement.mail.attempts + 1,
            part=max(each.part, 0),
            recipient=each.result.recipient[:ADDRESS_LENGTH_MAX],
            outcome=each.result.outcome.value,
            code=reply.code,
            enhanced=reply.enhanced,
            text=stored(reply.text, ERROR_CHARS_MAX),
            at=each.at,
            worker=worker,
            channel=settlement.channel,
            notes=as_data([reply.note]) if reply.note else None,
        )


def gone_mailboxes(settlement: Settlement) -> Iterator[tuple[str, str]]:
    """Yield the addresses that the server says do not exist, with its words."""
    for each in settlement.tries:
        if each.part >= 0 and each.result.outcome == AttemptOutcome.REFUSED and is_mailbox_gone(each.result.reply):
            yield (
                each.result.recipient,
                " ".join(
                    str(piece) for piece in (each.result.reply.code, each.result.reply.enhanced, each.result.reply.text)
                ),
            )
