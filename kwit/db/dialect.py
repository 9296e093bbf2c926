"""
Operations that differ by database; the only place that asks which database a connection belongs to.

Each app that needs more derives from ``Dialect`` and from the class of each database (see ``notify.dialects``).
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal, cast
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, DataError, IntegrityError, InterfaceError, InternalError, OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.timezone import is_aware, make_naive

Database = Literal["sqlite", "postgresql", "sqlserver"]
#: The databases that Kwit runs on, by Django's names of them.
VENDORS: dict[str, Database] = {"sqlite": "sqlite", "postgresql": "postgresql", "microsoft": "sqlserver"}

#: The compatibility level of SQL Server 2016, since when OPENJSON exists; a database keeps that of the server it was
#: created on.
COMPATIBILITY_LEVEL_MIN = 130
#: The languages of SQL Server whose messages are English.
ENGLISH = ("us_english", "British")


class UnknownDatabase(ImproperlyConfigured):
    """Kwit has no dialect for this database."""

    def __init__(self, vendor: str) -> None:
        super().__init__(f"Kwit has no dialect for the database {vendor!r}; it has {', '.join(VENDORS)}")


class Dialect:
    """
    Operations that differ by database; the defaults are those of a database without the feature.

    A dialect has no state of its own: each operation is given the connection.
    """

    #: The collation under which text is compared exactly; None where that is how every text is compared.
    exact_collation: ClassVar[str | None] = None
    #: The column type of a moment in UTC; None where Django's own is right.
    utc_type: ClassVar[str | None] = None
    #: The driver's options for the seconds after which it gives up connecting, and waiting for an answer.
    timeout_options: ClassVar[tuple[str, ...]] = ()

    def now(self, connection: BaseDatabaseWrapper) -> datetime:
        """Return the database's time, aware, with microseconds or the best available resolution."""
        raise NotImplementedError

    def is_transient(self, error: BaseException) -> bool:
        """Whether the same statements may well succeed when repeated: deadlock, serialization, lock wait."""
        return False

    def is_refusal(self, error: BaseException) -> bool:
        """Whether the database refused a row for its content (a constraint, a trigger): other rows may be accepted."""
        return isinstance(error, DataError | IntegrityError)

    def is_timeout(self, error: BaseException) -> bool:
        """Whether a statement was cancelled because it took too long: with fewer rows it may be done in time."""
        return False

    def is_lost(self, error: BaseException) -> bool:
        """Whether the connection is lost, so that the result of the last statement is unknown."""
        return False

    def file_identity(self, connection: BaseDatabaseWrapper) -> Any:
        """Return the identity of the database's file, which changes when it is replaced; None without a file."""

    def has_lost_transaction(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether the database has ended the whole transaction of its own accord, not only the last savepoint."""
        return False

    def prepare_time(self, value: Any) -> Any:
        """Return a time as Django prepared it for this database in the form that its clock writes."""
        return value


class SqliteDialect(Dialect):
    """SQLite 3.35 and newer, as Python brings it: one writer at a time, in the process itself."""

    timeout_options = ("timeout",)

    #: SQLITE_BUSY and SQLITE_LOCKED as texts; Python 3.11 also has codes, but Django's wrapper keeps the text.
    TRANSIENT = ("database is locked", "database table is locked", "database schema is locked")

    def now(self, connection: BaseDatabaseWrapper) -> datetime:
        with connection.cursor() as cursor:
            cursor.execute("SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')")
            return datetime.fromisoformat(cursor.fetchone()[0]).replace(tzinfo=UTC)

    def is_transient(self, error: BaseException) -> bool:
        return any(text in str(error) for text in self.TRANSIENT)

    def file_of(self, connection: BaseDatabaseWrapper) -> Path | None:
        """Return the database's own file, links resolved, also where its name is a URI; None for one in memory."""
        if cast(Any, connection).is_in_memory_db():
            return None
        name = str(connection.settings_dict["NAME"])
        return Path(unquote(urlsplit(name).path) if name.startswith("file:") else name).resolve()

    def file_identity(self, connection: BaseDatabaseWrapper) -> Any:
        if (path := self.file_of(connection)) is None:
            return None
        found = path.stat()
        return found.st_dev, found.st_ino

    def prepare_time(self, value: Any) -> Any:
        # Times are compared as texts. With three decimals, or six where three are not enough, their order is that of
        # time.
        if not isinstance(value, str):
            return value
        return value.removesuffix("000") if "." in value else f"{value}.000"


class PostgresqlDialect(Dialect):
    """PostgreSQL 14 to 18 (psycopg 3)."""

    timeout_options = ("connect_timeout",)

    #: SQLSTATE of: serialization failure, deadlock, lock not available (manual, appendix A).
    TRANSIENT = frozenset({"40001", "40P01", "55P03"})
    #: SQLSTATE classes of: PL/pgSQL's RAISE, a view's WITH CHECK OPTION.
    REFUSALS = ("P0", "44")
    #: SQLSTATE of a statement that statement_timeout, or a person, has cancelled.
    CANCELED = "57014"
    #: SQLSTATE classes of: connection exception, operator intervention; and of a session that a timeout has ended.
    LOST = ("08", "57P", "25P03", "25P04")

    def sqlstate(self, error: BaseException) -> str | None:
        """Return the server's code, or None when the error did not come from the server."""
        return getattr(error.__cause__, "sqlstate", None)

    def now(self, connection: BaseDatabaseWrapper) -> datetime:
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            return cast(datetime, cursor.fetchone()[0])

    def is_transient(self, error: BaseException) -> bool:
        return self.sqlstate(error) in self.TRANSIENT

    def is_refusal(self, error: BaseException) -> bool:
        # What a trigger raises is none of Django's two classes for faulty data, but P0001 or what its author chose.
        return super().is_refusal(error) or (self.sqlstate(error) or "").startswith(self.REFUSALS)

    def is_timeout(self, error: BaseException) -> bool:
        return self.sqlstate(error) == self.CANCELED

    def is_lost(self, error: BaseException) -> bool:
        code = self.sqlstate(error)
        if code is None:
            # The client noticed it, not the server.
            return isinstance(error, OperationalError | InterfaceError)
        # A session that a timeout has ended is an InternalError for Django.
        return isinstance(error, OperationalError | InterfaceError | InternalError) and code.startswith(self.LOST)


class SqlServerDialect(Dialect):
    """
    SQL Server 2017 to 2025 (mssql-django 2 with mssql-python).

    The driver's errors carry no number: where it decides, ``guarded`` has the server say it.
    """

    exact_collation = "Latin1_General_100_BIN2"  # 100_BIN2 compares code points
    utc_type = "datetime2(6)"  # (6) are the microseconds that Python knows
    timeout_options = ("connection_timeout", "query_timeout")

    #: Deadlock victim, lock request timeout, snapshot update conflict, snapshot invalidated by a change of the schema.
    TRANSIENT = (1205, 1222, 3960, 3961)
    #: A text too long for its column (8152 before SQL Server 2019), which the driver takes for an error of syntax:
    #: SQLSTATE 42000. And the trigger's own ROLLBACK; what a trigger raises itself has a number from 50000.
    REFUSED = (2628, 3609, 8152)
    RAISED_MIN = 50000
    #: What ``guarded`` makes of them, so that neither the session's language nor the driver hides the number.
    TRANSIENT_TEXT = "kwit: to be repeated"
    REFUSAL_TEXT = "kwit: refused"
    TIMEOUT_TEXT = "Timeout expired"
    #: The same for statements that the ORM wrote, which nothing of ours is wrapped around: SQLSTATE 40001 and HYT00 as
    #: mssql-python words them, the number as pyodbc appends it, SQL Server's own words in English.
    TRANSIENT_MARKS = (
        TRANSIENT_TEXT,
        "Serialization failure",
        TIMEOUT_TEXT,
        *(f"({number})" for number in TRANSIENT),
        "deadlock victim",
        "Lock request time out period exceeded",
        "Snapshot isolation transaction",
    )
    #: SQLSTATE 08S01 and its kin as mssql-python words them; what a session that was ended with KILL says.
    LOST_MARKS = (
        "Communication link failure",
        "08S01",
        "08S02",
        "Connection not open",
        "Client unable to establish",
        "kill",
    )

    def now(self, connection: BaseDatabaseWrapper) -> datetime:
        moment: datetime = self.fetch(connection, "SELECT CAST(SYSUTCDATETIME() AS datetime2(6))")[0][0]
        return moment.replace(tzinfo=UTC)

    def is_transient(self, error: BaseException) -> bool:
        return any(mark in str(error) for mark in self.TRANSIENT_MARKS)

    def is_refusal(self, error: BaseException) -> bool:
        return super().is_refusal(error) or self.REFUSAL_TEXT in str(error)

    def is_timeout(self, error: BaseException) -> bool:
        # The driver's own timeout of a query (HYT00) is worded like that of a lock, which is why it is repeated first.
        return self.TIMEOUT_TEXT in str(error)

    def is_lost(self, error: BaseException) -> bool:
        return isinstance(error, DatabaseError | InterfaceError) and any(mark in str(error) for mark in self.LOST_MARKS)

    def has_lost_transaction(self, connection: BaseDatabaseWrapper) -> bool:
        # A deadlock, and with XACT_ABORT ON any error, ends the whole transaction and not only the savepoint in it.
        return bool(self.fetch(connection, "SELECT @@TRANCOUNT")[0][0] == 0)

    def prepare_time(self, value: Any) -> Any:
        return make_naive(value, UTC) if isinstance(value, datetime) and is_aware(value) else value

    def fetch(
        self, connection: BaseDatabaseWrapper, sql: str, params: Sequence[Any] | None = None
    ) -> list[tuple[Any, ...]]:
        """Run one batch to its very end, for an unread rest leaves the connection busy; return its first rows."""
        with connection.cursor() as cursor:
            cursor.execute(sql, params)
            rows: list[tuple[Any, ...]] | None = None
            while True:
                if rows is None and cursor.description is not None:
                    rows = cursor.fetchall()
                if not cursor.nextset():
                    return rows or []

    def guarded(self, sql: str) -> str:
        """Return a batch whose error says by itself whether it may be repeated, or is a refusal of what is in a row."""
        transient, refused = (", ".join(map(str, numbers)) for numbers in (self.TRANSIENT, self.REFUSED))
        return f"""
SET NOCOUNT ON;
BEGIN TRY
{sql.strip()}
END TRY
BEGIN CATCH
    DECLARE @number int = ERROR_NUMBER(), @told nvarchar(2048);
    SET @told = CASE
        WHEN @number IN ({transient}) THEN N'{self.TRANSIENT_TEXT}'
        WHEN @number >= {self.RAISED_MIN} OR @number IN ({refused}) THEN N'{self.REFUSAL_TEXT}'
    END;
    IF @told IS NULL
    BEGIN;
        THROW;
    END;
    SET @told = CONCAT(@told, N': error ', @number, N': ', ERROR_MESSAGE());
    THROW 51205, @told, 1;
END CATCH;
"""


def database_of(connection: BaseDatabaseWrapper) -> Database:
    """Return which database a connection belongs to. Raises: UnknownDatabase."""
    if name := VENDORS.get(connection.vendor):
        return name
    raise UnknownDatabase(connection.vendor)


DIALECTS: dict[Database, Dialect] = {
    "sqlite": SqliteDialect(),
    "postgresql": PostgresqlDialect(),
    "sqlserver": SqlServerDialect(),
}


def dialect_of(connection: BaseDatabaseWrapper) -> Dialect:
    """Return what all apps ask of this connection's database. Raises: UnknownDatabase."""
    return DIALECTS[database_of(connection)]


def copy_with_timeout(connection: BaseDatabaseWrapper, *, timeout_s: int) -> BaseDatabaseWrapper:
    """Return a connection of its own to the same database that gives up after some seconds; unopened."""
    copied = connection.copy()
    options: dict[str, Any] = {**copied.settings_dict.get("OPTIONS", {})}
    # A pool's connections have been opened by other rules, and it may have none left: a probe asks for its own.
    options.pop("pool", None)
    options |= dict.fromkeys(dialect_of(connection).timeout_options, timeout_s)
    copied.settings_dict = {**copied.settings_dict, "OPTIONS": options, "CONN_MAX_AGE": 0}
    return copied
