"""
An SMTP connection on which nothing waits without end: a deadline for whole answers, a largest line, a largest answer.

smtplib limits each read, so that a server that sends a byte now and then, or line after line, holds it for ever. It
also closes the socket when a write fails, and with it loses the answer that says why.
"""

import base64
import ipaddress
import smtplib
import socket
import ssl
import time
from contextlib import suppress
from typing import Any

from django.core.mail.utils import DNS_NAME

#: Octets of a line; RFC 5321 section 4.5.3.1.5 has 512, some servers write whole paragraphs.
LINE_OCTETS_MAX = 4096
#: Lines and octets of an answer; the longest honest one is EHLO's, some thirty lines.
REPLY_LINES_MAX, REPLY_OCTETS_MAX = 128, 65_536
#: Octets per read and per write.
CHUNK_OCTETS = 65_536
#: Seconds of one wait; a socket takes no endless number.
WAIT_S_MAX = 3600.0
#: Seconds to read what a server said before it closed the connection.
LAST_WORDS_S = 1.0


class ReplyTooLong(smtplib.SMTPException):
    """An answer that is longer than any honest one."""


class Connection(smtplib.SMTP):
    """One connection; ``deadline`` is the time on the monotonic clock at which every operation ends."""

    def __init__(self, host: str, port: int, *, timeout_s: float, context: ssl.SSLContext | None = None) -> None:
        self.timeout_s, self.context = timeout_s, context
        self.deadline = 0.0
        self.received = bytearray()
        #: Whether an answer broke off, so that nothing that follows can be matched with a command.
        self.is_lost = False
        self.set_deadline()
        super().__init__(host, port, local_hostname=DNS_NAME.get_fqdn(), timeout=timeout_s)

    def set_deadline(self, *, at_latest: float | None = None, seconds: float | None = None) -> None:
        """Give what follows the time of one stage, or fewer seconds, but no longer than until ``at_latest``."""
        until = time.monotonic() + min(self.timeout_s, seconds or self.timeout_s)
        self.deadline = until if at_latest is None else min(until, at_latest)

    def remaining(self) -> float:
        """Return the seconds until the deadline. Raises: TimeoutError."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return min(left, WAIT_S_MAX)

    def connect(self, host: str = "localhost", port: int = 0, source_address: Any = None) -> tuple[int, bytes]:
        """Connect to the first address that answers; return the greeting. Raises: OSError, SMTPException."""
        self.sock = self.open_socket(host, port)
        try:
            # Small commands and a body that ends in a small packet: without this each waits for the other side's ACK.
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.context is not None:
                self.sock = self.context.wrap_socket(self.sock, server_hostname=host)
            return self.getreply()
        except BaseException:
            self.close()
            raise

    def open_socket(self, host: str, port: int) -> socket.socket:
        """Return a connected socket; each address gets its share of the time. Raises: OSError."""
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        failure: OSError = OSError(f"{host} has no address")
        for place, (family, kind, protocol, _, address) in enumerate(addresses):
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(self.remaining() / (len(addresses) - place))
                sock.connect(address)
                sock.settimeout(self.remaining())
            except OSError as error:
                sock.close()
                failure = error
            else:
                return sock
        raise failure

    @property
    def is_loopback(self) -> bool:
        """Whether the other side is this machine."""
        if self.sock is None:
            return False
        return ipaddress.ip_address(self.sock.getpeername()[0].partition("%")[0]).is_loopback

    def starttls(self, *arguments: Any, **options: Any) -> tuple[int, bytes]:
        """Encrypt. Raises: SMTPException, also for plain text that somebody put after the server's answer."""
        answer = super().starttls(*arguments, **options)
        if self.received:
            raise smtplib.SMTPException("the server sent plain text after its answer to STARTTLS")
        return answer

    def login_utf8(self, user: str, password: str) -> None:
        """
        Sign in with a name or a password that is not ASCII; only PLAIN says in which encoding (RFC 4616).

        Raises: SMTPAuthenticationError, SMTPNotSupportedError.
        """
        if "PLAIN" not in self.esmtp_features.get("auth", "").upper().split():
            raise smtplib.SMTPNotSupportedError(
                "the user name or the password of the mail server (EMAIL_HOST_USER, EMAIL_HOST_PASSWORD, or username "
                "and password in MAILERS) is not ASCII, which needs AUTH PLAIN, and this server does not offer it"
            )
        secret = base64.b64encode(f"\0{user}\0{password}".encode()).decode()
        code, text = self.docmd("AUTH", f"PLAIN {secret}")
        if code == 334:
            code, text = self.docmd(secret)
        if code not in (235, 503):
            raise smtplib.SMTPAuthenticationError(code, text)

    def send(self, s: Any) -> None:
        """Send a command or a body before the deadline; what the server said before stays readable. Raises: OSError."""
        if self.sock is None:
            raise smtplib.SMTPServerDisconnected("the connection is closed")
        left = memoryview(s.encode(self.command_encoding) if isinstance(s, str) else s)
        while left:
            self.sock.settimeout(self.remaining())
            left = left[self.sock.send(left[:CHUNK_OCTETS]) :]

    def getreply(self) -> tuple[int, bytes]:
        """
        Return the code and the words of an answer; -1 when it is no SMTP.

        A refusal counts also when it broke off after its code: it was meant for us, and nothing can follow.
        Raises: OSError, SMTPException.
        """
        if self.is_lost:
            raise smtplib.SMTPServerDisconnected("the connection is closed")
        code, words, octets = -1, list[bytes](), 0
        while True:
            try:
                line = self.read_line()
            except (OSError, smtplib.SMTPException):
                self.is_lost, rest = True, bytes(self.received)
                code, words = (code_of(rest), [*words, rest[4:]]) if code_of(rest) > 0 else (code, words)
                if 400 <= code < 600:
                    return code, b"\n".join(words)
                raise
            octets += len(line)
            code = code_of(line)
            words.append(line[4:].strip(b" \t\r\n") if code > 0 else line.strip())
            if code < 0 or line[3:4] != b"-":
                return code, b"\n".join(words)
            if len(words) >= REPLY_LINES_MAX or octets > REPLY_OCTETS_MAX:
                self.is_lost = True
                if 400 <= code < 600:
                    return code, b"\n".join(words)
                raise ReplyTooLong(f"an answer of more than {len(words)} lines: {words[0][:100]!r}")

    def read_line(self) -> bytes:
        """Return the next line with its end. Raises: OSError, SMTPException."""
        searched = 0
        while (end := self.received.find(b"\n", searched)) < 0:
            searched = len(self.received)
            if searched > LINE_OCTETS_MAX:
                raise ReplyTooLong(f"a line of more than {LINE_OCTETS_MAX} octets")
            if self.sock is None:
                raise smtplib.SMTPServerDisconnected("the connection is closed")
            self.sock.settimeout(self.remaining())
            chunk = self.sock.recv(CHUNK_OCTETS)
            if not chunk:
                raise smtplib.SMTPServerDisconnected("the server closed the connection")
            self.received += chunk
        if end > LINE_OCTETS_MAX:
            raise ReplyTooLong(f"a line of more than {LINE_OCTETS_MAX} octets")
        line = bytes(self.received[: end + 1])
        del self.received[: end + 1]
        return line

    def send_quit(self) -> None:
        """Send QUIT if that is possible now, without waiting for the reply."""
        with suppress(OSError, ValueError):
            if self.sock is not None:
                self.sock.settimeout(0)
                self.sock.send(b"QUIT\r\n")


def code_of(line: bytes) -> int:
    """Return a reply line's code, -1 when it has none."""
    is_code = (
        len(line) >= 3 and line[:1] in b"2345" and line[:3].isdigit() and line[3:4] in (b"", b" ", b"-", b"\r", b"\n")
    )
    return int(line[:3]) if is_code else -1
