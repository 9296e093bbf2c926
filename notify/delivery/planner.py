"""What becomes of a claimed mail now: it is held, blocked, or sent in parts; reads no database and writes nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from ..addresses import mailbox_key
from ..conf import Conf
from ..errors import UnusableAttachment
from ..messages.bodies import Body
from ..messages.options import File, read_files
from ..models import AttemptOutcome, HeldFor, MailQueue
from ..notes import Note, from_data, note
from ..steps import Step, step_of
from ..transports.base import Email, Result, own_reply
from ..transports.mime import compose
from .claims import Claim, is_untried
from .email import key_of, make_email, render_alone, render_mail, render_together, split_parts
from .schedule import digest_window, quiet_until


@dataclass(frozen=True, kw_only=True)
class PlanContext:
    """What holds for all mails that are planned now."""

    conf: Conf
    now: datetime
    #: The random part of the mail's Message-IDs, if it has none yet.
    token: str
    #: The most octets that the server takes at once; None when it does not say.
    octets_max: int | None = None
    #: Which of the addresses are on the suppression list, in lower case.
    suppressed: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Hold:
    """The mail waits."""

    reason: HeldFor
    until: datetime


@dataclass(frozen=True)
class Block:
    """The mail is left to a person; ``unsent`` is recorded with it."""

    problem: tuple[Note, ...]
    unsent: tuple[Result, ...] = ()


@dataclass(frozen=True)
class Withdraw:
    """The mail is not sent, because its event is no longer true."""

    reason: Note


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """One part of one mail: the data of one SMTP transaction, and the new values of its row at the start."""

    mail_id: int
    part: int
    email: Email
    values: Mapping[str, str] = field(default_factory=dict)
    #: Ids of mails that join this one's digest and must not go by themselves.
    joining: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Send:
    """The mail is sent; without envelopes no recipients are left."""

    envelopes: tuple[Envelope, ...] = ()
    #: What became of those who are not addressed.
    unsent: tuple[Result, ...] = ()
    #: Ids of the mails that travel in this one as a digest.
    followers: tuple[int, ...] = ()


Plan = Hold | Block | Withdraw | Send


class Part(NamedTuple):
    """One part of a mail's recipients: all of them, and those whom earlier attempts have not done with."""

    number: int
    to: tuple[str, ...]
    open: tuple[str, ...]


class Content(NamedTuple):
    """What a mail says; a mail that is no digest has no subject of its own here."""

    body: Body
    subject: str = ""
    followers: tuple[int, ...] = ()
    joining: tuple[int, ...] = ()
    files: tuple[File, ...] = ()


def plan_mail(claim: Claim, context: PlanContext) -> Plan:
    """Return what becomes of a mail now. Raises: whatever a template or a value raises."""
    mail, conf, now = claim.mail, context.conf, context.now
    step = step_of(mail.control.kind)
    if claim.gone is not None:
        return Withdraw(claim.gone) if claim.gone.code == "withdrawn" else Block((claim.gone,))
    if (hold := try_hold(mail, step, conf, now)) is not None:
        return hold
    unsent = not_addresses(claim, conf)
    if not claim.recipients.good:
        bad = [note("not_an_address", addresses=", ".join(claim.recipients.bad))] if claim.recipients.bad else []
        return Block(tuple(from_data(mail.notes)) or (note("no_recipient"), *bad), unsent)
    parts, suppressed = choose_recipients(claim, context)
    unsent += suppressed
    if not parts:
        return Send(unsent=unsent)
    if not mail.subject:
        return Block((note("empty_subject"),), unsent)
    try:
        files = read_files(step, mail, bytes_max=conf.ATTACHMENT_BYTES)
    except UnusableAttachment as error:
        return Block((error.note,), unsent)
    content = make_content(claim, step, context)._replace(files=files)
    return Send(
        envelopes=tuple(make_envelope(claim, part, content, context, is_first=part is parts[0]) for part in parts),
        unsent=unsent,
        followers=content.followers,
    )


def choose_recipients(claim: Claim, context: PlanContext) -> tuple[list[Part], tuple[Result, ...]]:
    """Return the parts to send, and the results of recipients on the suppression list."""
    said_no, parts, suppressed = own_reply("address_suppressed"), [], []
    for part in open_parts(claim, context.conf):
        refused = [who for who in part.open if is_suppressed(who, claim, context)]
        suppressed += [Result(who, AttemptOutcome.SUPPRESSED, said_no) for who in refused]
        if left := tuple(who for who in part.open if who not in refused):
            parts.append(part._replace(open=left))
    return parts, tuple(suppressed)


def make_envelope(claim: Claim, part: Part, content: Content, context: PlanContext, *, is_first: bool) -> Envelope:
    """Return one part of a mail; the row keeps what is sent from the first one on."""
    mail, token = claim.mail, claim.mail.message_token or context.token
    email = make_email(
        mail,
        body=content.body,
        part=part.number,
        to=part.to,
        recipients=part.open,
        at=context.now,
        token=token,
        conf=context.conf,
        digest_subject=content.subject,
        files=content.files,
    )
    if not is_first:
        return Envelope(mail_id=mail.pk, part=part.number, email=email)
    values = values_to_keep(mail, content.body) | ({} if mail.message_token else {"message_token": token})
    return Envelope(mail_id=mail.pk, part=part.number, email=email, values=values, joining=content.joining)


