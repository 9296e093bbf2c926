"""Columns that mean the same on every database, where Django's own would not."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.functions import Now
from django.db.models.sql.compiler import SQLCompiler
from django.utils.timezone import is_aware, make_naive

if TYPE_CHECKING:
    DateTimeField = models.DateTimeField[Any, Any]
else:
    DateTimeField = models.DateTimeField

#: By Django's name of the database: where a time would carry an offset of its own. (6) are the microseconds of Python.
UTC_TYPES = {"microsoft": "datetime2(6)"}


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


class UtcNow(Now):
    """The database's clock in UTC; ``notify.fields.UtcNow`` says why not ``Now``."""

    def as_microsoft(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> Any:
        """Return SQL Server's expression."""
        return self.as_sql(compiler, connection, template="SYSUTCDATETIME()", **context)
