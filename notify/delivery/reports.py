"""
Mail about a mail -> what became of which recipient; pure, writes nothing.

Delivery reports (RFC 3464), receipts (RFC 3798) and feedback reports (RFC 5965, ARF) have a form of their own; bounces
without one are read by flufl.bounce. What cannot be read says nothing.
"""

import email
import email.policy
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.message import EmailMessage, Message

from ..addresses import is_address
from ..models import AttemptOutcome
from ..signing import token_in
from ..text import one_line
from ..transports.base import Reply
from ..transports.replies import is_mailbox_gone, parse_reply

#: Octets of a report that are read: it may have the whole mail attached.
REPORT_OCTETS_MAX = 16_000_000
#: Octets up to which a report without a form is looked through, line by line and by many patterns.
LOOSE_OCTETS_MAX = 200_000
#: Parts of a message that are looked at, and recipients of one report.
PARTS_MAX, RECIPIENTS_MAX = 50, 1000
#: Headers in which a mail server says whom it got a message for.
ADDRESSED = ("Delivered-To", "X-Original-To", "Envelope-To", "X-Envelope-To", "To", "Original-Recipient")
#: Fields of what is attached that say where the mail came from.
RETURNED = ("Return-Path", "Original-Mail-From", "X-Envelope-From")
ACTIONS = {"failed": AttemptOutcome.BOUNCED, "delivered": AttemptOutcome.DELIVERED}
DISPOSITIONS = frozenset({"displayed", "processed", "dispatched", "deleted"})
COMPLAINTS = frozenset({"abuse", "fraud", "virus", "other", "opt-out", "opt-out-list"})
#: What stands between addresses in a header.
SEPARATORS = re.compile(r"[\s,;<>()\"]+")
STATUS = re.compile(r"[245]\.[0-9]{1,3}\.[0-9]{1,3}")
CODE = re.compile(r"[0-9]{3}\b")


@dataclass(frozen=True)
class Report:
    """What became of one recipient; ``recipient`` is empty where the report does not say whose it is."""

    recipient: str
    outcome: AttemptOutcome
    reply: Reply
    #: Whether no mail will ever arrive there.
    is_hard: bool = False


def parse_message(content: bytes) -> EmailMessage | None:
    """Return a message, None when it is too long or cannot be taken apart."""
    if len(content) > REPORT_OCTETS_MAX:
        return None
    try:
        return email.message_from_bytes(content, policy=email.policy.compat32)  # type: ignore[return-value]
    except (ValueError, RecursionError, LookupError):
        return None


def parts_of(message: Message) -> Iterator[Message]:
    """Yield a message's parts, outer ones first; no more than PARTS_MAX, however deep they are."""
    waiting, seen = [message], 0
    while waiting and seen < PARTS_MAX:
        part = waiting.pop(0)
        seen += 1
        yield part
        if isinstance(content := part.get_payload(), list):
            waiting += [each for each in content if isinstance(each, Message)][:RECIPIENTS_MAX]


def find_tokens(message: Message, *, base: str, addressed_to: Iterable[str] = ()) -> list[str]:
    """Return the distinct tokens in the recipients of a message and in its attachments."""
    texts = [*addressed_to, *texts_of(message, ADDRESSED)]
    for part in parts_of(message):
        texts += texts_of(part, RETURNED)
        if part.get_content_type() in ("text/rfc822-headers", "message/feedback-report"):
            texts += texts_of(headers_in(part), (*RETURNED, "Original-Mail-From"))
    # Not email.utils.getaddresses: it follows nested comments until the stack ends.
    addresses = [address for text in texts for address in SEPARATORS.split(text)]
    return list(dict.fromkeys(token for address in addresses if (token := token_in(address, base))))


def texts_of(message: Message, names: Iterable[str]) -> list[str]:
    """Return the values of headers, as far as they can be addresses."""
    return [str(value)[:1000] for name in names for value in message.get_all(name, [])[:10]]


def headers_in(part: Message) -> Message:
    """Return the headers that stand in a part's text."""
    payload = part.get_payload()
    if isinstance(payload, list):
        return next((each for each in payload if isinstance(each, Message)), part)
    return email.message_from_string(str(payload)[:LOOSE_OCTETS_MAX])


