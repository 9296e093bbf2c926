"""
Our own way over smtplib, which keeps what Django's backend throws away: the answer for each recipient.

One connection is kept for many mails. Where it breaks decides what a break means: before the final dot nothing was
sent; after it, until the answer, nobody knows.
"""

import contextlib
import re
import smtplib
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass

from django.core.mail.utils import DNS_NAME

from ..errors import ChannelDown, TooManyConnections
from ..models import AttemptOutcome
from .base import Email, Reply, Result, VerdictUnclear, own_reply
from .mime import compose, envelope_address
from .replies import CONFUSED_CODES, CONNECTION_LIMIT, SIZE_CODES, is_channel_trouble, parse_reply, verdict

#: Seconds to wait for each answer where the site sets none. RFC 5321 section 4.5.3.2 would allow 10 minutes for the
#: final one; a lease must outlast it, and a server that takes longer is as good as stalled.
TIMEOUT_S = 60.0
START_MAIL = 354
#: Stands for the answer to a command that was not sent.
UNSAID = Reply()
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


class Dropped(Exception):
    """The connection broke, or what came over it was no SMTP; ``stage`` says where."""

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(f"{reason} (at {stage})")
        self.stage = stage


class Closing(Exception):
    """The server answered with channel trouble."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(describe(reply))
        self.reply = reply


class SmtpTransport:
    """Sends over one SMTP connection."""

    name = "smtp"

    def __init__(self, options: SmtpOptions) -> None:
        self.options = options
        self.connection: smtplib.SMTP | None = None
        self.mails = 0
        #: Commands that were said and not answered yet, the last of them DATA.
        self.said: list[tuple[str, str]] = []
        #: Whether the server waits for a body, or for the rest of one.
        self.is_in_body = False

    def open(self) -> None:
        """Make sure of a connection. Raises: ChannelDown."""
        if self.connection is not None:
            return
        options, connection = self.options, None
        try:
            connection = self.connect()
            if options.use_tls and not options.use_ssl:
                connection.starttls(context=self.context())
            connection.ehlo_or_helo_if_needed()
            if options.username and options.password:
                connection.login(options.username, options.password)
        except (OSError, smtplib.SMTPException, ValueError) as error:
            if connection is not None:
                connection.close()
            where = f"{options.host}:{options.port}"
            down = TooManyConnections if is_connection_limit(error) else ChannelDown
            raise down(f"cannot open {where}: {type(error).__name__}: {told(error)}") from error
        # Small commands and a body that ends in a small packet: without this each waits for the other side's ACK.
        with contextlib.suppress(OSError, AttributeError):
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # type: ignore[union-attr]
        self.connection, self.mails, self.said, self.is_in_body = connection, 0, [], False

    def connect(self) -> smtplib.SMTP:
        """Return a new connection."""
        options, timeout = self.options, self.options.timeout or TIMEOUT_S
        if options.use_ssl:
            return smtplib.SMTP_SSL(
                options.host,
                options.port,
                local_hostname=DNS_NAME.get_fqdn(),
                timeout=timeout,
                context=self.context(),
            )
        return smtplib.SMTP(options.host, options.port, local_hostname=DNS_NAME.get_fqdn(), timeout=timeout)

    def context(self) -> ssl.SSLContext:
        """Return the TLS context: the server's certificate is checked, ours shown when the site has one."""
        context = ssl.create_default_context()
        if self.options.ssl_certfile:
            context.load_cert_chain(self.options.ssl_certfile, self.options.ssl_keyfile)
        return context

    def pack(self, letter: Email) -> bytes:
        """Return the message's bytes. Raises: ValueError, for an address that cannot be one."""
        for address in letter.recipients:
            envelope_address(address)
        return compose(letter)

    def announce(self, letter: Email, packed: bytes) -> None:
        """
        Say who the letter is from and for, where the server takes commands without waiting for each answer.

        What goes wrong is left for ``send`` to find.
        """
        if self.said:
            # The letter before was announced and not sent: DATA is taken back by hanging up, and by nothing else.
            self.close()
        if self.connection is not None and self.connection.has_extn("pipelining"):
            with contextlib.suppress(OSError, smtplib.SMTPException):
                self.say(self.commands(letter, packed))

    def send(self, letter: Email, packed: bytes, *, give_up_at: float) -> Sequence[Result]:
        """Send one letter, over a new connection if the old one fails; return what became of each recipient."""
        try:
            return self.converse(letter, packed, give_up_at)
        except (Dropped, Closing) as first:
            if self.mails == 0:
                return self.give_in(letter, first)
        # Servers end a conversation after some mails or some idle time. That is no trouble: begin another.
        self.close()
        try:
            return self.converse(letter, packed, give_up_at)
        except (Dropped, Closing) as second:
            return self.give_in(letter, second)

    def give_in(self, letter: Email, trouble: Dropped | Closing) -> list[Result]:
        """Say what trouble on a fresh connection means. Raises: ChannelDown."""
        self.close()
        if isinstance(trouble, Dropped) and trouble.stage != "MAIL":
            # This mail got further than the greeting, so it may be what the server stumbles over; the next may pass.
            return results(letter.recipients, AttemptOutcome.DEFERRED, Reply(text=str(trouble)))
        raise VerdictUnclear(str(trouble), deferred(letter, trouble)) from trouble

    def converse(self, letter: Email, message: bytes, give_up_at: float) -> list[Result]:
        """Run one SMTP transaction. Raises: Dropped and Closing, before anything was sent; ChannelDown."""
        self.open()
        if time.monotonic() > give_up_at:
            self.close()
            return results(letter.recipients, AttemptOutcome.DEFERRED, LATE)
        commands = self.commands(letter, message)
        if self.said and self.said != commands:
            self.close()
            self.open()
        replies = self.ask_all(commands)
        mail, rcpts, data = replies[0], replies[1 : len(letter.recipients) + 1], replies[-1]
        if verdict(mail) != AttemptOutcome.SENT:
            self.give_up(data)
            return sender_refused(letter, mail)
        found: list[Result] = []
        accepted: list[str] = []
        for recipient, reply in zip(letter.recipients, rcpts, strict=False):
            if reply.code in CONFUSED_CODES:
                self.close()
                done = {result.recipient for result in found}
                left = [other for other in letter.recipients if other not in done]
                return found + results(left, AttemptOutcome.DEFERRED, reply)
            if verdict(reply) == AttemptOutcome.SENT:
                accepted.append(recipient)
            else:
                found.append(Result(recipient, verdict(reply), reply, is_free=reply.code == 452 and bool(accepted)))
        if not accepted:
            self.give_up(data)
            return found
        if time.monotonic() > give_up_at:
            # So many answers, each in time, may take longer than a lease; another worker may have the mail by now.
            self.close()
            return found + results(accepted, AttemptOutcome.DEFERRED, LATE)
        return found + self.hand_over(tuple(accepted), data, message)

    def commands(self, letter: Email, message: bytes) -> list[tuple[str, str]]:
        """Return what is said before the body, as stage and command."""
        size = f" SIZE={len(message)}" if self.wire.has_extn("size") else ""
        return [
            ("MAIL", f"MAIL FROM:<{envelope_address(letter.sender)}>{size}"),
            *(("RCPT", f"RCPT TO:<{envelope_address(recipient)}>") for recipient in letter.recipients),
            ("DATA", "DATA"),
        ]

    def ask_all(self, commands: list[tuple[str, str]]) -> list[Reply]:
        """
        Send commands and return the answers: all at once where the server lets us (RFC 2920), else one by one.

        One by one, an answer that ends the transaction ends the list; the last one stands for DATA all the same.

        Raises: Dropped, Closing.
        """
        if not self.wire.has_extn("pipelining"):
            return self.ask_in_turn(commands)
        if self.said != commands:
            try:
                self.say(commands)
            except (OSError, smtplib.SMTPException) as error:
                raise Dropped("MAIL", told(error)) from error
        replies = [self.hear(stage) for stage, _ in commands]
        self.said = []
        # DATA was said already. Where the server said 354 to it, only hanging up takes it back.
        for reply in replies:
            if is_channel_trouble(reply):
                raise Closing(reply)
        return replies

    def say(self, commands: list[tuple[str, str]]) -> None:
        """Send commands without waiting for their answers. Raises: OSError, SMTPException."""
        self.said = commands
        self.wire.send("".join(f"{command}\r\n" for _, command in commands))

    def ask_in_turn(self, commands: Sequence[tuple[str, str]]) -> list[Reply]:
        """Send commands one by one, DATA only if somebody was accepted."""
        replies: list[Reply] = []
        for stage, command in commands:
            if stage == "DATA" and not any(verdict(reply) == AttemptOutcome.SENT for reply in replies[1:]):
                return [*replies, UNSAID]
            replies.append(self.ask(stage, command))
            is_over = stage == "MAIL" and verdict(replies[0]) != AttemptOutcome.SENT
            if is_over or replies[-1].code in CONFUSED_CODES:
                return [*replies, UNSAID]
        return replies

    def give_up(self, data: Reply) -> None:
        """End a transaction that nobody is in; where the server waits for a body, by hanging up."""
        if data.code == START_MAIL or data.code in CONFUSED_CODES:
            self.close()
        else:
            self.reset()

    @property
    def wire(self) -> smtplib.SMTP:
        """The open connection. Raises: SMTPServerDisconnected, as smtplib does."""
        if self.connection is None:
            raise smtplib.SMTPServerDisconnected("the connection is closed")
        return self.connection

    def hand_over(self, accepted: tuple[str, ...], data: Reply, message: bytes) -> list[Result]:
        """Send the body; from its last byte to the answer the outcome is unknown. Raises: Dropped, Closing."""
        if data.code != START_MAIL:
            self.give_up(data)
            outcome = verdict(data)
            return results(accepted, AttemptOutcome.DEFERRED if outcome == AttemptOutcome.SENT else outcome, data)
        try:
            self.wire.send(LEADING_DOT.sub(b"..", message) + b".\r\n")
            self.is_in_body = False
        except (OSError, smtplib.SMTPException) as error:
            # The body ends in the dot. What could not be written whole was not sent.
            raise Dropped("the body", told(error)) from error
        try:
            reply = self.answer()
        except (OSError, smtplib.SMTPException) as error:
            self.close()
            unheard = own_reply("no_answer", error=told(error))
            return results(accepted, AttemptOutcome.UNCERTAIN, unheard)
        return self.settle(accepted, reply)

    def settle(self, accepted: tuple[str, ...], reply: Reply) -> list[Result]:
        """Say what the answer to the whole message means. Raises: Closing."""
        code = reply.code or 0
        if code == -1 or not (200 <= code < 300 or 400 <= code < 600):
            self.close()
            return results(accepted, AttemptOutcome.UNCERTAIN, reply)
        if is_channel_trouble(reply):
            raise Closing(reply)
        self.mails += 1
        if code in CONFUSED_CODES:
            self.close()
        return results(accepted, verdict(reply), reply)

    def ask(self, stage: str, command: str) -> Reply:
        """Send one command and return the answer. Raises: Dropped, Closing."""
        try:
            self.wire.putcmd(command)
        except (OSError, smtplib.SMTPException) as error:
            raise Dropped(stage, told(error)) from error
        reply = self.hear(stage)
        if is_channel_trouble(reply):
            raise Closing(reply)
        return reply

    def hear(self, stage: str) -> Reply:
        """Return the answer to a command that was sent. Raises: Dropped."""
        try:
            reply = self.answer()
        except (OSError, smtplib.SMTPException) as error:
            raise Dropped(stage, told(error)) from error
        if reply.code == -1:
            raise Dropped(stage, f"not an SMTP answer: {reply.text!r}")
        self.is_in_body = stage == "DATA" and reply.code == START_MAIL
        return reply

    def answer(self) -> Reply:
        """Read one answer."""
        return parse_reply(*self.wire.getreply())

    def reset(self) -> None:
        """Give up the open transaction but not the connection."""
        try:
            code, _ = self.wire.docmd("RSET")
        except (OSError, smtplib.SMTPException):
            code = -1
        if code != 250:
            self.close()

    def close(self) -> None:
        """Say goodbye and hang up."""
        connection, self.connection, self.mails = self.connection, None, 0
        is_free, self.said, self.is_in_body = not (self.said or self.is_in_body), [], False
        if connection is not None:
            with contextlib.suppress(OSError, smtplib.SMTPException):
                # Goodbye is a courtesy: a server that stalls does not get another whole timeout for it, and one that
                # waits for a body would take it for the body.
                if connection.sock is not None and is_free:
                    connection.sock.settimeout(1)
                    connection.quit()
            connection.close()


