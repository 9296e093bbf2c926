"""The values of an event come out of the row as they went in, so that subject, body and preview show the same."""

import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.db.models import F, TextChoices, Value
from django.template import Context, Template
from django.utils import translation
from django.utils.functional import lazystr
from django.utils.safestring import mark_safe
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from notify.delivery.runner import deliver_due
from notify.messages.builder import make_messages
from notify.messages.columns import roundtrip_all
from notify.messages.patterns import render_of
from notify.messages.values import CannotFreeze, freeze, readable, roundtrip, thaw
from notify.models import MailQueue
from notify.operations.preview import preview_candidate, preview_event, preview_mail
from notify.operations.rebuild import frozen_event
from notify.passes import run_pass
from notify.steps import Event, Step
from notify.transports.memory import MemoryTransport
from portal.models import Comment
from tests.factories import make_line
from tests.notify.samples import make_comments


class Paid(TextChoices):
    YES = "paid"


class Level(Enum):
    HIGH = 3


WARSAW = ZoneInfo("Europe/Warsaw")
EXAMPLES = {
    "text": 'ą"\\ 🧾',
    "number": 2**63 - 1,
    "yes": True,
    "none": None,
    "float": 1e22,
    "amount": Decimal("1234.50"),
    "big": Decimal("1E+30"),
    "due_at": date(2026, 1, 31),
    "at": datetime(2026, 1, 31, 8, 0, 0, 123456, tzinfo=UTC),
    "local": datetime(2026, 10, 25, 2, 30, tzinfo=WARSAW, fold=1),
    "offset": datetime(2026, 1, 31, 8, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    "naive": datetime(2026, 1, 31, 8),
    "time": time(23, 59, 59, 1),
    "took": timedelta(days=-1, seconds=5, microseconds=7),
    "id": UUID(int=1),
    "lines": [{"due": date(2026, 2, 1), "qty": 2, "price": Decimal("0.10")}, [time(1), None, []]],
}


def test_values_come_back_with_their_types():
    thawed = thaw(json.loads(freeze(EXAMPLES)))

    assert thawed == EXAMPLES
    assert {name: type(value) for name, value in thawed.items()} == {n: type(v) for n, v in EXAMPLES.items()}
    assert thawed["local"].tzinfo is WARSAW
    assert (thawed["local"].fold, thawed["local"].utcoffset()) == (1, timedelta(hours=1))
    assert repr(thawed["lines"]) == repr(EXAMPLES["lines"])


def test_what_is_stored_can_be_read_by_people_and_plain_sql():
    frozen = json.loads(freeze({"amount": Decimal("12.50"), "at": datetime(2026, 1, 31, 8, tzinfo=UTC), "note": "a"}))

    assert frozen == {
        "amount": "12.50",
        "at": "2026-01-31T08:00:00Z",
        "note": "a",
        "$types": {"amount": "decimal", "at": "datetime"},
    }
    assert readable(frozen) == {"amount": "12.50", "at": "2026-01-31T08:00:00Z", "note": "a"}


def test_kinds_of_text_and_number_become_plain_ones():
    given = {"choice": Paid.YES, "level": Level.HIGH, "lazy": lazystr("later"), "safe": mark_safe("<b>"), "pair": (1,)}

    assert thaw(json.loads(freeze(given))) == {
        "choice": "paid",
        "level": 3,
        "lazy": "later",
        "safe": "<b>",
        "pair": [1],
    }


def test_what_no_database_can_store_is_replaced_everywhere():
    given = {"text": "\0", "nested": {"k\0": ["v\ud800", {"x": "\0"}]}, "six": r"\u0000"}

    assert thaw(json.loads(freeze(given))) == {
        "text": "\N{REPLACEMENT CHARACTER}",
        "nested": {"k\N{REPLACEMENT CHARACTER}": ["v\N{REPLACEMENT CHARACTER}", {"x": "\N{REPLACEMENT CHARACTER}"}]},
        "six": r"\u0000",
    }


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pdf": b"%PDF"}, "the value pdf is of the type bytes"),
        ({"lines": [{"price": 1}, {"price": {1, 2}}]}, "the value lines[1].price is of the type set"),
        ({"rate": float("nan")}, "the value rate is nan"),
        ({"rates": {"low": float("-inf")}}, "the value rates.low is -inf"),
        ({"map": {(1, 2): "x"}}, "the value map has a name of the type tuple"),
        ({"deep": nested(5000)}, "has more than 50 levels"),
        ({"$types": 1}, "no value can be called $types"),
    ],
)
def test_what_cannot_be_frozen_is_named(given, said):
    with pytest.raises(CannotFreeze, match=said.replace("[", r"\[").replace("$", r"\$")):
        freeze(given)


