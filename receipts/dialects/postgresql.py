"""PostgreSQL: rows travel as arrays; the UPDATE and its audit rows are one statement."""

# Names in the SQL below come from model fields and are quoted; values are parameters.
# ruff: noqa: S608

import json
from collections.abc import Sequence
from typing import Any, cast

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper

from kwit.db.dialect import PostgresqlDialect

from ..plans.canonical import Target
from .base import (
    AUDIT_COLUMNS,
    GUARDED_TABLES,
    SEAL_LOCK_NUMBER,
    STOPPED_WAIT_MS,
    FieldShape,
    GuardFlaw,
    ReceiptsDialect,
    Shape,
    Standing,
    Weakness,
    one_blank,
)

#: Serialization failure, and deadlock. Source: PostgreSQL 18, appendix A, "PostgreSQL Error Codes".
COLLISION_CODES = ("40001", "40P01")
#: The one constraint whose violation means that another transaction has just claimed the same change_id.
CLAIM_CONSTRAINT = "receipts_changes_pkey"
# Named columns instead of rows of a join: the planner sees one array each, whatever the number of targets.
PLAN = "SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[]) AS approved(id, revision, qty)"


def columns(targets: Sequence[Target]) -> list[list[int]]:
    """Return targets as three arrays."""
    return [
        [target.id for target in targets],
        [target.revision for target in targets],
        [target.qty for target in targets],
    ]


BODY = """
        BEGIN
            RAISE EXCEPTION '% is append-only: a receipt is neither changed nor deleted (% refused)',
                TG_TABLE_NAME, TG_OP USING ERRCODE = 'restrict_violation';
        END """
CREATE_FUNCTION = f"""
        CREATE OR REPLACE FUNCTION receipts_refuse() RETURNS trigger LANGUAGE plpgsql AS $${BODY}$$"""
#: The function in the schema of the receipts; one in another language or with settings of its own has another body.
FIND_FUNCTION = """
    SELECT CASE WHEN l.lanname = 'plpgsql' AND p.proconfig IS NULL THEN p.prosrc ELSE '' END
    FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
    WHERE p.proname = 'receipts_refuse' AND p.pronargs = 0
      AND p.pronamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('receipts_changes'))
"""
#: 58: the bits of pg_trigger.h for BEFORE, DELETE, UPDATE and TRUNCATE, and none else, such as that for each row.
FIND_TRIGGERS = """
    SELECT c.relname, t.tgtype = 58 AND t.tgqual IS NULL AND t.tgattr = '' AND t.tgnargs = 0
           AND p.proname = 'receipts_refuse' AND p.pronamespace = c.relnamespace, t.tgenabled
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
    WHERE t.tgname = c.relname || '_append_only' AND NOT t.tgisinternal
      AND c.oid IN (SELECT to_regclass(name) FROM unnest(%s::text[]) AS name)
"""
#: Whether a table is partitioned, by database and name: asked once by a process.
_partitioned: dict[tuple[str, str], bool] = {}


def is_partitioned(connection: BaseDatabaseWrapper, table: str) -> bool:
    """Whether a table's rows all stand in its partitions; a table that others inherit from has rows of its own."""
    key = (str(connection.settings_dict["NAME"]), table)
    if key not in _partitioned:
        with connection.cursor() as cursor:
            cursor.execute("SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass(%s)", [table])
            row = cursor.fetchone()
        if row is None:
            return False
        _partitioned[key] = bool(row[0])
    return _partitioned[key]


