"""Everything that ``receipts`` refuses, and why."""

# The contract names these exceptions, without "Error" at the end.

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self


class Words(str):
    """
    A piece of a message, in English as the commands print it, that knows its parts.

    Pages say it in the reader's language: ``tests.catalogs`` finds its text, as it finds those of ``gettext``.
    """

    text: str
    values: dict[str, object]

    def __new__(cls, text: str, **values: object) -> Self:
        """Make it from a text with a place for each of the values: ``%(name)s``."""
        made = super().__new__(cls, text % values if values else text)
        made.text, made.values = text, values
        return made


@dataclass(frozen=True)
class Flaw:
    """
    One thing wrong with a plan, and where it stands: ``targets[0].id``, or ``row 3, column 1 (id)``.

    ``row`` (in JSON: the target's position from 1), ``column`` and ``given`` say the same apart, as far as it is known.
    """

    where: str
    problem: str
    row: int | None = None
    column: str = ""
    given: str = ""

    def as_json(self) -> dict[str, str]:
        """Return it as the commands print it."""
        return {"where": self.where, "problem": self.problem}


@dataclass(frozen=True)
class Problem:
    """
    One target whose approval no longer holds.

    ``problem`` is ``missing``, ``revision_differs``, ``qty_differs`` or ``not_<required state>``, the first
    that applies; ``current`` is None when the row is missing for this tenant.
    """

    id: int
    problem: str
    approved: dict[str, Any]
    current: dict[str, Any] | None


class ReceiptsError(Exception):
    """Base of all refusals of this app."""


class InvalidPlan(ReceiptsError):
    """The plan itself is wrong; no SQL was sent. ``flaws`` names every place."""

    def __init__(self, flaws: Sequence[Flaw]) -> None:
        self.flaws = tuple(flaws)
        shown = "; ".join(f"{flaw.where}: {flaw.problem}" for flaw in self.flaws[:3])
        more = f" (and {len(self.flaws) - 3} more)" if len(self.flaws) > 3 else ""
        super().__init__(f"the plan is invalid: {shown}{more}")


class Conflict(ReceiptsError):
    """The approval no longer holds; nothing was written."""

    #: ``change_id_reused`` or ``stale``.
    conflict = ""

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        self.problems = tuple(problems)
        super().__init__(message)


class ChangeIdReused(Conflict):
    """The change_id stands for other content. Says the same whoever asks, and nothing of what is stored."""

    conflict = "change_id_reused"

    def __init__(self, change_id: str) -> None:
        super().__init__(f"change_id {change_id!r} was used for another change; give this plan an id of its own")


class Stale(Conflict):
    """Rows are not as they were approved; ``problems`` names every one of them."""

    conflict = "stale"

    def __init__(self, problems: Sequence[Problem]) -> None:
        shown = ", ".join(f"{problem.id} {problem.problem}" for problem in problems[:5])
        more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
        super().__init__(f"not as approved: {shown}{more}; approve the rows as they are now", problems)


class Collided(Conflict):
    """
    Another transaction changed these rows, or used this change_id, while this one ran on an older snapshot.

    Only under REPEATABLE READ or SERIALIZABLE inside the caller's own transaction, or after every repeat was lost.
    """

    conflict = "stale"

    def __init__(self) -> None:
        super().__init__("another transaction got in between; repeat the whole transaction on a fresh snapshot")


class NotWritten(ReceiptsError):
    """The database did not execute a statement as expected, without an error; everything was rolled back."""


class OutcomeUnknown(ReceiptsError):
    """The connection was lost, and the database cannot be asked: the change may be applied or not."""


class UnknownKind(ReceiptsError):
    """No app declares this kind of change in its ``changes.py``."""


class NotApproved(ReceiptsError):
    """A stored plan is not in the state that the verb needs; somebody else was there first, or it was edited."""
