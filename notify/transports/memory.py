"""A transport that sends nothing: for tests and for trying a site out."""

from collections.abc import Callable, Sequence

from ..models import AttemptOutcome
from .base import Email, Reply, Result


class MemoryTransport:
    """Keeps what it is given in ``letters``; ``answer`` may say or raise something else than "sent"."""

    name = "memory"

    def __init__(self, answer: Callable[[Email], Sequence[Result]] | None = None) -> None:
        self.letters: list[Email] = []
        self.answer = answer

    def open(self) -> None:
        """Nothing is between us and memory."""

    def pack(self, email: Email) -> Email:
        """Leave the email as it is."""
        return email

    def announce(self, email: Email, packed: Email) -> None:
        """Do nothing."""

    def send(self, email: Email, packed: Email, *, give_up_at: float) -> Sequence[Result]:
        """Keep one email."""
        found = self.answer(email) if self.answer else None
        self.letters.append(email)
        if found is not None:
            return found
        return [Result(address, AttemptOutcome.SENT, Reply(250, "2.0.0", "kept")) for address in email.recipients]

    def close(self) -> None:
        """Keep what was kept."""
