"""What the API shows of this engine: the lists of the pages, as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest

from kwit.admin.filters import Filter, FilterValues
from kwit.api.encoding import as_command
from kwit.api.problems import bad_request, not_found
from kwit.api.resources import (
    INTEGER,
    TEXT,
    Column,
    Resource,
    Source,
    array_of,
    model_columns,
    object_of,
    read_query,
    register,
    row_values,
)
from kwit.people.tenants import of_model, tenants_of

from ..explain.event import explain_event
from ..explain.messages import holders_in, lock_code_of
from ..models import Attempt, Channel, Control, MailQueue, Outcome, RunLog, Suppression, TaskQueue
from ..notes import english
from .attempts import ATTEMPTS_SHOWN
from .explain import EXPLAINED_MAX, MAIL_PERMISSION, filters_for
from .runs import ORDER, RunLogAdmin

RUN = (
    "started_at",
    "ended_at",
    "ms",
    "candidates",
    "mails",
    "tasks",
    "outcome",
    "error",
    "notes",
    "is_full",
    "host",
    "pid",
)
RUN_COLUMNS = model_columns(RunLog, "id", "pass_id", "step", *RUN)
STEP_COLUMNS = model_columns(RunLog, "id", "step", *RUN)
EVENT = (
    Column("kind", TEXT, lambda row: row.control.kind),
    Column("key", INTEGER, lambda row: row.control.key),
    Column("key2", INTEGER, lambda row: row.control.key2),
    Column("original_key", TEXT, lambda row: row.control.original_key),
)
ATTEMPT_COLUMNS = model_columns(
    Attempt,
    *("id", "number", "part", "recipient", "outcome", "code", "enhanced"),
    *("text", "notes", "at", "worker", "channel", "is_overruled"),
)


class Passes(Resource):
    """Passes with their steps; the rows of one step when ``step`` is asked for."""

    name = "passes"
    about = "The run log, newest first: one entry per pass with its steps, or the rows of one step."
    model = RunLog
    columns = (*RUN_COLUMNS, Column("steps", array_of(object_of(STEP_COLUMNS)), lambda row: []))

    def shown(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the passes, each with its steps; one query."""
        window = self.model_admin
        assert isinstance(window, RunLogAdmin)  # noqa: S101 - for the type checker
        steps = window.steps_of([row.pass_id for row in rows if row.step == RunLog.WHOLE])
        return [
            row_values(RUN_COLUMNS, row)
            | {"steps": [row_values(STEP_COLUMNS, one) for one in steps.get(row.pass_id, [])]}
            if row.step == RunLog.WHOLE
            else row_values(RUN_COLUMNS, row) | {"steps": []}
            for row in rows
        ]


class SkippedRuns(Resource):
    """Passes that found the lock busy."""

    name = "skipped-runs"
    about = "Passes that were skipped, newest first: the lock's code, and who held it."
    model = RunLog
    columns = (
        *model_columns(RunLog, "id", "pass_id", "started_at", "host", "pid"),
        Column("lock_code", TEXT, lock_code_of),
        Column("held_by", TEXT, lambda row: english(holders_in(row)) or row.error or ""),
    )

    def filters(self, request: HttpRequest) -> Sequence[Filter]:
        """Return the filters of the run log that make sense here."""
        return [one for one in super().filters(request) if one.name in ("since", "until", "pass")]

    def list_queryset(self, request: HttpRequest, asked: FilterValues) -> QuerySet[Any]:
        """Return the skipped passes."""
        return self.model_admin.get_queryset(request).filter(step=RunLog.WHOLE, outcome=Outcome.SKIPPED)

    def order_of(self, request: HttpRequest, asked: FilterValues) -> Sequence[str]:
        """Return newest first."""
        return ORDER


class Controls(Resource):
    """Events that have had their message prepared."""

    name = "control"
    about = "The control table: one row per event that has had its message prepared."
    model = Control
    columns = model_columns(
        Control,
        "id",
        "kind",
        "key",
        "key2",
        "original_key",
        "tenant",
        "language",
        "recipients",
        "created_at",
        "covered_by_id",
    )


