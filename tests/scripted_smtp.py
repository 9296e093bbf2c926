"""
A mail server that follows a script, octet by octet: what no honest server does, at any stage.

A script maps a stage (``greeting``, a command, or ``body``) to what happens there: a text is sent as it is and the
conversation goes on; ``close_after(text)`` sends it and closes the connection; ``drip``, ``repeat`` and ``silence``
never come to an end by themselves.
"""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from notify.transports.smtp import SmtpOptions, SmtpTransport

Act = Callable[["Scripted", socket.socket], bool]
USUAL = {
    "greeting": "220 ready\r\n",
    "MAIL": "250 2.1.0 fine\r\n",
    "RCPT": "250 2.1.5 fine\r\n",
    "DATA": "354 go on\r\n",
    "body": "250 2.0.0 taken\r\n",
    "RSET": "250 2.0.0 forgotten\r\n",
    "QUIT": "221 2.0.0 bye\r\n",
}


@dataclass
class Scripted:
    """The script, and what was seen of clients."""

    script: Mapping[str, str | Act]
    extensions: tuple[str, ...] = ()
    port: int = 0
    connections: int = 0
    commands: list[str] = field(default_factory=list)
    bodies: int = 0
    is_over: threading.Event = field(default_factory=threading.Event)

    def transport(self, **options: Any) -> SmtpTransport:
        """Return a transport that leads here; a stage takes half a second at most."""
        return SmtpTransport(SmtpOptions(host="127.0.0.1", port=self.port, **{"timeout": 0.5, **options}))

    def act(self, stage: str, connection: socket.socket) -> bool:
        """Do what the script says; return whether the conversation goes on."""
        ehlo = "".join(f"250-{name}\r\n" for name in ("scripted", *self.extensions)) + "250 HELP\r\n"
        what = self.script.get(stage, {"EHLO": ehlo, **USUAL}.get(stage, "500 5.5.1 what?\r\n"))
        if isinstance(what, str):
            connection.sendall(what.encode())
            return True
        return what(self, connection)

    def converse(self, connection: socket.socket) -> None:
        """Serve one connection until it ends."""
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as lines:
            if not self.act("greeting", connection):
                return
            while line := lines.readline():
                command = line.decode("latin-1").strip()
                self.commands.append(command)
                stage = command.partition(" ")[0].upper()
                if not self.act(stage, connection) or stage == "QUIT":
                    return
                if stage == "DATA" and isinstance(self.script.get("DATA", ""), str) and "DATA" not in self.script:
                    while (line := lines.readline()) and line != b".\r\n":
                        pass
                    if not line:
                        return
                    self.bodies += 1
                    if not self.act("body", connection):
                        return

    def serve(self, listener: socket.socket) -> None:
        """Take connections until the end."""
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                self.connections += 1
                threading.Thread(target=self.converse, args=(connection,), daemon=True).start()


@contextlib.contextmanager
def scripted_server(script: Mapping[str, str | Act], *extensions: str) -> Iterator[Scripted]:
    """Run a scripted server for the time of a ``with``."""
    server = Scripted(script, extensions)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.port = listener.getsockname()[1]
        thread = threading.Thread(target=server.serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.is_over.set()
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def close_after(text: str, *, is_abrupt: bool = False) -> Act:
    """Send a text and close the connection; abruptly, so that what the other side still writes is refused."""

    def act(server: Scripted, connection: socket.socket) -> bool:
        connection.sendall(text.encode())
        if is_abrupt:
            time.sleep(0.1)  # so that the text is read before the reset arrives
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            connection.shutdown(socket.SHUT_WR)
        return False

    return act


def repeat(text: str) -> Act:
    """Send a text over and over, as fast as it is taken."""

    def act(server: Scripted, connection: socket.socket) -> bool:
        while not server.is_over.is_set():
            connection.sendall(text.encode() * 100)
        return False

    return act


def drip(text: str, *, every_s: float = 0.1) -> Act:
    """Send a text one octet at a time."""

    def act(server: Scripted, connection: socket.socket) -> bool:
        for octet in text.encode():
            connection.sendall(bytes([octet]))
            if server.is_over.wait(every_s):
                return False
        return True

    return act


def silence(server: Scripted, connection: socket.socket) -> bool:
    """Say nothing until the end."""
    server.is_over.wait(60)
    return False
