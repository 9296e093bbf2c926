"""A TCP proxy on loopback that loses what passes around a COMMIT, as networks do."""

import contextlib
import socket
import threading
from enum import Enum
from types import TracebackType


class Fault(Enum):
    #: The COMMIT reaches the server, its answer never arrives, and the connection stays open.
    SILENCE = "silence"
    #: The COMMIT reaches the server; instead of its answer the client sees the connection closed.
    ANSWER_LOST = "answer lost"
    #: The COMMIT never reaches the server; both see the connection closed.
    COMMIT_LOST = "commit lost"
    #: As ANSWER_LOST, and nobody can connect any more.
    GONE = "gone"


class Proxy:
    """Passes connections on to a server; the first COMMIT that it sees meets the fault, later ones pass."""

    def __init__(self, host: str, port: int, fault: Fault) -> None:
        self.server, self.fault = (host, port), fault
        self.hit = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]

    def __enter__(self) -> "Proxy":
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop_listening()

    def stop_listening(self) -> None:
        """Refuse new connections; a plain close would not wake the thread that waits in accept()."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def accept(self) -> None:
        """Give each client a connection of its own to the server."""
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(self.server)
                muted = threading.Event()
                for call in (self.client_to_server, self.server_to_client):
                    threading.Thread(target=call, args=(client, server, muted), daemon=True).start()

    def client_to_server(self, client: socket.socket, server: socket.socket, muted: threading.Event) -> None:
        """Pass on what the client says, up to the COMMIT."""
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if b"COMMIT" in data and not self.hit.is_set():
                    muted.set()
                    self.hit.set()
                    if self.fault is Fault.GONE:
                        self.stop_listening()
                    if self.fault is Fault.COMMIT_LOST:
                        break
                server.sendall(data)
        hang_up(client, server)

    def server_to_client(self, client: socket.socket, server: socket.socket, muted: threading.Event) -> None:
        """Pass on what the server says, up to the answer to the COMMIT."""
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if not muted.is_set():
                    client.sendall(data)
                elif self.fault is not Fault.SILENCE:
                    break
        hang_up(client, server)


def hang_up(*ends: socket.socket) -> None:
    """Close connections so that whoever waits for them learns of it; a plain close would wake no other thread."""
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
