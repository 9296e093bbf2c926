"""Columns that mean the same on every database, where Django's own would not."""

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Func
from django.db.models.functions import Now
from django.db.models.sql.compiler import SQLCompiler

from .dialect import database_of, dialect_of

if TYPE_CHECKING:
    CharField = models.CharField[Any, str]
    DateTimeField = models.DateTimeField[Any, Any]
else:
    CharField, DateTimeField = models.CharField, models.DateTimeField


class ExactCharField(CharField):
    """
    A text key: ``C1`` and ``c1`` are two keys on every database.

    SQL Server still takes ``C1`` and ``C1 `` for equal, with any collation: whoever accepts a key refuses blanks at its
    end. A host's own column that is joined with such a one needs the same collation (SQL Server's error 468).
    """

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, Any]:
        """Add the collation of this database."""
        parameters: dict[str, Any] = dict(super().db_parameters(connection))
        parameters["collation"] = self.db_collation or dialect_of(connection).exact_collation
        return parameters


class TenantIndex(models.Index):
    """
    An index for the lists of one tenant; on PostgreSQL it does not hold the rows that belong to none.

    PostgreSQL sees that ``tenant IN ('acme')`` asks for none of those. SQLite and SQL Server would not: their partial
    indexes serve only a query that has the condition itself, word by word.
    """

    def create_sql(self, model: type[models.Model], schema_editor: Any, using: str = "", **kwargs: Any) -> Any:
        """Add the condition on PostgreSQL."""
        condition = ~models.Q(tenant="") if database_of(schema_editor.connection) == "postgresql" else None
        index = models.Index(fields=self.fields, name=self.name, condition=condition)
        return index.create_sql(model, schema_editor, using=using, **kwargs)


class UtcDateTimeField(DateTimeField):
    """
    A moment; on SQL Server a ``datetime2(6)`` in UTC, which is all that Python reads back.

    mssql-django's own is a ``datetimeoffset``: 10 bytes, each with an offset of its own. Written and compared values
    are parameters of the column's very type, so an index is sought in. ``Now()`` has the server's offset: as a value
    it takes ``UtcNow`` instead.
    """

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        """Return the type of the column."""
        return dialect_of(connection).utc_type or super().db_type(connection)

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        """Return UTC without an offset where the column has none, and on SQLite the text that its clock would write."""
        return dialect_of(connection).prepare_time(super().get_db_prep_value(value, connection, prepared))


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
    """
    The database's clock in UTC: as a column's default, as a value, in a comparison.

    mssql-django's ``Now`` is SYSDATETIMEOFFSET(): the server's own zone, whose offset is lost in a ``datetime2``.
    """

    def as_microsoft(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> Any:
        """Return SQL Server's expression."""
        return self.as_sql(compiler, connection, template="SYSUTCDATETIME()", **context)
