"""A queued mail -> the email that goes out: recipients in parts, bodies rendered once, headers; writes nothing."""

import re
from collections.abc import Sequence
from datetime import datetime
from email.utils import format_datetime
from functools import lru_cache
from urllib.parse import quote

from django.apps import apps
from django.conf import settings
from django.urls import reverse

from ..addresses import Recipients, mailbox_key, parse_recipients, wire_domain
from ..conf import Conf
from ..messages.bodies import Body, render_body, render_digest, values_of, values_of_digest
from ..messages.options import File, copies_of, options_of, without
from ..messages.wordings import wording_of
from ..models import Control, MailQueue
from ..signing import Leaving, Sent, bounce_address, seal_link, sign_report
from ..steps import step_of
from ..text import one_line
from ..transports.base import Email
from ..transports.mime import envelope_address

#: What a Message-ID's left side may hold besides the dots between its pieces (RFC 5322, dot-atom-text).
NOT_ATOM = re.compile(r"[^A-Za-z0-9!#$%&'*+/=?^_`{|}~-]")


def recipients_of(mail: MailQueue, conf: Conf) -> Recipients:
    """
    Return whom a mail goes to, those of cc and bcc last; each has an outcome of their own.

    They are checked again: the row may have been written by plain SQL.
    """
    found, fold = parse_recipients(mail.recipients, fold_local_part=conf.FOLD_LOCAL_PART), conf.FOLD_LOCAL_PART
    if not options_of(mail) or not found.good:
        return found
    good = found.good
    for name in ("cc", "bcc"):
        good += without(copies_of(mail, name, fold_local_part=fold), good, fold_local_part=fold)
    return Recipients(good, found.bad)


def key_of(address: str, conf: Conf) -> str:
    """Return what two spellings of one mailbox have in common, by this site's rule."""
    return mailbox_key(address, conf.FOLD_LOCAL_PART)


def split_parts(recipients: Sequence[str], conf: Conf) -> list[tuple[str, ...]]:
    """Split recipients into the parts that are sent one by one."""
    size = conf.RECIPIENTS_MAX
    return [tuple(recipients[start : start + size]) for start in range(0, len(recipients), size)]


def render_mail(mail: MailQueue) -> Body:
    """
    Return a mail's bodies: those of its first attempt when there was one, else rendered from the frozen values.

    Raises: whatever a template or a value raises.
    """
    if mail.message_text:
        return Body(mail.message_text, mail.message_html)
    return render_alone(mail)


def render_together(leader: MailQueue, bodies: Sequence[tuple[MailQueue, Body]]) -> tuple[str, Body]:
    """
    Return the subject and the bodies of a digest, given those of its mails, the leader's among them.

    What was sent once is sent again as it was, whatever its templates and values say today.
    Raises: whatever the digest's own templates raise.
    """
    shown = [(mail.subject, body) for mail, body in sorted(bodies, key=lambda pair: pair[0].pk)]
    subject, body = render_digest(
        shown, name=leader.template, language=leader.language, values=values_of_digest(leader)
    )
    return subject, Body(leader.message_text, leader.message_html) if leader.message_text else body


def render_alone(mail: MailQueue) -> Body:
    """Return a mail's bodies from its frozen values. Raises: whatever a template or a value raises."""
    return render_body(mail.template, values_of(mail), language=mail.language, wording=wording_of(mail))


def sender_of(conf: Conf) -> str:
    """Return the site's sender."""
    return conf.FROM_EMAIL or settings.DEFAULT_FROM_EMAIL


@lru_cache(maxsize=64)
def domain_of(address: str) -> str:
    """Return the domain of an address that may have a display name. Raises: WrongAddress."""
    return envelope_address(address).rpartition("@")[2]


