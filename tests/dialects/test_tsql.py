"""
Every T-SQL text of the dialects, without a server: it is what it was (golden files), and it parses.

``KWIT_REWRITE_GOLDEN=1 pytest tests/dialects/test_tsql.py`` writes the golden files anew; read the difference.
"""

import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlglot
from sqlglot import exp

from notify.dialects.base import AttemptRow, ControlRow, MailRow, TaskRow
from notify.dialects.sqlserver import NotifySqlServer, Session, created, page
from receipts.dialects.base import FieldColumn, FieldShape, Shape
from receipts.dialects.sqlserver import ReceiptsSqlServer
from receipts.plans.canonical import Target

GOLDEN = Path(__file__).parent / "golden"
SHAPE = Shape(
    table="[portal_orderline]",
    source="[portal_orderline]",
    id="[id]",
    tenant="[tenant]",
    revision="[revision]",
    qty="[qty]",
    state="[state]",
    required_state="pending",
    assignments="[state] = %s",
    set_params=("cancelled",),
)
FIELD_SHAPE = FieldShape(
    table="[portal_price]",
    source="[portal_price]",
    id="[id]",
    tenant="[tenant]",
    compared=(
        FieldColumn("c0", "[price]", "numeric(12, 2)", is_text=False),
        FieldColumn("c1", "[currency]", "nvarchar(3)", is_text=True),
        FieldColumn("c2", "[revision]", "int", is_text=False),
    ),
    settable=(FieldColumn("s0", "[price]", "numeric(12, 2)", is_text=False),),
    recorded=(
        FieldColumn("r0", "[price]", "numeric(12, 2)", is_text=False),
        FieldColumn("r1", "[currency]", "nvarchar(3)", is_text=True),
    ),
    revision="[revision]",
    state=FieldColumn("state", "[state]", "nvarchar(10)", is_text=True),
    required_state="open",
    assignments=("[changed_by] = %s",),
    set_params=("kwit",),
)
TARGETS = [Target(1, 4, 10), Target(2, 4, 10)]
MOMENT = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)
PASS_ID = UUID(int=1)

#: What sqlglot does not know of T-SQL: control of flow, and the statements that only occur in it.
FLOW = re.compile(
    r"BEGIN( TRY| CATCH)?$|END( TRY| CATCH)?$|THROW(,? .*)?$|WHILE @slice <= @last\s+BEGIN$|SET NOCOUNT ON$|"
    # A table variable is declared alone.
    r"DECLARE @\w+ (?!.*@\w+ TABLE)|"
    r"SET @\w+ = |SET (XACT_ABORT|LOCK_TIMEOUT|DEADLOCK_PRIORITY) [\w-]+$|IF @told IS NULL\s+BEGIN$|"
    r"(IF .*\s+)?EXEC (@code = )?sp_(get|release)applock\s",
    re.S,
)
#: Words of the flow that stand before a statement on a line of their own.
OPENING = re.compile(r"^(?:BEGIN TRY|END TRY|BEGIN CATCH|END CATCH|WHILE @slice <= @last\s+BEGIN|BEGIN)\s+")


