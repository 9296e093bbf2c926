"""What a host project writes against: its own kinds of change, declared in any app's ``changes.py``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from . import values
from .dialects import dialect_of
from .dialects.base import FieldColumn, FieldShape, Shape
from .errors import UnknownKind
from .plans.canonical import FieldTarget, Target
from .plans.model import COLUMNS, ID_MAX, Column

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import Field, Model

#: Characters of a kind's name; the column's width.
KIND_CHARS_MAX = 20
KIND_NAME = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
#: Stands before the name of a field that the plan sets, in its columns.
SET = "set:"
#: Stands before the name of a kind, in that of the kind which takes it back.
UNDO = "undo_"


@dataclass(frozen=True)
class PlanColumn:
    """A column of a plan that holds a field's value."""

    name: str
    field: Any
    is_set: bool
    is_validated: bool = True

    def parse(self, value: Any, *, is_text: bool) -> Any:
        """Return the value that stands in a plan. Raises: ValueError."""
        is_checked = self.is_set and self.is_validated
        return values.parse_value(self.field, value, is_text=is_text, is_checked=is_checked)


@dataclass(frozen=True, kw_only=True)
class ChangeType:
    """
    One kind of change: the rows it is about, what is compared before it, and what it sets.

    ``compares`` names the fields whose values a plan has to state: a row is changed only while it has them. Without,
    they are revision and qty. With ``required_state`` the row's state is compared as well. A compared revision grows by
    one.

    ``sets`` maps fields to values or to expressions such as ``Now()``; ``settable`` names the fields whose new values
    stand in the plan, in columns named ``set:<field>``.

    ``tenant_field`` is a field of the model, or None where its rows belong to no tenant: then the plan's tenant says
    only who may see plan and receipt. ``label`` makes a row readable: a field's name, or a function of the row.
    """

    name: str
    model: type[Model]
    sets: Mapping[str, Any] = dataclass_field(default_factory=dict)
    compares: tuple[str, ...] = ()
    settable: tuple[str, ...] = ()
    required_state: str | None = None
    tenant_field: str | None = "tenant"
    revision_field: str = "revision"
    qty_field: str = "qty"
    state_field: str = "state"
    label: str | Callable[[Any], str] = ""
    #: False: what the plan sets is what a row held before, and no validator is asked about it.
    is_validated: bool = True

    @property
    def is_plain(self) -> bool:
        """
        Whether it compares revision, qty, state and tenant, and sets the state only: most kinds are such.

        Their audit rows need no more than the columns for these; what else a kind sets is audited by name.
        """
        pair = (self.revision_field, self.qty_field)
        sets_state_only = set(self.sets) <= {self.state_field} or pair != ("revision", "qty")
        return (
            self.compares in ((), pair)
            and not self.settable
            and sets_state_only
            and self.required_state is not None
            and self.tenant_field is not None
        )

    @cached_property
    def undo(self) -> ChangeType:
        """The kind that puts rows back as they were before a change of this one; see ``receipts.reverting``."""
        written = tuple(name for name in self.written if name != self.revision_field)
        return replace(
            self,
            name=f"{UNDO}{self.name}",
            compares=self.recorded,
            settable=written,
            sets={},
            required_state=None,
            is_validated=False,
        )

    @cached_property
    def compared(self) -> tuple[str, ...]:
        """The fields whose values stand in a plan."""
        return self.compares or (self.revision_field, self.qty_field)

    @cached_property
    def written(self) -> tuple[str, ...]:
        """The fields that it sets, the revision included."""
        bumped = (self.revision_field,) if self.has_revision else ()
        return tuple(dict.fromkeys((*self.sets, *self.settable, *bumped)))

    @cached_property
    def recorded(self) -> tuple[str, ...]:
        """The fields whose values before and after stand in the receipt."""
        state = (self.state_field,) if self.required_state is not None else ()
        return tuple(dict.fromkeys((*self.compared, *state, *self.written)))

    @property
    def has_revision(self) -> bool:
        """Whether it compares a revision, and so raises it."""
        return self.revision_field in self.compared

    @cached_property
    def columns(self) -> tuple[Column | PlanColumn, ...]:
        """The columns of its plans."""
        if self.is_plain:
            return COLUMNS
        compared = [PlanColumn(name, self.field(name), is_set=False) for name in self.compared]
        settable = [
            PlanColumn(f"{SET}{name}", self.field(name), is_set=True, is_validated=self.is_validated)
            for name in self.settable
        ]
        return (Column("id", 1, ID_MAX), *compared, *settable)

    def target(self, row: list[Any]) -> Target:
        """Return a target from the values of its columns."""
        if self.is_plain:
            return Target(*row)
        return FieldTarget(
            row[0], {column.name: value for column, value in zip(self.columns[1:], row[1:], strict=True)}
        )

    def row_of(self, target: Any) -> list[Any] | None:
        """Return the values of a target's columns; None when it is no target of this kind."""
        if self.is_plain:
            is_plain = isinstance(target, Target) and not isinstance(target, FieldTarget)
            return [target.id, target.revision, target.qty] if is_plain else None
        if isinstance(target, Target) and not isinstance(target, FieldTarget):
            target = target._asdict()
        content = target._asdict() if isinstance(target, FieldTarget) else target
        names = [column.name for column in self.columns]
        if not isinstance(content, Mapping) or content.keys() != set(names):
            return None
        return [content[name] for name in names]

    @property
    def stale_problem(self) -> str:
        """The name of the problem "not in the required state"."""
        return f"not_{self.required_state}"

    @property
    def state_after(self) -> str | None:
        """The state in which it leaves a row; None when that is an expression, or the state stays."""
        state = self.sets.get(self.state_field, self.required_state)
        return state if isinstance(state, str) else None

    def label_of(self, row: Any) -> str:
        """Return what a person calls a row."""
        if callable(self.label):
            return str(self.label(row))
        return str(getattr(row, self.label) if self.label else row)

    def field(self, name: str) -> Field[Any, Any]:
        """Return a field of the model; the checks have shown that it exists."""
        found: Field[Any, Any] = self.model._meta.get_field(name)  # type: ignore[assignment]
        return found

    def shape(self, connection: BaseDatabaseWrapper) -> Shape:
        """Return a plain kind as SQL for that connection."""
        quote = connection.ops.quote_name

        def column(name: str) -> str:
            return quote(str(self.field(name).column))

        assigned = [self.assignment(name, value, connection) for name, value in self.sets.items()]
        table = quote(self.model._meta.db_table)
        return Shape(
            table=table,
            source=dialect_of(connection).source_of(connection, table),
            id=quote(str(self.model._meta.pk.column)),
            tenant=column(str(self.tenant_field)),
            revision=column(self.revision_field),
            qty=column(self.qty_field),
            state=column(self.state_field),
            required_state=str(self.required_state),
            assignments=", ".join(sql for sql, _ in assigned),
            set_params=tuple(param for _, params in assigned for param in params),
        )

    def field_shape(self, connection: BaseDatabaseWrapper) -> FieldShape:
        """Return a kind that names its fields as SQL for that connection."""
        quote = connection.ops.quote_name
        table = quote(self.model._meta.db_table)

        def column(name: str, alias: str) -> FieldColumn:
            found = self.field(name)
            target = values.value_field(found)
            kind = found.db_type(connection) if found is target else target.rel_db_type(connection)
            is_text = target.get_internal_type() in TEXTUAL
            return FieldColumn(alias, quote(str(found.column)), str(kind), is_text=is_text)

        assigned = [self.assignment(name, value, connection) for name, value in self.sets.items()]
        return FieldShape(
            table=table,
            source=dialect_of(connection).source_of(connection, table),
            id=quote(str(self.model._meta.pk.column)),
            tenant=quote(str(self.field(self.tenant_field).column)) if self.tenant_field else "",
            compared=tuple(column(name, f"c{at}") for at, name in enumerate(self.compared)),
            settable=tuple(column(name, f"s{at}") for at, name in enumerate(self.settable)),
            recorded=tuple(column(name, f"r{at}") for at, name in enumerate(self.recorded)),
            revision=quote(str(self.field(self.revision_field).column)) if self.has_revision else "",
            state=column(self.state_field, "state") if self.required_state is not None else None,
            required_state=self.required_state or "",
            assignments=tuple(sql for sql, _ in assigned),
            set_params=tuple(param for _, params in assigned for param in params),
        )

    def assignment(self, name: str, value: Any, connection: BaseDatabaseWrapper) -> tuple[str, list[Any]]:
        """Return ``column = …`` and its parameters."""
        field = self.field(name)
        column = connection.ops.quote_name(str(field.column))
        if not hasattr(value, "resolve_expression"):
            return f"{column} = %s", [field.get_db_prep_save(value, connection)]
        query = self.model._base_manager.using(connection.alias).all().query
        compiler = query.get_compiler(connection=connection)
        sql, params = compiler.compile(value.resolve_expression(query, allow_joins=False, for_save=True))
        return f"{column} = {sql}", list(params)


