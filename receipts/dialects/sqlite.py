"""SQLite: rows travel as one JSON text; there is one writer at a time, so that nothing needs to be locked."""

# Names in the SQL below come from model fields and are quoted; values are parameters.
# ruff: noqa: S608

import json
from collections.abc import Sequence
from typing import Any, cast

from django.db.backends.base.base import BaseDatabaseWrapper

from kwit.db.dialect import SqliteDialect

from ..plans.canonical import Target
from .base import (
    AUDIT_COLUMNS,
    GUARDED_TABLES,
    FieldShape,
    GuardFlaw,
    ReceiptsDialect,
    Shape,
    Standing,
    Weakness,
    one_blank,
)

# MATERIALIZED: as a plain sub-select json_each would be parsed again for every row of the other side.
PLAN = """
    SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS revision,
        json_extract(value, '$[2]') AS qty
    FROM json_each(%s)"""
SYNCHRONOUS_OFF, SYNCHRONOUS_NORMAL = 0, 1


def guards() -> list[str]:
    """Return the names of all triggers."""
    return [f"{table}_no_{verb}" for table in GUARDED_TABLES for verb in ("update", "delete", "replace")]


class ReceiptsSqlite(SqliteDialect, ReceiptsDialect):
    """SQLite: rows travel as one JSON text; there is one writer at a time, so that nothing needs to be locked."""

    def stale_rows(
        self, connection: BaseDatabaseWrapper, shape: Shape, tenant: str, targets: Sequence[Target]
    ) -> list[Standing]:
        sql = f"""
        WITH approved AS MATERIALIZED ({PLAN})
        SELECT approved.id, held.{shape.id} IS NOT NULL, held.{shape.revision}, held.{shape.qty}, held.{shape.state}
        FROM approved LEFT JOIN {shape.table} AS held ON held.{shape.id} = approved.id AND held.{shape.tenant} = %s
        WHERE held.{shape.id} IS NULL OR held.{shape.revision} IS NOT approved.revision
            OR held.{shape.qty} IS NOT approved.qty OR held.{shape.state} IS NOT %s
        ORDER BY approved.id"""
        with connection.cursor() as cursor:
            cursor.execute(sql, [json.dumps(targets), tenant, shape.required_state])
            return [Standing(row[0], bool(row[1]), *row[2:]) for row in cursor.fetchall()]

    def standing_rows(
        self, connection: BaseDatabaseWrapper, shape: Shape, tenant: str, ids: Sequence[int]
    ) -> list[Standing]:
        sql = f"""
        SELECT {shape.id}, {shape.revision}, {shape.qty}, {shape.state} FROM {shape.table}
        WHERE {shape.id} IN (SELECT value FROM json_each(%s)) AND {shape.tenant} = %s
        ORDER BY {shape.id}"""
        with connection.cursor() as cursor:
            cursor.execute(sql, [json.dumps(ids), tenant])
            return [Standing(row[0], True, *row[1:]) for row in cursor.fetchall()]

    def change_rows(
        self, connection: BaseDatabaseWrapper, shape: Shape, tenant: str, targets: Sequence[Target], change_id: str
    ) -> int:
        update = f"""
        WITH approved AS MATERIALIZED ({PLAN})
        UPDATE {shape.table} SET {shape.assignments}, {shape.revision} = {shape.table}.{shape.revision} + 1
        FROM approved
        WHERE {shape.table}.{shape.id} = approved.id AND {shape.table}.{shape.tenant} = %s
            AND {shape.table}.{shape.revision} = approved.revision AND {shape.table}.{shape.qty} = approved.qty
            AND {shape.table}.{shape.state} = %s
        RETURNING {shape.id}, {shape.revision}, {shape.qty}, {shape.state}"""
        insert = """
        INSERT INTO receipts_audit
            (change_id, target_id, revision_before, revision_after, qty, state_before, state_after)
        SELECT %s, json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
            json_extract(value, '$[3]'), %s, json_extract(value, '$[4]')
        FROM json_each(%s)"""
        # RETURNING knows the changed table only; what the revision was before is what the UPDATE has just compared it
        # with.
        before = {target.id: target.revision for target in targets}
        with connection.cursor() as cursor:
            cursor.execute(update, [json.dumps(targets), *shape.set_params, tenant, shape.required_state])
            # All rows are fetched before anything else: until then SQLite has neither finished nor counted the UPDATE.
            changed = sorted((row[0], before[row[0]], *row[1:]) for row in cursor.fetchall())
            cursor.execute(insert, [change_id, shape.required_state, json.dumps(changed)])
        return len(changed)

    def change_row(self, connection: BaseDatabaseWrapper, shape: Shape, tenant: str, target: Target) -> Standing | None:
        sql = f"""
        UPDATE {shape.table} SET {shape.assignments}, {shape.revision} = {shape.revision} + 1
        WHERE {shape.id} = %s AND {shape.tenant} = %s AND {shape.revision} = %s AND {shape.qty} = %s
            AND {shape.state} = %s
        RETURNING {shape.id}, {shape.revision}, {shape.qty}, {shape.state}"""
        with connection.cursor() as cursor:
            cursor.execute(
                sql, [*shape.set_params, target.id, tenant, target.revision, target.qty, shape.required_state]
            )
            row = cursor.fetchone()
        return Standing(row[0], True, *row[1:]) if row else None

    def read_fields(
        self, connection: BaseDatabaseWrapper, shape: FieldShape, tenant: Any, ids: Sequence[int], *, is_locked: bool
    ) -> list[tuple[Any, ...]]:
        belongs = f" AND {shape.tenant} = %s" if shape.tenant else ""
        sql = f"""
        SELECT {shape.row_columns(shape.table)} FROM {shape.source}
        WHERE {shape.id} IN (SELECT value FROM json_each(%s)){belongs}
        ORDER BY {shape.id}"""
        with connection.cursor() as cursor:
            cursor.execute(sql, [json.dumps(ids), *([tenant] if shape.tenant else [])])
            return cast(list[tuple[Any, ...]], cursor.fetchall())

    def change_fields(
        self, connection: BaseDatabaseWrapper, shape: FieldShape, tenant: Any, rows: Sequence[dict[str, Any]]
    ) -> int:
        names = ["id", *(one.alias for one in (*shape.compared, *shape.settable))]
        extracted = ", ".join(f"json_extract(value, '$.{name}') AS {name}" for name in names)
        sql = f"""
        WITH approved AS MATERIALIZED (SELECT {extracted} FROM json_each(%s))
        UPDATE {shape.table} SET {shape.set_clause("approved")}
        FROM approved WHERE {shape.where_clause("approved", "{} IS {}")}"""
        with connection.cursor() as cursor:
            cursor.execute(sql, [json.dumps(rows), *shape.params(tenant)])
            # The module counts only statements that begin with UPDATE, and this one begins with WITH.
            return int(cursor.execute("SELECT changes()").fetchone()[0])

    def audit_fields(self, connection: BaseDatabaseWrapper, change_id: str, rows: Sequence[Sequence[Any]]) -> None:
        extracted = ", ".join(f"json_extract(value, '$[{at}]')" for at in range(len(AUDIT_COLUMNS)))
        sql = f"""
        INSERT INTO receipts_audit (change_id, {", ".join(AUDIT_COLUMNS)})
        SELECT %s, {extracted} FROM json_each(%s)"""
        with connection.cursor() as cursor:
            cursor.execute(sql, [change_id, json.dumps(rows)])

    def guard(self, connection: BaseDatabaseWrapper) -> list[str]:
        return list(self.triggers().values())

    def triggers(self) -> dict[str, str]:
        """Return the statement that creates each trigger, by its name."""
        statements = {}
        same_key = {
            "receipts_changes": "change_id = NEW.change_id OR rowid = NEW.rowid",
            "receipts_audit": "(change_id = NEW.change_id AND target_id = NEW.target_id) OR id = NEW.id",
            "receipts_leaf": "position = NEW.position OR change_id = NEW.change_id",
            "receipts_checkpoint": "number = NEW.number",
        }
        for table in GUARDED_TABLES:
            message = f"{table} is append-only: a receipt is neither changed nor deleted"
            for verb in ("UPDATE", "DELETE"):
                name = f"{table}_no_{verb.lower()}"
                statements[name] = (
                    f"CREATE TRIGGER {name} BEFORE {verb} ON {table}"
                    f" BEGIN SELECT RAISE(ABORT, '{message} ({verb} refused)'); END"
                )
            # INSERT OR REPLACE deletes the row in its way without asking DELETE triggers (recursive_triggers is off).
            statements[f"{table}_no_replace"] = (
                f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table}"
                f" WHEN EXISTS (SELECT 1 FROM {table} WHERE {same_key[table]})"
                f" BEGIN SELECT RAISE(ABORT, '{message} (it is there already)'); END"
            )
        return statements

    def unguard(self, connection: BaseDatabaseWrapper) -> list[str]:
        return [f"DROP TRIGGER IF EXISTS {name}" for name in self.triggers()]

    def guard_flaws(self, connection: BaseDatabaseWrapper) -> list[GuardFlaw]:
        with connection.cursor() as cursor:
            # It keeps the text of each statement, so that nothing of a trigger can differ where the text does not.
            cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
            found = {name: one_blank(sql) for name, sql in cursor.fetchall()}
        return [
            GuardFlaw(
                name,
                "is not as the migration made it" if name in found else "is missing",
                f"DROP TRIGGER IF EXISTS {name}; {statement};",
            )
            for name, statement in self.triggers().items()
            if found.get(name) != one_blank(statement)
        ]

    def weaknesses(self, connection: BaseDatabaseWrapper) -> list[Weakness]:
        with connection.cursor() as cursor:
            synchronous = cursor.execute("PRAGMA synchronous").fetchone()[0]
            journal = cursor.execute("PRAGMA journal_mode").fetchone()[0]
        found = []
        if synchronous == SYNCHRONOUS_OFF:
            found.append(
                Weakness(
                    "receipts.E024",
                    True,
                    "PRAGMA synchronous is OFF: after a power cut the database may be unreadable",
                    "put 'PRAGMA synchronous=FULL;' into the init_command of the database's OPTIONS",
                )
            )
        if synchronous == SYNCHRONOUS_NORMAL and journal == "wal":
            found.append(
                Weakness(
                    "receipts.W024",
                    False,
                    "PRAGMA synchronous is NORMAL: after a power cut the last receipts may be gone",
                    "put 'PRAGMA synchronous=FULL;' into the init_command of the database's OPTIONS",
                )
            )
        if journal == "off":
            found.append(
                Weakness(
                    "receipts.E025",
                    True,
                    "PRAGMA journal_mode is OFF: a change cannot be rolled back, so it is not whole or nothing",
                    "put 'PRAGMA journal_mode=WAL;' into the init_command of the database's OPTIONS",
                )
            )
        if getattr(connection, "transaction_mode", None) != "IMMEDIATE":
            found.append(
                Weakness(
                    "receipts.W026",
                    False,
                    "transactions are not IMMEDIATE: a change may fail with 'database is locked' while others write",
                    "set 'transaction_mode': 'IMMEDIATE' in the database's OPTIONS",
                )
            )
        return found
