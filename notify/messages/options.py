"""
What a step says of its mails beside their texts: sender, copies, reply addresses, headers, the site's address, files.

Each is an attribute of the step, or a method that is given the event. All but the files are read when the message is
made, and frozen with it; the files are read when it is sent.
"""

import mimetypes
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import SuspiciousOperation
from django.core.files.storage import storages
from django.db.models.fields.files import FieldFile

from ..addresses import mailbox_key, parse_mailbox, parse_recipients, shown
from ..errors import UnusableAttachment, UnusableOption, WrongAddress
from ..models import MailQueue
from ..notes import Note, note
from ..steps import Attachment, Event, Step
from ..text import CONTROL, one_line
from .values import MAIL, thaw

#: The options that are frozen with the message.
FROZEN = ("from_email", "reply_to", "cc", "bcc", "headers", "site_url")
#: RFC 5322 section 2.2: printable ASCII without a colon.
HEADER_NAME = re.compile(r"[!-9;-~]{1,76}")
#: Headers that are made of other things, or that only a server adds.
RESERVED_HEADERS = frozenset(
    {"from", "sender", "to", "cc", "bcc", "reply-to", "subject", "date", "message-id", "mime-version"}
    | {"return-path", "received", "dkim-signature"}
)
#: Characters of a header's value; RFC 5322 section 2.1.1 has 998 for a line.
HEADER_CHARS_MAX = 900

#: Characters of a file's name, of which systems take 255 bytes, and of what makes its ending.
NAME_CHARS_MAX, ENDING_CHARS_MAX = 200, 20
#: Directions and isolates of writing, with which ``exe.pdf`` looks like ``fdp.exe``.
NO_PART_OF_NAMES = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Options:
    """What is frozen with a message, and what of it could not be used."""

    frozen: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()


NONE = Options()


@dataclass(frozen=True)
class File:
    """One file of a mail, as it goes out."""

    name: str
    content: bytes
    content_type: str


def has_options(step: Step) -> bool:
    """Whether a step says more of its mails than their texts."""
    return any(getattr(step, name) for name in FROZEN)


def ask(step: Step, name: str, event: Event) -> Any:
    """Return what a step says of an event. Raises: whatever a method of the site's raises."""
    given = getattr(step, name)
    return given(event) if callable(given) else given


def read_options(step: Step, event: Event, *, fold_local_part: bool = True) -> Options:
    """
    Return what is frozen with an event's message; a copy's wrong address is left out and named.

    Raises: UnusableOption, for what would be another mail if it were left out; whatever a method of the site's raises.
    """
    frozen: dict[str, Any] = {}
    notes: list[Note] = []
    if sender := one_line(str(ask(step, "from_email", event) or "")):
        frozen["from_email"] = checked_sender("from_email", sender)
    if replies := as_list(ask(step, "reply_to", event)):
        frozen["reply_to"] = [checked_sender("reply_to", address) for address in replies]
    for name in ("cc", "bcc"):
        found = parse_recipients(ask(step, name, event), fold_local_part=fold_local_part)
        if found.good:
            frozen[name] = list(found.good)
        if found.bad:
            notes.append(note("not_an_address", addresses=", ".join(found.bad)))
    if headers := ask(step, "headers", event):
        frozen["headers"] = {name: checked_header(name, value) for name, value in headers.items()}
    if site_url := str(ask(step, "site_url", event) or "").strip():
        frozen["site_url"] = site_url.rstrip("/")
    return Options(frozen, tuple(notes))


def as_list(given: Any) -> list[str]:
    """Return addresses, each of which may have a display name, as a list."""
    if not given:
        return []
    return [one_line(given)] if isinstance(given, str) else [one_line(str(each)) for each in given if each]


def checked_sender(option: str, given: str) -> str:
    """Return an address that may have a display name. Raises: UnusableOption."""
    try:
        parse_mailbox(given)
    except WrongAddress as error:
        raise UnusableOption(note("unusable_option", option=option, given=shown(given))) from error
    return given


