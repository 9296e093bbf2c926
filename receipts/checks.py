"""
System checks: of the settings and the kinds of change always, of the database when ``manage.py doctor`` asks.

The database checks are ``deploy`` checks, because ``migrate`` runs all others before it has created the tables; and
they are ``database`` checks, because Django 6.1 hands every alias to all others that ``check --deploy`` runs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.db import DatabaseError, connections, models, router
from django.db.backends.base.base import BaseDatabaseWrapper

from kwit.db.dialect import UnknownDatabase
from kwit.environment import check_environment

from .change_types import ChangeType, each_kind
from .conf import ReceiptsSettings, load_settings
from .dialects import dialect_of
from .models import Change
from .values import is_supported

#: What ``manage.py doctor`` runs.
DOCTOR = "kwit"
#: Characters of receipts_audit.state_before.
STATE_CHARS_MAX = 40


@register("kwit")
def check_settings(**kwargs: Any) -> list[CheckMessage]:
    """Refuse unknown names and wrong types in settings.RECEIPTS."""
    try:
        load_settings()
    except ImproperlyConfigured as error:
        return [Error(str(error), hint="correct settings.RECEIPTS", id="receipts.E001")]
    return []


@register("kwit")
def check_variables(**kwargs: Any) -> list[CheckMessage]:
    """Warn of variables of the environment that look like settings of RECEIPTS and are not read."""
    names = [one.name.upper() for one in fields(ReceiptsSettings)]
    return check_environment("RECEIPTS", {f"RECEIPTS_{name}": name for name in names}, id="receipts.W009")


@register(Tags.models, "kwit")
def check_kinds(**kwargs: Any) -> list[CheckMessage]:
    """Refuse a kind of change whose model lacks what the engine needs."""
    return [message for kind in each_kind() for message in kind_flaws(kind)]


def kind_flaws(kind: ChangeType) -> Iterator[CheckMessage]:
    """Find what is wrong with one kind."""
    meta = kind.model._meta
    about = f"kind of change {kind.name!r} ({meta.label})"
    if meta.abstract or meta.proxy or meta.parents or not isinstance(meta.pk, models.IntegerField):
        yield Error(
            f"{about} needs a model with a table and an integer primary key of its own",
            id="receipts.E010",
            hint="declare it for the model that has the table",
        )
        return
    yield from column_flaws(kind, about)
    fixed = {meta.pk.name, "pk", kind.tenant_field, kind.revision_field}
    compared = fixed | (set() if kind.compares else {kind.qty_field})
    if taken := sorted(str(name) for name in compared & {*kind.sets, *kind.settable}):
        yield Error(
            f"{about} sets {', '.join(taken)}, which it compares",
            id="receipts.E012",
            hint="the revision grows by itself; the audit keeps one qty for before and after",
        )
    written = (*kind.sets, *kind.settable)
    if not written or any(field_of(kind, name) is None for name in written) or set(kind.sets) & set(kind.settable):
        yield Error(
            f"{about} must set one or more fields of its model, each in one way",
            id="receipts.E013",
            hint="'sets' maps field names to values, 'settable' names those whose values stand in the plan",
        )
    yield from state_flaws(kind, about)


def column_flaws(kind: ChangeType, about: str) -> Iterator[CheckMessage]:
    """Find fields that are missing, or are such as the kind cannot use."""
    needed: list[tuple[str, Any, str]] = []
    if kind.tenant_field is not None:
        tenant = models.CharField if kind.is_plain else (models.CharField, models.ForeignKey)
        needed.append((kind.tenant_field, tenant, "text"))
    if kind.has_revision:
        needed.append((kind.revision_field, models.IntegerField, "an integer of 32 bits or more"))
    if kind.required_state is not None:
        needed.append((kind.state_field, models.CharField, "text"))
    if kind.is_plain:
        needed.append((kind.qty_field, models.IntegerField, "an integer"))
    for name, wanted, wording in needed:
        field = field_of(kind, name)
        if field is None or not isinstance(field, wanted) or isinstance(field, models.SmallIntegerField):
            yield Error(
                f"{about} needs a field {name!r} that is {wording}",
                id="receipts.E011",
                hint="add the field, or name another one in the ChangeType",
            )
    carried = () if kind.is_plain else (*kind.compared, *kind.settable, *kind.sets)
    for name in carried:
        field = field_of(kind, name)
        if field is None or not is_supported(field):
            yield Error(
                f"{about} names {name!r}, which is no field that a plan can carry",
                id="receipts.E015",
                hint="plans carry integers, decimals, booleans, text, dates, times, moments, UUIDs and foreign keys",
            )
    if len(set(kind.compared)) != len(kind.compared) or not kind.compared:
        yield Error(f"{about} compares a field twice", id="receipts.E015", hint="name each field once")


def state_flaws(kind: ChangeType, about: str) -> Iterator[CheckMessage]:
    """Find states that the field cannot have."""
    field = field_of(kind, kind.state_field)
    choices = {value for value, _ in getattr(field, "flatchoices", [])}
    for state in (kind.required_state, kind.sets.get(kind.state_field)):
        fits = isinstance(state, str) and len(state) <= STATE_CHARS_MAX and (not choices or state in choices)
        if state is not None and not fits:
            yield Error(
                f"{about} has the state {state!r}, which {kind.state_field!r} cannot have",
                id="receipts.E014",
                hint=f"use one of its choices, up to {STATE_CHARS_MAX} characters",
            )


def field_of(kind: ChangeType, name: str) -> Any:
    """Return a column of the kind's own table, or None."""
    try:
        field = kind.model._meta.get_field(name)
    except FieldDoesNotExist:
        return None
    return field if getattr(field, "column", None) else None


