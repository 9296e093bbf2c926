"""What of a mail goes out now: held back, blocked, or split into flights, each one transaction with the server."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..conf import Conf
from ..messages.bodies import Body
from ..models import AttemptOutcome, HeldFor, MailQueue, MailState
from ..notes import from_data, note
from ..steps import Step, step_of
from ..transports.base import Letter, Result, own_reply
from .email import key_of, make_letter, recipients_of, render_alone, render_mail, render_together, split_parts
from .results import Settlement
from .schedule import digest_window, quiet_until

#: Mails in one digest: more is no mail that anybody reads; the rest makes the next one.
DIGEST_MAILS_MAX = 100
#: The "part" of an outcome that no server had a say in.
UNSENT = -1


@dataclass(frozen=True, kw_only=True)
class Flight:
    """One part of one mail, about to go over the wire."""

    mail: MailQueue
    part: int
    letter: Letter
    is_last: bool
    #: What the mail's row gets when the flight begins: what is about to be sent.
    values: Mapping[str, Any] = field(default_factory=dict)
    #: Ids of mails that this flight takes along and that must not go by themselves.
    taken: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ground:
    """Where and when flights are planned."""

    using: str
    conf: Conf
    now: datetime
    worker: str
    #: Which of the batch's addresses are on the suppression list, in lower case.
    suppressed: frozenset[str] = frozenset()


def plan_flights(mail: MailQueue, settlement: Settlement, ground: Ground) -> Iterator[Flight]:
    """
    Yield the flights of a mail; none when it waits or is blocked, which stands in the settlement then.

    Raises: whatever a template or a value raises, before the first flight.
    """
    step = step_of(mail.control.kind)
    if hold_back(mail, step, settlement, ground):
        return
    parts = choose(mail, settlement, ground)
    if not parts:
        return
    if not mail.subject:
        settlement.block(note("empty_subject"))
        return
    subject, body, others, taken = made(mail, step, ground)
    settlement.followers = tuple(other.pk for other in others)
    for place, (part, to, recipients) in enumerate(parts):
        letter = make_letter(
            mail,
            body=body,
            part=part,
            to=to,
            recipients=recipients,
            at=ground.now,
            conf=ground.conf,
            digest_subject=subject,
        )
        is_first, is_last = place == 0, place == len(parts) - 1
        yield Flight(
            mail=mail,
            part=part,
            letter=letter,
            is_last=is_last,
            values=kept(mail, body) if is_first else {},
            taken=taken if is_first else (),
        )


def made(mail: MailQueue, step: Step | None, ground: Ground) -> tuple[str, Body, Sequence[MailQueue], tuple[int, ...]]:
    """
    Return a digest's subject, the bodies, the mails that travel in this one, and the ids of those that join only now.

    Raises: whatever a template or a value of this mail raises; one of another leaves that one behind, to be blocked by
    itself when its own turn comes.
    """
    body = render_mail(mail)
    if digest_window(step, ground.conf) is None:
        return "", body, (), ()
    is_first = not (mail.attempts or mail.message_text)
    joining = fellow_travellers(mail, ground) if is_first else companions(mail, ground)
    # A digest that was sent once is sent as it was: its bodies are kept, only its subject is made again.
    bodies = [(other, found) for other in joining if (found := try_body(other) if is_first else Body("", ""))]
    others = [other for other, _body in bodies]
    if not others:
        return "", body, (), ()
    subject, body = render_together(mail, [(mail, body), *bodies])
    return subject, body, others, tuple(other.pk for other in others) if is_first else ()


def try_body(mail: MailQueue) -> Body | None:
    """Return a mail's bodies, None when they cannot be made."""
    try:
        return render_alone(mail)
    except Exception:  # whatever a template or a value raises; the mail's own turn says what
        return None


def kept(mail: MailQueue, body: Body) -> dict[str, str]:
    """Return what a row keeps of what is sent."""
    is_kept = mail.message_text == body.text and mail.message_html == body.html
    return {} if is_kept else {"message_text": body.text, "message_html": body.html}