def checked_header(name: Any, value: Any) -> str:
    """Return the value of a header that cannot become another one. Raises: UnusableOption."""
    text = str(value)
    is_name = isinstance(name, str) and HEADER_NAME.fullmatch(name) and name.lower() not in RESERVED_HEADERS
    if not is_name or str(name).lower().startswith("content-"):
        raise UnusableOption(note("unusable_option", option="headers", given=shown(str(name))))
    if CONTROL.search(text) or len(text) > HEADER_CHARS_MAX:
        raise UnusableOption(note("unusable_option", option=f"headers[{name}]", given=shown(text)))
    return text


def options_of(mail: MailQueue) -> Mapping[str, Any]:
    """Return what was frozen with a mail; of what plain SQL has put there only what can be used."""
    found = mail.payload.get(MAIL) if isinstance(mail.payload, dict) else None
    return found if isinstance(found, dict) else {}


def copies_of(mail: MailQueue, name: str, *, fold_local_part: bool) -> tuple[str, ...]:
    """Return the good addresses of a mail's cc or bcc."""
    return parse_recipients(options_of(mail).get(name), fold_local_part=fold_local_part).good


def without(addresses: Iterable[str], others: Iterable[str], *, fold_local_part: bool) -> tuple[str, ...]:
    """Return the addresses that are not among the others, whatever their spelling."""
    known = {mailbox_key(address, fold_local_part) for address in others}
    return tuple(address for address in addresses if mailbox_key(address, fold_local_part) not in known)


def event_of(mail: MailQueue) -> Event:
    """Return a mail's event as its step's methods get it: the values frozen then."""
    control = mail.control
    return Event(
        control.kind,
        control.key,
        control.key2,
        mail.recipients,
        mail.language,
        values=thaw(mail.payload),
        tenant=mail.tenant,
        original_key=control.original_key,
    )


def read_files(step: Step | None, mail: MailQueue, *, bytes_max: int) -> tuple[File, ...]:
    """
    Return a mail's files, read now.

    Raises: UnusableAttachment, for one that is missing or when they are too large; whatever a method of the site's
    raises.
    """
    if step is None or not step.attachments:
        return ()
    files, left = [], bytes_max
    for given in ask(step, "attachments", event_of(mail)) or ():
        if given is None:
            continue
        found = read_file(as_attachment(given), left)
        left -= len(found.content)
        files.append(found)
    return tuple(files)


def as_attachment(given: Any) -> Attachment:
    """Return an attachment: given as one, as a FileField's value, or as a path in the default storage."""
    if isinstance(given, Attachment):
        return given
    if isinstance(given, FieldFile):
        return Attachment(path=given.name or "", storage=given.storage)
    return Attachment(path=str(given))


def read_file(given: Attachment, left: int) -> File:
    """Read one attachment of at most so many bytes. Raises: UnusableAttachment."""
    name = file_name(given.name or given.path.rpartition("/")[2])
    if given.content is not None:
        content = given.content() if callable(given.content) else given.content
        content = content.encode() if isinstance(content, str) else bytes(content)
    else:
        content = read_stored(given, name, left)
    if len(content) > left:
        raise UnusableAttachment(note("attachments_too_large", name=name))
    kind = given.content_type or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return File(name, content, kind)


def file_name(given: str) -> str:
    """Return a name under which a file can be saved: no path, nothing that reorders it on a screen, short enough."""
    name = NO_PART_OF_NAMES.sub("", one_line(given)).replace("/", "_").replace("\\", "_").strip(" .")
    stem, dot, ending = name.rpartition(".")
    if len(name) > NAME_CHARS_MAX and stem and len(ending) < ENDING_CHARS_MAX:
        return stem[: NAME_CHARS_MAX - len(ending) - 1] + dot + ending
    return name[:NAME_CHARS_MAX] or "attachment"


def read_stored(given: Attachment, name: str, left: int) -> bytes:
    """Return a stored file's bytes, one more than may be at most. Raises: UnusableAttachment."""
    storage = storages[given.storage] if isinstance(given.storage, str) else given.storage
    if not given.path:
        raise UnusableAttachment(note("attachment_missing", name=name))
    try:
        with storage.open(given.path, "rb") as opened:
            content: bytes = opened.read(left + 1)
    except (OSError, ValueError, SuspiciousOperation) as error:  # the last for a path outside of the storage
        raise UnusableAttachment(note("attachment_missing", name=given.path)) from error
    return content
