"""Columns that mean the same on every database, where Django's own would not."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Func
from django.db.models.functions import Now
from django.db.models.sql.compiler import SQLCompiler
from django.utils.timezone import is_aware, make_naive

if TYPE_CHECKING:
    CharField = models.CharField[Any, str]
    DateTimeField = models.DateTimeField[Any, Any]
else:
    CharField, DateTimeField = models.CharField, models.DateTimeField

#: By Django's name of the database; the others compare text exactly by themselves. 100_BIN2 compares code points.
EXACT_COLLATIONS = {"microsoft": "Latin1_General_100_BIN2"}
#: By the same: where a time would carry an offset of its own. (6) are the microseconds that Python knows.
UTC_TYPES = {"microsoft": "datetime2(6)"}


class ExactCharField(CharField):
    """
    A text key: ``CHG`` and ``chg`` are two keys on every database.

    SQL Server still takes ``CHG`` and ``CHG `` for equal, with any collation: plans refuse blanks at the end of a key,
    and whoever looks a key up compares what came back.
    """

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, Any]:
        """Add the collation of this database."""
        parameters: dict[str, Any] = dict(super().db_parameters(connection))
        parameters["collation"] = self.db_collation or EXACT_COLLATIONS.get(connection.vendor)
        return parameters


# The same class stands in desk, notify and receipts: an engine runs without the desk and without the other engine, and
# migrations name it by its place.
class UtcDateTimeField(DateTimeField):
    """
    A moment; on SQL Server a ``datetime2(6)`` in UTC, which is all that Python reads back.

    mssql-django's own is a ``datetimeoffset``: 10 bytes, each with an offset of its own. Written and compared values
    are parameters of the column's very type, so an index is sought in. ``Now()`` has the server's offset: as a value
    it takes ``UtcNow`` instead.
    """

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        """Return the type of the column."""
        return UTC_TYPES.get(connection.vendor) or super().db_type(connection)

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        """Return UTC without an offset where the column has none, and on SQLite the text that its clock would write."""
        value = super().get_db_prep_value(value, connection, prepared)
        if connection.vendor == "sqlite" and isinstance(value, str):
            # It compares texts. With three decimals, or six where three are not enough, their order is that of time.
            value = value.removesuffix("000") if "." in value else f"{value}.000"
        if connection.vendor in UTC_TYPES and isinstance(value, datetime) and is_aware(value):
            return make_naive(value, UTC)
        return value


class JSONItems(Func):
    """How many items a JSON array has, None for what is no array: counted in the database, whatever its size."""

    output_field = models.IntegerField()

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> Any:
        """Return SQLite's expression; what is no array has no items there."""
        return self.as_sql(compiler, connection, template="json_array_length(%(expressions)s)", **context)

    def as_postgresql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> Any:
        """Return PostgreSQL's expression, which would be an error for what is no array."""
        array = "CASE WHEN jsonb_typeof(%(expressions)s) = 'array' THEN jsonb_array_length(%(expressions)s) END"
        return self.as_sql(compiler, connection, template=array, **context)

    def as_microsoft(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> Any:
        """Return SQL Server's expression."""
        return self.as_sql(compiler, connection, template="(SELECT COUNT(*) FROM OPENJSON(%(expressions)s))", **context)


class UtcNow(Now):
    """The database's clock in UTC; ``notify.fields.UtcNow`` says why not ``Now``."""

    def as_microsoft(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> Any:
        """Return SQL Server's expression."""
        return self.as_sql(compiler, connection, template="SYSUTCDATETIME()", **context)