def hold_back(mail: MailQueue, step: Step | None, settlement: Settlement, ground: Ground) -> bool:
    """Whether the mail waits: for others to join its digest, or for the end of the recipient's quiet hours."""
    window = digest_window(step, ground.conf)
    if window is not None and mail.attempts == 0 and ground.now < mail.created_at + window:
        settlement.hold(HeldFor.DIGEST, mail.created_at + window)
        return True
    zone = mail.payload.get("timezone") if isinstance(mail.payload, dict) else None
    until = quiet_until(ground.now, step, ground.conf, zone)
    if until is not None:
        settlement.hold(HeldFor.QUIET_HOURS, until)
    return until is not None


def choose(
    mail: MailQueue, settlement: Settlement, ground: Ground
) -> list[tuple[int, tuple[str, ...], tuple[str, ...]]]:
    """Return (part, all of that part, those still to be mailed); who will not be mailed is added to the settlement."""
    conf, given = ground.conf, recipients_of(mail, ground.conf)
    known = {key_of(address, conf) for address in settlement.final}
    nobody = [
        Result(bad, AttemptOutcome.REFUSED, own_reply("address_invalid")) for bad in given.bad if bad not in known
    ]
    if not given.good:
        settlement.add(UNSENT, nobody, at=ground.now)
        bad = [note("not_an_address", addresses=", ".join(given.bad))] if given.bad else []
        settlement.block(*(from_data(mail.notes) or (note("no_recipient"), *bad)))
        return []
    open_ = {address: key_of(address, conf) for address in given.good if key_of(address, conf) not in known}
    refused = [a for a, key in open_.items() if key.lower() in ground.suppressed]
    said_no = own_reply("address_suppressed")
    settlement.add(UNSENT, [*nobody, *(Result(a, AttemptOutcome.SUPPRESSED, said_no) for a in refused)], at=ground.now)
    parts = []
    for part, to in enumerate(split_parts(given.good, conf)):
        if recipients := tuple(a for a in to if a in open_ and a not in refused):
            parts.append((part, to, recipients))
    return parts


def companions(mail: MailQueue, ground: Ground) -> Sequence[MailQueue]:
    """Return the mails that have travelled in this one before."""
    mails = MailQueue.objects.using(ground.using).select_related("control")
    return list(mails.filter(digest_of=mail.pk).order_by("pk"))


def fellow_travellers(mail: MailQueue, ground: Ground) -> Sequence[MailQueue]:
    """Return the mails that could join this one now."""
    mails = MailQueue.objects.using(ground.using).select_related("control")
    joining = mails.free_for(ground.worker, ground.now).filter(
        control__kind=mail.control.kind,
        template=mail.template,
        language=mail.language,
        recipients=mail.recipients,
        # Who may see one tenant's mails would else read another's in the digest.
        tenant=mail.tenant,
        state=MailState.QUEUED,
        attempts=0,
        message_text="",
        digest_of__isnull=True,
    )
    return list(joining.exclude(pk=mail.pk).exclude(subject="").order_by("pk")[: DIGEST_MAILS_MAX - 1])


def open_of_part(mail: MailQueue, settlement: Settlement, conf: Conf) -> dict[int, list[str]]:
    """Return, per part, the recipients that earlier attempts have not done with."""
    known = {key_of(address, conf) for address in settlement.final}
    parts = enumerate(split_parts(recipients_of(mail, conf).good, conf))
    return {part: [address for address in to if key_of(address, conf) not in known] for part, to in parts}


def lost_results(mail: MailQueue, settlement: Settlement, conf: Conf) -> list[Result]:
    """Return the outcome of the recipients that were addressed when their worker went silent."""
    silent = own_reply("worker_lost", worker=mail.worker)
    addressed = open_of_part(mail, settlement, conf).get(mail.flight or 0, [])
    return [Result(address, AttemptOutcome.UNCERTAIN, silent) for address in addressed]


def has_open(mail: MailQueue, settlement: Settlement, conf: Conf) -> bool:
    """Whether other parts of the mail wait for their flight."""
    rest = open_of_part(mail, settlement, conf)
    return any(addresses for part, addresses in rest.items() if part != (mail.flight or 0))
