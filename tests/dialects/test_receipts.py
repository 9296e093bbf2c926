"""The conformance suite of receipts' dialects: a dialect is done when this passes on its database."""

import pytest
from django.db import connection

from receipts.change_types import get_kind
from receipts.dialects import dialect_of
from receipts.dialects.base import Standing
from receipts.models import Audit, Change
from receipts.plans.canonical import Target
from tests.factories import make_line, make_many
from tests.receipts.plain import states, target

pytestmark = pytest.mark.django_db


@pytest.fixture
def dialect():
    """Return the dialect of the test's database."""
    return dialect_of(connection)


@pytest.fixture
def shape():
    """Return the kind cancel as SQL."""
    return get_kind("cancel").shape(connection)


def claim():
    """Make a receipt for audit rows to belong to."""
    Change.objects.create(change_id="CHG-1", kind="cancel", tenant="acme", targets=[], digest="")


def test_stale_rows_are_told_in_key_order_with_what_they_are_now(dialect, shape):
    good, wrong, empty, other = make_line(), make_line(revision=9), make_line(qty=None), make_line(tenant="b")
    targets = [target(good), target(wrong, revision=4), target(empty, qty=10), target(other), Target(10**12, 0, 0)]

    assert dialect.stale_rows(connection, shape, "acme", targets) == [
        Standing(wrong.pk, True, 9, 10, "pending"),
        Standing(empty.pk, True, 4, None, "pending"),
        Standing(other.pk, False, None, None, None),
        Standing(10**12, False, None, None, None),
    ]


def test_standing_rows_are_told_in_key_order_without_those_of_others(dialect, shape):
    one, two, empty, other = (
        make_line(),
        make_line(revision=9, state="accepted"),
        make_line(qty=None),
        make_line(tenant="b"),
    )

    found = dialect.standing_rows(connection, shape, "acme", [10**12, empty.pk, other.pk, two.pk, one.pk])

    assert found == [
        Standing(one.pk, True, 4, 10, "pending"),
        Standing(two.pk, True, 9, 10, "accepted"),
        Standing(empty.pk, True, 4, None, "pending"),
    ]
    assert dialect.standing_rows(connection, shape, "acme", []) == []


def test_rows_are_changed_as_far_as_they_are_as_approved(dialect, shape):
    """The UPDATE compares for itself, even when nobody has locked or looked before."""
    good, wrong, done, other = make_line(), make_line(qty=1), make_line(state="accepted"), make_line(tenant="b")
    claim()

    changed = dialect.change_rows(
        connection, shape, "acme", [target(good), target(wrong, qty=2), target(done), target(other)], "CHG-1"
    )

    assert changed == 1
    assert [state for state, _ in states(good, wrong, done, other)] == ["cancelled", "pending", "accepted", "pending"]
    assert Audit.objects.values_list("target_id", "revision_before", "revision_after", "qty").get() == (
        good.pk,
        4,
        5,
        10,
    )


@pytest.mark.parametrize("count", [701, 2100, 10_000])
def test_thousands_of_targets_are_one_statement_each(dialect, shape, count, django_assert_max_num_queries):
    """R15: the sizes at which a parameter per row would break SQL Server."""
    order = make_line().order
    line = type(make_line())
    lines = make_many(
        line(order=order, tenant="acme", qty=10, revision=4, state="pending", handled=False) for _ in range(count)
    )
    targets = [target(one) for one in lines]
    claim()

    with django_assert_max_num_queries(3):
        assert dialect.stale_rows(connection, shape, "acme", targets) == []
        assert dialect.change_rows(connection, shape, "acme", targets, "CHG-1") == count


def test_the_largest_id_travels_whole(dialect, shape):
    # SQL Server would have no id left for the next row.
    line = make_line(pk=2**53 + 1 if connection.vendor == "microsoft" else 2**63 - 1)

    assert dialect.stale_rows(connection, shape, "acme", [target(line)]) == []
    assert dialect.change_row(connection, shape, "acme", target(line)) == Standing(line.pk, True, 5, 10, "cancelled")
    assert dialect.change_row(connection, shape, "acme", target(line)) is None


def test_the_guard_can_be_taken_and_put_any_number_of_times(dialect):
    with connection.cursor() as cursor:
        for statement in [*dialect.unguard(connection), *dialect.unguard(connection)]:
            cursor.execute(statement)
        assert dialect.guard_flaws(connection)
        for statement in dialect.guard(connection):
            cursor.execute(statement)

    assert dialect.guard_flaws(connection) == []


def test_an_error_that_is_neither_collision_nor_loss_is_neither(dialect):
    assert not dialect.is_collision(ValueError())
    assert not dialect.is_lost(ValueError())
