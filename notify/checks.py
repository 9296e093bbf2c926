"""System checks: what is wrong with a site's settings, steps or database, before a pass finds out."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any

from django.apps import AppConfig, apps
from django.core.checks import ERROR, CheckMessage, Error, Info, Tags, Warning, register
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.db import DatabaseError, connections, router
from django.db.models import Exists, F, Field, Model, OuterRef, Q, QuerySet, Subquery, UniqueConstraint
from django.db.models.expressions import Col, Func
from django.db.models.functions import Coalesce
from django.db.models.lookups import IsNull
from django.db.models.sql.constants import LOUTER
from django.db.models.sql.query import Query
from django.db.models.sql.where import AND
from django.template import TemplateDoesNotExist, TemplateSyntaxError
from django.template.loader import get_template
from django.utils import timezone

from kwit.environment import check_environment

from .clock import REUSED_AFTER, SKEW, future, lease_end_max
from .conf import Conf, conf
from .dialects import dialect_of
from .errors import LockUnusable, WrongKey
from .keys import EventKey, UuidKey, kind_of
from .messages.coalesce import EVENTS
from .messages.names import unknown_names
from .messages.values import ALWAYS
from .models import KIND_LENGTH_MAX, Attempt, Channel, Control, MailQueue, RunLog
from .steps import FlaggedStep, Scope, Step, columns_of, registered

#: Reused keys that a finding names.
REUSED_NAMED_MAX = 5
#: The tag of what ``manage.py doctor`` asks; those checks look into a database.
DOCTOR = "kwit"


@register("notify")
def check_settings(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """E001: a setting of NOTIFY is unknown or has the wrong type."""
    try:
        conf()
    except ImproperlyConfigured as error:
        return [Error(str(error), hint="See docs/reference.md for names, types and defaults.", id="notify.E001")]
    return []


@register("notify")
def check_variables(**kwargs: Any) -> list[CheckMessage]:
    """W009: a variable of the environment looks like a setting of NOTIFY, and the settings do not read it."""
    return check_environment("NOTIFY", {f"NOTIFY_{one.name}": one.name for one in fields(Conf)}, id="notify.W009")


@register("notify")
def check_steps(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """E002 to E013, W001, W003, W008: what a step declares does not fit together."""
    return [message for step in registered() for message in check_step(step)]


def faults_of(step: Step) -> list[str]:
    """Return why a step cannot run; a pass logs these as the step's error and runs the others."""
    return [f"{message.id}: {message.msg}" for message in check_step(step) if message.level >= ERROR]


def check_step(step: Step) -> Iterator[CheckMessage]:
    """Check one step; what it raises is a finding, too."""
    try:
        yield from check_parts(step)
    except Exception as error:  # whatever the host's code raises
        hint = "Correct the step; until then it does not run."
        yield Error(f"the step raises {type(error).__name__}: {error}", hint=hint, obj=type(step), id="notify.E004")


def check_parts(step: Step) -> Iterator[CheckMessage]:
    """Check a step's kind, templates, breaker, events and flag."""
    yield from check_kind(step)
    yield from check_templates(step)
    is_number = isinstance(step.breaker, int) and not isinstance(step.breaker, bool)
    if not isinstance(step.breaker, bool) and (not is_number or step.breaker < 1):
        hint = "Use True for NOTIFY_BREAKER, False for no limit, or a number above 0."
        yield Error(f"breaker is {step.breaker!r}", hint=hint, obj=type(step), id="notify.E009")
    try:
        events = step.events(Scope(now=timezone.now(), since=timezone.now()))
    except Exception as error:  # whatever the host's code raises is the finding
        hint = "It must return a queryset without touching the database."
        yield Error(f"events() raises {type(error).__name__}: {error}", hint=hint, obj=type(step), id="notify.E004")
        return
    problem = shape_problem(events)
    if problem:
        hint = "Return Model.objects.filter(…).values(key=F(…), event_at=F(…), …)."
        yield Error(f"events() {problem}", hint=hint, obj=type(step), id="notify.E004")
        return
    if step.digest and (given := [name for name in ("bcc", "cc", "attachments") if getattr(step, name)]):
        hint = "Take them away, or digest."
        text = f"mails of a digest go to one recipient each, without {', '.join(given)} of their own"
        yield Error(text, hint=hint, obj=type(step), id="notify.E011")
    own = type(step).recheck_events is not Step.recheck_events
    if step.recheck and isinstance(step, FlaggedStep) and not own:
        hint = "Return from recheck_events() the events that are still true, whatever their flag."
        text = "recheck asks events(), which does not give an event any more once its flag is raised"
        yield Error(text, hint=hint, obj=type(step), id="notify.E012")
    yield from check_event_time(step, events)
    yield from check_names(step, columns_of(events))
    yield from check_keys(step, events)
    if isinstance(step, FlaggedStep):
        yield from check_flag(step)
        if step.coalesce:
            hint = "Remove coalesce: the flag says of each row whether its event has had its message."
            yield Error("a flagged step cannot coalesce", hint=hint, obj=type(step), id="notify.E013")