class Recorder:
    """A connection that keeps what it is told to execute, and answers each text with the same rows."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self.rows, self.texts, self.connection, self.description = rows, [], True, [("column",)]
        self.ops, self.rowcount = self, 1

    def cursor(self) -> "Recorder":
        return self

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None: ...

    def execute(self, sql: str, params: Any = None) -> None:
        assert sql.replace("%%", "").count("%s") == len(params or ()), "as many marks as parameters"
        self.texts.append(sql)

    def adapt_datetimefield_value(self, value: Any) -> Any:
        return value

    def quote_name(self, name: str) -> str:
        return f"[{name}]"

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.rows

    def nextset(self) -> bool:
        return False


def recorded(call: Callable[[Any], Any], rows: list[tuple[Any, ...]] | None = None) -> str:
    """Return the texts that a call sends."""
    recorder = Recorder([] if rows is None else rows)
    call(recorder)
    return "\n-- and then\n".join(text.strip() for text in recorder.texts)


def notify_texts() -> Iterator[tuple[str, str]]:
    dialect, mail = NotifySqlServer(), MailRow(1, "comment", "s", "[]", "en", "{}", "queued", "")
    yield "now", recorded(dialect.now, [(MOMENT,)])
    yield "weaknesses", recorded(dialect.weaknesses, [(150, True, "us_english")])
    yield "filtered_tables", recorded(lambda c: dialect.filtered_tables(c, ["portal_comment"]), [("portal_comment", 3)])
    yield "try_lock", recorded(dialect.try_lock, [(0, 51)])
    yield "holder", recorded(dialect.holder)
    yield "is_locked", recorded(lambda c: dialect.is_locked(c, 51), [("Exclusive", 51)])
    yield "is_lock_free", recorded(dialect.is_lock_free, [(1,)])
    yield "unlock", recorded(lambda c: dialect.unlock(c, 51))
    yield "enter_pass", recorded(dialect.enter_pass, [("OFF", -1, 0)])
    yield "leave_pass", recorded(lambda c: dialect.leave_pass(c, Session("OFF", -1, 0)))
    yield "yield_to_others", recorded(dialect.yield_to_others)
    yield "stream, its table", created("#kwit_candidates_1", ["bigint NULL", "nvarchar(10) NULL"])
    yield "stream, its pages", page("#kwit_candidates_1", 2000, 0, -1)
    yield "insert_controls", recorded(lambda c: dialect.insert_controls(c, "comment", [ControlRow(1, 0, "en", "")]))
    yield "insert_mails", recorded(lambda c: dialect.insert_mails(c, PASS_ID, [mail]))
    yield "insert_tasks", recorded(lambda c: dialect.insert_tasks(c, PASS_ID, [TaskRow(1, "t", "a", "en", "{}")]))
    yield (
        "claim_mails",
        recorded(lambda c: dialect.claim_mails(c, worker="w", now=MOMENT, lease_until=MOMENT, limit=10)),
    )
    met, values = [(1,)], {"flight": 1}
    tried = AttemptRow(1, 1, 0, "a@example.org", "sent", 250, "", "ok", MOMENT, "w", "smtp")
    yield "insert_attempts", recorded(lambda c: dialect.insert_attempts(c, [tried]), met)
    yield "try_begin_mail", recorded(lambda c: dialect.try_begin_mail(c, 1, worker="w", now=MOMENT, values=values), met)
    yield (
        "try_settle_mail",
        recorded(lambda c: dialect.try_settle_mail(c, 1, worker="w", values={"state": "sent"}), met),
    )


def receipts_texts() -> Iterator[tuple[str, str]]:
    dialect = ReceiptsSqlServer()
    yield "stale_rows", recorded(lambda c: dialect.stale_rows(c, SHAPE, "acme", TARGETS))
    yield (
        "standing_rows",
        recorded(lambda c: dialect.standing_rows(c, SHAPE, "acme", [target.id for target in TARGETS])),
    )
    yield "change_rows", recorded(lambda c: dialect.change_rows(c, SHAPE, "acme", TARGETS, "CHG-1"), [(2,)])
    yield "change_row", recorded(lambda c: dialect.change_row(c, SHAPE, "acme", TARGETS[0]))
    rows = [{"id": 1, "c0": "10.00", "c1": "EUR", "c2": 4, "s0": "12.50"}]
    audit = [[1, 4, 5, None, "open", "open", "{}"]]
    for is_locked in (True, False):
        yield (
            f"read_fields, {'locked' if is_locked else 'not locked'}",
            recorded(lambda c, lock=is_locked: dialect.read_fields(c, FIELD_SHAPE, "acme", [1, 2], is_locked=lock)),
        )
    yield "change_fields", recorded(lambda c: dialect.change_fields(c, FIELD_SHAPE, "acme", rows), [(1,)])
    yield "audit_fields", recorded(lambda c: dialect.audit_fields(c, "CHG-1", audit), [(0,)])
    yield "try_seal_lock", recorded(dialect.try_seal_lock, [(0,)])
    yield "guard", "\n-- and then\n".join(dialect.guard(None))
    yield "unguard", "\n-- and then\n".join(dialect.unguard(None))
    yield "guard_flaws", recorded(dialect.guard_flaws)
    yield "weaknesses", recorded(dialect.weaknesses, [("DISABLED", "CHECKSUM", 150, "us_english")])


TEXTS = {"notify": dict(notify_texts()), "receipts": dict(receipts_texts())}


@pytest.mark.parametrize("app", TEXTS)
def test_every_text_is_the_golden_one(app):
    told = "".join(f"-- {name}\n{text}\n\n" for name, text in TEXTS[app].items())
    golden = GOLDEN / f"{app}.sqlserver.sql"
    if os.environ.get("KWIT_REWRITE_GOLDEN"):
        golden.write_text(told)

    assert told == golden.read_text()


@pytest.mark.parametrize(
    ("dialect", "standing", "found"),
    [
        (NotifySqlServer(), (130, True, "British"), []),
        (NotifySqlServer(), (120, True, "us_english"), ["notify.E023"]),
        (NotifySqlServer(), (150, True, "Deutsch"), ["notify.W007"]),
        (NotifySqlServer(), (150, False, "us_english"), ["notify.I001"]),
        (ReceiptsSqlServer(), ("DISABLED", "CHECKSUM", 130, "us_english"), []),
        (ReceiptsSqlServer(), ("FORCED", "CHECKSUM", 150, "us_english"), ["receipts.E027"]),
        (ReceiptsSqlServer(), ("DISABLED", "NONE", 150, "us_english"), ["receipts.W028"]),
        (ReceiptsSqlServer(), ("DISABLED", "CHECKSUM", 120, "us_english"), ["receipts.E029"]),
        (ReceiptsSqlServer(), ("DISABLED", "CHECKSUM", 150, "polski"), ["receipts.W030"]),
    ],
)
def test_the_doctor_is_told_of_each_weakness_of_the_database(dialect, standing, found):
    assert [weakness.id for weakness in dialect.weaknesses(Recorder([standing]))] == found


PIN_ROW = (False,)


@pytest.mark.parametrize(
    ("changed", "about", "mend"),
    [
        ({}, None, ""),
        (
            {"receipts_audit_append_only": ("receipts_audit", True, "…")},
            "is off",
            "ENABLE TRIGGER receipts_audit_append",
        ),
        (
            {"receipts_audit_append_only": ("receipts_audit", False, "x")},
            "is not as",
            "CREATE OR ALTER TRIGGER receipts_a",
        ),
        ({"receipts_audit_append_only": ("receipts_audit", False, None)}, "cannot be read", "GRANT VIEW DEFINITION ON"),
        (
            {"receipts_audit_append_only": ("other", False, "…")},
            "is missing",
            "CREATE TRIGGER receipts_audit_append_on",
        ),
        (
            {"pin": (True,)},
            "is off",
            "ALTER TABLE receipts_audit_pin WITH CHECK CHECK CONSTRAINT fk_receipts_audit_pin",
        ),
        ({"pin": None}, "is missing", "DROP TABLE IF EXISTS receipts_audit_pin; CREATE TABLE receipts_audit_pin"),
    ],
)
def test_a_hollow_guard_is_told_with_the_statement_that_mends_it(monkeypatch, changed, about, mend):
    dialect = ReceiptsSqlServer()
    rows = {f"{table}_append_only": (table, False, text) for table, text in dialect.triggers().items()}
    for name, row in changed.items():
        if name != "pin":
            rows[name] = tuple(rows[name][2] if value == "…" else value for value in row)
    pin = changed.get("pin", PIN_ROW)
    monkeypatch.setattr(
        dialect,
        "fetch",
        lambda _, sql: (
            ([pin] if pin else []) if "foreign_keys" in sql else [(name, *row) for name, row in rows.items()]
        ),
    )

    flaws = dialect.guard_flaws(None)

    assert len(flaws) == (about is not None)
    assert all(flaw.about.startswith(about) and flaw.mend.startswith(mend) for flaw in flaws)


def statements(text: str) -> Iterator[str]:
    """Take a batch apart at its semicolons, and the words of the flow off its statements."""
    for piece in text.replace("%s", "?").replace("-- and then", ";").split(";"):
        statement = piece.strip()
        while (opened := OPENING.match(statement)) and opened.end() < len(statement):
            statement = statement[opened.end() :].strip()
        if statement:
            yield statement


def faults(text: str) -> list[str]:
    """Return the statements of a batch that are no T-SQL as far as sqlglot knows it."""
    wrong = []
    for statement in statements(text):
        if FLOW.match(statement):
            continue
        try:
            # Nor does sqlglot know the columns of OUTPUT … INTO @table (columns).
            known_to_it = re.sub(r"(INTO @\w+) \([^()]*\)", r"\1", statement)
            parsed = sqlglot.parse_one(known_to_it, dialect="tsql", error_level=sqlglot.ErrorLevel.RAISE)
        except sqlglot.ParseError as error:
            wrong.append(f"{statement}\n{error}")
        else:
            known = isinstance(parsed, exp.Query | exp.DML | exp.Create | exp.Drop)
            if not known and not statement.startswith("CREATE TRIGGER"):
                wrong.append(statement)
    return wrong


@pytest.mark.parametrize(("app", "name"), [(app, name) for app, texts in TEXTS.items() for name in texts])
def test_every_text_parses(app, name):
    assert faults(TEXTS[app][name]) == []


@pytest.mark.parametrize(
    "wrong",
    [
        "SELECT id FROM WHERE",
        "INSERT INTO t (a VALUES (1)",
        "UPDATE SET a = 1",
        "GRANDFATHER t",
        "DECLARE @a int, @t TABLE (id int)",
    ],
)
def test_a_text_that_is_no_tsql_would_be_found(wrong):
    """The positive control."""
    assert faults(wrong)


@pytest.mark.parametrize(("app", "name"), [(app, name) for app, texts in TEXTS.items() for name in texts])
def test_no_text_has_the_words_that_make_mssql_django_rewrite_it(app, name):
    """GROUP BY makes mssql-django declare every parameter by itself, the JSON text of a whole batch included."""
    assert "GROUP BY" not in TEXTS[app][name]


@pytest.mark.parametrize(("app", "name"), [(app, name) for app, texts in TEXTS.items() for name in texts])
def test_output_always_goes_into_a_table(app, name):
    """Error 334: OUTPUT without INTO on a table with a trigger."""
    for statement in statements(TEXTS[app][name]):
        assert ("OUTPUT" in statement) <= ("INTO @" in statement), statement


def test_a_list_goes_to_the_driver_as_json_text():
    """``notes`` of an attempt: the driver takes no list for a parameter."""
    from notify.dialects.sqlserver import plain

    assert plain([{"code": "no_recipient", "ż": 1}]) == '[{"code": "no_recipient", "ż": 1}]'
