"""Operations that receipts do differently on each database."""

from functools import cache

from django.db.backends.base.base import BaseDatabaseWrapper

from kwit.db.dialect import Database, database_of

from .base import ReceiptsDialect


def dialect_of(connection: BaseDatabaseWrapper) -> ReceiptsDialect:
    """Return the dialect of this connection's database. Raises: UnknownDatabase."""
    return make_dialect(database_of(connection))


@cache
def make_dialect(database: Database) -> ReceiptsDialect:
    """Return the dialect of this database, always the same; a site needs the driver of its own database only."""
    match database:
        case "sqlite":
            from .sqlite import ReceiptsSqlite

            return ReceiptsSqlite()
        case "postgresql":
            from .postgresql import ReceiptsPostgresql

            return ReceiptsPostgresql()
        case "sqlserver":
            from .sqlserver import ReceiptsSqlServer

            return ReceiptsSqlServer()
