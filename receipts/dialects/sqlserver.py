"""SQL Server 2017 to 2025: rows travel as one JSON text into a table variable; each verb is one round trip."""

# Names in the SQL below come from model fields and are quoted; values are parameters.
# ruff: noqa: S608

import json
from collections.abc import Sequence
from typing import Any

from django.db import DatabaseError, IntegrityError
from django.db.backends.base.base import BaseDatabaseWrapper

from kwit.db.dialect import COMPATIBILITY_LEVEL_MIN, ENGLISH, SqlServerDialect

from ..plans.canonical import Target
from .base import (
    AUDIT_COLUMNS,
    GUARDED_TABLES,
    SEAL_LOCK,
    FieldShape,
    GuardFlaw,
    ReceiptsDialect,
    Shape,
    Standing,
    Weakness,
    one_blank,
)

#: Rows per statement. One that takes 5,000 locks on one index locks the whole table instead (lock escalation), and
#: looks whether to do so each 1,250 locks; a row costs one lock, or two while its UPDATE waits.
SLICE_ROWS = 2000

#: Compares text as it is, apart from blanks at its end.
EXACT = "Latin1_General_100_BIN2"
#: Deadlock victim; snapshot update conflict; snapshot invalidated by a change of the schema. SQLSTATE 40001 as
#: mssql-python words it, the numbers as pyodbc appends them, and SQL Server's own words.
COLLISION_MARKS = ("Serialization failure", "(1205)", "(3960)", "(3961)", "deadlock", "Snapshot isolation transaction")
STANDING = """
SELECT d.delayed_durability_desc, d.page_verify_option_desc, d.compatibility_level, @@LANGUAGE
FROM sys.databases AS d WHERE d.database_id = DB_ID()
"""

#: The table that keeps TRUNCATE away: nothing may be truncated that a foreign key refers to, be it of an empty table.
PIN = "receipts_audit_pin"

# receipts_changes needs no pin: its audit rows refer to it. Nor does the log: checkpoints refer to leaves, and
# cosignatures to checkpoints.
CREATE_PIN = (
    f"CREATE TABLE {PIN} (audit_id bigint NOT NULL CONSTRAINT pk_{PIN} PRIMARY KEY"
    f" CONSTRAINT fk_{PIN} REFERENCES receipts_audit (id))"
)
#: The text of a trigger is NULL for a login that may not view its definition.
FIND_TRIGGERS = """
SELECT t.name, OBJECT_NAME(t.parent_id), t.is_disabled, m.definition
FROM sys.triggers AS t LEFT OUTER JOIN sys.sql_modules AS m ON m.object_id = t.object_id
"""
FIND_PIN = f"""
SELECT k.is_disabled FROM sys.foreign_keys AS k
WHERE k.name = N'fk_{PIN}' AND OBJECT_NAME(k.referenced_object_id) = N'receipts_audit'
"""

# The key of the table variable and the LOOP JOIN make the order of the locks: that of the ids, whoever plans it.
APPROVED = f"""
SET NOCOUNT ON;
DECLARE @approved TABLE (
    id bigint NOT NULL PRIMARY KEY, revision bigint NOT NULL, qty bigint NOT NULL, slice bigint NOT NULL
);
INSERT INTO @approved (id, revision, qty, slice)
SELECT r.id, r.revision, r.qty, (ROW_NUMBER() OVER (ORDER BY r.id) - 1) / {SLICE_ROWS:d}
FROM OPENJSON(%s) WITH (id bigint '$[0]', revision bigint '$[1]', qty bigint '$[2]') AS r;
DECLARE @slice bigint = 0, @last bigint = (SELECT MAX(slice) FROM @approved);
"""


