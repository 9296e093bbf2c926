"""The helpers' own tests: a race that races, and children that die where they are told to."""

import pytest
from django.db import connection, transaction

from portal.models import Contact
from tests.crashing import crash_everywhere, run_child
from tests.factories import make_advice, make_comment, make_contact
from tests.racing import race, until

pytestmark = pytest.mark.django_db(transaction=True)


def write_two(name: str) -> int:
    """Write two rows in one transaction (runs in a child)."""
    with transaction.atomic():
        make_contact(name=name)
        make_contact(name=name + "2")
    return Contact.objects.count()


def test_a_race_runs_each_call_on_a_connection_of_its_own():
    sessions = race(3, lambda number: (number, id(connection.connection)))

    assert [number for number, _ in sessions] == [0, 1, 2]
    assert len({session for _, session in sessions}) == 3


def test_an_exception_is_the_outcome_of_its_racer():
    outcomes = race(2, lambda number: 1 // number)

    assert isinstance(outcomes[0], ZeroDivisionError)
    assert outcomes[1] == 1


def test_a_race_that_does_not_end_fails():
    with pytest.raises(AssertionError, match="not within"):
        until(lambda: False, timeout_s=0.05)


def test_a_child_works_on_the_test_database_and_says_what_it_wrote():
    ended = run_child("tests.test_helpers:write_two", "ann")

    assert ended.returncode == 0, ended.stderr
    assert ended.result == 2
    assert [write.split()[0] for write in ended.writes] == ["INSERT", "INSERT", "COMMIT"]
    assert Contact.objects.filter(name__startswith="ann").count() == 2


def test_a_management_command_can_be_the_child():
    ended = run_child("django.core.management:call_command", "check")

    assert ended.returncode == 0, ended.stderr
    assert "no issues" in ended.stdout


def test_a_child_is_killed_before_and_after_each_write():
    seen = []

    for ended in crash_everywhere("tests.test_helpers:write_two", "bob"):
        seen.append((ended.kill, ended.killed, Contact.objects.count()))
        Contact.objects.all().delete()

    assert seen == [
        ("before:1", True, 0),
        ("after:1", True, 0),
        ("before:2", True, 0),
        ("after:2", True, 0),
        ("before:3", True, 0),
        ("after:3", True, 2),
        ("before:4", False, 2),
    ]


def test_factories_make_lawful_rows():
    comment, advice = make_comment(), make_advice()

    assert comment.line.order.tenant == "acme"
    assert advice.order_id
