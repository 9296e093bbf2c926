"""
A real SMTP server on a free port of loopback, which can refuse, greylist, drop, stall, talk nonsense and count.

::

    with smtp_server() as server:
        server.on_rcpt = lambda address: "550 5.1.1 no such user" if address == "gone@example.org" else ""
        deliver_due(transport=server.transport())
    assert server.recipients() == [...]

A hook returns an answer, "" for the usual one, or one of DROP, STALL and NONSENSE.
"""

import asyncio
import contextlib
import email
import email.policy
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any, cast

from aiosmtpd.smtp import SMTP, AuthResult

from notify.transports.smtp import SmtpOptions, SmtpTransport

DROP, STALL, NONSENSE = "drop", "stall", "nonsense"


@dataclass(frozen=True)
class Received:
    """One message the server has taken."""

    sender: str
    recipients: tuple[str, ...]
    content: bytes

    @property
    def message(self) -> EmailMessage:
        """The message, parsed as a mail client would."""
        return cast(EmailMessage, email.message_from_bytes(self.content, policy=email.policy.default))


@dataclass
class Server:
    """The server's hooks, and what it has seen."""

    port: int = 0
    on_connect: Callable[[int], str] = lambda number: ""
    on_mail: Callable[[int], str] = lambda number: ""
    on_rcpt: Callable[[str], str] = lambda address: ""
    on_data: Callable[[int], str] = lambda number: ""
    received: list[Received] = field(default_factory=list)
    connections: int = 0
    mails: int = 0
    datas: int = 0
    resets: int = 0
    password: str = ""
    extensions: tuple[str, ...] = ()

    def transport(self, **options: Any) -> SmtpTransport:
        """Return a transport that leads here."""
        return SmtpTransport(SmtpOptions(host="127.0.0.1", port=self.port, **{"timeout": 20, **options}))

    def recipients(self) -> list[str]:
        """Return everybody who was mailed, in order, as often as they were."""
        return [recipient for each in self.received for recipient in each.recipients]

    async def act(self, protocol: SMTP, answer: str) -> str:
        """Do what a hook says; return the answer to give."""
        if answer == DROP:
            protocol.transport.abort()
            raise ConnectionResetError
        if answer == STALL:
            await asyncio.sleep(600)
        return "blah blah" if answer == NONSENSE else answer

    async def handle_EHLO(
        self, protocol: SMTP, session: Any, envelope: Any, hostname: str, responses: list[str]
    ) -> list[str]:
        session.host_name = hostname
        return [responses[0], *(f"250-{name}" for name in self.extensions), *responses[1:]]

    async def handle_MAIL(self, protocol: SMTP, session: Any, envelope: Any, address: str, options: Any) -> str:
        self.mails += 1
        answer = await self.act(protocol, self.on_mail(self.mails))
        if not answer:
            envelope.mail_from = address
        return answer or "250 2.1.0 sender fine"

    async def handle_RCPT(self, protocol: SMTP, session: Any, envelope: Any, address: str, options: Any) -> str:
        answer = await self.act(protocol, self.on_rcpt(address))
        if not answer:
            envelope.rcpt_tos.append(address)
        return answer or "250 2.1.5 recipient fine"

    async def handle_RSET(self, protocol: SMTP, session: Any, envelope: Any) -> str:
        self.resets += 1
        return "250 2.0.0 forgotten"

    async def handle_DATA(self, protocol: SMTP, session: Any, envelope: Any) -> str:
        self.datas += 1
        answer = self.on_data(self.datas)
        if not answer or answer in ("drop-after", "stall-after", "nonsense-after"):
            self.received.append(Received(envelope.mail_from, tuple(envelope.rcpt_tos), envelope.content))
        answer = await self.act(protocol, answer.removesuffix("-after"))
        return answer or "250 2.0.0 taken"


class Protocol(SMTP):
    """One connection: may end before its greeting, and knows one password."""

    hooks: Server

    def connection_made(self, transport: Any) -> None:
        self.hooks.connections += 1
        answer = self.hooks.on_connect(self.hooks.connections)
        if answer == DROP:
            transport.abort()
            return
        if answer:
            transport.write(f"{answer}\r\n".encode())
            transport.close()
            return
        super().connection_made(transport)


@contextlib.contextmanager
def smtp_server(*, extensions: tuple[str, ...] = ("PIPELINING",), **options: Any) -> Iterator[Server]:
    """Run a server in a thread for the time of a ``with``."""
    loop, server = asyncio.new_event_loop(), Server(extensions=extensions)

    def check(*arguments: Any) -> AuthResult:
        data = arguments[-1]
        return AuthResult(success=data.password == server.password.encode(), handled=False)

    def make() -> Protocol:
        protocol = Protocol(server, loop=loop, enable_SMTPUTF8=False, authenticator=check, **options)
        protocol.hooks = server
        return protocol

    listener = loop.run_until_complete(loop.create_server(make, "127.0.0.1", 0))
    server.port = listener.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(listener.close)
        asyncio.run_coroutine_threadsafe(end_all(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def end_all() -> None:
    """Cancel what is still going on."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
