"""Seeding makes exactly what the plan says, the same each time, beside what is there."""

import json
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from portal import seeding
from portal.models import Advice, Comment, Contact, LineState, Order, OrderLine
from portal.seeding import Ids, Plan, SeedRefused, seed
from tests.factories import make_contact, make_line

UNTIL = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)
MODELS = (Contact, Order, OrderLine, Advice, Comment)

pytestmark = pytest.mark.django_db


def plan(**changed) -> Plan:
    """Return a plan with some of everything."""
    amounts = {"contacts": 7, "orders": 5, "lines_per_order": 3, "rejected": 4, "advices": 6, "comments": 40}
    return Plan(**{"until": UNTIL, "days": 10, **amounts, **changed})


def contents() -> list[list[tuple]]:
    """Return all rows but their ids, which the database gives."""
    rows = []
    for model in MODELS:
        names = [field.attname for field in model._meta.concrete_fields if not field.primary_key]
        names = [name for name in names if not name.endswith("_id") or name == "recipient_id"]
        rows.append(list(model.objects.order_by("pk").values_list(*names)))
    return rows


def empty() -> None:
    """Delete all rows."""
    for model in reversed(MODELS):
        model.objects.all().delete()


def counts() -> list[int]:
    """Return how many rows each table has."""
    return [model.objects.count() for model in MODELS]


def seed_portal(options: str) -> dict[str, int]:
    """Run the command."""
    out = StringIO()
    call_command("seed_portal", "--json", *options.split(), stdout=out)
    return json.loads(out.getvalue())


def test_a_plan_is_carried_out_to_the_number():
    made = seed(plan())

    assert counts() == [7, 5, 15, 6, 40]
    assert (made.contacts, made.orders, made.lines, made.advices, made.comments) == (7, 5, 15, 6, 40)
    assert OrderLine.objects.filter(state=LineState.REJECTED, rejected_at__isnull=False).count() == 4
    assert not OrderLine.objects.filter(handled=True).exists()
    assert set(Order.objects.values_list("tenant", flat=True)) == {"acme", "globex", "initech"}
    assert {line.tenant for line in OrderLine.objects.all()} == {"acme", "globex", "initech"}


def test_recipients_speak_all_languages_and_have_names_and_addresses_of_their_own():
    seed(plan(contacts=400))

    people = Contact.objects.all()
    assert set(people.values_list("language", flat=True)) == {"en", "pl", "ja"}
    assert len(set(people.values_list("email", flat=True))) == 400
    assert set(Comment.objects.values_list("recipient__language", flat=True)) == {"en", "pl", "ja"}
    assert all(not name.isascii() for name in people.filter(language="ja").values_list("name", flat=True))


def test_events_lie_in_the_days_before_the_end_in_the_order_of_their_ids():
    seed(plan())

    for model, column in ((Order, "registered_at"), (Advice, "accepted_at"), (Comment, "created_at")):
        times = list(model.objects.order_by("pk").values_list(column, flat=True))
        assert times == sorted(times)
        assert times[-1] == UNTIL
        assert times[0] > UNTIL - timedelta(days=10)


def test_every_line_gets_its_share_of_the_comments_after_its_order():
    seed(plan(comments=30))

    assert [line.comments.count() for line in OrderLine.objects.all()] == [2] * 15
    assert all(c.created_at > c.line.order.registered_at - timedelta(days=2) for c in Comment.objects.all())


def test_the_same_seed_and_end_give_the_same_rows(monkeypatch):
    seed(plan())
    first = contents()
    empty()
    monkeypatch.setattr(seeding, "CHUNK_ROWS", 2)

    seed(plan())

    assert contents()[0] == first[0]
    # Document numbers go on from the last id, and these ids are not given twice.
    assert [row[2:] for row in contents()[1]] == [row[2:] for row in first[1]]
    assert contents()[2] == first[2]
    assert contents()[4] == first[4]


def test_another_seed_gives_other_rows():
    seed(plan())
    first = contents()
    empty()

    seed(plan(seed=2))

    assert contents()[4] != first[4]