def message_id(control: Control, *, part: int, token: str, conf: Conf) -> str:
    """
    Return the Message-ID of one part: the same at every attempt, another for every mail of every database.

    What stands before the token is for people, who see from it what the mail was about.
    """
    domain = conf.MESSAGE_ID_DOMAIN or domain_of(sender_of(conf)) or "localhost"
    kind = NOT_ATOM.sub(lambda found: quote(found[0], safe=""), control.kind) or "-"
    return f"<kwit.{kind}.{control.key}.{control.key2}.{part}.{token}@{wire_domain(domain)}>"


def make_email(
    mail: MailQueue,
    *,
    body: Body,
    part: int,
    to: tuple[str, ...],
    recipients: tuple[str, ...],
    at: datetime,
    token: str,
    conf: Conf,
    digest_subject: str = "",
    files: tuple[File, ...] = (),
) -> Email:
    """Return the email of one part of a mail, addressed to the recipients of the part who do not have it yet."""
    options, (shown_to, shown_cc) = options_of(mail), split_copies(mail, to, conf)
    own = (
        ("Message-ID", message_id(mail.control, part=part, token=token, conf=conf)),
        ("Date", format_datetime(at)),
        # RFC 3834: so that no absence note answers.
        ("Auto-Submitted", "auto-generated"),
        *unsubscribe_headers(mail, recipients, conf),
    )
    report = Sent(mail.pk or 0, part)
    given = {name: str(value) for name, value in (options.get("headers") or {}).items()}
    taken = {name.lower() for name in given}
    return Email(
        sender=options.get("from_email") or sender_of(conf),
        recipients=recipients,
        to=shown_to,
        cc=shown_cc,
        reply_to=tuple(options.get("reply_to") or ()),
        subject=one_line(digest_subject or mail.subject),
        text=body.text,
        html=body.html,
        headers=(*(pair for pair in own if pair[0].lower() not in taken), *given.items()),
        files=files,
        envelope_sender=bounce_address(conf.BOUNCE_ADDRESS, report) if conf.BOUNCE_ADDRESS else "",
        report_token=sign_report(report) if conf.BOUNCE_ADDRESS or apps.is_installed("anymail") else "",
    )


def split_copies(mail: MailQueue, addresses: tuple[str, ...], conf: Conf) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which of a part's addresses appear in its To and its Cc; those of bcc appear nowhere."""
    if not options_of(mail):
        return addresses, ()
    fold = conf.FOLD_LOCAL_PART
    rest = without(addresses, parse_recipients(mail.recipients, fold_local_part=fold).good, fold_local_part=fold)
    hidden = without(rest, copies_of(mail, "cc", fold_local_part=fold), fold_local_part=fold)
    return tuple(a for a in addresses if a not in rest), tuple(a for a in rest if a not in hidden)


def unsubscribe_headers(mail: MailQueue, recipients: tuple[str, ...], conf: Conf) -> list[tuple[str, str]]:
    """
    Return how a recipient can say that these mails are not wanted: by mail, and by one click (RFC 8058) where there is
    one recipient, whose link it is.
    """
    kind = mail.control.kind
    addresses, step = [f"<{unsubscribe_address(kind, conf)}>"], step_of(kind)
    site_url = options_of(mail).get("site_url") or conf.SITE_URL.rstrip("/")
    if not conf.UNSUBSCRIBE_LINKS or not site_url or len(recipients) != 1 or (step is not None and step.mandatory):
        return [("List-Unsubscribe", addresses[0])]
    leaving = Leaving(mailbox_key(recipients[0], fold_local_part=True), kind, mail.language)
    link = f"<{site_url}{reverse('notify:unsubscribe', args=[seal_link(leaving)])}>"
    return [
        ("List-Unsubscribe", ", ".join([link, *addresses])),
        ("List-Unsubscribe-Post", "List-Unsubscribe=One-Click"),
    ]


def unsubscribe_address(kind: str, conf: Conf) -> str:
    """Return where a recipient can say that these mails are not wanted (RFC 2369)."""
    if conf.UNSUBSCRIBE:
        return conf.UNSUBSCRIBE.replace("{kind}", quote(kind, safe=""))
    return f"mailto:{envelope_address(sender_of(conf))}?subject=unsubscribe%20{quote(kind, safe='')}"
