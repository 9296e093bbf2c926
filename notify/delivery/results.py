"""Results by recipient -> attempts, the mail's next state, the counts of a run; pure functions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from random import Random
from typing import Any

from ..conf import Conf
from ..dialects.base import AttemptRow
from ..messages.builder import problem_text
from ..models import ADDRESS_LENGTH_MAX, ERROR_CHARS_MAX, AttemptOutcome, HeldFor, MailQueue, MailState
from ..notes import Note, as_data, from_data, note
from ..text import stored
from ..transports.base import Result
from .claims import Claim
from .email import key_of
from .schedule import retry_at

#: The "part" of an outcome that no server had a say in.
UNSENT = -1


@dataclass(frozen=True)
class Try:
    """One recipient's result, where and when; part UNSENT is one that no server had a say in."""

    part: int
    result: Result
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Settlement:
    """The changes to write for one mail: attempts and new values of its row; without values its claim continues."""

    mail_id: int
    attempts: tuple[AttemptRow, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    #: Ids of the mails that travel in this one as a digest.
    followers: tuple[int, ...] = ()
    #: Mailboxes that the server says do not exist, with its words.
    gone: tuple[tuple[str, str], ...] = ()


@dataclass
class DeliveryReport:
    """What one run of delivery did, in mails; ``letters`` counts transactions with the server."""

    sent: int = 0
    partial: int = 0
    retried: int = 0
    failed: int = 0
    uncertain: int = 0
    blocked: int = 0
    withdrawn: int = 0
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


def as_tries(part: int, results: Iterable[Result], *, at: datetime) -> tuple[Try, ...]:
    """Return the results of recipients, with channel and time."""
    return tuple(Try(part, result, at) for result in results)


def hold_values(reason: HeldFor, until: datetime) -> dict[str, Any]:
    """Return what the row of a mail gets that waits."""
    return {"state": MailState.QUEUED, "held_for": reason, "due_at": until}


def block_values(*notes: Note) -> dict[str, Any]:
    """Return what the row of a mail gets that is left to a person, with the reasons."""
    return {"state": MailState.BLOCKED, "problem": problem_text(notes), "notes": as_data(notes)}


def withdraw_values(reason: Note) -> dict[str, Any]:
    """Return what the row of a mail gets whose event is no longer true."""
    return {"state": MailState.WITHDRAWN, "held_for": "", "problem": problem_text([reason]), "notes": as_data([reason])}


def conclude(claim: Claim, tries: Sequence[Try], *, conf: Conf, now: datetime, random: Random) -> dict[str, Any]:
    """Return a mail's next state and other new values of its row, from the results of its recipients."""
    mail = claim.mail
    outcomes = {key: AttemptOutcome(outcome) for key, outcome in claim.final.items()}
    attempts = mail.attempts + any(each.part >= 0 for each in tries)
    is_resending = conf.ON_UNCERTAIN == "resend" and attempts < conf.ATTEMPTS_MAX
    open_, free = 0, True
    for each in tries:
        outcome, key = each.result.outcome, key_of(each.result.recipient, conf)
        if outcome == AttemptOutcome.DEFERRED or (outcome == AttemptOutcome.UNCERTAIN and is_resending):
            open_ += 1
            free = free and each.result.is_free
            outcomes.pop(key, None)
        else:
            outcomes[key] = outcome
    values: dict[str, Any] = {"attempts": mail.attempts if open_ and free else attempts}
    if not open_ or (not free and attempts >= conf.ATTEMPTS_MAX):
        return values | end_values(set(outcomes.values()), bool(open_), now=now, mail=mail)
    if not free:
        values["due_at"] = retry_at(now, attempts=attempts, conf=conf, random=random)
    return values | {"state": MailState.QUEUED}


def end_values(outcomes: set[AttemptOutcome], is_given_up: bool, *, now: datetime, mail: MailQueue) -> dict[str, Any]:
    """Return what the row of a mail gets that will not be tried again."""
    if AttemptOutcome.UNCERTAIN in outcomes:
        return {"state": MailState.UNCERTAIN}
    if outcomes == {AttemptOutcome.SENT} and not is_given_up:
        return {"state": MailState.SENT, "sent_at": now}
    if AttemptOutcome.SENT in outcomes:
        return {"state": MailState.PARTIAL, "sent_at": now}
    if outcomes and outcomes == {AttemptOutcome.SUPPRESSED} and not is_given_up:
        return block_values(note("all_suppressed"))
    if not outcomes and not is_given_up:
        return block_values(*(from_data(mail.notes) or [note("no_recipient")]))
    return {"state": MailState.FAILED}


def as_attempts(claim: Claim, tries: Iterable[Try], *, worker: str, channel: str) -> tuple[AttemptRow, ...]:
    """Return the attempt rows for the results of recipients."""
    return tuple(
        AttemptRow(
            mail_id=claim.mail.pk,
            number=claim.number_last + 1,
            part=max(each.part, 0),
            recipient=each.result.recipient[:ADDRESS_LENGTH_MAX],
            outcome=each.result.outcome.value,
            code=each.result.reply.code,
            enhanced=each.result.reply.enhanced,
            text=stored(each.result.reply.text, ERROR_CHARS_MAX),
            at=each.at,
            worker=worker,
            channel=channel,
            notes=as_data([each.result.reply.note]) if each.result.reply.note else None,
        )
        for each in tries
    )


def reduce(settlement: Settlement, reason: str) -> list[Settlement]:
    """
    Return what may be written of a mail instead, the most first, when the database refuses all of it.

    Without its attempts nobody could tell who has got it, so what would be tried again waits for a person.
    """
    state = settlement.values.get("state", MailState.QUEUED)
    bare = replace(settlement, attempts=(), gone=())
    blocked = replace(bare, values=block_values(note("outcome_not_written", error=reason)))
    return [blocked] if state == MailState.QUEUED else [replace(bare, values={"state": state}), blocked]


def gone_mailboxes(tries: Iterable[Try]) -> Iterator[tuple[str, str]]:
    """Yield the addresses that the server says do not exist, with its words."""
    for part, result, _at in ((each.part, each.result, each.at) for each in tries):
        if part >= 0 and result.outcome == AttemptOutcome.REFUSED and result.is_gone:
            yield result.recipient, str(result.reply)