def test_rows_are_added_to_those_that_are_there():
    seed(plan())
    seed(plan())

    assert counts() == [14, 10, 30, 12, 80]
    assert len(set(Order.objects.values_list("number", flat=True))) == 10
    assert [line.comments.count() for line in OrderLine.objects.filter(comments__isnull=False).distinct()]


def test_comments_without_new_orders_go_to_the_lines_that_are_there():
    line = make_line()
    recipient = make_contact(language="pl")

    seed(plan(contacts=0, orders=0, rejected=0, advices=1, comments=3))

    assert line.comments.count() == 3
    assert line.order.advices.count() == 1
    assert set(Comment.objects.values_list("recipient", flat=True)) == {recipient.name}


def test_a_language_without_words_of_its_own_gets_english_ones():
    make_line()
    make_contact(language="de")

    seed(plan(contacts=0, comments=1))

    assert Comment.objects.get().body in seeding.REMARKS["en"]


def test_ids_with_gaps_are_kept_as_runs():
    ids = Ids()

    ids.extend([5, 6, 7])
    ids.extend([8, 20, 21])

    assert [ids[place] for place in range(len(ids))] == [5, 6, 7, 8, 20, 21]
    assert len(ids.firsts) == 2


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"orders": -1}, "orders must be 0 to 100000000, not -1"),
        ({"comments": 100_000_001}, "comments must be"),
        ({"orders": 100_000_000, "lines_per_order": 2}, "orders x lines_per_order must be at most"),
        ({"rejected": 16}, "rejected must be at most the 15 lines that are made, not 16"),
        ({"days": 0}, "days must be 1 or more"),
        ({"days": 10**9}, "is before 1970-01-02"),
        ({"until": datetime(2026, 1, 31)}, "until must have a time zone"),
        ({"tenants": ()}, "tenants must name at least one"),
        ({"tenants": ("acme", "")}, "1 to 64 printable characters"),
        ({"tenants": ("x" * 65,)}, "1 to 64 printable characters"),
        ({"tenants": ("a\nb",)}, "1 to 64 printable characters"),
        ({"tenants": ("Z\u0307ak",)}, "NFC"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(changed, named):
    with pytest.raises(SeedRefused, match=named.replace(".", r"\.")):
        plan(**changed)


def test_all_that_is_wrong_with_a_plan_is_said_at_once():
    with pytest.raises(SeedRefused, match=r"advices.*comments.*days"):
        plan(advices=-1, comments=-1, days=-1)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"contacts": 0}, "need people"),
        ({"orders": 0, "rejected": 0, "comments": 0}, "advices need orders"),
        ({"orders": 0, "rejected": 0, "advices": 0}, "comments need order lines"),
    ],
)
def test_rows_that_would_hang_on_nothing_are_refused_before_anything_is_written(changed, named):
    with pytest.raises(SeedRefused, match=named):
        seed(plan(**changed))

    assert counts() == [0] * 5


def test_the_command_says_what_it_made():
    made = seed_portal("--orders 2 --comments 5 --contacts 3 --tenants solo --until 2026-01-31 --handled")

    assert made == {"contacts": 3, "orders": 2, "lines": 6, "advices": 0, "comments": 5}
    assert Comment.objects.latest("created_at").created_at == datetime(2026, 1, 31, tzinfo=UTC)
    assert set(OrderLine.objects.values_list("handled", "tenant")) == {(True, "solo")}


def test_the_command_refuses_bad_numbers_and_changes_nothing():
    with pytest.raises(CommandError, match=r"comments must be 0 to 100000000, not -5\. Nothing was written"):
        call_command("seed_portal", "--comments", "-5")
    with pytest.raises(CommandError, match="'tomorrow' is not a date"):
        call_command("seed_portal", "--until", "tomorrow")
    with pytest.raises(CommandError, match="'2026-02-30' is not a date"):
        call_command("seed_portal", "--until", "2026-02-30")

    assert counts() == [0] * 5


def test_nothing_but_json_is_on_standard_output(capfd):
    call_command("seed_portal", "--orders", "1", "--json")

    captured = capfd.readouterr()
    assert json.loads(captured.out)["lines"] == 3
    assert captured.err == ""
