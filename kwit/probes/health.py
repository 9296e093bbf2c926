"""
Whether this process answers (live) and whether it can work (ready); for orchestrators and load balancers.

A database is asked in a thread of its own, on a connection of its own, one at a time: however long it is silent, a
web worker waits for ``READY_S`` only, and no more than one thread per database waits on.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from threading import Lock, Thread
from typing import Any

from django.db import DatabaseError, connections, router
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.http import HttpRequest, HttpResponse

from ..admin.filters import INTEGER_TEXT
from ..api.authentication import SILENT, reading
from ..api.encoding import encoded
from ..api.problems import bad_request
from ..db.dialect import copy_with_timeout

#: The longest that a probe waits for all databases together; orchestrators give a probe a second or a few.
READY_S = 3.0
CONNECT_S = 2
#: An answer is given again for this long: anybody may ask, and no number of them makes more queries.
KEPT_S = 1.0
SECONDS_MAX = 366 * 86_400
OK, FAILING = "ok", "failing"


Ask = Callable[[str, int], str]


@dataclass(frozen=True, kw_only=True)
class Question:
    """One more thing that ``?name=SECONDS`` asks, such as how old the last good pass may be."""

    name: str
    #: The alias of the database that is asked.
    alias: Callable[[], str]
    #: Given the alias and the seconds: what is wrong, empty when nothing is.
    ask: Ask


@dataclass
class Probe:
    """What is known of one question to one database."""

    lock: Lock = field(default_factory=Lock)
    running: "Future[str] | None" = None
    answered: tuple[float, str] | None = None


_questions: dict[str, Question] = {}
_probes: dict[tuple[str, str, int], Probe] = {}
#: Different questions of one second; more are answered with "busy".
PROBES_MAX = 50


def register(question: Question) -> None:
    """Add a question; one of the same name is replaced."""
    _questions[question.name] = question


@reading
def live(request: HttpRequest) -> HttpResponse:
    """Say that this process answers; asks nothing of nobody."""
    return told({})


@reading
def ready(request: HttpRequest) -> HttpResponse:
    """Say whether each database answers and has its migrations, and what else the address asks."""
    return told(findings(request))


@reading
def both(request: HttpRequest) -> HttpResponse:
    """Say both: who hears this knows that the process answers."""
    return told({"process": "", **findings(request)})


def told(found: Mapping[str, str]) -> HttpResponse:
    """Return the answer: 200 when nothing is wrong, else 503."""
    is_ok = not any(found.values())
    checks = {name: {"status": FAILING, "problem": text} if text else {"status": OK} for name, text in found.items()}
    content: dict[str, Any] = {"status": OK if is_ok else FAILING, "checks": checks}
    status = HTTPStatus.OK if is_ok else HTTPStatus.SERVICE_UNAVAILABLE
    response = HttpResponse(encoded(content), content_type="application/json", status=status)
    # Django logs each 5xx, and mails it to ADMINS where they are set: not once a second while a database is away.
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response


def findings(request: HttpRequest) -> dict[str, str]:
    """Return what is wrong, per check; empty where nothing is. Raises: Refusal."""
    asked: dict[tuple[str, str, int], Ask] = {("database", alias, 0): unready for alias in connections}
    for name in request.GET:
        text = request.GET.get(name, "")
        question = _questions.get(name)
        if question is None:
            raise bad_request((name[:80], f"is not known here; known are: {', '.join(sorted(_questions)) or 'none'}"))
        if not INTEGER_TEXT.fullmatch(text) or not 0 < int(text) <= SECONDS_MAX:
            raise bad_request((name, f"must be a number of seconds from 1 to {SECONDS_MAX}"))
        asked[name, question.alias(), int(text)] = question.ask
    give_up_at = time.monotonic() + READY_S
    begun = {key: begin(key, ask) for key, ask in asked.items()}
    return {
        f"{key[0]}:{key[1]}" if key[0] == "database" else key[0]: result(probe, give_up_at)
        for key, probe in begun.items()
    }


def begin(key: tuple[str, str, int], ask: Ask) -> Probe | None:
    """Ask a database in a thread, unless it is being asked or has just answered; None when too much is asked."""
    if key not in _probes and len(_probes) >= PROBES_MAX:
        forget()
        if len(_probes) >= PROBES_MAX:
            return None
    probe = _probes.setdefault(key, Probe())
    with probe.lock:
        is_fresh = probe.answered is not None and time.monotonic() - probe.answered[0] < KEPT_S
        if probe.running is None and not is_fresh:
            probe.answered = None
            probe.running = start(probe, key, ask)
    return probe


def forget() -> None:
    """Drop the answers that are not given again, but never the databases' own."""
    for key, probe in list(_probes.items()):
        if key[0] != "database" and probe.running is None:
            _probes.pop(key, None)


def start(probe: Probe, key: tuple[str, str, int], ask: Ask) -> "Future[str]":
    """Start the thread of a probe; it ends by itself, with its connection."""
    alias, found = key[1], Future[str]()

    def work() -> None:
        text = "does not answer"
        try:
            # In this thread the alias leads to the connection with a time limit.
            connections[alias] = copy_with_timeout(connections[alias], timeout_s=CONNECT_S)
            text = ask(alias, key[2])
        except SILENT:
            pass  # the words of a driver name hosts and users, and anybody reads this
        except Exception as error:  # a probe has no other way to say that it does not work
            text = f"cannot be asked: {type(error).__name__}"
        finally:
            with probe.lock:
                probe.answered, probe.running = (time.monotonic(), text), None
            found.set_result(text)
            connections[alias].close()

    # A daemon: a database that is silent must not keep the process from ending.
    Thread(target=work, name=f"healthz-{alias}", daemon=True).start()
    return found


def result(probe: Probe | None, give_up_at: float) -> str:
    """Return what is wrong, waiting for it no longer than allowed."""
    if probe is None:
        return "too many different questions at once"
    with probe.lock:
        running, answered = probe.running, probe.answered
    if running is None:
        return answered[1] if answered else "does not answer"
    try:
        return running.result(max(0.0, give_up_at - time.monotonic()))
    except TimeoutError:
        return "does not answer in time"


def unready(alias: str, _seconds: int) -> str:
    """Return what a database lacks; empty when it answers and has every migration."""
    recorder = MigrationRecorder(connections[alias])
    try:
        # Its applied_migrations() lists all tables of the database first, each second and however many there are.
        applied = set(recorder.migration_qs.values_list("app", "name"))
    except DatabaseError:
        if recorder.has_table():
            raise
        applied = set()
    needed = [key for key in leaves() if router.allow_migrate(alias, key[0])]
    missing = [key for key in needed if not is_applied(key, applied)]
    return "lacks migrations" if missing else ""


@cache
def loaded() -> MigrationLoader:
    """Return the migrations of this process's code, read once: the files do not change under it."""
    return MigrationLoader(None)


@cache
def leaves() -> tuple[tuple[str, str], ...]:
    """Return the last migration of each app."""
    return tuple(sorted(key for key in loaded().graph.leaf_nodes()))


def is_applied(key: tuple[str, str], applied: set[tuple[str, str]]) -> bool:
    """Whether a migration was applied, or all those that it replaces were."""
    replaced = loaded().disk_migrations[key].replaces
    return key in applied or (bool(replaced) and all(one in applied for one in replaced))