def try_hold(mail: MailQueue, step: Step | None, conf: Conf, now: datetime) -> Hold | None:
    """Return how a mail waits: for others to join its digest, or for the end of the recipient's quiet hours."""
    window = digest_window(step, conf)
    if window is not None and mail.attempts == 0 and now < mail.created_at + window:
        return Hold(HeldFor.DIGEST, mail.created_at + window)
    zone = mail.payload.get("timezone") if isinstance(mail.payload, dict) else None
    until = quiet_until(now, step, conf, zone)
    return None if until is None else Hold(HeldFor.QUIET_HOURS, until)


def is_suppressed(address: str, claim: Claim, context: PlanContext) -> bool:
    """Whether an address gets no mail, or none of this kind; a kind that is mandatory cannot be left."""
    kind, key = claim.mail.control.kind, mailbox_key(address, fold_local_part=True)
    step = step_of(kind)
    return (key, "") in context.suppressed or (
        (key, kind) in context.suppressed and not (step is not None and step.mandatory)
    )


def not_addresses(claim: Claim, conf: Conf) -> tuple[Result, ...]:
    """Return the refusals of invalid addresses, unless an earlier attempt has recorded them."""
    return tuple(
        Result(bad, AttemptOutcome.REFUSED, own_reply("address_invalid"))
        for bad in claim.recipients.bad
        if key_of(bad, conf) not in claim.final
    )


def open_parts(claim: Claim, conf: Conf) -> list[Part]:
    """Return the parts of a mail, each with the recipients that earlier attempts have not done with."""
    return [
        Part(number, to, tuple(address for address in to if key_of(address, conf) not in claim.final))
        for number, to in enumerate(split_parts(claim.recipients.good, conf))
    ]


def make_content(claim: Claim, step: Step | None, context: PlanContext) -> Content:
    """
    Return what a mail says, alone or as a digest of as many mails as the server and NOTIFY_DIGEST_BYTES let through.

    Raises: whatever a template or a value of this mail raises; one of another leaves that one behind, to be blocked by
    itself when its own turn comes.
    """
    mail = claim.mail
    body = render_mail(mail)
    if digest_window(step, context.conf) is None:
        return Content(body)
    if not is_untried(mail):
        # A digest that was sent once is sent as it was: its bodies are kept, only its subject is made again.
        return make_digest(mail, body, [(other, Body("", "")) for other in claim.companions])
    bodies = [(other, found) for other in claim.joining if (found := try_body(other))]
    octets_max = min(context.conf.DIGEST_BYTES, context.octets_max or context.conf.DIGEST_BYTES)
    content = make_digest(mail, body, bodies)
    while bodies and octets_of(claim, content, context) > octets_max:
        bodies = bodies[: len(bodies) * 3 // 4]
        content = make_digest(mail, body, bodies)
    return content._replace(joining=content.followers)


def make_digest(mail: MailQueue, body: Body, others: Sequence[tuple[MailQueue, Body]]) -> Content:
    """Return what a mail says together with others; alone when there are none."""
    if not others:
        return Content(body)
    subject, together = render_together(mail, [(mail, body), *others])
    return Content(together, subject, tuple(other.pk for other, _ in others))


def octets_of(claim: Claim, content: Content, context: PlanContext) -> int:
    """Return how long a mail is as it goes over the wire; its encoding may be a third more than its text, or thrice."""
    part = open_parts(claim, context.conf)[0]
    return len(compose(make_envelope(claim, part, content, context, is_first=False).email))


def try_body(mail: MailQueue) -> Body | None:
    """Return a mail's bodies, None when they cannot be made."""
    try:
        return render_alone(mail)
    except Exception:  # whatever a template or a value raises; the mail's own turn says what
        return None


def values_to_keep(mail: MailQueue, body: Body) -> dict[str, str]:
    """Return what a row keeps of what is sent."""
    is_kept = mail.message_text == body.text and mail.message_html == body.html
    return {} if is_kept else {"message_text": body.text, "message_html": body.html}


def lost_results(claim: Claim, conf: Conf) -> list[Result]:
    """Return the outcome of the recipients that were being sent to when their worker was lost."""
    silent = own_reply("worker_lost", worker=claim.mail.worker)
    lost = claim.mail.flight or 0
    addressed: Sequence[str] = next((part.open for part in open_parts(claim, conf) if part.number == lost), ())
    return [Result(address, AttemptOutcome.UNCERTAIN, silent) for address in addressed]


def has_other_open_parts(claim: Claim, conf: Conf) -> bool:
    """Whether other parts of the mail than the one on the wire wait to be sent."""
    lost = claim.mail.flight or 0
    return any(part.open for part in open_parts(claim, conf) if part.number != lost)