@pytest.mark.parametrize(
    "payload",
    [
        {"due_at": "2026-01-31", "amount": "12.50"},
        {"due_at": "soon", "$types": {"due_at": "date"}},
        {"due_at": 7, "$types": {"due_at": "date", "gone": "uuid"}},
        {"due_at": "x", "$types": {"due_at": "what"}},
        {"due_at": "x", "$types": {"due_at": {"0": "date"}}},
        {"due_at": "x", "$types": {"due_at": ["date"]}},
    ],
)
def test_rows_of_an_earlier_version_and_of_plain_sql_are_taken_as_they_are(payload):
    assert thaw(payload) == {name: value for name, value in payload.items() if name != "$types"}


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**12), max_value=10**12),
    st.dates(date(1900, 1, 1), date(2200, 1, 1)),
    st.times(),
    st.timedeltas(timedelta(days=-(10**6)), timedelta(days=10**6)),
    st.uuids(),
    st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)),
    st.datetimes(datetime(1980, 1, 1), datetime(2030, 1, 1), timezones=st.sampled_from([UTC, WARSAW, ZoneInfo("UTC")])),
    st.text(max_size=20),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
SHOWN = Template(
    "{{ a }} {{ b }} {{ a|date:'j M Y' }} {{ b|floatformat:2 }} {% for x in a|make_list %}{{ x }}{% endfor %}"
)


@given(several=st.lists(st.fixed_dictionaries({"a": VALUES, "b": SCALARS}), min_size=1, max_size=4))
def test_the_fast_way_stores_and_shows_what_the_plain_one_does(several):
    """The column-wise trick against ``roundtrip``, through what PostgreSQL makes of a number or of names."""
    plain = [roundtrip(values) for values in several]

    for (text, shown), (plain_text, plain_shown) in zip(roundtrip_all(several), plain, strict=True):
        assert repr(thaw(json.loads(text))) == repr(thaw(json.loads(plain_text))) == repr(plain_shown)
        assert repr(dict(shown)) == repr(plain_shown)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(values=st.fixed_dictionaries({"a": VALUES, "b": SCALARS}), language=st.sampled_from(["en", "pl", "ja"]))
def test_subject_and_body_render_the_same_from_any_values(values, language):
    """The subject's way (thawed at once, perhaps through a compiled pattern) and the body's (thawed from the row)."""
    [(text, at_once)] = roundtrip_all([values])
    from_row = thaw(json.loads(text))

    with translation.override(language):
        for template in (SHOWN, Template("{{ a }} of {{ b }}")):
            assert render_of(template, at_once)(at_once) == template.render(Context(from_row, autoescape=False))


class Typed(Step):
    """Comments with values of many types."""

    kind = "typed"
    template = "typed"
    is_windowed = False

    def events(self, scope: Any) -> Any:
        return Comment.objects.values(
            "body",
            key=F("pk"),
            event_at=F("created_at"),
            recipients=Value("ann@example.org"),
            language=Value("pl"),
            happened=F("created_at"),
            amount=F("line__qty") * Value(Decimal("1.25")),
        )


TEXT = "{{ kind }} {{ key }}/{{ key2 }} {{ event_at|date:'j M Y' }} {{ happened|date:'j F Y' }} {{ amount }} {{ body }}"


@pytest.mark.django_db(transaction=True)
def test_what_is_previewed_is_what_arrives(add_step, write_template):
    """Subject, title, text, preview and a mail made anew, each through the database."""
    write_template("mail/typed.subject.txt", TEXT)
    write_template("mail/typed.body.txt", TEXT)
    write_template("mail/typed.body.html", TEXT)
    write_template("task/typed.title.txt", TEXT)
    add_step(type("Typed", (Typed,), {"task": "typed"}))
    [comment] = make_comments(1, line=make_line(qty=1234), body="hello")
    [before] = preview_event(kind="typed", key=comment.pk)
    run_pass()
    mail = MailQueue.objects.get()
    queued = preview_mail(mail)
    transport = MemoryTransport()

    deliver_due(transport=transport)

    [letter] = transport.letters
    expected = f"typed {comment.pk}/0 31 Sty 2026"
    assert letter.subject.startswith(expected), letter.subject
    assert "1542,5" in letter.subject
    shown = {letter.text.strip(), letter.html.strip(), before.subject, before.text.strip(), before.html.strip()}
    shown |= {queued.subject, queued.text.strip(), mail.control.tasks.get().title}
    assert shown == {letter.subject}
    event = frozen_event(mail)
    assert event is not None
    assert preview_candidate(Typed(), event._replace(recipients="x@example.org"), "").subject == letter.subject


def test_a_value_that_cannot_be_frozen_blocks_its_event_alone(write_template):
    write_template("mail/typed.subject.txt", "{{ note }}")
    events = [
        Event("typed", number, 0, "ann@example.org", "en", values={"note": value})
        for number, value in enumerate(["a", b"b", "c"])
    ]

    made = make_messages(Typed(), events)

    assert [(one.state, one.subject) for one in made] == [("queued", "a"), ("blocked", ""), ("queued", "c")]
    assert made[1].problem == "cannot be made: the value note is of the type bytes, which cannot be stored"
