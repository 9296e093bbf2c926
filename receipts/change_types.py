"""What a host project writes against: its own kinds of change, declared in any app's ``changes.py``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .dialects import dialect_of
from .dialects.base import Shape
from .errors import UnknownKind

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import Field, Model

#: Characters of a kind's name; the column's width.
KIND_CHARS_MAX = 20
KIND_NAME = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class ChangeKind:
    """
    One kind of change: the rows it is about, what is compared before it, and what it sets.

    ``sets`` maps field names to values or to expressions such as ``Now()``; the revision grows by one without being
    told. A row may be changed while its state is ``required_state`` and its revision and qty are the approved ones.
    """

    name: str
    model: type[Model]
    required_state: str
    sets: Mapping[str, Any]
    tenant_field: str = "tenant"
    revision_field: str = "revision"
    qty_field: str = "qty"
    state_field: str = "state"

    @property
    def stale_problem(self) -> str:
        """The name of the problem "not in the required state"."""
        return f"not_{self.required_state}"

    @property
    def state_after(self) -> str | None:
        """The state in which it leaves a row; None when that is an expression, or the state stays."""
        state = self.sets.get(self.state_field, self.required_state)
        return state if isinstance(state, str) else None

    def field(self, name: str) -> Field[Any, Any]:
        """Return a field of the model; the checks have shown that it exists."""
        found: Field[Any, Any] = self.model._meta.get_field(name)  # type: ignore[assignment]
        return found

    def shape(self, connection: BaseDatabaseWrapper) -> Shape:
        """Return this kind as SQL for that connection."""
        quote = connection.ops.quote_name

        def column(name: str) -> str:
            return quote(str(self.field(name).column))

        assigned = [self.assignment(name, value, connection) for name, value in self.sets.items()]
        table = quote(self.model._meta.db_table)
        return Shape(
            table=table,
            source=dialect_of(connection).source_of(connection, table),
            id=quote(str(self.model._meta.pk.column)),
            tenant=column(self.tenant_field),
            revision=column(self.revision_field),
            qty=column(self.qty_field),
            state=column(self.state_field),
            required_state=self.required_state,
            assignments=", ".join(sql for sql, _ in assigned),
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


_registered: dict[str, ChangeKind] = {}


def register(kind: ChangeKind) -> ChangeKind:
    """Make a kind known by its name; a second one of the same name is a mistake."""
    if not KIND_NAME.fullmatch(kind.name) or len(kind.name) > KIND_CHARS_MAX:
        raise ValueError(f"{kind.name!r} cannot name a kind: small letters, digits and _, up to {KIND_CHARS_MAX}")
    if _registered.setdefault(kind.name, kind) != kind:
        raise ValueError(f"two kinds of change are named {kind.name!r}")
    return kind


def get_kind(name: str) -> ChangeKind:
    """Return the kind of this name, or raise UnknownKind."""
    try:
        return _registered[name]
    except KeyError:
        known = ", ".join(sorted(_registered)) or "none"
        raise UnknownKind(f"no app declares the kind of change {name!r} in its changes.py; known: {known}") from None


def each_kind() -> Iterator[ChangeKind]:
    """Yield every kind, by name."""
    for name in sorted(_registered):
        yield _registered[name]
