"""Messages from a Maildir or an IMAP folder, each handed on once and marked as seen when it has been."""

import imaplib
import mailbox
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Seconds to wait for an answer of an IMAP server.
TIMEOUT_S = 30
#: Octets of a message that is fetched at all.
OCTETS_MAX = 16_000_000
IMAP_PORT, IMAPS_PORT = 143, 993
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class MailboxUnusable(Exception):
    """A folder or a server that cannot be read."""


def read_maildir(path: str, take: Callable[[bytes], None], *, limit: int) -> int:
    """Hand on the new messages of a Maildir, at most so many; return how many. Raises: MailboxUnusable."""
    if not all((Path(path) / name).is_dir() for name in ("new", "cur", "tmp")):
        raise MailboxUnusable(f"{path} is no Maildir")
    box, count = mailbox.Maildir(path, create=False), 0
    for key in new_keys(box):
        if count == limit:
            break
        with suppress(KeyError):  # another process was faster
            take(content_of(box, key))
            message = box.get_message(key)
            message.set_subdir("cur")
            message.add_flag("S")
            box[key] = message
            count += 1
    return count


def new_keys(box: mailbox.Maildir) -> list[str]:
    """Return the keys of the unseen messages, the oldest first."""
    return sorted(key for key, message in box.iteritems() if message.get_subdir() == "new")


def content_of(box: mailbox.Maildir, key: str) -> bytes:
    """Return a message's octets, as far as they are read. Raises: KeyError."""
    with box.get_file(key) as file:
        return bytes(file.read(OCTETS_MAX + 1))


def read_imap(url: str, take: Callable[[bytes], None], *, limit: int) -> int:
    """
    Hand on the unseen messages of an IMAP folder, at most so many; return how many.

    ``imaps://user:password@host/folder``; ``imap://`` encrypts by STARTTLS, except to this machine.
    Raises: MailboxUnusable.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("imap", "imaps") or not parts.hostname or not parts.username:
        raise MailboxUnusable("write imaps://user:password@host/folder, special characters %-encoded")
    try:
        with connection_to(parts.scheme, parts.hostname, parts.port) as server:
            server.login(unquote(parts.username), unquote(parts.password or ""))
            return sum(1 for _ in fetched(server, unquote(parts.path.strip("/")) or "INBOX", take, limit))
    except (imaplib.IMAP4.error, OSError, UnicodeError) as error:
        raise MailboxUnusable(f"{parts.hostname}: {type(error).__name__}") from error


def connection_to(scheme: str, host: str, port: int | None) -> imaplib.IMAP4:
    """Return an encrypted connection, or one to this machine. Raises: OSError, IMAP4.error."""
    if scheme == "imaps":
        return imaplib.IMAP4_SSL(host, port or IMAPS_PORT, timeout=TIMEOUT_S)
    server = imaplib.IMAP4(host, port or IMAP_PORT, timeout=TIMEOUT_S)
    if host not in LOOPBACK:
        server.starttls()
    return server


def fetched(server: imaplib.IMAP4, folder: str, take: Callable[[bytes], None], limit: int) -> Iterator[bytes]:
    """Yield the number of each message that was handed on and marked as seen. Raises: IMAP4.error."""
    quoted = folder.replace("\\", "\\\\").replace('"', '\\"')
    status, _ = server.select(f'"{quoted}"')
    if status != "OK":
        raise imaplib.IMAP4.error("no such folder")
    _status, found = server.uid("SEARCH", "UNSEEN")
    for uid in (found[0] or b"").split()[:limit]:
        _status, answer = server.uid("FETCH", uid.decode(), f"(BODY.PEEK[]<0.{OCTETS_MAX + 1}>)")
        content = next((each[1] for each in answer if isinstance(each, tuple)), None)
        if content is not None:
            take(content)
            server.uid("STORE", uid.decode(), "+FLAGS", r"(\Seen)")
            yield uid
