"""What a transport must be able to do, and the types for what it says of each recipient; pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..errors import ChannelDown
from ..models import AttemptOutcome
from ..notes import Note, note


class File(Protocol):
    """One file of a mail."""

    @property
    def name(self) -> str:
        """What recipients see."""

    @property
    def content(self) -> bytes:
        """Its bytes."""

    @property
    def content_type(self) -> str:
        """Its media type."""


@dataclass(frozen=True)
class Email:
    """One mail as it is sent: to these recipients in one SMTP transaction."""

    sender: str
    #: Who is addressed now; a retry addresses fewer than ``to`` shows.
    recipients: tuple[str, ...]
    to: tuple[str, ...]
    subject: str
    text: str
    html: str
    #: Message-ID, Date and the rest, as name and value.
    headers: tuple[tuple[str, str], ...]
    #: Who is shown as having a copy.
    cc: tuple[str, ...] = ()
    #: Where answers go, each perhaps with a display name.
    reply_to: tuple[str, ...] = ()
    files: tuple[File, ...] = ()
    #: Where reports about this transaction come back to; the sender's address when empty. And what tells them apart.
    envelope_sender: str = ""
    report_token: str = ""


@dataclass(frozen=True)
class Reply:
    """What the server said: the code, the enhanced status (RFC 3463) when there is one, and the words."""

    code: int | None = None
    enhanced: str = ""
    text: str = ""
    #: Set when Kwit says it, not the server; ``text`` is then its English sentence.
    note: Note | None = None

    def __str__(self) -> str:
        """Return the answer as one line."""
        return " ".join(str(part) for part in (self.code, self.enhanced, self.text) if part)


def own_reply(code: str, /, **params: Any) -> Reply:
    """Return what Kwit itself says of an attempt, as one of the codes of ``notes.py``."""
    said = note(code, **params)
    return Reply(text=said.english, note=said)


@dataclass(frozen=True)
class Result:
    """What became of one recipient."""

    recipient: str
    outcome: AttemptOutcome
    reply: Reply = field(default_factory=Reply)
    #: Whether a "not now" only means "not in this transaction": it is tried again at once and costs no attempt.
    is_free: bool = False
    #: Whether the refusal says that there is no such mailbox, so that no mail will ever arrive there.
    is_gone: bool = False


def same_for_all(recipients: Sequence[str], outcome: AttemptOutcome, reply: Reply) -> list[Result]:
    """Return one and the same outcome for several recipients."""
    return [Result(recipient, outcome, reply) for recipient in recipients]


class VerdictUnclear(ChannelDown):
    """
    A refusal that hangs on this mail or on the channel, which only another mail tells; nothing of this one was sent.

    ``results`` is what became of each recipient if it was this mail: when another mail is sent, or is answered
    otherwise. When another mail, on a fresh connection, meets a VerdictUnclear or a ChannelDown too, the channel is
    down, and neither mail has lost an attempt.
    """

    def __init__(self, reason: str, results: Sequence[Result]) -> None:
        super().__init__(reason)
        self.results = tuple(results)


class Transport(Protocol):
    """
    One connection to whatever takes mails.

    What ``open`` and ``send`` say, from the narrowest to the widest:

    - a ``Result``: about this recipient, or about this mail (its content, its size); nothing follows for other mails;
    - ``VerdictUnclear``: about this mail or about the channel; its ``results`` hold if it was the mail;
    - ``TooManyConnections``: about this connection; the others may go on;
    - ``ChannelDown``: about the channel, whatever the mail.

    Each of the three exceptions says that nothing of the mail was sent. Whatever else ``send`` raises leaves open what
    was sent, and the mail is held as uncertain.
    """

    #: What attempts and the pause are recorded under; also the name of a row of ``notify_channel``.
    name: str

    def open(self) -> None:
        """Make sure of a connection. Raises: ChannelDown."""

    def pack(self, email: Email) -> Any:
        """
        Return the email as ``send`` takes it; nothing is sent yet, and the connection is not used.

        Raises: what a hostile value makes it raise.
        """

    def announce(self, email: Email, packed: Any) -> None:
        """
        Send the envelope of the next email without waiting for an answer; a transport that cannot does nothing.

        The body must not be sent: perhaps the email is never sent, and another one is announced or the connection
        closed.
        """

    def send(self, email: Email, packed: Any, *, give_up_at: float) -> Sequence[Result]:
        """
        Send one email; return what became of each recipient.

        ``give_up_at`` is a moment of the monotonic clock: the body must not be handed over after it.

        Raises: ChannelDown.
        """

    def close(self) -> None:
        """Release the connection; a connection that is already closed is not an error."""