def sender_refused(letter: Email, reply: Reply) -> list[Result]:
    """Say what a refusal before any recipient means. Raises: ChannelDown."""
    outcome = verdict(reply)
    if outcome == AttemptOutcome.REFUSED and reply.code not in SIZE_CODES:
        # The sender is the site's: the next mail has the same.
        reason = f"the sender {letter.sender} was refused: {describe(reply)}"
        raise VerdictUnclear(reason, results(letter.recipients, AttemptOutcome.DEFERRED, reply))
    return results(letter.recipients, outcome, reply)


def deferred(letter: Email, trouble: Dropped | Closing) -> list[Result]:
    """Return what trouble that proves to be this mail's means for each recipient."""
    reply = trouble.reply if isinstance(trouble, Closing) else Reply(text=str(trouble))
    return results(letter.recipients, AttemptOutcome.DEFERRED, reply)


def is_connection_limit(error: Exception) -> bool:
    """Whether a greeting says that we have too many connections."""
    if not isinstance(error, smtplib.SMTPConnectError):
        return False
    return error.smtp_code == 421 and bool(CONNECTION_LIMIT.search(told(error)))


def results(recipients: Sequence[str], outcome: AttemptOutcome, reply: Reply) -> list[Result]:
    """Return one and the same outcome for several recipients."""
    return [Result(recipient, outcome, reply) for recipient in recipients]


def describe(reply: Reply) -> str:
    """Return an answer as one line."""
    return " ".join(str(part) for part in (reply.code, reply.enhanced, reply.text) if part)


def told(error: Exception) -> str:
    """Return what an error of smtplib or the socket says, with the server's words when it has them."""
    if isinstance(error, smtplib.SMTPResponseException):
        return describe(parse_reply(error.smtp_code, error.smtp_error))
    return str(error) or type(error).__name__