def check_keys(step: Step, events: QuerySet[Any, Any]) -> Iterator[CheckMessage]:
    """E010: what a step gives as its key cannot be one; W003: it may be NULL."""
    names = [name for name in ("key", "key2") if name in columns_of(events)]
    found = {name: events.query.annotations.get(name) or events.query.resolve_ref(name) for name in names}
    for name, key in found.items():
        if problem := key_problem(name, key, is_alone="key2" not in found):
            hint = "Use an integer, UuidKey('pk') for a UUID, or DigestKey('a', 'b') for texts and several columns."
            yield Error(problem, hint=hint, obj=type(step), id="notify.E010")
            return
    for name, key in found.items():
        if column := nullable_in(key, events.query):
            hint = "Filter them out in events(), so that nothing is left out in silence."
            fate = "are left out" if name == "key" else "cannot be prepared"
            label = f"{column.target.model._meta.label}.{column.target.name}"
            text = f"{name} is {label}, which may be NULL: such rows {fate}"
            yield Warning(text, hint=hint, obj=type(step), id="notify.W003")


def key_problem(name: str, key: Any, *, is_alone: bool) -> str:
    """Say why an expression cannot be a key; an empty text when it can."""
    if isinstance(key, EventKey):
        if not is_alone:
            return f"{key!r} fills key and key2, so there is no place for a key2"
        try:
            kinds = key.kinds
        except WrongKey as error:
            return f"{name}: {error}"
        if isinstance(key, UuidKey) and kinds != "u":
            return f"{key!r} must be made of one UUIDField"
        return "" if kinds else f"{key!r} has no parts"
    field = getattr(key, "output_field", None)
    try:
        kind = kind_of(field) if field is not None else "i"
    except WrongKey:
        kind = ""
    return "" if kind == "i" else f"{name} is a {type(field).__name__}, not a 64-bit integer"


def nullable_in(key: Any, query: Query) -> Col | None:
    """Return the first column of an expression that may be NULL: by its field, or because its row need not be there."""
    if isinstance(key, Coalesce):
        inner = [nullable_in(part, query) for part in key.get_source_expressions()]
        return inner[-1] if inner else None
    if isinstance(key, Col):
        is_outer = getattr(query.alias_map.get(key.alias), "join_type", "") == LOUTER
        return key if (key.target.null or is_outer) and not is_required(key, query) else None
    parts = key.get_source_expressions() if isinstance(key, EventKey | Func) else []
    return next((found for part in parts if (found := nullable_in(part, query))), None)


def is_required(column: Col, query: Query) -> bool:
    """Whether a query leaves out the rows where a column is NULL."""
    if query.where.negated or query.where.connector != AND:
        return False
    return any(isinstance(found, IsNull) and not found.rhs and found.lhs == column for found in query.where.children)


def check_kind(step: Step) -> Iterator[CheckMessage]:
    """E002: the kind does not fit the control table; E003: another step has it too."""
    kind = step.kind
    named = [f"{type(s).__module__}.{type(s).__qualname__}" for s in registered() if s.kind == kind]
    if len(named) > 1:
        hint = f"Give each its own kind: {', '.join(named)}."
        yield Error(f"{len(named)} steps are of the kind {kind!r}", hint=hint, obj=type(step), id="notify.E003")
    if not is_storable_kind(kind):
        hint = f"Use 1 to {KIND_LENGTH_MAX} printable characters, no blank at either end, and not {RunLog.WHOLE!r}."
        yield Error(f"the kind {kind!r} cannot be stored", hint=hint, obj=type(step), id="notify.E002")


