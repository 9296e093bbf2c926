"""
Resources of the API; each app registers its own.

A resource uses the admin class of its model: its rows, tenants, order, filters and permission are those of the page.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from operator import attrgetter
from typing import Any, ClassVar

from django.contrib import admin
from django.core.exceptions import BadRequest, PermissionDenied, ValidationError
from django.db import models
from django.http import HttpRequest

from ..admin.base import ReadOnlyAdmin
from ..admin.filters import INTEGER_TEXT, ChoiceFilter, Filter, FilterValues, parse_filters
from ..admin.keyset import AFTER
from .encoding import ID_NAME, ID_TEXT_SUFFIX
from .problems import Refusal, bad_request, not_found

LIMIT = "limit"
LIMIT_ROWS, LIMIT_ROWS_MAX = 50, 200
Schema = Mapping[str, Any]
KEY = re.compile(r"[1-9][0-9]{0,18}")
INTEGER: Schema = {"type": "integer", "format": "int64"}
TEXT: Schema = {"type": "string"}
#: By kind of field; the first that fits counts.
SCHEMAS: Sequence[tuple[type[Any], Schema]] = (
    (models.BooleanField, {"type": "boolean"}),
    (models.IntegerField, INTEGER),
    (models.DateTimeField, {"type": "string", "format": "date-time"}),
    (models.UUIDField, {"type": "string", "format": "uuid"}),
    (models.JSONField, {}),
)


@dataclass(frozen=True)
class Column:
    """One value of a row as the API shows it."""

    name: str
    schema: Schema
    get: Callable[[Any], Any]


def model_columns(model: type[models.Model], *names: str) -> tuple[Column, ...]:
    """Return the columns of a model by the names they have in the table."""
    fields = {field.attname: field for field in model._meta.concrete_fields}
    return tuple(Column(name, schema_of(fields[name]), attrgetter(name)) for name in names)


def schema_of(field: Any) -> Schema:
    """Return a field's JSON schema."""
    target = field.target_field if isinstance(field, models.ForeignKey) else field
    found = next((schema for kind, schema in SCHEMAS if isinstance(target, kind)), TEXT)
    return {**found, "type": [found["type"], "null"]} if field.null and "type" in found else found