#: The name that it had at first, when a kind always compared revision, qty and a state.
ChangeKind = ChangeType
#: Internal types of text, which is compared exactly whatever the collation.
TEXTUAL = ("CharField", "TextField", "SlugField", "FileField", "ExactCharField")

_registered: dict[str, ChangeType] = {}


def register(kind: ChangeType) -> ChangeType:
    """Make a kind known by its name; a second one of the same name is a mistake."""
    if not KIND_NAME.fullmatch(kind.name) or len(kind.name) > KIND_CHARS_MAX:
        raise ValueError(f"{kind.name!r} cannot name a kind: small letters, digits and _, up to {KIND_CHARS_MAX}")
    if _registered.setdefault(kind.name, kind) != kind:
        raise ValueError(f"two kinds of change are named {kind.name!r}")
    return kind


def get_kind(name: str) -> ChangeType:
    """Return the kind of this name, also one that takes another back, or raise UnknownKind."""
    if name.startswith(UNDO) and name not in _registered and name.removeprefix(UNDO) in _registered:
        return _registered[name.removeprefix(UNDO)].undo
    try:
        return _registered[name]
    except KeyError:
        known = ", ".join(sorted(_registered)) or "none"
        raise UnknownKind(f"no app declares the kind of change {name!r} in its changes.py; known: {known}") from None


def get_declared_kind(name: str) -> ChangeType:
    """
    Return the kind of this name that an app declares, or raise UnknownKind.

    One that takes another back asks no validator about its values: only ``revert_plan``, which has them from a receipt,
    makes plans of it.
    """
    kind = get_kind(name)
    if not kind.is_validated:
        raise UnknownKind(f"{name!r} takes a change back; revert_plan drafts its plans from a receipt")
    return kind


def each_kind() -> Iterator[ChangeType]:
    """Yield every kind, by name."""
    for name in sorted(_registered):
        yield _registered[name]