def is_storable_kind(kind: Any) -> bool:
    """Whether rows can be stored under this kind."""
    fits = isinstance(kind, str) and 1 <= len(kind) <= KIND_LENGTH_MAX and kind.isprintable() and kind == kind.strip()
    return fits and kind != RunLog.WHOLE


def check_templates(step: Step) -> Iterator[CheckMessage]:
    """E006: the step writes nothing; E007: a template is missing or faulty."""
    if step.template is None and step.task is None:
        hint = "Set template (a mail), task (a to-do item) or both."
        yield Error("the step writes neither mails nor tasks", hint=hint, obj=type(step), id="notify.E006")
    names = [f"notify/mail/{step.template}.subject.txt"] if step.template is not None else []
    names += [f"notify/task/{step.task}.title.txt"] if step.task is not None else []
    for name in names:
        try:
            get_template(name)
        except TemplateDoesNotExist:
            hint = "Put it below a folder of TEMPLATES['DIRS'] or an app's templates/."
            yield Error(f"the template {name} does not exist", hint=hint, obj=type(step), id="notify.E007")
        except TemplateSyntaxError as error:
            hint = "Correct the template."
            yield Error(f"the template {name} is faulty: {error}", hint=hint, obj=type(step), id="notify.E007")


def check_names(step: Step, columns: Sequence[str]) -> Iterator[CheckMessage]:
    """W008: a template uses a name that it never gets, which renders as nothing."""
    known = {*columns, *ALWAYS, *([EVENTS] if step.coalesce else [])} - {"recipients", "language", "assignee"}
    for name in step.templates:
        given = {"items", "count", *ALWAYS} if name.startswith(f"notify/mail/{step.template}.digest.") else known
        try:
            unknown = unknown_names(name, given)
        except (TemplateDoesNotExist, TemplateSyntaxError):
            continue  # E007 and W006 say so
        for use in unknown:
            hint = f"It renders as nothing. Known are {', '.join(sorted(given))}; add it to events(), or correct it."
            text = f"{use.template}, line {use.line}: no value is called {use.name!r}"
            yield Warning(text, hint=hint, obj=type(step), id="notify.W008")


def shape_problem(events: Any) -> str:
    """Say why something cannot be a step's events; an empty text when it can."""
    if not isinstance(events, QuerySet):
        return f"gives a {type(events).__name__}, not a queryset"
    if events.query.combinator or events.query.is_sliced:
        return "gives a union or a slice, which cannot be joined with the control table"
    if missing := {"key", "event_at"} - set(columns_of(events)):
        return f"lacks the columns {', '.join(sorted(missing))}"
    return ""


def check_event_time(step: Step, events: QuerySet[Any, Any]) -> Iterator[CheckMessage]:
    """E005: the window of an ordinary pass would read the whole table."""
    if not step.is_windowed:
        return
    query = events.query
    expression = query.annotations.get("event_at") or query.resolve_ref("event_at")
    if not isinstance(expression, Col):
        problem = "event_at is computed, so that no index can serve it"
    elif not is_indexed(expression.target):
        target = expression.target
        problem = f"event_at is {target.model._meta.label}.{target.name}, which no index begins with"
    else:
        return
    hint = "Use a plain column with db_index=True (or first in an Index), or set is_windowed = False."
    yield Error(problem, hint=hint, obj=type(step), id="notify.E005")


def is_indexed(field: "Field[Any, Any]") -> bool:
    """Whether an index or a unique constraint begins with the field."""
    if getattr(field, "db_index", False) or field.unique:
        return True
    meta = field.model._meta
    firsts = [index.fields[0].lstrip("-") for index in meta.indexes if index.fields]
    unique = [constraint for constraint in meta.constraints if isinstance(constraint, UniqueConstraint)]
    firsts += [constraint.fields[0] for constraint in unique if constraint.fields]
    return field.name in firsts


def check_flag(step: FlaggedStep) -> Iterator[CheckMessage]:
    """E008: the flagged rows lack the flag or the key; W001: no index holds the rows that wait."""
    model = step.flagged().model
    for name in (step.flag, *step.flag_keys):
        if not has_field(model, name):
            hint = f"Set flag and flag_key to fields of {model._meta.label}."
            yield Error(f"{model._meta.label} has no field {name!r}", hint=hint, obj=type(step), id="notify.E008")
            return
    waiting = Q(**{step.flag: False})
    served = any(index.condition == waiting or step.flag in index.fields[:1] for index in model._meta.indexes)
    if not served and not model._meta.get_field(step.flag).db_index:
        names = [model._meta.pk.name if name == "pk" else name for name in step.flag_keys]
        hint = f"Add Index(fields={names}, condition=Q({step.flag}=False), name=…)."
        text = f"no index of {model._meta.label} holds the rows that wait to be handled: each pass reads them all"
        yield Warning(text, hint=hint, obj=type(step), id="notify.W001")


