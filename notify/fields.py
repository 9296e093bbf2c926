"""Columns that mean the same on every database, where Django's own would not."""

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.functions import Now
from django.db.models.sql.compiler import SQLCompiler

#: By Django's name of the database; the others compare text exactly by themselves. 100_BIN2 compares code points.
EXACT_COLLATIONS = {"microsoft": "Latin1_General_100_BIN2"}


if TYPE_CHECKING:
    CharField = models.CharField[Any, str]
else:
    CharField = models.CharField


class ExactCharField(CharField):
    """
    A text key: ``C1`` and ``c1`` are two keys on every database.

    SQL Server still takes ``C1`` and ``C1 `` for equal, with any collation: whoever accepts a key refuses blanks at its
    end. A host's own column that is joined with such a one needs the same collation (SQL Server's error 468).
    """

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, Any]:
        """Add the collation of this database."""
        parameters: dict[str, Any] = dict(super().db_parameters(connection))
        parameters["collation"] = self.db_collation or EXACT_COLLATIONS.get(connection.vendor)
        return parameters


class TenantIndex(models.Index):
    """
    An index for the lists of one tenant; on PostgreSQL it does not hold the rows that belong to none.

    PostgreSQL sees that ``tenant IN ('acme')`` asks for none of those. SQLite and SQL Server would not: their partial
    indexes serve only a query that has the condition itself, word by word.
    """

    def create_sql(self, model: type[models.Model], schema_editor: Any, using: str = "", **kwargs: Any) -> Any:
        """Add the condition on PostgreSQL."""
        condition = ~models.Q(tenant="") if schema_editor.connection.vendor == "postgresql" else None
        index = models.Index(fields=self.fields, name=self.name, condition=condition)
        return index.create_sql(model, schema_editor, using=using, **kwargs)


class UtcNow(Now):
    """
    The database's clock in UTC, as a column's default.

    mssql-django's ``Now`` gives the server's own zone and 100 ns, of which Python reads back only the microseconds, so
    that a row would not be found by the time just read from it.
    """

    def as_microsoft(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> Any:
        """Return SQL Server's expression."""
        return self.as_sql(compiler, connection, template="CAST(SYSUTCDATETIME() AS datetime2(6))", **context)