def read_reports(message: Message, content: bytes) -> list[Report]:
    """Return what a message reports; nothing when it is no report."""
    found: list[Report] = []
    for part in parts_of(message):
        kind = part.get_content_type()
        if kind in ("message/delivery-status", "message/global-delivery-status"):
            found += delivery_reports(part)
        elif kind in ("message/disposition-notification", "message/global-disposition-notification"):
            found += receipts(headers_in(part))
        elif kind == "message/feedback-report":
            found += complaints(headers_in(part))
    return found[:RECIPIENTS_MAX] if found or is_form(message) else list(loose_reports(content))


def is_form(message: Message) -> bool:
    """Whether a message is a report that has a form, so that nothing is guessed."""
    return message.get_content_type() == "multipart/report"


def delivery_reports(part: Message) -> Iterator[Report]:
    """Yield what a delivery report says of each recipient (RFC 3464)."""
    payload = part.get_payload()
    blocks = [each for each in payload if isinstance(each, Message)] if isinstance(payload, list) else []
    for block in blocks[:RECIPIENTS_MAX]:
        action = str(block.get("Action", "")).split(";")[0].strip().lower()
        if action in ACTIONS:
            recipient = typed_address(block, "Original-Recipient") or typed_address(block, "Final-Recipient")
            reply = reply_of(block)
            is_bounced = ACTIONS[action] == AttemptOutcome.BOUNCED
            yield Report(recipient, ACTIONS[action], reply, is_hard=is_bounced and is_mailbox_gone(reply))


def reply_of(block: Message) -> Reply:
    """Return the server's words in a report: code, status and text."""
    diagnostic = one_line(str(block.get("Diagnostic-Code", ""))[:2000])
    words = diagnostic.partition(";")[2].strip() or diagnostic
    status = STATUS.match(str(block.get("Status", "")).strip())
    code = CODE.match(words)
    reply = parse_reply(int(code[0]) if code else 0, words[3:].lstrip(" -") if code else words)
    enhanced = reply.enhanced or (status[0] if status else "")
    # A status of a whole class ("5.0.0") says less than the code and the words beside it.
    return Reply(
        reply.code or (550 if enhanced[:1] == "5" else None), "" if enhanced == "5.0.0" else enhanced, reply.text
    )


def receipts(fields: Message) -> Iterator[Report]:
    """Yield what a disposition notification says (RFC 3798): a mail that was shown or deleted has arrived."""
    recipient = typed_address(fields, "Original-Recipient") or typed_address(fields, "Final-Recipient")
    disposition = str(fields.get("Disposition", ""))[:200].rpartition(";")[2].strip().split("/")[0].lower()
    if disposition in DISPOSITIONS:
        yield Report(recipient, AttemptOutcome.DELIVERED, Reply(text=disposition))


def complaints(fields: Message) -> Iterator[Report]:
    """Yield what a feedback report says (RFC 5965)."""
    kind = str(fields.get("Feedback-Type", ""))[:100].strip().lower()
    if kind in COMPLAINTS:
        given = SEPARATORS.split(" ".join(texts_of(fields, ["Original-Rcpt-To"])))
        recipients = [address for address in given if is_address(address)]
        source = one_line(str(fields.get("User-Agent", ""))[:200])
        for recipient in recipients or [""]:
            yield Report(recipient, AttemptOutcome.COMPLAINED, Reply(text=f"{kind}, {source}".strip(", ")))


def loose_reports(content: bytes) -> Iterator[Report]:
    """Yield what a bounce without a form says, as far as anybody has seen its like."""
    if len(content) > LOOSE_OCTETS_MAX:
        return
    from flufl.bounce import scan_message

    try:
        found = scan_message(email.message_from_bytes(content))
    except Exception:  # its many detectors are no match for what people send
        return
    status = STATUS.search(content.decode("latin-1"))
    reply = (
        Reply(550, status[0], "") if status and status[0].startswith("5") else Reply(text="a bounce without a status")
    )
    for each in sorted(found)[:RECIPIENTS_MAX]:
        address = each.decode("ascii", "replace") if isinstance(each, bytes) else str(each)
        if is_address(address):
            yield Report(address, AttemptOutcome.BOUNCED, reply, is_hard=is_mailbox_gone(reply))


def typed_address(block: Message, name: str) -> str:
    """Return the address of a field like ``rfc822; ann@example.org``."""
    return one_line(str(block.get(name, ""))[:1000]).rpartition(";")[2].strip().strip("<>")
