"""
Actions on the rows of a list: requested, confirmed on a page that shows the numbers, done, and logged.

The function of an action gets primary keys in chunks, opens its own transaction and returns how many rows it changed.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from ..models import NAME_CHARS_MAX, NOTE_CHARS_MAX, SCOPE_CHARS_MAX, Action, ActionOutcome
from .components import Text

#: Rows that one action changes at most; it is repeated for more.
ACTION_ROWS_MAX = 10_000
#: Rows per call: a short transaction, and below SQL Server's 2,100 parameters.
CHUNK_ROWS = 500

SELECTED, MATCHING = "selected", "matching"


#: Called with keys, ``actor``, ``using`` and the form's values: changes the rows that still allow it, returns how many.
Verb = Callable[..., int]


@dataclass(frozen=True, kw_only=True)
class ListAction:
    """One action of a list."""

    name: str
    label: Text
    #: What it does, in a sentence.
    explains: Text
    permission: str
    #: None for an action with a page of its own.
    verb: Verb | None = None
    #: The rows to which it applies; the function checks again when it writes.
    eligible: Callable[[QuerySet[Any]], QuerySet[Any]]
    #: Called with the admin, the request and the `Selection`: asks, acts and records by itself.
    page: Callable[..., HttpResponse] | None = None
    form: type[forms.Form] | None = None
    #: The form's initial values, from the first of the rows.
    initial: Callable[[Any], dict[str, Any]] | None = None
    #: Whether it is offered on a row's own page only.
    is_single: bool = False


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The rows of an action with a page of its own; ``keys`` is one longer than ACTION_ROWS_MAX when there are more."""

    action: ListAction
    rows: QuerySet[Any]
    keys: Sequence[int]
    top: int
    is_matching: bool


@dataclass
class ActionProgress:
    """Progress of an action."""

    done: int = 0
    note: str = ""


@contextmanager
def record_action(
    *, actor: str, name: str, subject: str, scope: str, asked: int, tenant: str = "", using: str | None = None
) -> Iterator[ActionProgress]:
    """
    Log an action: open before the work, closed after it with the result, also when it fails.

    ``tenant`` is the tenant of its rows, empty for none or several; ``using`` is the database of the log, by default
    where the router puts it.

    Transaction: none of its own; each of the two writes is committed at once when the caller is in none.
    """
    actions = Action.objects.using(using)
    action = actions.create(
        actor=actor[:NAME_CHARS_MAX],
        name=name,
        subject=subject,
        scope=scope[:SCOPE_CHARS_MAX],
        asked=asked,
        tenant=tenant,
    )
    doing, outcome = ActionProgress(), ActionOutcome.FAILED
    try:
        yield doing
        outcome = ActionOutcome.DONE
    finally:
        actions.filter(pk=action.pk).update(outcome=outcome, done=doing.done, note=doing.note[:NOTE_CHARS_MAX])


def run_action(
    action: ListAction,
    pks: Sequence[int],
    *,
    actor: str,
    using: str,
    subject: str,
    scope: str,
    data: Mapping[str, Any],
    tenant: str = "",
) -> int:
    """Apply an action to rows in chunks and log it; return how many rows it changed."""
    if action.verb is None:
        raise TypeError(f"the action {action.name!r} has a page of its own, and no verb")
    note = ", ".join(f"{name}={value}" for name, value in data.items())
    with record_action(
        actor=actor, name=action.name, subject=subject, scope=scope, asked=len(pks), tenant=tenant
    ) as doing:
        doing.note = note
        for start in range(0, len(pks), CHUNK_ROWS):
            doing.done += action.verb(pks[start : start + CHUNK_ROWS], actor=actor, using=using, **data)
    return doing.done


def answer_non_post(request: HttpRequest, *, back: str) -> HttpResponse:
    """
    Answer a request other than POST to a page that takes POST only: redirect a GET to ``back``.

    A user who had to sign in again between question and answer arrives here, because the sign-in page redirects to the
    address.
    """
    if request.method not in ("GET", "HEAD"):
        return HttpResponseNotAllowed(["POST"])
    messages.warning(request, _("Nothing was done. Start the action here again."))
    return redirect(back)


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """The content of a confirmation page."""

    title: Text
    question: Text
    explains: Text
    button: Text
    number: int | None = None
    notes: Sequence[Text] = ()
    form: forms.Form | None = None
    hidden: Sequence[tuple[str, str]] = field(default_factory=tuple)
    table: Any = None
    back: str = ""


def start_command(*arguments: str) -> None:
    """
    Start ``manage.py`` with these arguments in a process of its own and return at once.

    A web worker's transaction or time limit must not end the work. Raises: OSError when no process can be started.
    """
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    process = subprocess.Popen(  # noqa: S603 - no part of it comes from the request
        [sys.executable, "-m", "django", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    # Its exit status has to be read, or it stays in the process table until the web worker ends.
    threading.Thread(target=process.wait, name=f"{arguments[0]}-{process.pid}", daemon=True).start()
