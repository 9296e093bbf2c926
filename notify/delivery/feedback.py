"""What became of mails after they were sent: reports -> outcomes per recipient, each once, and the suppression list."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, fields

from django.db import connections, router, transaction

from ..addresses import mailbox_key
from ..conf import Conf, conf
from ..dialects import dialect_of
from ..models import ADDRESS_LENGTH_MAX, ERROR_CHARS_MAX, Attempt, AttemptOutcome, MailQueue, SuppressionCause
from ..signing import Sent, WrongToken, read_report_token
from ..text import clean, stored
from .email import recipients_of, split_parts
from .reports import Report, find_tokens, parse_message, read_reports
from .suppressions import suppress

logger = logging.getLogger(__name__)

#: What attempts that come from a report have as their channel.
CHANNEL = "report"


@dataclass
class Intake:
    """Counts of processed reports."""

    read: int = 0
    bounced: int = 0
    complained: int = 0
    delivered: int = 0
    #: Known already.
    repeated: int = 0
    #: Without a token of this site, or with one that it has not made.
    forged: int = 0
    #: About nobody who was mailed, or no report at all.
    ignored: int = 0
    suppressed: int = 0

    def add(self, other: "Intake") -> None:
        """Add the figures of another one."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


def take_message(content: bytes, *, addressed_to: Iterable[str] = (), using: str | None = None) -> Intake:
    """
    Record what a message reports; a message with a token that is not ours changes nothing, nor does a second copy.

    Transaction: its own, one per recipient.
    """
    settings, intake = conf(), Intake(read=1)
    message = parse_message(content)
    if message is None:
        intake.ignored += 1
        return intake
    sent = first_genuine(find_tokens(message, base=settings.BOUNCE_ADDRESS, addressed_to=addressed_to))
    if sent is None:
        intake.forged += 1
        return intake
    reports = read_reports(message, content)
    intake.ignored += not reports
    for report in reports:
        record_report(sent, report, intake=intake, settings=settings, using=using)
    return intake


def first_genuine(tokens: Iterable[str]) -> Sent | None:
    """Return what the first token is about that this site has made."""
    for token in list(tokens)[:10]:
        try:
            return read_report_token(token)
        except WrongToken:
            continue
    return None


def take_event(token: str, report: Report, *, using: str | None = None) -> Intake:
    """Record what a sending service reports of one recipient. Transaction: its own."""
    intake = Intake(read=1)
    if (sent := first_genuine([token])) is None:
        intake.forged += 1
    else:
        record_report(sent, report, intake=intake, settings=conf(), using=using)
    return intake


def record_report(sent: Sent, report: Report, *, intake: Intake, settings: Conf, using: str | None) -> None:
    """Write the result of one recipient unless it is known; suppress the address if the site is set to do so."""
    using = using or router.db_for_write(MailQueue)
    with transaction.atomic(using=using):
        # Locked, so that two copies of one report are one outcome.
        mail = MailQueue.objects.using(using).select_for_update().filter(pk=sent.mail_id).first()
        recipient = addressed(mail, sent.part, report.recipient, settings) if mail is not None else None
        if mail is None or recipient is None:
            intake.ignored += 1
            return
        key = mailbox_key(recipient, settings.FOLD_LOCAL_PART)
        tries = Attempt.objects.using(using).filter(mail=mail, outcome=report.outcome)
        known = {mailbox_key(each, settings.FOLD_LOCAL_PART) for each in tries.values_list("recipient", flat=True)}
        if key in known:
            intake.repeated += 1
            return
        connection = connections[using]
        Attempt.objects.using(using).create(
            mail=mail,
            number=max(mail.attempts, 1),
            part=sent.part,
            recipient=recipient[:ADDRESS_LENGTH_MAX],
            outcome=report.outcome,
            code=report.reply.code,
            enhanced=report.reply.enhanced,
            text=stored(clean(report.reply.text), ERROR_CHARS_MAX),
            at=dialect_of(connection).now(connection),
            channel=CHANNEL,
        )
    name = AttemptOutcome(report.outcome).value
    setattr(intake, name, getattr(intake, name) + 1)
    intake.suppressed += suppress_reported(recipient, report, settings, using)


def addressed(mail: MailQueue, part: int, recipient: str, settings: Conf) -> str | None:
    """Return the recipient of a part whom a report means; the only one where it names nobody that was mailed."""
    parts = split_parts(recipients_of(mail, settings).good, settings)
    people = parts[part] if part < len(parts) else ()
    key = mailbox_key(recipient, settings.FOLD_LOCAL_PART)
    for each in people:
        if mailbox_key(each, settings.FOLD_LOCAL_PART) == key:
            return each
    # A mailbox that forwards is reported by the name of where the mail went in the end.
    return people[0] if len(people) == 1 else None


def suppress_reported(recipient: str, report: Report, settings: Conf, using: str) -> bool:
    """Put an address on the suppression list if the site wants that for such a report; return whether it was not."""
    if report.outcome == AttemptOutcome.BOUNCED and report.is_hard and settings.SUPPRESS_BOUNCED:
        return suppress(recipient, reason=str(report.reply), cause=SuppressionCause.BOUNCED, using=using)
    if report.outcome == AttemptOutcome.COMPLAINED and settings.SUPPRESS_COMPLAINED:
        return suppress(recipient, reason=str(report.reply), cause=SuppressionCause.COMPLAINED, using=using)
    return False