def array_of(schema: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": schema}


def is_id(column: Column) -> bool:
    """Whether a column holds 64-bit integers that identify something."""
    return column.schema.get("format") == INTEGER["format"] and ID_NAME.fullmatch(column.name) is not None


def properties_of(shown: Sequence[Column]) -> dict[str, Schema]:
    """Return the schema of each column; an integer id has its text beside it."""
    texts = {
        f"{column.name}{ID_TEXT_SUFFIX}": {
            "type": "string" if column.schema["type"] == "integer" else ["string", "null"]
        }
        for column in shown
        if is_id(column)
    }
    return {column.name: column.schema for column in shown} | texts


def row_values(shown: Sequence[Column], row: Any) -> dict[str, Any]:
    """Return a row's columns by name; an integer id has its text beside it."""
    found = {column.name: column.get(row) for column in shown}
    ids = [column.name for column in shown if is_id(column)]
    return found | {f"{name}{ID_TEXT_SUFFIX}": None if found[name] is None else str(found[name]) for name in ids}


def object_of(shown: Sequence[Column]) -> Schema:
    """Return the schema of an object with these columns."""
    return {"type": "object", "properties": properties_of(shown)}


class Source:
    """One endpoint of the API."""

    name: ClassVar[str]
    #: One sentence about it, in English.
    about: ClassVar[str]

    def is_open_to(self, request: HttpRequest) -> bool:
        """Return whether the user may use it."""
        raise NotImplementedError

    def filters(self, request: HttpRequest) -> Sequence[Filter]:
        """Return the filters of the query string."""
        return ()

    def answer(self, request: HttpRequest) -> dict[str, Any]:
        """Return the answer. Raises: Refusal, PermissionDenied."""
        raise NotImplementedError


class Resource(Source):
    """The rows of a model, as its admin class lists them."""

    model: ClassVar[type[models.Model]]
    columns: ClassVar[Sequence[Column]]
    #: Columns of a single row only.
    details: ClassVar[Sequence[Column]] = ()

    @property
    def model_admin(self) -> ReadOnlyAdmin:
        """The admin class that the rows come from."""
        found = admin.site.get_model_admin(self.model)
        if not isinstance(found, ReadOnlyAdmin):
            raise TypeError(f"the admin class of {self.model._meta.label} is no ReadOnlyAdmin")
        return found

    def is_open_to(self, request: HttpRequest) -> bool:
        """Return whether the user may see the page of the list."""
        return self.model_admin.has_view_permission(request)

    def filters(self, request: HttpRequest) -> Sequence[Filter]:
        """Return the filters of the page."""
        return self.model_admin.filters

    def list_queryset(self, request: HttpRequest, asked: FilterValues) -> models.QuerySet[Any]:
        """Return the rows of the page before its filters."""
        return self.model_admin.list_queryset(request, asked)

    def order_of(self, request: HttpRequest, asked: FilterValues) -> Sequence[str]:
        """Return the order of the page."""
        return self.model_admin.order_of(request, asked)

    def answer(self, request: HttpRequest) -> dict[str, Any]:
        """Return one page of the rows, and the cursor of the next one."""
        filters = self.filters(request)
        asked = read_query(request, filters, paged=True)
        rows = asked.apply(filters, self.list_queryset(request, asked))
        size = limit_of(request)
        try:
            page = self.model_admin.page(
                request, rows, order=self.order_of(request, asked), size=size, after=request.GET.get(AFTER, "")
            )
        except BadRequest as error:
            raise bad_request((AFTER, str(error))) from error
        return {"items": self.shown(page.rows), "next": page.next}

    def shown(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """Return rows as the list has them; a fixed number of queries."""
        return [row_values(self.columns, row) for row in rows]

    def one(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return a row in full; a fixed number of queries."""
        [shown] = self.shown([row])
        return shown | row_values(self.details, row)

    def answer_one(self, request: HttpRequest, key: str) -> dict[str, Any]:
        """Return the row of a key. Raises: Refusal when there is none that this user may see."""
        read_query(request, ())
        pk = self.model._meta.pk
        if "\x00" in key or (isinstance(pk, models.IntegerField) and not KEY.fullmatch(key)):
            raise not_found()
        try:
            row = self.list_queryset(request, FilterValues()).filter(pk=pk.to_python(key)).first()
        except (ValidationError, ValueError, OverflowError):
            row = None
        # SQL Server takes a key with a blank at its end for the same.
        if row is None or str(row.pk) != key:
            raise not_found()
        return self.one(request, row)


def read_query(request: HttpRequest, filters: Sequence[Filter], *, paged: bool = False) -> FilterValues:
    """
    Return the answers in an address. Raises: Refusal for what is not understood.

    An unknown filter is refused: a misspelled one must not return every row.
    """
    known = [one.name for one in filters] + ([AFTER, LIMIT] if paged else [])
    asked = parse_filters(filters, request.GET)
    errors = list(asked.errors.items())
    for name, values in request.GET.lists():
        if name not in known:
            errors.append((name[:80], f"is not known here; known are: {', '.join(known) or 'none'}"))
        elif len(values) > 1:
            errors.append((name, "is given more than once"))
        elif "\x00" in values[0] and name not in asked.errors:
            errors.append((name, "holds a character that no row has"))
    if errors:
        raise bad_request(*errors)
    return asked


def limit_of(request: HttpRequest) -> int:
    """Return the page size. Raises: Refusal."""
    text = request.GET.get(LIMIT, str(LIMIT_ROWS))
    if not INTEGER_TEXT.fullmatch(text) or not 1 <= int(text) <= LIMIT_ROWS_MAX:
        raise bad_request((LIMIT, f"must be a number from 1 to {LIMIT_ROWS_MAX}"))
    return int(text)


def filter_schema(one: Filter) -> Schema:
    """Return the JSON schema of what a filter takes."""
    if isinstance(one, ChoiceFilter):
        return {"type": "string", "enum": [value for value, _word in one.options()]}
    return {"number": INTEGER, "checkbox": {"type": "string", "enum": ["1"]}}.get(one.control, TEXT)


_registered: dict[str, Source] = {}


def register(source: Source) -> None:
    """Add a source; one of the same name is replaced."""
    _registered[source.name] = source


def sources_for(request: HttpRequest) -> list[Source]:
    """Return what the user may ask, by name."""
    return [source for _name, source in sorted(_registered.items()) if source.is_open_to(request)]


def get_source(request: HttpRequest, name: str) -> Source:
    """Return the source of a name. Raises: Refusal when there is none; PermissionDenied."""
    source = _registered.get(name)
    if source is None:
        raise not_found()
    if not source.is_open_to(request):
        raise PermissionDenied
    return source


def get_resource(request: HttpRequest, name: str) -> Resource:
    """Return a source that has rows. Raises: Refusal, PermissionDenied."""
    source = get_source(request, name)
    if not isinstance(source, Resource):
        raise Refusal(HTTPStatus.NOT_FOUND, f"{name} has no rows of its own.")
    return source
