"""What a pass gives each of its steps, and what it counts of each."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from uuid import UUID

from django.db import connections

from ..conf import Conf
from ..dialects import dialect_of
from ..dialects.base import NotifyDialect
from ..messages.builder import Message
from ..notes import Note, note

#: How many keys a warning names before it only counts.
NAMED_MAX = 5


@dataclass(frozen=True, kw_only=True)
class PassContext:
    """Where a pass runs, in which mode, and how a step asks whether to go on."""

    using: str
    pass_id: UUID
    conf: Conf
    now: datetime
    is_full: bool = False
    is_baseline: bool = False
    #: Only events since this moment are marked by the baseline; None: all.
    baseline_since: datetime | None = None
    is_dry_run: bool = False
    #: False inside a transaction of the caller's, which commits or rolls back everything.
    is_durable: bool = True
    #: Called inside each transaction before its first write; raises LockLost to stop the pass.
    guard: Callable[[], None] = lambda: None
    #: Whether the pass has been asked to stop after the chunk in hand.
    is_stopping: Callable[[], bool] = lambda: False
    random: Random = field(default_factory=Random)

    @property
    def dialect(self) -> NotifyDialect:
        """The dialect of the pass's database."""
        return dialect_of(connections[self.using])


@dataclass
class StepProgress:
    """What a step has counted so far, with the warnings and errors that it will log."""

    candidates: int = 0
    #: Events, or groups of them, that have got their message.
    messages: int = 0
    mails: int = 0
    tasks: int = 0
    blocked: int = 0
    repeated: int = 0
    #: Events whose language the site does not have, nor its parent.
    unspoken: int = 0
    repaired: int = 0
    failed: int = 0
    warnings: list[Note] = field(default_factory=list)
    errors: list[Note] = field(default_factory=list)
    listed: list[Message] = field(default_factory=list)
    is_complete: bool = True
    named: dict[str, list[str]] = field(default_factory=dict)

    def add_name(self, counter: str, text: str) -> None:
        """Keep one of the first few examples of what a counter counts."""
        names = self.named.setdefault(counter, [])
        if len(names) < NAMED_MAX:
            names.append(text)

    def names_of(self, counter: str) -> str:
        """Return the examples of a counter, with an ellipsis when there are more."""
        names = self.named.get(counter, [])
        return ", ".join(names) + (", …" if getattr(self, counter) > len(names) else "")

    def add_counted_notes(self) -> None:
        """Turn the counters into warnings and errors."""
        if self.repeated:
            self.warnings.append(note("repeated_keys", count=self.repeated, names=self.names_of("repeated")))
        if self.unspoken:
            languages = ", ".join(self.named["unspoken"])
            self.warnings.append(note("languages_missing", count=self.unspoken, languages=languages))
        if self.blocked:
            self.warnings.append(note("blocked", count=self.blocked, names=self.names_of("blocked")))
        if self.repaired:
            self.warnings.append(note("repaired", count=self.repaired))
        if self.failed:
            self.errors.append(note("not_prepared", count=self.failed, names=self.names_of("failed")))
