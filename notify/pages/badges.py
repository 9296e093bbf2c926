"""Outcomes and states as word, icon and colour; ages; pure."""

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.utils.timesince import timesince
from django.utils.translation import gettext_lazy as _

from kwit.admin.components import Badge, Text

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
    MailState.WITHDRAWN: Badge(_("withdrawn"), "↩", "idle"),
}

ATTEMPTS: dict[str, Badge] = {
    AttemptOutcome.SENT: Badge(_("sent"), "✓", "good"),
    AttemptOutcome.REFUSED: Badge(_("refused"), "✗", "bad"),
    AttemptOutcome.DEFERRED: Badge(_("deferred"), "↻", "warn"),
    AttemptOutcome.UNCERTAIN: Badge(_("uncertain"), "?", "bad"),
    AttemptOutcome.SUPPRESSED: Badge(_("suppressed"), "■", "warn"),
    AttemptOutcome.ERROR: Badge(_("error"), "!", "bad"),
    AttemptOutcome.BOUNCED: Badge(_("bounced"), "✗", "bad"),
    AttemptOutcome.COMPLAINED: Badge(_("complained"), "✗", "bad"),
    AttemptOutcome.DELIVERED: Badge(_("delivered"), "✓", "good"),
}
PAUSED = Badge(_("paused"), "‖", "bad")
WORKS = Badge(_("works"), "✓", "good")

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


def line_of(text: str | None) -> str:
    """Return the first line of a text, shortened."""
    first = (text or "").split("\n", 1)[0]
    return first if len(first) <= LINE_CHARS_MAX else first[: LINE_CHARS_MAX - 1] + "…"


def addressees(recipients: Any) -> str:
    """Return a mail's recipients as they stand in its row, which plain SQL may have written."""
    if isinstance(recipients, list) and all(isinstance(one, str) for one in recipients):
        return ", ".join(recipients)
    return recipients if isinstance(recipients, str) else json.dumps(recipients, ensure_ascii=False)


def kinds() -> Iterable[tuple[str, Text]]:
    """Return the kinds of notification of this site, as choices."""
    return [(kind, kind) for kind in dict.fromkeys(step.kind for step in registered())]
