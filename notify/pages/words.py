"""Outcomes and states as word, icon and colour; ages and parts of log texts in words; pure."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.timesince import timesince
from django.utils.translation import gettext_lazy as _

from desk.parts import Badge, Text

from ..models import AttemptOutcome, MailState, Outcome, RunLog
from ..steps import registered

OUTCOMES: dict[str, Badge] = {
    Outcome.OK: Badge(_("ok"), "✓", "good"),
    Outcome.WARNING: Badge(_("warning"), "!", "warn"),
    Outcome.ERROR: Badge(_("error"), "✗", "bad"),
    Outcome.SKIPPED: Badge(_("skipped"), "»", "idle"),
    Outcome.RUNNING: Badge(_("running"), "…", "busy"),
}
DIED = Badge(_("died"), "†", "bad")

STATES: dict[str, Badge] = {
    MailState.QUEUED: Badge(_("queued"), "…", "busy"),
    MailState.SENDING: Badge(_("sending"), "→", "busy"),
    MailState.SENT: Badge(_("sent"), "✓", "good"),
    MailState.PARTIAL: Badge(_("partly sent"), "!", "warn"),
    MailState.FAILED: Badge(_("failed"), "✗", "bad"),
    MailState.BLOCKED: Badge(_("blocked"), "■", "warn"),
    MailState.UNCERTAIN: Badge(_("uncertain"), "?", "bad"),
}

ATTEMPTS: dict[str, Badge] = {
    AttemptOutcome.SENT: Badge(_("sent"), "✓", "good"),
    AttemptOutcome.REFUSED: Badge(_("refused"), "✗", "bad"),
    AttemptOutcome.DEFERRED: Badge(_("deferred"), "↻", "warn"),
    AttemptOutcome.UNCERTAIN: Badge(_("uncertain"), "?", "bad"),
    AttemptOutcome.SUPPRESSED: Badge(_("suppressed"), "■", "warn"),
    AttemptOutcome.ERROR: Badge(_("error"), "!", "bad"),
}
PAUSED = Badge(_("paused"), "‖", "bad")
WORKS = Badge(_("works"), "✓", "good")

#: What this engine writes into a mail's row about its problem, which stays English there; joined by semicolons.
PROBLEMS: dict[str, Text] = {
    "no recipient": _("no recipient"),
    "the subject is empty": _("the subject is empty"),
    "every recipient is on the suppression list": _("every recipient is on the suppression list"),
    "made anew; not yet released": _("made anew; not yet released"),
}
#: The same of those that go on with somebody's name or words.
PROBLEM_HEADS: dict[str, Text] = {
    "not an address: ": _("not an address: %s"),
    "held by ": _("held by %s"),
    "cannot be made: ": _("cannot be made: %s"),
}

SKIPPED = re.compile(r"SKIPPED: lock code (-?\d+), held by (.*)", re.S)
#: Characters of a text in a list; the row's own page has it all.
LINE_CHARS_MAX = 120


def outcome_of(row: RunLog) -> Badge:
    """Return a run-log row's outcome; one that a later pass had to close has died."""
    if row.outcome == Outcome.ERROR and row.ms is None:
        return DIED
    return OUTCOMES[row.outcome]


def age(at: datetime, *, now: datetime) -> str:
    """Return how long ago a moment was."""
    return timesince(at, now)


@dataclass(frozen=True)
class Skip:
    """What a skipped pass said: the lock's code, and who held it."""

    code: str
    holder: str


def skip_of(text: str | None) -> Skip:
    """Read the text of a skipped pass."""
    found = SKIPPED.match(text or "")
    return Skip(found[1], found[2]) if found else Skip("?", text or "")


def line_of(text: str | None) -> str:
    """Return the first line of a text, shortened."""
    first = (text or "").split("\n", 1)[0]
    return first if len(first) <= LINE_CHARS_MAX else first[: LINE_CHARS_MAX - 1] + "…"


def problem_of(text: str) -> str:
    """Return a mail's problem in the reader's language; what this engine has not written stays as it is."""
    if text in PROBLEMS:
        return str(PROBLEMS[text])
    return "; ".join(part_of_problem(part) for part in text.split("; "))


def part_of_problem(text: str) -> str:
    """Return one of a mail's problems in the reader's language."""
    for head, words in PROBLEM_HEADS.items():
        if text.startswith(head):
            return str(words) % text.removeprefix(head)
    return str(PROBLEMS.get(text, text))


def addressees(recipients: Any) -> str:
    """Return a mail's recipients as they stand in its row, which plain SQL may have written."""
    if isinstance(recipients, list) and all(isinstance(one, str) for one in recipients):
        return ", ".join(recipients)
    return recipients if isinstance(recipients, str) else json.dumps(recipients, ensure_ascii=False)


def kinds() -> Iterable[tuple[str, Text]]:
    """Return the kinds of notification of this site, as choices."""
    return [(kind, kind) for kind in dict.fromkeys(step.kind for step in registered())]
