"""A way out that leads nowhere: for tests and for trying a site out."""

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

    def pack(self, letter: Email) -> Email:
        """Leave the letter as it is."""
        return letter

    def announce(self, letter: Email, packed: Email) -> None:
        """Nobody is there to be told."""

    def send(self, letter: Email, packed: Email, *, give_up_at: float) -> Sequence[Result]:
        """Keep one letter."""
        found = self.answer(letter) if self.answer else None
        self.letters.append(letter)
        if found is not None:
            return found
        return [Result(address, AttemptOutcome.SENT, Reply(250, "2.0.0", "kept")) for address in letter.recipients]

    def close(self) -> None:
        """Keep what was kept."""
