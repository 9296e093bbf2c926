"""
Our own SMTP client over smtplib, which keeps what Django's backend throws away: the answer for each recipient.

One connection is kept for many mails. Where it breaks decides what a break means: before the final dot nothing was
sent; after it, until the answer, nobody knows. An answer that came before the break counts.
"""

import contextlib
import re
import smtplib
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ..addresses import wire_address
from ..errors import ChannelDown, TooManyConnections
from ..models import AttemptOutcome
from .base import Email, Reply, Result, VerdictUnclear, own_reply, same_for_all
from .connection import LAST_WORDS_S, Connection
from .mime import compose, envelope_address
from .replies import (
    CONFUSED_CODES,
    CONNECTION_LIMIT,
    SERVICE_CLOSING,
    SIZE_CODES,
    error_text,
    is_channel_trouble,
    is_mailbox_gone,
    parse_reply,
    verdict,
)

#: Seconds for each stage where the site sets none: opening (until signed in), each answer, the body. RFC 5321 section
#: 4.5.3.2 would allow 10 minutes for the final answer; a lease must outlast it, and a server that takes longer is as
#: good as stalled.
TIMEOUT_S = 60.0
#: Seconds for the reply to RSET: the result of the mail is known by then.
RESET_S = 5.0
START_MAIL = 354
#: Stands for the answer to a command that was not sent.
NOT_SENT = Reply()
LATE = own_reply("no_time_left")
#: A line of one dot ends the message, so a dot that begins a line is doubled (RFC 5321 section 4.5.2).
LEADING_DOT = re.compile(rb"^\.", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class SmtpOptions:
    """Where the server is and how to talk to it; the names are those of Django's SMTP backend."""

    host: str = "localhost"
    port: int = 25
    username: str = ""
    password: str = ""
    use_tls: bool = False
    use_ssl: bool = False
    timeout: float | None = None
    ssl_keyfile: str | None = None
    ssl_certfile: str | None = None
    #: Whether the password may go over an unencrypted connection to another machine.
    allow_clear_auth: bool = False

    @property
    def signs_in(self) -> bool:
        """Whether there is somebody to sign in as."""
        return bool(self.username and self.password)

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection is encrypted before anybody signs in."""
        return self.use_tls or self.use_ssl


@dataclass(frozen=True)
class Answers:
    """The answers to the commands before the body, one each; ``cut`` stands for those that did not come."""

    mail: Reply
    rcpts: tuple[Reply, ...]
    data: Reply
    #: Why the answers ended early: the connection closed, or the server said that it closes it.
    cut: Reply | None = None


class SmtpTransport:
    """Sends over one SMTP connection."""

    name = "smtp"

    def __init__(self, options: SmtpOptions) -> None:
        self.options = options
        self.connection: Connection | None = None
        #: Mails that went over this connection.
        self.mails = 0
        #: Commands that were sent and not answered yet, the last of them DATA.
        self.announced: list[str] = []
        #: Whether the server waits for a body, or for the rest of one.
        self.is_in_body = False

    @property
    def timeout_s(self) -> float:
        """Seconds for one stage."""
        return self.options.timeout or TIMEOUT_S

    @property
    def size_max(self) -> int | None:
        """The octets that the server takes at most in one mail, as far as it says so (RFC 1870)."""
        announced = self.connection.esmtp_features.get("size", "") if self.connection is not None else ""
        return int(announced) if announced.isascii() and announced.isdigit() and int(announced[:20]) else None

    def open(self) -> None:
        """Make sure of a connection. Raises: ChannelDown."""
        if self.connection is not None:
            return
        options, connection = self.options, None
        try:
            connection = Connection(
                options.host,
                options.port,
                timeout_s=self.timeout_s,
                context=self.make_context() if options.use_ssl else None,
            )
            if options.use_tls and not options.use_ssl:
                connection.starttls(context=self.make_context())
            connection.ehlo_or_helo_if_needed()
            if options.signs_in:
                self.sign_in(connection)
        except (OSError, smtplib.SMTPException, ValueError) as error:
            if connection is not None:
                connection.close()
            down = TooManyConnections if is_connection_limit(error) else ChannelDown
            text = self.without_secret(f"{type(error).__name__}: {error_text(error)}")
            raise down(f"cannot open {options.host}:{options.port}: {text}") from error
        except ChannelDown:
            if connection is not None:
                connection.close()
            raise
        self.connection, self.mails, self.announced, self.is_in_body = connection, 0, [], False

    def sign_in(self, connection: Connection) -> None:
        """Sign in, if the password is safe. Raises: ChannelDown, SMTPException, OSError."""
        user, password = self.options.username, self.options.password
        if not (self.options.is_encrypted or self.options.allow_clear_auth or connection.is_loopback):
            raise ChannelDown(
                f"the connection to {self.options.host}:{self.options.port} is not encrypted, so the password is not "
                "sent: turn TLS on in the mail settings, or set NOTIFY_SMTP_ALLOW_CLEAR_AUTH"
            )
        if user.isascii() and password.isascii():
            connection.login(user, password)
        else:
            connection.login_utf8(user, password)

    def without_secret(self, text: str) -> str:
        """Return a text that does not repeat the password."""
        return text.replace(self.options.password, "***") if self.options.password else text

    def make_context(self) -> ssl.SSLContext:
        """Return the TLS context: the server's certificate is checked, ours shown when the site has one."""
        context = ssl.create_default_context()
        if self.options.ssl_certfile:
            context.load_cert_chain(self.options.ssl_certfile, self.options.ssl_keyfile)
        return context

    def pack(self, email: Email) -> bytes:
        """Return the message's bytes. Raises: ValueError, for an address that cannot be one."""
        for address in email.recipients:
            wire_address(address)
        return compose(email)

    def announce(self, email: Email, packed: bytes) -> None:
        """
        Send who the email is from and for, where the server takes commands without waiting for each answer.

        What goes wrong is left for ``send`` to find.
        """
        if self.announced:
            # The email before was announced and not sent: only closing the connection takes DATA back.
            self.close()
        if self.connection is not None and self.connection.has_extn("pipelining"):
            self.connection.set_deadline()
            with contextlib.suppress(OSError, smtplib.SMTPException):
                self.send_together(self.commands(email, packed))

    def send(self, email: Email, packed: bytes, *, give_up_at: float) -> Sequence[Result]:
        """Send one email, over a new connection if the old one fails; return the result of each recipient."""
        is_used = self.mails > 0
        try:
            return self.converse(email, packed, give_up_at)
        except VerdictUnclear:
            self.close()
            if not is_used:
                raise
        # Servers close a connection after some mails or some idle time: open another.
        try:
            return self.converse(email, packed, give_up_at)
        except VerdictUnclear:
            self.close()
            raise

    def converse(self, email: Email, message: bytes, give_up_at: float) -> list[Result]:
        """Run one SMTP transaction. Raises: ChannelDown and its kinds, before anything was sent."""
        self.open()
        if time.monotonic() > give_up_at:
            self.close()
            return same_for_all(email.recipients, AttemptOutcome.DEFERRED, LATE)
        answers = self.ask(email, message, give_up_at)
        if verdict(answers.mail) != AttemptOutcome.SENT:
            self.end_transaction(answers.data)
            return sender_refused(email, answers)
        found = rcpt_results(email, answers)
        accepted = tuple(result.recipient for result in found if result.outcome == AttemptOutcome.SENT)
        others = [result for result in found if result.outcome != AttemptOutcome.SENT]
        if not accepted or answers.data.code != START_MAIL or any(is_confused(reply) for reply in answers.rcpts):
            self.end_transaction(answers.data)
            return body_not_asked_for(others, accepted, answers)
        if time.monotonic() > give_up_at:
            # So many answers, each in time, may take longer than a lease; another worker may have the mail by now.
            self.close()
            return others + same_for_all(accepted, AttemptOutcome.DEFERRED, LATE)
        return others + self.hand_over(accepted, message, give_up_at)

    def commands(self, email: Email, message: bytes) -> list[str]:
        """Return the commands before the body."""
        size = f" SIZE={len(message)}" if self.wire.has_extn("size") else ""
        return [
            f"MAIL FROM:<{email.envelope_sender or envelope_address(email.sender)}>{size}",
            *(f"RCPT TO:<{wire_address(recipient)}>" for recipient in email.recipients),
            "DATA",
        ]

    def ask(self, email: Email, message: bytes, give_up_at: float) -> Answers:
        """Send the commands before the body: pipelined if the server supports it (RFC 2920), otherwise one by one."""
        commands = self.commands(email, message)
        if self.announced and self.announced != commands:
            self.close()
            self.open()
        if self.wire.has_extn("pipelining"):
            replies = self.ask_together(commands, give_up_at)
        else:
            replies = self.ask_in_turn(commands, give_up_at)
        self.announced = []
        cut = replies[-1] if replies and is_cut(replies[-1]) else None
        missing = len(commands) - len(replies)
        replies += [cut or NOT_SENT] * missing
        # After a cut it may be, and only closing the connection is safe.
        self.is_in_body = replies[-1].code == START_MAIL or cut is not None
        return Answers(replies[0], tuple(replies[1:-1]), replies[-1], cut)

    def ask_together(self, commands: list[str], give_up_at: float) -> list[Reply]:
        """Send all commands; return the answers that came, the last of them a cut if it is not the last command's."""
        failure: Exception | None = None
        self.wire.set_deadline(at_latest=give_up_at)
        if not self.announced:
            try:
                self.send_together(commands)
            except (OSError, smtplib.SMTPException) as error:
                failure = error
        replies: list[Reply] = []
        for command in commands:
            replies.append(self.hear(command, give_up_at, failure))
            if is_cut(replies[-1]):
                break
        return replies

    def send_together(self, commands: list[str]) -> None:
        """Send commands without waiting for their answers. Raises: OSError, SMTPException."""
        self.announced = commands
        self.wire.send("".join(f"{command}\r\n" for command in commands))

    def ask_in_turn(self, commands: list[str], give_up_at: float) -> list[Reply]:
        """Send commands one by one, DATA only if somebody was accepted; return the answers that came."""
        replies: list[Reply] = []
        for command in commands:
            if command == "DATA" and not any(verdict(reply) == AttemptOutcome.SENT for reply in replies[1:]):
                break
            failure: Exception | None = None
            try:
                self.wire.set_deadline(at_latest=give_up_at)
                self.wire.putcmd(command)
            except (OSError, smtplib.SMTPException) as error:
                failure = error
            replies.append(self.hear(command, give_up_at, failure))
            is_over = len(replies) == 1 and verdict(replies[0]) != AttemptOutcome.SENT
            if is_over or is_cut(replies[-1]) or is_confused(replies[-1]):
                break
        return replies

    def hear(self, command: str, give_up_at: float, failure: Exception | None) -> Reply:
        """
        Return the answer to a command, or a reply without code that says why there is none.

        Where our own write failed, the answer that says why may have come before.
        """
        try:
            self.wire.set_deadline(at_latest=give_up_at, seconds=LAST_WORDS_S if failure else None)
            reply = parse_reply(*self.wire.getreply())
        except (OSError, smtplib.SMTPException) as error:
            is_late = time.monotonic() >= give_up_at
            reply = LATE if is_late else Reply(text=f"{error_text(failure or error)} (at {command.partition(' ')[0]})")
        if reply.code == -1:
            reply = Reply(text=f"not an SMTP answer: {reply.text!r} (at {command.partition(' ')[0]})")
        return reply

    def end_transaction(self, data: Reply) -> None:
        """End a transaction that nobody is in; where the server waits for a body, by closing the connection."""
        if data.code == START_MAIL or is_cut(data) or is_confused(data):
            self.close()
        elif self.connection is not None:
            self.reset(self.connection)

    @property
    def wire(self) -> Connection:
        """The open connection. Raises: SMTPServerDisconnected, as smtplib does."""
        if self.connection is None:
            raise smtplib.SMTPServerDisconnected("the connection is closed")
        return self.connection

    def hand_over(self, accepted: tuple[str, ...], message: bytes, give_up_at: float) -> list[Result]:
        """Send the body; from its last byte to the answer the outcome is unknown. Raises: VerdictUnclear."""
        # The body ends in the dot. What could not be written whole was not sent.
        failure: Exception | None = None
        try:
            self.wire.deadline = max(give_up_at, time.monotonic())
            self.wire.send(LEADING_DOT.sub(b"..", message) + b".\r\n")
            self.is_in_body = False
        except (OSError, smtplib.SMTPException) as error:
            failure = error
        try:
            self.wire.set_deadline(seconds=LAST_WORDS_S if failure else None)
            reply = parse_reply(*self.wire.getreply())
        except (OSError, smtplib.SMTPException) as error:
            reply = Reply(-1, "", error_text(error))
        code = reply.code or 0
        if failure is not None:
            if not 400 <= code < 600:
                reply = Reply(text=f"{error_text(failure)} (at the body)")
                raise VerdictUnclear(str(reply), same_for_all(accepted, AttemptOutcome.DEFERRED, reply))
            self.is_in_body = True
        elif not (200 <= code < 300 or 400 <= code < 600):
            self.close()
            text = f"no answer to the whole message: {reply.text}"
            return same_for_all(accepted, AttemptOutcome.UNCERTAIN, Reply(text=text) if code == -1 else reply)
        found = same_for_all(accepted, verdict(reply), reply)
        if is_channel_trouble(reply):
            self.close()
            raise VerdictUnclear(str(reply), found)
        self.mails += 1
        if is_confused(reply) or self.is_in_body:
            self.close()
        return found

    def reset(self, connection: Connection) -> None:
        """Give up the open transaction but not the connection."""
        try:
            connection.set_deadline(seconds=RESET_S)
            code, _ = connection.docmd("RSET")
        except (OSError, smtplib.SMTPException):
            code = -1
        if code != 250:
            self.close()

    def close(self) -> None:
        """Send QUIT and close the connection; wait for nothing."""
        connection, self.connection, self.mails = self.connection, None, 0
        is_free, self.announced, self.is_in_body = not (self.announced or self.is_in_body), [], False
        if connection is not None:
            if is_free:
                # A server that waits for a body would take it for the body.
                connection.send_quit()
            connection.close()


def is_confused(reply: Reply) -> bool:
    """Whether client and server are out of step."""
    return reply.code in CONFUSED_CODES


def is_cut(reply: Reply) -> bool:
    """Whether no answer follows on this connection: it is closed, or the server says that it closes it."""
    return reply.code == SERVICE_CLOSING or (reply.code is None and reply != NOT_SENT)


def rcpt_results(email: Email, answers: Answers) -> list[Result]:
    """Return the result of each recipient by its own reply; accepted ones as sent."""
    found: list[Result] = []
    has_accepted = False
    for recipient, reply in zip(email.recipients, answers.rcpts, strict=True):
        outcome = verdict(reply)
        is_gone = is_mailbox_gone(reply)
        found.append(Result(recipient, outcome, reply, is_free=reply.code == 452 and has_accepted, is_gone=is_gone))
        has_accepted = has_accepted or outcome == AttemptOutcome.SENT
    return found


def body_not_asked_for(others: list[Result], accepted: tuple[str, ...], answers: Answers) -> list[Result]:
    """
    Return what became of each recipient of a mail whose body did not go out.

    Raises: VerdictUnclear, when what stopped it may stop any mail.
    """
    confused = next((reply for reply in answers.rcpts if is_confused(reply)), None)
    stopped = confused or answers.data
    outcome = verdict(stopped)
    found = others + same_for_all(
        accepted, AttemptOutcome.DEFERRED if outcome == AttemptOutcome.SENT else outcome, stopped
    )
    reasons = [answers.data] if accepted else [result.reply for result in others]
    if answers.cut == LATE:
        return found
    if answers.cut and answers.cut.code is None and any(reply is answers.cut for reply in reasons):
        raise VerdictUnclear(str(answers.cut), found)
    if trouble := next((reply for reply in reasons if is_channel_trouble(reply)), None):
        raise VerdictUnclear(str(trouble), found)
    return found


def sender_refused(email: Email, answers: Answers) -> list[Result]:
    """Say what a refusal before any recipient means. Raises: ChannelDown and its kinds."""
    reply = answers.mail
    outcome = verdict(reply)
    deferred = same_for_all(email.recipients, AttemptOutcome.DEFERRED, reply)
    if outcome == AttemptOutcome.DEFERRED and not is_confused(reply) and reply != LATE:
        # Nothing but the sender and the size is known to the server by then: most mails have the same sender.
        raise VerdictUnclear(str(reply), deferred)
    if outcome == AttemptOutcome.REFUSED and reply.code not in SIZE_CODES:
        # Most often the sender is the site's: the next mail has the same.
        raise VerdictUnclear(f"the sender {email.sender} was refused: {reply}", deferred)
    return same_for_all(email.recipients, outcome, reply)


def is_connection_limit(error: Exception) -> bool:
    """Whether a greeting says that we have too many connections."""
    if not isinstance(error, smtplib.SMTPResponseException):
        return False
    return error.smtp_code == SERVICE_CLOSING and bool(CONNECTION_LIMIT.search(error_text(error)))
