"""Columns that mean the same on every database, where Django's own would not."""

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Func
from django.db.models.functions import Now
from django.db.models.sql.compiler import SQLCompiler

if TYPE_CHECKING:
    CharField = models.CharField[Any, str]
else:
    CharField = models.CharField

#: By Django's name of the database; the others compare text exactly by themselves. 100_BIN2 compares code points.
EXACT_COLLATIONS = {"microsoft": "Latin1_General_100_BIN2"}


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
    """The database's clock in UTC and to the microsecond; ``notify.fields.UtcNow`` says why not ``Now``."""

    def as_microsoft(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> Any:
        """Return SQL Server's expression."""
        return self.as_sql(compiler, connection, template="CAST(SYSUTCDATETIME() AS datetime2(6))", **context)
