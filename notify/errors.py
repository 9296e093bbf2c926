"""The engine's error tree."""

from typing import Any

from .notes import Note


class NotifyError(Exception):
    """Base of everything that notify raises on purpose."""


class UnknownStep(NotifyError):
    """A step was asked for that no ``notifications.py`` has registered."""


class PassKnown(NotifyError):
    """A pass was to run under the id of one that is in the run log already."""


class LockLost(NotifyError):
    """The pass lock is not ours any more; nothing was written since it was last checked."""

    def __init__(self, note: Note) -> None:
        self.note = note
        super().__init__(note.english)


class LockUnusable(NotifyError):
    """The database cannot hold a session lock on this connection, for example behind a transaction pooler."""


class ChannelDown(NotifyError):
    """Nothing can be sent at the moment, whatever the mail: no connection, TLS failed, a wrong password."""


class TooManyConnections(ChannelDown):
    """The server accepts no more connections at present; open connections can still be used."""


class OutcomeNotWritten(NotifyError):
    """The database became unavailable: results of mails being sent are not written; recovery decides them."""


class ClaimLost(NotifyError):
    """A mail is not this worker's any more; nothing of it was sent since that was known."""


class UnknownMail(NotifyError):
    """A mail, a task or an event was asked for that is not there."""


class Unusable(NotifyError):
    """Something that a step says of its mails cannot be used; ``note`` says what, for the row."""

    def __init__(self, reason: Any) -> None:
        self.note = reason
        super().__init__(reason.english)


class UnusableOption(Unusable):
    """A sender, a reply address or a header is none."""


class UnusableAttachment(Unusable):
    """A file of a mail is missing, or its files are too large."""


class UnusableWording(NotifyError):
    """What a person wrote for a kind's mails does not render; ``problems`` says why, by part."""

    def __init__(self, problems: dict[str, str]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{part}: {problem}" for part, problem in problems.items()))


class WrongKey(NotifyError):
    """What was given as an event's key cannot be one."""


class NotAdopted(NotifyError):
    """Another control table could not be taken over; nothing was written. ``adoption`` names the faulty rows."""

    def __init__(self, message: str, adoption: Any = None) -> None:
        self.adoption = adoption
        super().__init__(message)


class WrongAddress(NotifyError):
    """The recipients contain something that is not an address."""


class SinkUnusable(NotifyError):
    """The engine that should deliver is not installed or not configured."""
