"""
Which reply means what; pure.

The code of RFC 5321 decides; the enhanced status of RFC 3463 and the words only where servers use one code for two
things: 450 for a grey list (this recipient, later) and for a quota (nobody, later).
"""

import re
import smtplib
from functools import lru_cache

from ..models import AttemptOutcome
from .base import Reply

ENHANCED = re.compile(r"\s*([245]\.\d{1,3}\.\d{1,3})(?:\s+|$)")
#: Characters of a reply that are kept; a reply line has at most 512 octets, an answer may have several lines.
REPLY_CHARS_MAX = 2000

#: The service is closing the channel (RFC 5321 section 3.8), or sends nobody's mail before something else is done.
SERVICE_CLOSING = 421
CHANNEL_CODES = frozenset({SERVICE_CLOSING, 432, 454, 530, 534, 535, 538})
#: Bad sequence or unknown command: no verdict on the mail, but client and server are out of step.
CONFUSED_CODES = frozenset({-1, 500, 502, 503})
#: Not enough storage for this mail (RFC 1870): the one refusal of MAIL FROM that is the mail's and not the sender's.
SIZE_CODES = frozenset({552})
QUOTA = re.compile(
    r"quota|rate.?limit|throttl|too many (?:messages|mails|emails|connections)|(?:sending|hourly|daily) limit"
    r"|limit exceeded",
    re.IGNORECASE,
)
CONNECTION_LIMIT = re.compile(r"connections|concurren", re.IGNORECASE)
MAILBOX = re.compile(r"mail\s?box|user.{0,20}(?:quota|full)|gr[ae]y.?list", re.IGNORECASE)
#: Enhanced statuses of a system or a mailbox: other detail than "policy".
SYSTEM_STATUSES = ("4.3.",)
MAILBOX_STATUSES = ("4.2.", "4.1.")
#: Statuses of refusals that say the mailbox is not there, and not that somebody dislikes this mail or its sender.
NO_MAILBOX_STATUSES = frozenset({"5.1.1", "5.1.2", "5.1.3", "5.1.6", "5.1.10", "5.2.1"})
#: Words by which a refusal without a status is about policy, relaying, the sender or a full mailbox.
POLICY = re.compile(
    r"relay|polic|spam|unsolicited|virus|content|reputation|block|black.?list|deny|denied|denies|banned|listed|r?bl\b|abuse"
    r"|sender|client|host|helo|ehlo|\bfrom\b|authenticat|authoriz|permi|allow|forbidden|access|spf|dkim|dmarc|\bptr\b"
    r"|reverse|\btls\b|encrypt|limit|quota|full|space|storage|size|too|rate|temporar|try|later|gr[ae]y|loop|domain|dns",
    re.IGNORECASE,
)


@lru_cache(maxsize=64)
def parse_reply(code: int, message: bytes | str) -> Reply:
    """Take a server's answer apart."""
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    found = ENHANCED.match(text)
    enhanced = found.group(1) if found else ""
    # The status belongs to this code only if their first digits agree; anything else is talk.
    if not found or enhanced[0] != str(code)[:1]:
        return Reply(code, "", text[:REPLY_CHARS_MAX])
    return Reply(code, enhanced, text[found.end() :][:REPLY_CHARS_MAX])


def error_text(error: Exception) -> str:
    """Return what an error of smtplib or the socket says, with the server's words when it has them."""
    if isinstance(error, smtplib.SMTPResponseException):
        return str(parse_reply(error.smtp_code, error.smtp_error))
    if isinstance(error, UnicodeError):
        # Its text shows a character of what could not be encoded, which may be a password.
        return "not ASCII"
    return str(error) or type(error).__name__


def is_channel_trouble(reply: Reply) -> bool:
    """Whether the answer seems to be about us or the server, so that the next mail would fare no better."""
    if reply.code in CHANNEL_CODES:
        return True
    if reply.code is None or not 400 <= reply.code < 500 or reply.enhanced.startswith(MAILBOX_STATUSES):
        return False
    if reply.enhanced.startswith(SYSTEM_STATUSES):
        return True
    return bool(QUOTA.search(reply.text)) and not MAILBOX.search(reply.text)


def verdict(reply: Reply) -> AttemptOutcome:
    """Return what an answer that is not channel trouble means for a recipient, or for all of them."""
    if reply.code is not None and 200 <= reply.code < 300:
        return AttemptOutcome.SENT
    if reply.code is not None and reply.code >= 500 and reply.code not in CONFUSED_CODES:
        return AttemptOutcome.REFUSED
    return AttemptOutcome.DEFERRED


def is_mailbox_gone(reply: Reply) -> bool:
    """Whether a refusal of a recipient (at RCPT, and nowhere else) says that there is no such mailbox."""
    if reply.code is None or not 500 <= reply.code < 600:
        return False
    if reply.enhanced:
        return reply.enhanced in NO_MAILBOX_STATUSES
    return reply.code == 550 and not POLICY.search(reply.text)
