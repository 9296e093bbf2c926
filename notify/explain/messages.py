"""What the engine writes into rows in English, said in the reader's language; what it has not written stays; pure."""

import re
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

Text = str | Promise

#: Problems of a mail; several are joined by semicolons.
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

#: Who holds the pass lock, by the run log and by the database; joined by semicolons.
HOLDERS: tuple[tuple[str, Text], ...] = (
    (
        r"host (?P<host>.+), process (?P<pid>\S+), since (?P<since>\S+), in step (?P<step>\S+)",
        _("host %(host)s, process %(pid)s, since %(since)s, in step %(step)s"),
    ),
    (
        r"host (?P<host>.+), process (?P<pid>\S+), since (?P<since>\S+), between two steps",
        _("host %(host)s, process %(pid)s, since %(since)s, between two steps"),
    ),
    (r"process (?P<pid>\d+) on host (?P<host>.+)", _("process %(pid)s on host %(host)s")),
    (
        r"database session (?P<session>.+) from (?P<address>.+), connected since (?P<since>\S+)",
        _("database session %(session)s from %(address)s, connected since %(since)s"),
    ),
    (r"database session (?P<session>.+) of another role", _("database session %(session)s of another role")),
    (r"this very session", _("this very session")),
    (r"a session that has no row in the run log", _("a session that has no row in the run log")),
)
#: What the run log says of passes and steps; joined by semicolons.
LOGGED: tuple[tuple[str, Text], ...] = (
    (
        r"died: the process ended without closing its pass",
        _("died: the process ended without closing its pass"),
    ),
    (r"step (?P<step>\S+) failed", _("step %(step)s failed")),
    (r"step (?P<step>\S+) has warnings", _("step %(step)s has warnings")),
    (r"stopped on request before step (?P<step>\S+)", _("stopped on request before step %(step)s")),
    (r"stopped on request after (?P<number>\d+) candidates", _("stopped on request after %(number)s candidates")),
    (
        r"the candidate query gave (?P<number>\d+) keys more than once: (?P<names>.+)",
        _("the candidate query gave %(number)s keys more than once: %(names)s"),
    ),
    (r"(?P<number>\d+) blocked: (?P<names>.+)", _("%(number)s blocked: %(names)s")),
    (r"(?P<number>\d+) not prepared: (?P<names>.+)", _("%(number)s not prepared: %(names)s")),
    (
        r"repaired: (?P<number>\d+) rows marked whose event already had its message",
        _("repaired: %(number)s rows marked whose event already had its message"),
    ),
    (
        r"circuit breaker: (?P<done>\d+) prepared, (?P<waiting>\d+) wait, the oldest since (?P<oldest>\S+)",
        _("circuit breaker: %(done)s prepared, %(waiting)s wait, the oldest since %(oldest)s"),
    ),
)
SKIPPED = re.compile(r"SKIPPED: lock code (?P<code>-?\d+), held by (?P<holder>.*)", re.S)


def problem_of(text: str) -> str:
    """Return a mail's problem in the reader's language."""
    if text in PROBLEMS:
        return str(PROBLEMS[text])
    return "; ".join(part_of_problem(part) for part in text.split("; "))


def part_of_problem(text: str) -> str:
    """Return one of a mail's problems in the reader's language."""
    for head, words in PROBLEM_HEADS.items():
        if text.startswith(head):
            return str(words) % text.removeprefix(head)
    return str(PROBLEMS.get(text, text))


def holder_of(text: str) -> str:
    """Return who holds the lock in the reader's language."""
    return "; ".join(said(part, HOLDERS) for part in text.split("; "))


def logged(text: str) -> str:
    """Return a text of the run log in the reader's language."""
    if found := SKIPPED.fullmatch(text):
        values = {"code": found["code"], "holder": holder_of(found["holder"])}
        return str(_("SKIPPED: lock code %(code)s, held by %(holder)s")) % values
    return "; ".join(said(part, LOGGED) for part in text.split("; "))


def said(text: str, table: tuple[tuple[str, Text], ...]) -> str:
    """Return one of the table's sentences with this text's values; a text that is none of them as it is."""
    for pattern, words in table:
        if found := re.fullmatch(pattern, text):
            values: dict[str, Any] = found.groupdict()
            return str(words) % values
    return text
