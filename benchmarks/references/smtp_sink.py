"""
An SMTP server that takes everything and keeps nothing; prints its port.

``python -m benchmarks.references.smtp_sink [MILLISECONDS]``: with a number, each answer comes so much later, as that of
a relay elsewhere does; answers to commands that came together come together.

Quick, so that the clients are measured and not the server; it lets commands come at once, as Postfix, Exim and Exchange
do.
"""

import asyncio
import sys

LATE_S = float(sys.argv[1]) / 1000 if len(sys.argv) > 1 else 0.0
HELLO = b"250-sink\r\n250-PIPELINING\r\n250-8BITMIME\r\n250 SIZE 52428800\r\n"


class Sink(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.loop = asyncio.get_running_loop()
        self.buffer = b""
        self.is_body = False
        self.say(b"220 sink\r\n")

    def say(self, answer: bytes) -> None:
        """Answer, late where that is asked for."""
        if not LATE_S:
            self.transport.write(answer)
        else:
            self.loop.call_later(LATE_S, self.transport.write, answer)

    def data_received(self, data: bytes) -> None:
        """Answer every whole line, or the end of a body."""
        self.buffer += data
        answers = []
        while True:
            mark = b"\r\n.\r\n" if self.is_body else b"\r\n"
            head, found, rest = self.buffer.partition(mark)
            if not found:
                break
            self.buffer = rest
            answers.append(b"250 2.0.0 taken\r\n" if self.is_body else self.answer(head[:4].upper()))
            self.is_body = not self.is_body and head[:4].upper() == b"DATA"
        if answers:
            self.say(b"".join(answers))

    def answer(self, command: bytes) -> bytes:
        """Return the answer to a command."""
        if command == b"EHLO":
            return HELLO
        if command == b"DATA":
            return b"354 go on\r\n"
        return b"221 2.0.0 bye\r\n" if command == b"QUIT" else b"250 2.0.0 fine\r\n"


async def main() -> None:
    """Listen on a free port of loopback until killed."""
    listener = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", 0)
    print(listener.sockets[0].getsockname()[1], flush=True)
    await listener.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
