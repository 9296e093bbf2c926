"""An SMTP server that takes everything and keeps nothing; prints its port."""

import asyncio
from typing import Any

from aiosmtpd.smtp import SMTP


class Sink:
    """Counts nothing, stores nothing."""

    async def handle_DATA(self, server: SMTP, session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        return "250 2.0.0 taken"


async def main() -> None:
    """Listen on a free port of loopback until killed."""
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: SMTP(Sink(), loop=loop), "127.0.0.1", 0)
    print(listener.sockets[0].getsockname()[1], flush=True)
    await listener.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
