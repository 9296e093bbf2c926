"""
Liveness and readiness probes for orchestrators and load balancers.

Each database is probed by one thread on one connection at a time, whatever is asked and however often: a web worker
waits for ``READY_S`` at most, and an answer is given again for ``KEPT_S``.
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
from ..api.authentication import UNREACHABLE, read_only
from ..api.encoding import encoded
from ..api.problems import bad_request
from ..db.dialect import copy_with_timeout

#: The longest that a probe waits for all databases together; orchestrators give a probe a second or a few.
READY_S = 3.0
CONNECT_S = 2
#: An answer is given again for this long: anybody may ask, and more requests make no more queries.
KEPT_S = 1.0
SECONDS_MAX = 366 * 86_400
OK, FAILING = "ok", "failing"


@dataclass(frozen=True, kw_only=True)
class Question:
    """One more check that ``?name=SECONDS`` asks for, such as how old the last good pass may be."""

    name: str
    #: Returns the alias of the database.
    alias: Callable[[], str]
    #: Reads the value from the database of an alias; the same for whatever number of seconds.
    measure: Callable[[str], Any]
    #: Given the value and the seconds: what is wrong, empty when nothing is.
    judge: Callable[[Any, int], str]


@dataclass(frozen=True)
class Answer:
    """The result of one probe of a database: what is wrong with the database, and the values of its questions."""

    at: float
    problem: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Probe:
    """The probe of one database: at most one thread and one connection, however many requests there are."""

    lock: Lock = field(default_factory=Lock)
    running: "Future[Answer] | None" = None
    answered: Answer | None = None


_questions: dict[str, Question] = {}
_probes: dict[str, Probe] = {}


def register(question: Question) -> None:
    """Add a question; one of the same name is replaced."""
    _questions[question.name] = question


@read_only
def live(request: HttpRequest) -> HttpResponse:
    """Say that this process answers; no database is involved."""
    return as_response({})


@read_only
def ready(request: HttpRequest) -> HttpResponse:
    """Say whether each database answers and has its migrations, and what else the address asks for."""
    return as_response(findings(request))


@read_only
def both(request: HttpRequest) -> HttpResponse:
    """Say both: an answer proves that the process is alive."""
    return as_response({"process": "", **findings(request)})


def as_response(found: Mapping[str, str]) -> HttpResponse:
    """Return the response: 200 when nothing is wrong, else 503."""
    is_ok = not any(found.values())
    checks = {name: {"status": FAILING, "problem": text} if text else {"status": OK} for name, text in found.items()}
    content: dict[str, Any] = {"status": OK if is_ok else FAILING, "checks": checks}
    status = HTTPStatus.OK if is_ok else HTTPStatus.SERVICE_UNAVAILABLE
    response = HttpResponse(encoded(content), content_type="application/json", status=status)
    # Django logs each 5xx, and mails it to ADMINS where they are set: not once a second while a database is away.
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response


def findings(request: HttpRequest) -> dict[str, str]:
    """Return the problem of each check; empty without a problem. Raises: Refusal."""
    limits = limits_of(request)
    give_up_at = time.monotonic() + READY_S
    begun = {alias: begin(alias) for alias in connections}
    answers = {alias: result(probe, give_up_at) for alias, probe in begun.items()}
    found = {f"database:{alias}": answer.problem for alias, answer in answers.items()}
    for name, seconds in limits.items():
        question = _questions[name]
        value = answers[question.alias()].values.get(name, UNKNOWN)
        if isinstance(value, Unknown):
            found[name] = answers[question.alias()].problem or value.reason
        else:
            found[name] = question.judge(value, seconds)
    return found


def limits_of(request: HttpRequest) -> dict[str, int]:
    """Return the seconds of each question in the address. Raises: Refusal."""
    limits = {}
    for name, texts in request.GET.lists():
        if name not in _questions:
            raise bad_request((name[:80], f"is not known here; known are: {', '.join(sorted(_questions)) or 'none'}"))
        if len(texts) > 1:
            raise bad_request((name, "is given more than once"))
        if not INTEGER_TEXT.fullmatch(texts[0]) or not 0 < int(texts[0]) <= SECONDS_MAX:
            raise bad_request((name, f"must be a number of seconds from 1 to {SECONDS_MAX}"))
        limits[name] = int(texts[0])
    return limits


def begin(alias: str) -> Probe:
    """Start the probe of a database in a thread, unless one is running or has just ended."""
    probe = _probes.setdefault(alias, Probe())
    with probe.lock:
        is_fresh = probe.answered is not None and time.monotonic() - probe.answered.at < KEPT_S
        if probe.running is None and not is_fresh:
            probe.answered = None
            probe.running = start(probe, alias)
    return probe


def start(probe: Probe, alias: str) -> "Future[Answer]":
    """Start the thread of a probe; it ends by itself and closes its connection."""
    found = Future[Answer]()

    def work() -> None:
        answer = Answer(time.monotonic(), "does not answer")
        try:
            # In this thread the alias leads to the connection with a time limit.
            connections[alias] = copy_with_timeout(connections[alias], timeout_s=CONNECT_S)
            answer = Answer(time.monotonic(), unready(alias), measured(alias))
        except UNREACHABLE:
            pass  # the text of a driver's error names hosts and users, and everybody may read this page
        except Exception as error:  # a probe has no other way to say that it does not work
            answer = Answer(time.monotonic(), f"cannot be asked: {type(error).__name__}")
        finally:
            with probe.lock:
                probe.answered, probe.running = answer, None
            found.set_result(answer)
            connections[alias].close()

    # A daemon: a database that does not answer must not keep the process from ending.
    Thread(target=work, name=f"healthz-{alias}", daemon=True).start()
    return found


@dataclass(frozen=True)
class Unknown:
    """Stands for a value that could not be read."""

    reason: str


UNKNOWN = Unknown("is not known")


def measured(alias: str) -> dict[str, Any]:
    """Return the values of all questions to a database; a table that is missing concerns its own question only."""
    values: dict[str, Any] = {}
    for question in list(_questions.values()):
        if question.alias() == alias:
            try:
                values[question.name] = question.measure(alias)
            except DatabaseError as error:
                values[question.name] = Unknown(f"cannot be read: {type(error).__name__}")
    return values


def result(probe: Probe, give_up_at: float) -> Answer:
    """Return the answer of a probe, waiting for it no longer than allowed."""
    with probe.lock:
        running, answered = probe.running, probe.answered
    if running is None:
        return answered or Answer(0, "does not answer")
    try:
        return running.result(max(0.0, give_up_at - time.monotonic()))
    except TimeoutError:
        return Answer(0, "does not answer in time")


def unready(alias: str) -> str:
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
