"""
Checkpoints outside the database: in a directory, at a URL. Only what is kept there shows that the log was cut back.

Each place is given the newest checkpoint, at least once: what is recorded as published is what the place has confirmed.
"""

import http.client
import urllib.error
import urllib.request
from pathlib import Path

from ..models import Checkpoint, Publication
from .log import Inconsistent, whole_note
from .notes import Head, InvalidNote, Note
from .sealer import check_continues
from .tiles import export_tiles, write

#: Seconds that a place may take to answer.
HTTP_TIMEOUT_S = 10.0
#: Bytes read of an answer.
ANSWER_BYTES_MAX = 100_000
URL_SCHEMES = ("http://", "https://")
CHECKPOINT_FILE = "checkpoint"


class HttpRefused(OSError):
    """A place has answered that it does not take what it was sent."""

    def __init__(self, url: str, code: int, text: str) -> None:
        self.code, self.text = code, text
        super().__init__(f"{url} answered {code}: {text[:100]!r}")


def is_url(target: str) -> bool:
    """Whether a place is a URL, and not a directory."""
    return target.startswith(URL_SCHEMES)


def post(url: str, body: bytes) -> bytes:
    """Send a text to a URL; return the answer. Raises: OSError (also for a refusal), ValueError."""
    if not is_url(url):
        raise ValueError(f"{url!r} is no http(s) URL")
    headers = {"Content-Type": "text/plain; charset=utf-8"}
    request = urllib.request.Request(url, data=body, headers=headers)  # noqa: S310 - http and https only, see above
    try:
        with urllib.request.urlopen(request, timeout=HTTP_TIMEOUT_S) as answer:  # noqa: S310
            return bytes(answer.read(ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        with error:
            text = error.read(ANSWER_BYTES_MAX).decode("utf-8", "replace")
        raise HttpRefused(url, error.code, text) from None
    except http.client.HTTPException as error:
        raise OSError(f"{url} gave no lawful answer: {error!r}") from error


def check_published(target: str, alias: str) -> None:
    """
    Refuse a log that is behind the checkpoint in a directory, or differs from it: the database was restored or forged.

    Raises: Inconsistent.
    """
    path = Path(target) / CHECKPOINT_FILE
    if is_url(target) or not path.exists():
        return
    try:
        head = Head.parse(Note.parse(path.read_text(encoding="utf-8")).text)
    except (OSError, UnicodeError, InvalidNote) as error:
        raise Inconsistent(f"{path} is no checkpoint: {error}") from error
    try:
        check_continues(head, alias)
    except Inconsistent as error:
        raise Inconsistent(f"{path}: {error}") from None


def publish(checkpoint: Checkpoint, target: str, *, alias: str, is_renewed: bool = False) -> bool:
    """
    Hand a checkpoint to one place unless it has it already; return whether it was handed over now.

    ``is_renewed``: it has new cosignatures.

    Raises: OSError, ValueError.
    """
    is_there = is_url(target) or (Path(target) / CHECKPOINT_FILE).exists()
    if not is_renewed and is_there and was_handed_to(checkpoint, target, alias):
        return False
    note = whole_note(checkpoint).encode()
    if is_url(target):
        post(target, note)
    else:
        folder = Path(target)
        export_tiles(folder, size=checkpoint.size, alias=alias)
        # The history of checkpoints stands beside what tlog-tiles knows.
        write(folder / f"checkpoints/{checkpoint.number:09d}", note)
        write(folder / CHECKPOINT_FILE, note)
    record_handed(checkpoint, target, alias)
    return True


def was_handed_to(checkpoint: Checkpoint, target: str, alias: str) -> bool:
    """Whether a place outside has confirmed that it has a checkpoint."""
    return Publication.objects.using(alias).filter(target=target, checkpoint=checkpoint).exists()


def record_handed(checkpoint: Checkpoint, target: str, alias: str) -> None:
    """Record that a place outside has a checkpoint."""
    Publication.objects.using(alias).get_or_create(target=target, checkpoint=checkpoint)