class Mails(Resource):
    """The mail queue."""

    name = "mails"
    about = "The mail queue; a mail's own address has its attempts, the newest first, and what was sent."
    model = MailQueue
    columns = (
        *model_columns(MailQueue, "id"),
        *EVENT,
        *model_columns(
            MailQueue,
            *(
                "tenant",
                "state",
                "problem",
                "notes",
                "subject",
                "recipients",
                "language",
                "attempts",
                "created_at",
                "due_at",
                "sent_at",
            ),
            *("held_for", "digest_of_id", "pass_id", "operator", "operated_at"),
        ),
    )
    details = model_columns(MailQueue, "template", "payload", "worker", "lease_until", "message_text", "message_html")

    def one(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return a mail with its attempts, or with those of the mail in whose digest it travels; one query."""
        tries = Attempt.objects.filter(mail=row.digest_of or row).order_by("-pk")[: ATTEMPTS_SHOWN + 1]
        found = [row_values(ATTEMPT_COLUMNS, one) for one in tries]
        more = {"attempts_made": found[:ATTEMPTS_SHOWN], "has_more_attempts": len(found) > ATTEMPTS_SHOWN}
        return super().one(request, row) | more


class Tasks(Resource):
    """The task queue."""

    name = "tasks"
    about = "The task queue: who has to do what, by when, done by whom."
    model = TaskQueue
    columns = (
        *model_columns(TaskQueue, "id"),
        *EVENT,
        *model_columns(
            TaskQueue,
            "tenant",
            "title",
            "assignee",
            "language",
            "created_at",
            "due_at",
            "done_at",
            "done_by",
            "pass_id",
        ),
    )
    details = model_columns(TaskQueue, "payload")


class Channels(Resource):
    """Ways out."""

    name = "channels"
    about = "The ways out that have ever paused: until when, and why."
    model = Channel
    columns = model_columns(Channel, "id", "name", "paused_at", "paused_until", "reason", "failures")


class Suppressions(Resource):
    """Addresses that get no mail."""

    name = "suppressions"
    about = "The suppression list: which addresses get no mail, since when and why."
    model = Suppression
    columns = model_columns(Suppression, "id", "address", "reason", "since")


class Explain(Source):
    """Why an event was or was not notified."""

    name = "explain"
    about = "Why an event was, or was not, notified: what notify_explain --json prints."

    def is_open_to(self, request: HttpRequest) -> bool:
        """Return whether the user may read the page of explanations: they quote mails."""
        return CONTROLS.is_open_to(request) and request.user.has_perm(MAIL_PERMISSION)

    def filters(self, request: HttpRequest) -> Sequence[Filter]:
        """Return what is asked."""
        return filters_for(request.GET.get("kind", ""))

    def answer(self, request: HttpRequest) -> dict[str, Any]:
        """Return the explanation. Raises: Refusal."""
        asked = read_query(request, self.filters(request)).values
        if missing := [name for name in ("kind", "key") if name not in asked]:
            raise bad_request(*((name, "is needed") for name in missing))
        return as_command(self.told(request, asked))  # type: ignore[no-any-return]

    def told(self, request: HttpRequest, asked: Mapping[str, Any]) -> dict[str, Any]:
        """
        Return the stories of a key's events; of many, one has to be chosen. Raises: Refusal.

        Of an event of another tenant there is as little to say as of one that is nowhere.
        """
        kind = asked["kind"]
        key, made = asked["key"].of_kind(kind)
        key2 = asked.get("key2", made)
        if key2 is None:
            rows = of_model(request.user, Control).filter(kind=kind, key=key).order_by("key2")
            if len(known := list(rows.values_list("key2", flat=True)[: EXPLAINED_MAX + 1])) > EXPLAINED_MAX:
                raise bad_request(("key2", f"is needed: this key has many events, among them {known[:EXPLAINED_MAX]}"))
        found = explain_event(kind=kind, key=key, key2=key2, tenants=tenants_of(request.user))
        if not found.events:
            raise not_found("There is no such event.")
        return found.as_json()


CONTROLS = Controls()
for source in (Passes(), SkippedRuns(), CONTROLS, Mails(), Tasks(), Channels(), Suppressions(), Explain()):
    register(source)