@register(Tags.database, "kwit", deploy=True)
def check_database(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Check that the databases meet the guarantees of receipts; without aliases nothing is queried."""
    mine = [alias for alias in databases or () if router.allow_migrate_model(alias, Change)]
    return [message for alias in mine for message in database_flaws(alias)]


@register(Tags.database, "kwit", deploy=True)
def check_home(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """W036: the databases that are looked into are not the one with the receipts."""
    home = router.db_for_write(Change)
    if not databases or home in databases:
        return []
    text = f"receipts are kept in {home!r}, which was not looked into"
    return [Warning(text, hint=f"run manage.py doctor --database {home}", id="receipts.W036")]


def silent_database(alias: str) -> CheckMessage | None:
    """Return a finding when there is no connection to be had."""
    try:
        connections[alias].ensure_connection()
    except DatabaseError as error:
        return does_not_answer(alias, error)
    return None


def does_not_answer(alias: str, error: DatabaseError) -> CheckMessage:
    """Return the finding that a database does not answer."""
    return Error(f"{alias}: the database does not answer: {error}", hint="see that it runs", id="receipts.E020")


def database_flaws(alias: str) -> Iterator[CheckMessage]:
    """Find what is wrong with one database."""
    connection = connections[alias]
    try:
        dialect = dialect_of(connection)
        tables = set(connection.introspection.table_names())
    except UnknownDatabase as error:
        yield Error(f"{alias}: {error}", hint="use one of these databases", id="receipts.E034")
        return
    except DatabaseError as error:
        yield does_not_answer(alias, error)
        return
    for found in dialect.weaknesses(connection):
        kind = Error if found.is_error else Warning
        yield kind(f"{alias}: {found.about}", hint=found.what_to_do, id=found.id)
    yield from schema_flaws(alias, connection, tables)
    if Change._meta.db_table in tables:
        for flaw in dialect.guard_flaws(connection):
            yield Error(
                f"{alias}: receipts can be changed: {flaw.name} {flaw.about}",
                hint=f"run as the owner of the tables: {flaw.mend}",
                id="receipts.E033",
            )
        yield from undeclared_kinds(alias)


def schema_flaws(alias: str, connection: BaseDatabaseWrapper, tables: set[str]) -> Iterator[CheckMessage]:
    """Find tables and named constraints that are not there."""
    for model in apps.get_app_config("receipts").get_models():
        table = model._meta.db_table
        if table not in tables:
            yield Error(f"{alias}: the table {table} is missing", hint="run manage.py migrate", id="receipts.E031")
            continue
        with connection.cursor() as cursor:
            there = connection.introspection.get_constraints(cursor, table)
        wanted = {constraint.name for constraint in model._meta.constraints}
        if not any(one["primary_key"] for one in there.values()):
            wanted.add(f"{table} primary key")
        if missing := sorted(wanted - set(there)):
            yield Error(
                f"{alias}: {table} lacks {', '.join(missing)}",
                id="receipts.E032",
                hint="put it back as the migrations define it",
            )


def undeclared_kinds(alias: str) -> Iterator[CheckMessage]:
    """Find receipts whose kind no app declares any more: they can be read, but not reconciled."""
    known = [kind.name for kind in each_kind()]
    unknown = Change.objects.using(alias).exclude(kind__in=known).values_list("kind", flat=True).distinct()
    if names := sorted(set(unknown[:20])):
        yield Warning(
            f"{alias}: there are receipts of the undeclared kind {', '.join(names)}",
            id="receipts.W035",
            hint="declare it in an app's changes.py, or these cannot be reconciled",
        )