class ReceiptsSqlServer(SqlServerDialect, ReceiptsDialect):
    """SQL Server: rows travel as one JSON text into a table variable; each operation is one round trip."""

    def stale_rows(
        self, connection: BaseDatabaseWrapper, shape: Shape, tenant: str, targets: Sequence[Target]
    ) -> list[Standing]:
        # UPDLOCK locks, and so reads, the row itself and not a version of it, with READ_COMMITTED_SNAPSHOT on as well.
        sql = f"""{APPROVED}
DECLARE @stale TABLE (
    id bigint NOT NULL PRIMARY KEY, there bit NOT NULL, revision bigint NULL, qty bigint NULL, state nvarchar(max) NULL
);
WHILE @slice <= @last
BEGIN
    INSERT INTO @stale (id, there, revision, qty, state)
    SELECT a.id, CASE WHEN held.{shape.id} IS NULL THEN 0 ELSE 1 END, held.{shape.revision}, held.{shape.qty},
        held.{shape.state}
    FROM @approved AS a
    LEFT OUTER LOOP JOIN {shape.table} AS held WITH (UPDLOCK, ROWLOCK, READCOMMITTEDLOCK)
        ON held.{shape.id} = a.id AND held.{shape.tenant} = %s
    WHERE a.slice = @slice AND (
        held.{shape.id} IS NULL OR held.{shape.revision} IS NULL OR held.{shape.revision} <> a.revision
        OR held.{shape.qty} IS NULL OR held.{shape.qty} <> a.qty
        OR held.{shape.state} IS NULL OR held.{shape.state} <> %s
    )
    ORDER BY a.id
    OPTION (MAXDOP 1);
    SET @slice = @slice + 1;
END;
SELECT id, there, revision, qty, state FROM @stale ORDER BY id;
"""
        rows = self.fetch(connection, sql, [json.dumps(targets), tenant, shape.required_state])
        return [Standing(row[0], bool(row[1]), *row[2:]) for row in rows]

    def standing_rows(
        self, connection: BaseDatabaseWrapper, shape: Shape, tenant: str, ids: Sequence[int]
    ) -> list[Standing]:
        sql = f"""
SET NOCOUNT ON;
DECLARE @asked TABLE (id bigint NOT NULL PRIMARY KEY);
INSERT INTO @asked (id) SELECT r.id FROM OPENJSON(%s) WITH (id bigint '$[0]') AS r;
SELECT held.{shape.id}, held.{shape.revision}, held.{shape.qty}, held.{shape.state}
FROM @asked AS a INNER JOIN {shape.table} AS held ON held.{shape.id} = a.id
WHERE held.{shape.tenant} = %s
ORDER BY held.{shape.id};
"""
        rows = self.fetch(connection, sql, [json.dumps([[pk] for pk in ids]), tenant])
        return [Standing(row[0], True, *row[1:]) for row in rows]

    def change_rows(
        self, connection: BaseDatabaseWrapper, shape: Shape, tenant: str, targets: Sequence[Target], change_id: str
    ) -> int:
        # OUTPUT … INTO: without INTO, SQL Server refuses a table that has a trigger (error 334). OUTPUT tells what the
        # UPDATE itself wrote, even where an INSTEAD OF trigger wrote nothing or an AFTER trigger something else; so
        # what is audited is read from the row.
        sql = f"""{APPROVED}
DECLARE @before TABLE (
    id bigint NOT NULL PRIMARY KEY, revision_before bigint NOT NULL, state_before nvarchar(max) NOT NULL
);
DECLARE @audited bigint = 0;
WHILE @slice <= @last
BEGIN
    UPDATE {shape.table} SET {shape.assignments}, {shape.revision} = {shape.table}.{shape.revision} + 1
    OUTPUT deleted.{shape.id}, deleted.{shape.revision}, deleted.{shape.state}
    INTO @before (id, revision_before, state_before)
    FROM @approved AS a INNER LOOP JOIN {shape.table} ON {shape.table}.{shape.id} = a.id
    WHERE a.slice = @slice AND {shape.table}.{shape.tenant} = %s
        AND {shape.table}.{shape.revision} = a.revision AND {shape.table}.{shape.qty} = a.qty
        AND {shape.table}.{shape.state} = %s;
    INSERT INTO receipts_audit
        (change_id, target_id, revision_before, revision_after, qty, state_before, state_after)
    SELECT %s, b.id, b.revision_before, held.{shape.revision}, held.{shape.qty}, b.state_before, held.{shape.state}
    FROM @approved AS a INNER LOOP JOIN @before AS b ON b.id = a.id
    INNER LOOP JOIN {shape.table} AS held ON held.{shape.id} = b.id
    WHERE a.slice = @slice AND held.{shape.revision} > b.revision_before
    ORDER BY b.id;
    SET @audited = @audited + @@ROWCOUNT;
    SET @slice = @slice + 1;
END;
SELECT @audited;
"""
        params = [json.dumps(targets), *shape.set_params, tenant, shape.required_state, change_id]
        return int(self.fetch(connection, sql, params)[0][0])

    def change_row(self, connection: BaseDatabaseWrapper, shape: Shape, tenant: str, target: Target) -> Standing | None:
        # The row itself is read, for the same reason as in change_rows.
        sql = f"""
SET NOCOUNT ON;
DECLARE @changed TABLE (id bigint NOT NULL);
UPDATE {shape.table} SET {shape.assignments}, {shape.revision} = {shape.revision} + 1
OUTPUT inserted.{shape.id} INTO @changed (id)
WHERE {shape.id} = %s AND {shape.tenant} = %s AND {shape.revision} = %s AND {shape.qty} = %s AND {shape.state} = %s;
SELECT held.{shape.id}, held.{shape.revision}, held.{shape.qty}, held.{shape.state}
FROM @changed AS c INNER JOIN {shape.table} AS held ON held.{shape.id} = c.id
WHERE held.{shape.revision} > %s;
"""
        compared = [target.id, tenant, target.revision, target.qty, shape.required_state]
        rows = self.fetch(connection, sql, [*shape.set_params, *compared, target.revision])
        return Standing(rows[0][0], True, *rows[0][1:]) if rows else None

    def read_fields(
        self, connection: BaseDatabaseWrapper, shape: FieldShape, tenant: Any, ids: Sequence[int], *, is_locked: bool
    ) -> list[tuple[Any, ...]]:
        # In slices, below lock escalation; the key of the table variable and the LOOP JOIN make the order of the locks.
        hint = " WITH (UPDLOCK, ROWLOCK, READCOMMITTEDLOCK)" if is_locked else ""
        belongs = f" AND held.{shape.tenant} = %s" if shape.tenant else ""
        sql = f"""
SET NOCOUNT ON;
DECLARE @asked TABLE (id bigint NOT NULL PRIMARY KEY);
INSERT INTO @asked (id) SELECT r.id FROM OPENJSON(%s) WITH (id bigint '$') AS r;
SELECT {shape.row_columns("held")}
FROM @asked AS a INNER LOOP JOIN {shape.table} AS held{hint} ON held.{shape.id} = a.id{belongs}
ORDER BY a.id
OPTION (MAXDOP 1);
"""
        found: list[tuple[Any, ...]] = []
        for at in range(0, len(ids), SLICE_ROWS):
            params = [json.dumps(list(ids[at : at + SLICE_ROWS])), *([tenant] if shape.tenant else [])]
            found += [tuple(row) for row in self.fetch(connection, sql, params)]
        return found

    def change_fields(
        self, connection: BaseDatabaseWrapper, shape: FieldShape, tenant: Any, rows: Sequence[dict[str, Any]]
    ) -> int:
        carried = (*shape.compared, *shape.settable)
        # Text is compared exactly, whatever its collation: its case, and the blanks at its end, which "=" leaves out.
        text = {one.alias for one in shape.compared if one.is_text}
        declared = "".join(f", {one.alias} {one.type} NULL" for one in carried)
        read = "".join(f", {one.alias} {one.type} '$.{one.alias}'" for one in carried)
        names = "".join(f", {one.alias}" for one in carried)
        where = [f"{shape.table}.{shape.id} = a.id", *([f"{shape.table}.{shape.tenant} = %s"] if shape.tenant else [])]
        for one in shape.compared:
            pair = [f"{shape.table}.{one.column}", f"a.{one.alias}"]
            sides = [f"{side} COLLATE {EXACT}, DATALENGTH({side})" if one.alias in text else side for side in pair]
            where.append(f"EXISTS (SELECT {sides[0]} INTERSECT SELECT {sides[1]})")
        where += [f"{shape.table}.{shape.state.column} = %s"] if shape.state else []
        sql = f"""
SET NOCOUNT ON;
DECLARE @approved TABLE (id bigint NOT NULL PRIMARY KEY{declared});
INSERT INTO @approved (id{names})
SELECT r.id{names} FROM OPENJSON(%s) WITH (id bigint '$.id'{read}) AS r;
DECLARE @changed bigint;
UPDATE {shape.table} SET {shape.set_clause("a")}
FROM @approved AS a INNER LOOP JOIN {shape.table} ON {shape.table}.{shape.id} = a.id
WHERE {" AND ".join(where)};
SET @changed = @@ROWCOUNT;
SELECT @changed;
"""
        changed = 0
        for at in range(0, len(rows), SLICE_ROWS):
            params = [json.dumps(list(rows[at : at + SLICE_ROWS])), *shape.params(tenant)]
            changed += int(self.fetch(connection, sql, params)[0][0])
        return changed

    def audit_fields(self, connection: BaseDatabaseWrapper, change_id: str, rows: Sequence[Sequence[Any]]) -> None:
        types = ("bigint", "bigint", "bigint", "bigint", "nvarchar(40)", "nvarchar(40)", "nvarchar(max)")
        pairs = list(enumerate(zip(AUDIT_COLUMNS, types, strict=True)))
        read = ", ".join(f"{name} {kind} '$[{at}]'" for at, (name, kind) in pairs)
        sql = f"""
SET NOCOUNT ON;
INSERT INTO receipts_audit (change_id, {", ".join(AUDIT_COLUMNS)})
SELECT %s, {", ".join(f"r.{name}" for name in AUDIT_COLUMNS)} FROM OPENJSON(%s) WITH ({read}) AS r;
SELECT 0;
"""
        for at in range(0, len(rows), SLICE_ROWS):
            self.fetch(connection, sql, [change_id, json.dumps(rows[at : at + SLICE_ROWS])])

    def is_collision(self, error: BaseException) -> bool:
        if not isinstance(error, DatabaseError):
            return False
        text = str(error)
        if isinstance(error, IntegrityError):
            # Somebody has just claimed the same change_id; an older snapshot cannot see the row, so repeating is the
            # way.
            return "duplicate key" in text and "receipts_changes" in text
        return any(mark in text for mark in COLLISION_MARKS)

    def try_seal_lock(self, connection: BaseDatabaseWrapper) -> bool:
        sql = """
SET NOCOUNT ON;
DECLARE @code int;
EXEC @code = sp_getapplock @Resource = %s, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 0;
SELECT @code;
"""
        return bool(self.fetch(connection, sql, [SEAL_LOCK])[0][0] >= 0)

    def guard(self, connection: BaseDatabaseWrapper) -> list[str]:
        return [*self.triggers().values(), CREATE_PIN]

    def triggers(self) -> dict[str, str]:
        """Return the statement that creates the trigger of each table, by the table."""
        # INSTEAD OF: nothing has happened yet that would have to be undone. THROW in a trigger ends the transaction.
        return {
            table: f"CREATE TRIGGER {table}_append_only ON {table} INSTEAD OF UPDATE, DELETE AS"
            f" THROW 51547, N'{table} is append-only: a receipt is neither changed nor deleted', 1;"
            for table in GUARDED_TABLES
        }

    def unguard(self, connection: BaseDatabaseWrapper) -> list[str]:
        triggers = [f"DROP TRIGGER IF EXISTS {table}_append_only" for table in GUARDED_TABLES]
        return [*triggers, f"DROP TABLE IF EXISTS {PIN}"]

    def guard_flaws(self, connection: BaseDatabaseWrapper) -> list[GuardFlaw]:
        triggers = {name: row for name, *row in self.fetch(connection, FIND_TRIGGERS)}
        flaws = []
        for table, statement in self.triggers().items():
            name = f"{table}_append_only"
            parent, is_disabled, text = triggers.get(name, (None, None, None))
            if parent != table:
                flaws.append(GuardFlaw(name, "is missing", statement))
            elif text is None:
                mend = f"GRANT VIEW DEFINITION ON OBJECT::{table} TO [the login's user];"
                flaws.append(GuardFlaw(name, "cannot be read by this login", mend))
            elif one_blank(text).replace("CREATE OR ALTER ", "CREATE ", 1) != one_blank(statement):
                mend = statement.replace("CREATE TRIGGER", "CREATE OR ALTER TRIGGER", 1)
                flaws.append(GuardFlaw(name, "is not as the migration made it", mend))
            elif is_disabled:
                flaws.append(GuardFlaw(name, "is off", f"ENABLE TRIGGER {name} ON {table};"))
        pins = self.fetch(connection, FIND_PIN)
        if not pins:
            flaws.append(GuardFlaw(f"fk_{PIN}", "is missing", f"DROP TABLE IF EXISTS {PIN}; {CREATE_PIN};"))
        elif pins[0][0]:
            mend = f"ALTER TABLE {PIN} WITH CHECK CHECK CONSTRAINT fk_{PIN};"
            flaws.append(GuardFlaw(f"fk_{PIN}", "is off", mend))
        return flaws

    def weaknesses(self, connection: BaseDatabaseWrapper) -> list[Weakness]:
        found = []
        ((durability, verification, level, language),) = self.fetch(connection, STANDING)
        if durability == "FORCED":
            found.append(
                Weakness(
                    "receipts.E027",
                    True,
                    "DELAYED_DURABILITY is FORCED: a receipt that was answered may be gone after a crash of the server",
                    "ALTER DATABASE CURRENT SET DELAYED_DURABILITY = DISABLED",
                )
            )
        if verification == "NONE":
            found.append(
                Weakness(
                    "receipts.W028",
                    False,
                    "PAGE_VERIFY is NONE: a page that the disk has spoiled is read as if it were whole",
                    "ALTER DATABASE CURRENT SET PAGE_VERIFY CHECKSUM",
                )
            )
        if level < COMPATIBILITY_LEVEL_MIN:
            found.append(
                Weakness(
                    "receipts.E029",
                    True,
                    f"the compatibility level is {level}: "
                    f"OPENJSON, in which targets travel, needs {COMPATIBILITY_LEVEL_MIN}",
                    "ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = 140",
                )
            )
        if language not in ENGLISH:
            found.append(
                Weakness(
                    "receipts.W030",
                    False,
                    f"this login speaks {language}: what may be repeated is recognised in English",
                    "ALTER LOGIN … WITH DEFAULT_LANGUAGE = us_english",
                )
            )
        return found
