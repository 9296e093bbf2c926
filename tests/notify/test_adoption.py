"""Taking over the keys of another control table: all of them or none, and as often as one likes."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from notify.dialects import dialect_of
from notify.errors import NotAdopted
from notify.models import Control, MailQueue
from notify.passes.adoption import Source, adopt
from notify.passes.runner import run_pass
from tests.factories import NOW, make_comment, make_contact, make_line
from tests.racing import race

pytestmark = pytest.mark.django_db(transaction=True)

TABLE = "old_sent"
SOURCE = Source(table=TABLE, kind_column="what", key_column="no", key2_column="sub")


@pytest.fixture
def old_table():
    """Return a function that fills a control table as somebody else would have made it."""
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {TABLE} (what char(10) NULL, no numeric(25, 2) NULL, sub bigint NULL)")

    def fill(*rows):
        with connection.cursor() as cursor:
            for row in rows:
                values = ", ".join("NULL" if value is None else repr(value) for value in row)
                cursor.execute(f"INSERT INTO {TABLE} (what, no, sub) VALUES ({values})")

    yield fill
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {TABLE}")


def keys():
    return sorted(Control.objects.values_list("kind", "key", "key2"))


def test_every_key_is_taken_over_and_nothing_is_sent(old_table):
    old_table(("order", 1, None), ("comment", 7, 9), ("comment", 7, 8), ("advice", -(2**63), 2**63 - 1))

    adoption = adopt(SOURCE)

    assert keys() == [("advice", -(2**63), 2**63 - 1), ("comment", 7, 8), ("comment", 7, 9), ("order", 1, 0)]
    assert (adoption.rows, adoption.known, adoption.adopted) == (4, 0, {"advice": 1, "comment": 2, "order": 1})
    assert MailQueue.objects.count() == 0


def test_a_pass_sends_nothing_for_what_was_taken_over_and_everything_else(old_table):
    line, person = make_line(), make_contact()
    old = make_comment(line=line, recipient=person)
    other = make_comment(recipient=person)
    old_table(("comment", line.pk, old.pk))

    adopt(SOURCE)
    run_pass(kinds=["comment"], now=NOW, is_full=True)

    assert list(MailQueue.objects.values_list("control__key2", flat=True)) == [other.pk]


def test_taking_over_twice_changes_nothing(old_table):
    old_table(("order", 1, 0), ("order", 1, 0), ("order", 2, 0))
    adopt(SOURCE)
    before = list(Control.objects.order_by("pk").values())

    again = adopt(SOURCE)

    assert (again.rows, again.known, again.adopted) == (3, 3, {"order": 0})
    assert list(Control.objects.order_by("pk").values()) == before


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (("orders", 1, 0), "no step of kind 'orders'"),
        ((None, 1, 0), "no step of kind ''"),
        (("Order", 1, 0), "no step of kind 'Order'"),
        (("order", None, 0), "keys are 64-bit integers"),
        (("order", 2**63, 0), "keys are 64-bit integers"),
        (("order", 5.5, 0), "keys are 64-bit integers"),
    ],
)
def test_a_faulty_row_is_named_and_nothing_is_taken_over(old_table, row, said):
    old_table(("order", 5, 0), row, ("order", 6, 0))

    with pytest.raises(NotAdopted, match="1 of 3 rows are faulty") as refused:
        adopt(SOURCE)

    assert said in refused.value.adoption.problems[0]
    assert keys() == []


@pytest.mark.parametrize("source", [Source(table="no_such", kind="order"), Source(table=TABLE, kind="order")])
def test_a_table_or_column_that_is_not_there_is_said(old_table, source):
    with pytest.raises(NotAdopted, match="cannot be taken over"):
        adopt(source)


def test_kinds_can_be_renamed_or_given_for_the_whole_table(old_table):
    old_table(("ORD", 1, 0))

    adopt(Source(table=TABLE, kind_column="what", kinds={"ORD": "order"}, key_column="no"))
    adopt(Source(table=TABLE, kind="advice", key_column="no"))

    assert keys() == [("advice", 1, 0), ("order", 1, 0)]


def test_nothing_is_taken_over_while_a_pass_runs(old_table):
    old_table(("order", 1, 0))
    dialect = dialect_of(connection)
    answer = dialect.try_lock(connection)
    try:
        (refused,) = race(1, lambda _: adopt(SOURCE))
    finally:
        dialect.unlock(connection, answer.token)

    assert isinstance(refused, NotAdopted)
    assert "a pass is running" in str(refused)
    assert keys() == []


def command(*arguments):
    out = StringIO()
    call_command(
        "adopt_control", "--from", TABLE, "--kind-column", "what", "--key-column", "no", *arguments, stdout=out
    )
    return out.getvalue()


def test_the_command_tells_what_it_would_do_and_does_it_only_when_told(old_table):
    old_table(("order", 1, 0), ("order", 2, 0))

    assert "2 rows: 2 would be taken over, 0 known" in command("--dry-run")
    assert keys() == []

    told = json.loads(command("--json"))
    assert told == {"rows": 2, "known": 0, "adopted": {"order": 2}, "faults": 0, "problems": []}
    assert keys() == [("order", 1, 0), ("order", 2, 0)]
    assert "2 rows: 0 taken over, 2 known" in command()


def test_the_command_names_faulty_rows_and_fails(old_table):
    old_table(("odd", 1, 0))

    with pytest.raises(CommandError, match="no step of kind 'odd'"):
        command("--map", "ORD=order")
    with pytest.raises(CommandError, match="'ORD' is not OLD=NEW"):
        command("--map", "ORD")


def test_more_rows_than_one_chunk_go_over(old_table):
    with connection.cursor() as cursor:
        for start in (0, 900, 1800):
            values = ", ".join(f"('order', {number}, 0)" for number in range(start, start + 900))
            cursor.execute(f"INSERT INTO {TABLE} (what, no, sub) VALUES {values}")

    assert adopt(SOURCE).adopted == {"order": 2700}
    assert Control.objects.count() == 2700