def has_field(model: type[Model], name: str) -> bool:
    """Whether a model has a field or a column attribute of this name."""
    if name == "pk":
        return True
    try:
        model._meta.get_field(name)
    except FieldDoesNotExist:
        return any(getattr(field, "attname", None) == name for field in model._meta.fields)
    return True


def on_database(check: Callable[[str], Iterator[CheckMessage]]) -> Callable[..., list[CheckMessage]]:
    """Make a system check of one that looks into the database that holds the control table."""

    def run(app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any) -> Any:
        home = router.db_for_write(Control)
        wanted = [alias for alias in databases or () if alias == home]
        return [message for alias in wanted for message in check(alias)]

    return run


@register(Tags.database, DOCTOR, deploy=True)
@on_database
def check_control_table(alias: str) -> Iterator[CheckMessage]:
    """E020: the table is missing; E021: the unique constraint is missing."""
    connection = connections[alias]
    table = Control._meta.db_table
    with connection.cursor() as cursor:
        if table not in connection.introspection.table_names(cursor):
            hint = f"Run: manage.py migrate --database {alias}"
            yield Error(f"the table {table} does not exist", hint=hint, obj=alias, id="notify.E020")
            return
        constraints = connection.introspection.get_constraints(cursor, table).values()
    if not any(c["unique"] and c["columns"] == ["kind", "key", "key2"] for c in constraints):
        hint = "Without it a message can be sent twice. Stop the passes, remove double rows, add the constraint back."
        text = f"{table} has lost its constraint uq_notify_control_event UNIQUE (kind, key, key2)"
        yield Error(text, hint=hint, obj=alias, id="notify.E021")


@register(Tags.database, DOCTOR, deploy=True)
@on_database
def check_lock(alias: str) -> Iterator[CheckMessage]:
    """E022: a session lock cannot hold on this connection; I002: nor would a pooler harm; W002: memory is not flat."""
    connection = connections[alias]
    try:
        dialect_of(connection).check_session(connection)
    except (LockUnusable, DatabaseError) as error:
        hint = "Every pass would end with this error; give Kwit a connection to the server itself."
        yield Error(str(error), hint=hint, obj=alias, id="notify.E022")
    else:
        if dialect_of(connection).pool_mode(connection) == "session":
            hint = "Nothing to do: a session lock holds there."
            text = "a pooler in session mode (PgBouncer, pool_mode=session) is between Kwit and PostgreSQL"
            yield Info(text, hint=hint, obj=alias, id="notify.I002")
    if connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
        hint = "Remove it for this alias, or keep in mind that all candidates of a step are held in memory."
        yield Warning("DISABLE_SERVER_SIDE_CURSORS is set", hint=hint, obj=alias, id="notify.W002")


#: How grave a finding is, by the letter of its id.
LEVELS: dict[str, Callable[..., CheckMessage]] = {"E": Error, "W": Warning, "I": Info}


@register(Tags.database, DOCTOR, deploy=True)
@on_database
def check_weaknesses(alias: str) -> Iterator[CheckMessage]:
    """E023, W007, I001: settings of a database that a pass suffers from."""
    connection = connections[alias]
    for found in dialect_of(connection).weaknesses(connection):
        letter = found.id.partition(".")[2][0]
        yield LEVELS[letter](found.about, hint=found.what_to_do, obj=alias, id=found.id)


