"""
A dead man's switch: tell a monitoring service of the start, the success and the failure of each pass.

The addresses are those of Healthchecks and its like: NOTIFY_PING_URL itself is success, with ``/start`` and ``/fail``
the others, ``?rid=`` names the pass. What the service answers, or that it does not, never fails a pass.
"""

import logging
from http.client import HTTPException
from uuid import UUID

logger = logging.getLogger(__name__)

#: Seconds to wait for the service; a pass takes up to twice that longer when it is away.
PING_S = 5.0
START, SUCCESS, FAIL = "/start", "", "/fail"


def ping(url: str, signal: str, *, pass_id: UUID, text: str = "") -> bool:
    """Tell the service; return whether it has heard. Without an address nothing is done."""
    if not url:
        return False
    # Imported on use, so that a pass starts faster.
    from urllib.error import URLError
    from urllib.request import Request, urlopen

    address = f"{url.rstrip('/')}{signal}?rid={pass_id}"
    try:
        request = Request(address, data=text.encode(), method="POST")  # noqa: S310 - http(s), as conf has checked
        with urlopen(request, timeout=PING_S):  # noqa: S310
            return True
    except (URLError, HTTPException, OSError, ValueError) as error:
        # Without the address, which is a secret.
        logger.warning("pass %s: NOTIFY_PING_URL cannot be told: %s", pass_id, type(error).__name__)
        return False