class ReceiptsPostgresql(PostgresqlDialect, ReceiptsDialect):
    """PostgreSQL: rows travel as arrays; the UPDATE and its audit rows are one statement."""

    def end_when_stopped(self, connection: BaseDatabaseWrapper) -> None:
        with connection.cursor() as cursor:
            # What the server or the role says already may be shorter.
            cursor.execute(
                "SELECT set_config('idle_in_transaction_session_timeout', %s, true) WHERE"
                " current_setting('idle_in_transaction_session_timeout')::interval"
                " NOT BETWEEN interval '1 ms' AND %s::interval",
                [str(STOPPED_WAIT_MS), f"{STOPPED_WAIT_MS} ms"],
            )

    def source_of(self, connection: BaseDatabaseWrapper, table: str) -> str:
        return f"{table}" if is_partitioned(connection, table) else f"ONLY {table}"

    def stale_rows(
        self, connection: BaseDatabaseWrapper, shape: Shape, tenant: str, targets: Sequence[Target]
    ) -> list[Standing]:
        # NO KEY UPDATE: a comment that is inserted beside a line needs the line's key only, and need not wait.
        sql = f"""
        WITH approved AS MATERIALIZED ({PLAN}),
        held AS MATERIALIZED (
            SELECT {shape.id} AS id, {shape.revision} AS revision, {shape.qty} AS qty, {shape.state} AS state
            FROM {shape.source}
            WHERE {shape.id} = ANY(%s::bigint[]) AND {shape.tenant} = %s
            ORDER BY {shape.id} FOR NO KEY UPDATE
        )
        SELECT approved.id, held.id IS NOT NULL, held.revision, held.qty, held.state
        FROM approved LEFT JOIN held ON held.id = approved.id
        WHERE held.id IS NULL OR held.revision IS DISTINCT FROM approved.revision
            OR held.qty IS DISTINCT FROM approved.qty OR held.state IS DISTINCT FROM %s
        ORDER BY approved.id"""
        arrays = columns(targets)
        with connection.cursor() as cursor:
            cursor.execute(sql, [*arrays, arrays[0], tenant, shape.required_state])
            return [Standing(*row) for row in cursor.fetchall()]

    def standing_rows(
        self, connection: BaseDatabaseWrapper, shape: Shape, tenant: str, ids: Sequence[int]
    ) -> list[Standing]:
        sql = f"""
        SELECT {shape.id}, {shape.revision}, {shape.qty}, {shape.state} FROM {shape.source}
        WHERE {shape.id} = ANY(%s::bigint[]) AND {shape.tenant} = %s
        ORDER BY {shape.id}"""
        with connection.cursor() as cursor:
            cursor.execute(sql, [list(ids), tenant])
            return [Standing(row[0], True, *row[1:]) for row in cursor.fetchall()]

    def change_rows(
        self, connection: BaseDatabaseWrapper, shape: Shape, tenant: str, targets: Sequence[Target], change_id: str
    ) -> int:
        sql = f"""
        WITH approved AS MATERIALIZED ({PLAN}),
        changed AS (
            UPDATE {shape.source} SET {shape.assignments}, {shape.revision} = {shape.table}.{shape.revision} + 1
            FROM approved
            WHERE {shape.table}.{shape.id} = approved.id AND {shape.table}.{shape.tenant} = %s
                AND {shape.table}.{shape.revision} = approved.revision AND {shape.table}.{shape.qty} = approved.qty
                AND {shape.table}.{shape.state} = %s
            RETURNING {shape.table}.{shape.id} AS id, approved.revision AS revision_before,
                {shape.table}.{shape.revision} AS revision_after, {shape.table}.{shape.qty} AS qty,
                {shape.table}.{shape.state} AS state_after
        )
        INSERT INTO receipts_audit
            (change_id, target_id, revision_before, revision_after, qty, state_before, state_after)
        SELECT %s::varchar, id, revision_before, revision_after, qty, %s::varchar, state_after FROM changed"""
        params = [*columns(targets), *shape.set_params, tenant, shape.required_state, change_id, shape.required_state]
        with connection.cursor() as cursor:
            cursor.execute(sql, params)
            return int(cursor.rowcount)

    def change_row(self, connection: BaseDatabaseWrapper, shape: Shape, tenant: str, target: Target) -> Standing | None:
        sql = f"""
        UPDATE {shape.source} SET {shape.assignments}, {shape.revision} = {shape.revision} + 1
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
        lock = " FOR NO KEY UPDATE" if is_locked else ""
        sql = f"""
        SELECT {shape.row_columns(shape.table)} FROM {shape.source}
        WHERE {shape.id} = ANY(%s::bigint[]){belongs}
        ORDER BY {shape.id}{lock}"""
        with connection.cursor() as cursor:
            cursor.execute(sql, [list(ids), *([tenant] if shape.tenant else [])])
            return cast(list[tuple[Any, ...]], cursor.fetchall())

    def change_fields(
        self, connection: BaseDatabaseWrapper, shape: FieldShape, tenant: Any, rows: Sequence[dict[str, Any]]
    ) -> int:
        # Text travels as text: a cast to varchar(n) would cut it without a word.
        columns = [f"{one.alias} {'text' if one.is_text else one.type}" for one in (*shape.compared, *shape.settable)]
        sql = f"""
        WITH approved AS MATERIALIZED (
            SELECT * FROM jsonb_to_recordset(%s::jsonb) AS r({", ".join(["id bigint", *columns])})
        )
        UPDATE {shape.source} SET {shape.set_clause("approved")}
        FROM approved WHERE {shape.where_clause("approved", "{} IS NOT DISTINCT FROM {}")}"""
        with connection.cursor() as cursor:
            cursor.execute(sql, [json.dumps(rows), *shape.params(tenant)])
            return int(cursor.rowcount)

    def audit_fields(self, connection: BaseDatabaseWrapper, change_id: str, rows: Sequence[Sequence[Any]]) -> None:
        types = ("bigint", "bigint", "bigint", "bigint", "text", "text")
        scalars = ", ".join(f"(row->>{at})::{name}" for at, name in enumerate(types))
        sql = f"""
        INSERT INTO receipts_audit (change_id, {", ".join(AUDIT_COLUMNS)})
        SELECT %s::varchar, {scalars}, row->{len(types)} FROM jsonb_array_elements(%s::jsonb) AS rows(row)"""
        # One JSON text and not an array of texts: the driver escapes each quotation mark in those by itself.
        texts = (f"{json.dumps(row[:-1])[:-1]}, {row[-1]}]" for row in rows)
        with connection.cursor() as cursor:
            cursor.execute(sql, [change_id, f"[{','.join(texts)}]"])

    def is_collision(self, error: BaseException) -> bool:
        if not isinstance(error, DatabaseError):
            return False
        if self.sqlstate(error) == "23505":
            # Under REPEATABLE READ the row that is in the way cannot be read, so repeating is the only way to an
            # answer.
            return getattr(getattr(error.__cause__, "diag", None), "constraint_name", None) == CLAIM_CONSTRAINT
        return self.sqlstate(error) in COLLISION_CODES

    def try_seal_lock(self, connection: BaseDatabaseWrapper) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [SEAL_LOCK_NUMBER])
            return bool(cursor.fetchone()[0])

    def guard(self, connection: BaseDatabaseWrapper) -> list[str]:
        return [CREATE_FUNCTION, *self.triggers().values()]

    def triggers(self) -> dict[str, str]:
        """Return the statement that creates the trigger of each table, by the table."""
        return {
            table: f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION receipts_refuse()"
            for table in GUARDED_TABLES
        }

    def unguard(self, connection: BaseDatabaseWrapper) -> list[str]:
        triggers = [f"DROP TRIGGER IF EXISTS {table}_append_only ON {table}" for table in GUARDED_TABLES]
        return [*triggers, "DROP FUNCTION IF EXISTS receipts_refuse()"]

    def guard_flaws(self, connection: BaseDatabaseWrapper) -> list[GuardFlaw]:
        with connection.cursor() as cursor:
            cursor.execute(FIND_FUNCTION)
            functions = cursor.fetchall()
            cursor.execute(FIND_TRIGGERS, [list(GUARDED_TABLES)])
            triggers = {table: row for table, *row in cursor.fetchall()}
            cursor.execute("SELECT current_setting('session_replication_role')")
            is_replica = cursor.fetchone()[0] == "replica"
        flaws = []
        if [one_blank(body) for (body,) in functions] != [one_blank(BODY)]:
            about = "is not as the migration made it" if functions else "is missing"
            flaws.append(GuardFlaw("receipts_refuse()", about, f"{one_blank(CREATE_FUNCTION)};"))
        for table, statement in self.triggers().items():
            name = f"{table}_append_only"
            is_same, enabled = triggers.get(table, (None, None))
            if not is_same:
                about = "is missing" if is_same is None else "is not as the migration made it"
                flaws.append(GuardFlaw(name, about, f"DROP TRIGGER IF EXISTS {name} ON {table}; {statement};"))
            elif enabled not in ("O", "A"):
                mend = f"ALTER TABLE {table} ENABLE TRIGGER {name};"
                flaws.append(GuardFlaw(name, "is off, or on for replication only", mend))
            elif is_replica and enabled == "O":
                about = "does not fire for this role, whose session_replication_role is replica"
                flaws.append(GuardFlaw(name, about, "ALTER ROLE CURRENT_USER RESET session_replication_role;"))
        return flaws

    def weaknesses(self, connection: BaseDatabaseWrapper) -> list[Weakness]:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT name, setting FROM pg_settings"
                " WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')"
            )
            off = {name for name, setting in cursor.fetchall() if setting == "off"}
        found = [
            Weakness(
                "receipts.E021",
                True,
                "fsync is off: after a power cut committed receipts may be gone, or the whole database unreadable",
                "set fsync = on in postgresql.conf and reload",
            ),
            Weakness(
                "receipts.E022",
                True,
                "full_page_writes is off: a page that was being written during a power cut cannot be restored",
                "set full_page_writes = on in postgresql.conf and reload",
            ),
            Weakness(
                "receipts.E023",
                True,
                "synchronous_commit is off: a receipt that was answered may be gone after a crash of the server",
                "set synchronous_commit = on, for the role that Kwit uses at least",
            ),
        ]
        return [
            one
            for one, name in zip(found, ("fsync", "full_page_writes", "synchronous_commit"), strict=True)
            if name in off
        ]
