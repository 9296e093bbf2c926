"""
What the engine records about its own work: a code with parameters, stored beside the English sentence.

The run log, the mail queue and the attempts keep both. Programs and pages read the code; plain SQL and log files read
the sentence. No sentence is ever parsed.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.utils import translation
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from .text import stored

#: Characters of one parameter; a traceback has a limit of its own.
PARAM_CHARS_MAX = 1000
TRACE_CHARS_MAX = 3500

SENTENCES: dict[str, str | Promise] = {
    # What somebody else said: an exception, a database, a step's own check.
    "text": "%(text)s",
    "exception": "%(error)s\n%(trace)s",
    # A pass.
    "baseline": _("baseline: the events that were there were marked without messages"),
    "baseline_since": _("baseline: the events since %(since)s were marked without messages"),
    "died": _("died: the process ended without closing its pass"),
    "interrupted": _("interrupted: %(signal)s"),
    "skipped": _("SKIPPED: lock code %(code)s, held by %(holder)s"),
    "step_failed": _("step %(step)s failed"),
    "step_warned": _("step %(step)s has warnings"),
    "stopped_before": _("stopped on request before step %(step)s"),
    "stopped_after": ngettext_lazy(
        "stopped on request after %(count)s candidate", "stopped on request after %(count)s candidates", "count"
    ),
    "lock_ended": _("the pass lock was lost: its database session ended or its lock file was deleted"),
    "lock_taken": _("the pass lock was lost: another pass has taken it and closed this pass in the run log"),
    "lock_not_released": _("the lock could not be released: %(error)s"),
    "dead_not_closed": _("the rows of dead passes could not be closed: %(error)s"),
    "not_pruned": _("the run log was not pruned: %(error)s"),
    # A step.
    "repeated_keys": ngettext_lazy(
        "the candidate query gave %(count)s key more than once: %(names)s",
        "the candidate query gave %(count)s keys more than once: %(names)s",
        "count",
    ),
    "languages_missing": ngettext_lazy(
        "%(count)s asked for a language that this site does not have: %(languages)s",
        "%(count)s asked for a language that this site does not have: %(languages)s",
        "count",
    ),
    "blocked": _("%(count)s blocked: %(names)s"),
    "not_prepared": _("%(count)s not prepared: %(names)s"),
    "repaired": ngettext_lazy(
        "repaired: %(count)s row marked whose event already had its message",
        "repaired: %(count)s rows marked whose event already had its message",
        "count",
    ),
    "not_repaired": _("rows that an earlier pass left could not be marked yet: %(error)s"),
    "breaker": _("circuit breaker: %(prepared)s prepared, %(waiting)s wait, the oldest since %(oldest)s"),
    # Who holds the pass lock.
    "holder_in_step": _("host %(host)s, process %(pid)s, since %(since)s, in step %(step)s"),
    "holder_between": _("host %(host)s, process %(pid)s, since %(since)s, between two steps"),
    "holder_process": _("process %(pid)s on host %(host)s"),
    "holder_session": _("database session %(session)s from %(address)s, connected since %(since)s"),
    "holder_other_role": _("database session %(session)s of another role"),
    "holder_this_session": _("this very session"),
    "holder_unknown": _("a session that has no row in the run log"),
    # Delivery.
    "restored": _(
        "this database looks restored from a backup: it has counted %(number)s deliveries, the file beside it "
        "%(file_number)s; delivery waits for a person"
    ),
    # A mail.
    "no_recipient": _("no recipient"),
    "not_an_address": _("not an address: %(addresses)s"),
    "empty_subject": _("the subject is empty"),
    "language_missing": _("no language %(asked)s on this site: in %(used)s"),
    "wrong_tenant": _(
        "the tenant, %(given)s, is not a text of at most %(max)s characters without control characters and "
        "without a blank at an end"
    ),
    "unusable_option": _("%(option)s cannot be used: %(given)s"),
    "attachment_missing": _("the file %(name)s is missing"),
    "attachments_too_large": _("with the file %(name)s the attachments are larger than NOTIFY_ATTACHMENT_BYTES"),
    "cannot_be_made": _("cannot be made: %(error)s"),
    "cannot_be_read": _("cannot be read: %(error)s"),
    "refused_by_database": _("refused by the database: %(error)s"),
    "outcome_not_written": _("what came of it cannot be written: %(error)s"),
    "all_suppressed": _("every recipient is on the suppression list"),
    "held_by": _("held by %(person)s"),
    "held_by_because": _("held by %(person)s: %(reason)s"),
    "withdrawn": _("withdrawn: the step's query does not give this event any more"),
    "cannot_be_rechecked": _("the step's query cannot be asked whether the event is still true: %(error)s"),
    "released_though_gone": _("released by %(person)s although its event was gone"),
    "made_anew": _("made anew; not yet released"),
    # An attempt.
    "address_invalid": _("not an address"),
    "address_suppressed": _("the address is on the suppression list"),
    "worker_lost": _("worker %(worker)s was not heard of again while this was on the wire"),
    "confirmed_by": _("confirmed by %(person)s"),
    "no_time_left": _("not sent: too much of the lease had gone by before it was begun"),
    "no_answer": _("no answer to the whole message: %(error)s"),
    "backend_silent": _("the mail backend does not say whether it sent anything"),
    "backend_sent_nothing": _("the mail backend reports that nothing was sent"),
    "backend_gave_no_reason": _("the backend does not say why"),
}


class Note(NamedTuple):
    """One recorded fact; a parameter is a text, a number, an ISO moment, or a list of notes."""

    code: str
    params: Mapping[str, Any]

    @property
    def english(self) -> str:
        """The sentence as it is stored."""
        return english([self])


def note(code: str, /, **params: Any) -> Note:
    """Return a note with parameters that JSON can keep. Raises: KeyError for an unknown code."""
    SENTENCES[code]
    return Note(code, {name: plain(name, value) for name, value in params.items()})


def plain(name: str, value: Any) -> Any:
    """Return a parameter as JSON can keep it."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S%z}"
    if isinstance(value, list | tuple):
        return [each if isinstance(each, Note) else plain(name, each) for each in value]
    return stored(str(value), TRACE_CHARS_MAX if name == "trace" else PARAM_CHARS_MAX)


