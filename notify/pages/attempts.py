"""What became of a mail, for its own page: each attempt with the server's words, and what else decides about it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kwit.admin.components import NONE, Cell, Fact, Row, Section, Table

from ..addresses import parse_recipients
from ..clock import is_lease_over, paused
from ..explain.messages import say_attempt
from ..models import Attempt, Channel, HeldFor, MailQueue, MailState, Suppression
from .badges import ATTEMPTS, PAUSED, STATES, addressees, line_of
from .stats import CHANNELS_MAX

#: Attempts shown on a mail's page, the newest; a hundred recipients and twelve attempts make more.
ATTEMPTS_SHOWN = 200
#: Mails of a digest shown on its leader's page.
DIGEST_SHOWN = 50
WAITS_FOR = {
    HeldFor.DIGEST: gettext_lazy("others to join its digest"),
    HeldFor.QUIET_HOURS: gettext_lazy("the end of the recipient's quiet hours"),
}
#: (model, page, *args, **query) -> an address, empty when the user may not go there.
Way = Callable[..., str]


@dataclass(frozen=True, kw_only=True)
class Around:
    """What stands about a mail in other rows; ``leader`` is the mail itself unless it travels in a digest."""

    mail: MailQueue
    leader: MailQueue
    attempts: list[Attempt]
    has_more: bool
    followers: list[MailQueue]
    suppressed: list[str]
    pauses: list[Channel]


def look_around(mail: MailQueue, *, now: datetime, is_whole: bool = True) -> Around:
    """
    Read what stands about a mail; four queries.

    Unless it is for somebody who sees all, a pause has no reason: the server's words may quote another tenant's mail.
    """
    leader = mail.digest_of or mail
    attempts = list(Attempt.objects.filter(mail=leader).order_by("-pk")[: ATTEMPTS_SHOWN + 1])
    pauses = list(Channel.objects.filter(paused(now)).order_by("name")[:CHANNELS_MAX])
    for channel in pauses:
        channel.reason = channel.reason if is_whole else ""
    return Around(
        mail=mail,
        leader=leader,
        attempts=attempts[:ATTEMPTS_SHOWN],
        has_more=len(attempts) > ATTEMPTS_SHOWN,
        followers=list(MailQueue.objects.filter(digest_of=mail).order_by("pk")[:DIGEST_SHOWN]),
        suppressed=list(
            Suppression.objects.for_mail(parse_recipients(mail.recipients).good, mail.control.kind).values_list(
                "address", flat=True
            )
        ),
        pauses=pauses,
    )


def sections_of(around: Around, *, now: datetime, way: Way, frame_url: str) -> Iterator[Section]:
    """Yield the parts of a mail's page that tell of its delivery."""
    if facts := list(standing(around, now=now, way=way)):
        yield Section(title=_("What decides about it"), facts=facts)
    if around.attempts:
        yield Section(title=_("Attempts, the newest first"), table=attempts_table(around))
    if around.has_more:
        yield Section(text=_("There are more; these are the newest %d.") % ATTEMPTS_SHOWN)
    if around.followers:
        yield Section(title=_("Mails that travel in it as a digest"), table=digest_table(around, way))
    if around.leader.message_text:
        yield Section(title=_("What was sent"), text=around.leader.message_text)
        if around.leader.message_html:
            yield Section(title=_("What was sent, as HTML"), frame=frame_url)


def standing(around: Around, *, now: datetime, way: Way) -> Iterator[Fact]:
    """Yield what a digest, quiet hours, the suppression list, a pause or a person did to the mail."""
    mail = around.mail
    if mail.digest_of is not None:
        cell = Cell(text=mail.digest_of_id, url=way(MailQueue, "change", mail.digest_of_id))
        yield Fact(name=_("travels in the digest of mail"), cell=cell)
    if mail.state == MailState.QUEUED and mail.held_for and mail.due_at > now:
        yield Fact(name=_("waits for"), cell=Cell(text=WAITS_FOR[HeldFor(mail.held_for)]))
        yield Fact(name=_("until"), cell=Cell(at=mail.due_at))
    if mail.state == MailState.SENDING and is_lease_over(mail.lease_until, now=now):
        yield Fact(name=_("was on the wire with, not heard of since"), cell=Cell(text=mail.worker))
    elif mail.state == MailState.SENDING:
        yield Fact(name=_("on the wire with"), cell=Cell(text=mail.worker))
    elif mail.worker and not is_lease_over(mail.lease_until, now=now):
        yield Fact(name=_("claimed by"), cell=Cell(text=mail.worker))
    for address in around.suppressed:
        url = way(Suppression, "changelist", address=address)
        yield Fact(name=_("on the suppression list"), cell=Cell(text=address, url=url))
    if mail.state == MailState.QUEUED:
        for channel in around.pauses:
            url = way(Channel, "change", channel.pk)
            reason = line_of(channel.reason)
            text = _("%s, because:") % channel.name + " " + reason if reason else channel.name
            yield Fact(name=_("paused channel"), cell=Cell(badge=PAUSED, text=" " + text, url=url))
            yield Fact(name=_("paused until"), cell=Cell(at=channel.paused_until))
    if mail.operator:
        yield Fact(name=_("last decided by"), cell=Cell(text=mail.operator))
        yield Fact(name=_("decided"), cell=Cell(at=mail.operated_at) if mail.operated_at else Cell(text=NONE))
    if mail.sent_at:
        yield Fact(name=_("sent"), cell=Cell(at=mail.sent_at))


def attempts_table(around: Around) -> Table:
    """Return the attempts; texts longer than a line are collapsed."""
    head = [
        _("number"),
        _("recipient"),
        _("outcome"),
        _("code"),
        _("enhanced status"),
        _("the server's words"),
        _("when"),
        _("worker"),
        _("channel"),
    ]
    return Table(head=head, rows=[attempt_row(one) for one in around.attempts], numbers=frozenset({0, 3}))


def attempt_row(attempt: Attempt) -> Row:
    """Return one attempt for one recipient."""
    text = say_attempt(attempt)
    words, fold = line_of(text), None
    if words != text:
        lines = [Row(cells=[Cell(text=line)]) for line in text.split("\n")]
        fold = Table(head=[_("the server's words")], rows=lines)
    badge, overruled = ATTEMPTS[attempt.outcome], _("overruled by a person")
    return Row(
        cells=[
            Cell(text=attempt.number, is_number=True),
            Cell(text=attempt.recipient or NONE),
            Cell(badge=badge, text=f" ({overruled})" if attempt.is_overruled else ""),
            Cell(text=NONE if attempt.code is None else attempt.code, is_number=True),
            Cell(text=attempt.enhanced or NONE),
            Cell(text=words),
            Cell(at=attempt.at),
            Cell(text=attempt.worker),
            Cell(text=attempt.channel),
        ],
        fold=fold,
        fold_name=_("all of it"),
    )


def digest_table(around: Around, way: Way) -> Table:
    """Return the mails that travel in this one."""
    rows = [
        Row(
            cells=[
                Cell(text=mail.pk, url=way(MailQueue, "change", mail.pk)),
                Cell(badge=STATES[mail.state]),
                Cell(text=mail.subject),
                Cell(text=addressees(mail.recipients)),
            ]
        )
        for mail in around.followers
    ]
    return Table(head=[_("mail"), _("state"), _("subject"), _("recipients")], rows=rows)
