"""
The one writer of a delivery: what came of the last mails and which ones go on the wire next, in one transaction.

What is known of a mail is kept in hand until it is written, also when the session of the database ends; only a worker
that dies leaves doubt. One row that the database refuses does not stop the others.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any

from django.db import DatabaseError, InterfaceError, connections, transaction

from ..conf import Conf
from ..dialects import dialect_of
from ..dialects.base import AttemptRow, Change
from ..errors import ClaimLost, OutcomeNotWritten
from ..models import Attempt, MailQueue, SuppressionCause
from .planner import Envelope
from .results import Settlement, reduce
from .suppressions import suppress

logger = logging.getLogger(__name__)

#: How often a transaction is tried when another one was in the way, and the first pause in between.
TRIES_MAX = 5
PAUSE_S = 0.05
#: Seconds between two attempts to reach a database that has gone away, and how long a stopping worker waits for it.
RECONNECT_S = 1.0
STOPPING_PATIENCE_S = 5.0

#: What Django does not wrap, it lets through as the driver raised it.
LOSSES = (DatabaseError, InterfaceError)


@dataclass(kw_only=True)
class Writer:
    """Collects changes from all lanes and writes them."""

    using: str
    worker: str
    conf: Conf
    now: Callable[[], datetime]
    random: Random
    is_stopping: Callable[[], bool]
    settlements: list[Settlement] = field(default_factory=list)
    begins: list[Envelope] = field(default_factory=list)
    #: Whether what is in hand may have been committed already, by a session whose answer never came.
    is_repeated: bool = False
    #: Whether the database has been away for too long: from now on it is tried once each time.
    has_given_up: bool = False
    #: What the database refused altogether, one line each.
    refused: list[str] = field(default_factory=list)

    def commit(self) -> dict[int, bool | Exception]:
        """
        Write what is in hand; return, for each mail that was to begin, whether it did, or the error that kept it.

        Transaction: its own, durable.
        Raises: OutcomeNotWritten, when the database stays away; what is in hand stays in hand.
        """
        if not self.settlements and not self.begins:
            return {}
        settlements, begins = self.settlements, self.begins
        try:
            answers = self.with_reconnect(lambda: self.write(settlements, begins))
        except LOSSES as error:
            if len(settlements) + len(begins) == 0 or not self.is_of_a_row(error):
                raise
            answers = self.write_apart(settlements, begins)
        self.settlements, self.begins, self.is_repeated = [], [], False
        if self.conf.SUPPRESS_REFUSED:
            for address, reason in (gone for settlement in settlements for gone in settlement.gone):
                suppress(address, reason=reason, cause=SuppressionCause.REFUSED, using=self.using)
        return answers

    def with_reconnect(self, write: Callable[[], dict[int, bool | Exception]]) -> dict[int, bool | Exception]:
        """
        Write, again when another transaction was in the way, and on a new session when ours has ended.

        Raises: DatabaseError, for what the database refuses; OutcomeNotWritten, when it has been away for a lease.
        """
        connection, tried, deadline = connections[self.using], 0, 0.0
        while True:
            try:
                return write()
            except LOSSES as error:
                tried += 1
                dialect = dialect_of(connection)
                if dialect.is_transient(error):
                    if tried >= TRIES_MAX:
                        raise
                    time.sleep(PAUSE_S * 2 ** (tried - 1) * (1 + self.random.random()))
                    continue
                if not dialect.is_lost(error):
                    raise
                self.is_repeated = True
                connection.close()
                now = time.monotonic()
                if not deadline:
                    logger.warning("the database session has ended; what is in hand is written on a new one: %s", error)
                    deadline = now + self.conf.LEASE.total_seconds()
                if self.is_stopping():
                    deadline = min(deadline, now + STOPPING_PATIENCE_S)
                if now >= deadline or self.has_given_up:
                    self.has_given_up = True
                    raise OutcomeNotWritten(f"what came of the mails on the wire is not written: {error}") from error
                time.sleep(min(RECONNECT_S, PAUSE_S * 2 ** (tried - 1)))

    def is_of_a_row(self, error: BaseException) -> bool:
        """Whether an error may be about one of several rows, so that the others can be written without it."""
        dialect = dialect_of(connections[self.using])
        return not dialect.is_transient(error) and not dialect.is_lost(error)

    def write(self, settlements: Sequence[Settlement], begins: Sequence[Envelope]) -> dict[int, bool | Exception]:
        """Write some settlements and begins in one transaction; return which mails are on the wire now."""
        attempts = [row for settlement in settlements for row in settlement.attempts]
        if self.is_repeated:
            attempts = self.not_yet_written(attempts)
        connection, now = connections[self.using], self.now()
        settled = [Change(each.mail_id, each.values) for each in settlements if each.values]
        begun = [Change(each.mail_id, self.begin_values(each, now)) for each in begins if not each.joining]
        is_plain = not any(each.followers for each in settlements) and not any(each.joining for each in begins)
        settled_ids = {change.mail_id for change in settled}
        if is_plain and not settled_ids.intersection(change.mail_id for change in begun):
            ids = dialect_of(connection).write_progress(
                connection, worker=self.worker, now=now, attempts=attempts, settled=settled, begun=begun
            )
            return {each.mail_id: each.mail_id in ids for each in begins}
        with transaction.atomic(using=self.using, durable=True):
            dialect = dialect_of(connection)
            dialect.insert_attempts(connection, attempts)
            for settlement in settlements:
                settle(settlement, using=self.using, worker=self.worker)
            return {each.mail_id: self.try_begin(each, now) for each in begins}

    def try_begin(self, envelope: Envelope, now: datetime) -> bool:
        """Mark a mail as being sent, and the other mails of its digest as part of it; all of them or none."""
        connection, pk, joining = connections[self.using], envelope.mail_id, envelope.joining
        values = self.begin_values(envelope, now)
        dialect = dialect_of(connection)
        if not joining:
            return dialect.try_begin_mail(connection, pk, worker=self.worker, now=now, values=values)
        mails = MailQueue.objects.using(self.using)
        try:
            with transaction.atomic(using=self.using):
                is_taken = self.is_repeated and mails.filter(pk__in=joining, digest_of=pk).count() == len(joining)
                if not is_taken and not mails.try_take(joining, worker=self.worker, now=now, digest_of=pk):
                    raise ClaimLost("another worker has one of the digest's mails")
                if not dialect.try_begin_mail(connection, pk, worker=self.worker, now=now, values=values):
                    raise ClaimLost("another worker has the mail that leads the digest")
        except ClaimLost:
            return False
        return True

    def begin_values(self, envelope: Envelope, now: datetime) -> dict[str, Any]:
        """Return the new values of a mail's row at the start of sending."""
        return {"lease_until": now + self.conf.LEASE, "flight": envelope.part, **envelope.values}

    def not_yet_written(self, attempts: Sequence[AttemptRow]) -> list[AttemptRow]:
        """Return the attempts that a session whose answer never came has not committed."""
        rows = Attempt.objects.using(self.using).filter(mail__in={row.mail_id for row in attempts}, worker=self.worker)
        written = set(rows.values_list("mail_id", "number", "part", "recipient", "at"))
        return [row for row in attempts if (row.mail_id, row.number, row.part, row.recipient, row.at) not in written]

    def write_apart(self, settlements: Sequence[Settlement], begins: Sequence[Envelope]) -> dict[int, bool | Exception]:
        """Write each mail by itself, so that one which the database refuses does not stop the others."""
        answers: dict[int, bool | Exception] = {}
        faulty = {each.mail_id: error for each in settlements if (error := self.write_one(each)) is not None}
        for envelope in begins:
            # The result of its last part cannot be written, so there would be no record of who has received it.
            answers[envelope.mail_id] = faulty.get(envelope.mail_id) or self.begin_one(envelope)
        return answers

    def begin_one(self, envelope: Envelope) -> bool | Exception:
        """Mark one mail as on the wire; return the error when the database refuses it."""
        try:
            return self.with_reconnect(lambda: self.write([], [envelope]))[envelope.mail_id]
        except LOSSES as error:
            if not self.is_of_a_row(error):
                raise
            return error

    def write_one(self, settlement: Settlement) -> Exception | None:
        """Write the result of one mail; if the database refuses it, write a reduced one and return the error."""
        error = self.try_write(settlement)
        if error is None or not settlement.values:
            return error
        reason = " ".join(str(error).split())
        logger.error("the outcome of mail %s cannot be written: %s", settlement.mail_id, reason)
        if all(self.try_write(less) is not None for less in reduce(settlement, reason)):
            self.refused.append(f"mail {settlement.mail_id}: {reason}")
        return error

    def try_write(self, settlement: Settlement) -> Exception | None:
        """Write the result of one mail; return the error when the database refuses it."""
        try:
            self.with_reconnect(lambda: self.write([settlement], []))
        except LOSSES as error:
            if not self.is_of_a_row(error):
                raise
            return error
        return None


def settle_alone(settlement: Settlement, *, using: str, worker: str) -> None:
    """Write one mail's attempts and state. Transaction: the caller's."""
    connection = connections[using]
    dialect_of(connection).insert_attempts(connection, settlement.attempts)
    settle(settlement, using=using, worker=worker)


def settle(settlement: Settlement, *, using: str, worker: str) -> None:
    """Write one mail's state, and that of the mails that travelled in it. Transaction: the caller's."""
    values = settlement.values
    if not values:
        return
    # Lost when somebody else has it by now: a person, or a worker after our lease. The attempts stay true.
    connection = connections[using]
    dialect_of(connection).try_settle_mail(connection, settlement.mail_id, worker=worker, values=values)
    if settlement.followers:
        names = ("state", "sent_at", "problem", "notes", "attempts")
        shared = {name: values[name] for name in names if name in values}
        MailQueue.objects.using(using).filter(digest_of=settlement.mail_id).update(**shared)
