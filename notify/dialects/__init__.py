"""Operations that notify does differently on each database."""

from functools import cache

from django.db.backends.base.base import BaseDatabaseWrapper

from kwit.db.dialect import Database, database_of

from .base import NotifyDialect


def dialect_of(connection: BaseDatabaseWrapper) -> NotifyDialect:
    """Return the dialect of this connection's database. Raises: UnknownDatabase."""
    return make_dialect(database_of(connection))


@cache
def make_dialect(database: Database) -> NotifyDialect:
    """Return the dialect of this database, always the same; a site needs the driver of its own database only."""
    match database:
        case "sqlite":
            from .sqlite import NotifySqlite

            return NotifySqlite()
        case "postgresql":
            from .postgresql import NotifyPostgresql

            return NotifyPostgresql()
        case "sqlserver":
            from .sqlserver import NotifySqlServer

            return NotifySqlServer()