def sentence(one: Note) -> str:
    """Return a note's sentence in the active language. Raises: LookupError, TypeError for a note that is none."""
    params = {
        name: say(value) if isinstance(value, list) and value and isinstance(value[0], Note) else value
        for name, value in one.params.items()
    }
    return str(SENTENCES[one.code] % params)


def say(notes: Iterable[Note]) -> str:
    """Return several notes' sentences in the active language, joined by semicolons."""
    return "; ".join(sentence(one) for one in notes)


def english(notes: Iterable[Note]) -> str:
    """Return the sentences as they are stored, whatever the active language."""
    with translation.override(None):
        return say(notes)


def as_data(notes: Iterable[Note]) -> list[dict[str, Any]] | None:
    """Return notes as a JSON column keeps them; None for none."""
    return [
        {
            "code": one.code,
            "params": {
                name: as_data(value) if isinstance(value, list) and value and isinstance(value[0], Note) else value
                for name, value in one.params.items()
            },
        }
        for one in notes
    ] or None


def as_text(notes: Sequence[Note]) -> str | None:
    """Return notes as the JSON text that raw SQL inserts; None for none."""
    return json.dumps(as_data(notes), ensure_ascii=False) if notes else None


def from_data(value: Any) -> list[Note]:
    """Return the notes of a JSON column; none when anything in it is not ours (plain SQL may have written it)."""
    try:
        notes = [Note(each["code"], {k: nested(v) for k, v in each["params"].items()}) for each in value or ()]
        say(notes)
    except (LookupError, TypeError, AttributeError, ValueError):
        return []
    return notes


def nested(value: Any) -> Any:
    """Return a parameter with the notes inside it."""
    is_notes = isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)
    return from_data(value) if is_notes else value


def try_find(value: Any, code: str) -> Note | None:
    """Return the first note of a code in a JSON column."""
    return next((one for one in from_data(value) if one.code == code), None)