@register(Tags.database, DOCTOR, deploy=True)
@on_database
def check_row_security(alias: str) -> Iterator[CheckMessage]:
    """E026: row-level security hides every row of a table from a pass; W014: some, perhaps."""
    connection = connections[alias]
    hint = "Give the login of the job a policy that shows it every row, or let it bypass row-level security."
    tables = {model._meta.db_table for model in apps.get_app_config("notify").get_models()}
    for step in registered():
        with suppress(Exception):  # what a step raises is E002's
            joins = step.events(Scope(now=timezone.now(), since=None)).query.alias_map.values()
            tables.update(join.table_name for join in joins)
    for table, is_empty in dialect_of(connection).filtered_tables(connection, sorted(tables)):
        if is_empty:
            text = f"row-level security hides every row of {table} from this login: no pass would find an event there"
            yield Error(text, hint=hint, obj=alias, id="notify.E026")
        else:
            text = f"row-level security filters {table} for this login: events that it hides are never notified"
            yield Warning(text, hint=hint, obj=alias, id="notify.W014")


@register(Tags.database, DOCTOR, deploy=True)
@on_database
def check_restored(alias: str) -> Iterator[CheckMessage]:
    """E025: mails and control rows that do not belong together: one of both tables was restored alone."""
    mails = MailQueue.objects.using(alias)
    known = Control.objects.using(alias).filter(pk=OuterRef("control_id"))
    newer = known.filter(created_at__gt=OuterRef("created_at") + SKEW)
    counted = {
        "mails have no control row": mails.filter(~Exists(known)).count(),
        "mails have a control row that is newer than they are, so its number was given twice": mails.filter(
            Exists(newer)
        ).count(),
    }
    found = [f"{number} {text}" for text, number in counted.items() if number]
    if found:
        hint = "Events may have been told again. Follow docs/restoring.md before the next pass."
        yield Error("; ".join(found), hint=hint, obj=alias, id="notify.E025")


@register(Tags.database, DOCTOR, deploy=True)
@on_database
def check_reused_keys(alias: str) -> Iterator[CheckMessage]:
    """W013: events that are much younger than their control row: their key was used before."""
    for step in registered():
        found: list[tuple[int, int]] = []
        with suppress(Exception):  # whatever the host's code raises; E004 and the step's pass say so
            found = reused_keys(step, alias)
        if found:
            names = ", ".join(f"{key}/{key2}" if key2 else str(key) for key, key2 in found)
            text = f"{step.kind}: events are younger than their control rows, among them {names}"
            hint = "Their keys were used before, so nobody is told of them. See docs/restoring.md."
            yield Warning(text, hint=hint, obj=alias, id="notify.W013")


def reused_keys(step: Step, alias: str) -> list[tuple[int, int]]:
    """Return the first few keys of a step's events that are much younger than their control row."""
    known = Control.objects.using(alias).filter(kind=step.kind, key=OuterRef("key"), key2=OuterRef("key2"))
    events = step.keyed_events(Scope(now=timezone.now()), using=alias)
    events = events.annotate(kwit_known_at=Subquery(known.values("created_at")[:1]))
    younger = events.filter(event_at__gt=F("kwit_known_at") + REUSED_AFTER).order_by()
    return list(younger.values_list("key", "key2")[:REUSED_NAMED_MAX])


@register(Tags.database, DOCTOR, deploy=True)
@on_database
def check_clock(alias: str) -> Iterator[CheckMessage]:
    """W010: rows from the future: a clock was ahead and has been set back."""
    now = dialect_of(connections[alias]).now(connections[alias])
    counted = {
        "run-log rows": RunLog.objects.using(alias).filter(future("started_at", now=now)),
        "mails": MailQueue.objects.using(alias).filter(
            future("created_at", now=now) | Q(lease_until__gt=lease_end_max(now))
        ),
        "attempts": Attempt.objects.using(alias).filter(future("at", now=now)),
        "control rows": Control.objects.using(alias).filter(future("created_at", now=now)),
        "channels": Channel.objects.using(alias).filter(future("paused_at", now=now)),
    }
    found = [f"{number} {name}" for name, rows in counted.items() if (number := rows.count())]
    if found:
        text = f"there are rows from the future: {', '.join(found)}; a clock was ahead"
        hint = "They are ignored; the next delivery sends what they held up. Set the clocks by NTP."
        yield Warning(text, hint=hint, obj=alias, id="notify.W010")


@register(Tags.database, DOCTOR, deploy=True)
def check_home(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """W004: the databases that are looked into are not the one with the control table."""
    home = router.db_for_write(Control)
    if not databases or home in databases:
        return []
    text = f"notifications are kept in {home!r}, which was not looked into"
    hint = f"Run: manage.py check --deploy --tag kwit --database {home}"
    return [Warning(text, hint=hint, obj=", ".join(databases), id="notify.W004")]
