"""From event to message: subjects of one line, frozen values, and the events that cannot be one."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from notify.messages.builder import PROBLEM_CHARS_MAX, make_messages
from notify.models import SUBJECT_UNITS_MAX, MailState
from notify.steps import Event
from notify.text import ELLIPSIS, units
from tests.notify.samples import Remark
from tests.notify.test_texts import HOSTILE


class Noted(Remark):
    kind = "noted"
    template = "noted"


@pytest.fixture
def noted(write_template: Any) -> Any:
    write_template("mail/noted.subject.txt", "Order {{ number }}{% if note %}: {{ note }}{% endif %}")
    return Noted()


def message(step: Any, *, recipients: Any = "ann@example.org", language: str = "en", **values: Any) -> Any:
    event = Event("noted", 1, 0, recipients=recipients, language=language, values=values)
    (made,) = make_messages(step, [event])
    return made


def test_a_line_end_in_a_note_makes_no_header(noted):
    """M1: the subject is one harmless line."""
    made = message(noted, number="PO-1", note="A\r\nBcc: x@example.org")

    assert made.subject == "Order PO-1: A Bcc: x@example.org"
    assert made.state == MailState.QUEUED


def test_markup_in_a_value_stands_in_the_subject_as_it_is(noted):
    """M2: a subject is plain text; escaping it would show entities to people."""
    made = message(noted, number="PO-1", note='<a href="https://example.org">bot</a> & "q"')

    assert made.subject == 'Order PO-1: <a href="https://example.org">bot</a> & "q"'


def test_template_syntax_in_a_value_is_not_run(noted):
    made = message(noted, number="{{ note }}", note="{% now 'Y' %}")

    assert made.subject == "Order {{ note }}: {% now 'Y' %}"


@pytest.mark.parametrize("note", ["x" * 300, "x" * 1500, "Ж" * 200, "Ж" * 300, "👩‍👩‍👧‍👦" * 50])
def test_a_long_subject_is_shortened_at_a_whole_character(noted, note):
    """M7: sent or shortened with an ellipsis, the same on every database."""
    made = message(noted, number="1", note=note)

    full = f"Order 1: {note}"
    assert made.state == MailState.QUEUED
    assert units(made.subject) <= SUBJECT_UNITS_MAX
    assert made.subject == full if units(full) <= SUBJECT_UNITS_MAX else made.subject.endswith(ELLIPSIS)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(note=HOSTILE, number=HOSTILE, recipients=st.one_of(st.none(), HOSTILE, st.lists(HOSTILE, max_size=3)))
def test_no_value_and_no_address_raises_or_leaves_the_line(noted, note, number, recipients):
    """M1, M2, M5 and M7 for any text whatever."""
    made = message(noted, number=number, note=note, recipients=recipients)

    assert len(made.subject.splitlines()) == 1
    assert units(made.subject) <= SUBJECT_UNITS_MAX
    assert len(made.problem.splitlines()) <= 1
    assert units(made.problem) <= PROBLEM_CHARS_MAX
    assert "\\u0000" not in made.payload
    (made.subject + made.payload + made.problem + "".join(made.recipients)).encode()
    json.loads(made.payload)
    assert (made.state == MailState.BLOCKED) == (not made.recipients)
    assert made.state != MailState.BLOCKED or made.problem


def test_nobody_to_send_to_blocks_the_message_and_keeps_its_subject(noted):
    """M6: an operator can correct the recipient and release it, so all but the recipient is there."""
    made = message(noted, number="PO-1", recipients="")

    assert (made.state, made.problem) == (MailState.BLOCKED, "no recipient")
    assert made.subject == "Order PO-1"
    assert json.loads(made.payload) == {"number": "PO-1"}


def test_one_bad_address_beside_a_good_one_is_named_and_blocks_nothing(noted):
    """M5: the good address is served, the bad one is named."""
    made = message(noted, number="PO-1", recipients=["", "ok@example.org"])

    assert (made.state, made.recipients) == (MailState.QUEUED, ("ok@example.org",))
    assert made.problem == "not an address: ''"


@pytest.mark.parametrize("note", ["\u200b", "\r\n", "  "])
def test_an_empty_subject_blocks_the_message(write_template, note):
    write_template("mail/noted.subject.txt", "{{ note }}")

    made = message(Noted(), note=note)

    if not made.subject:
        assert (made.state, made.problem) == (MailState.BLOCKED, "the subject is empty")
    else:
        assert made.subject == "\u200b"


class Unpleasant:
    """A value that fails when a template touches it."""

    def __str__(self) -> str:
        raise RuntimeError("no\nname\0for this")


def test_a_value_that_fails_blocks_its_event_and_the_others_go_on(noted):
    events = [
        Event("noted", number, 0, recipients="ann@example.org", language="en", values={"number": value})
        for number, value in enumerate(["a", Unpleasant(), "c"])
    ]

    made = list(make_messages(noted, events))

    assert [one.state for one in made] == [MailState.QUEUED, MailState.BLOCKED, MailState.QUEUED]
    assert made[1].problem == ("cannot be made: the value number is of the type Unpleasant, which cannot be stored")


@pytest.mark.parametrize("text", ["{% if %}", "{{ number|no_such_filter }}", "{% include 'not/there.txt' %}"])
def test_a_faulty_template_blocks_the_event(write_template, text):
    write_template("mail/noted.subject.txt", text)

    made = message(Noted(), number=1)

    assert made.state == MailState.BLOCKED
    assert made.problem.startswith("cannot be made: Template")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}, b"bytes"])
def test_a_value_that_no_database_takes_as_json_blocks_the_event(noted, value):
    made = message(noted, number="1", odd=value)

    assert made.state == MailState.BLOCKED
    assert made.problem.startswith("cannot be made: the value odd is ")


def of_tenant(step: Any, tenant: Any) -> Any:
    (made,) = make_messages(step, [Event("noted", 1, 0, "ann@example.org", "en", values={"number": 1}, tenant=tenant)])
    return made


@pytest.mark.parametrize("tenant", ["", "acme", "Größe & Söhne", "日本", "x" * 64, "🧾" * 32])
def test_a_message_belongs_to_its_event_s_tenant(noted, tenant):
    made = of_tenant(noted, tenant)

    assert (made.state, made.tenant) == (MailState.QUEUED, tenant)


@pytest.mark.parametrize(
    "tenant",
    [
        " ",
        "acme ",
        " acme",
        "x" * 65,
        "🧾" * 33,
        "a\0b",
        "a\nb",
        "a\ud800",
        "x" * 10**6,
        7,
        0,
        True,
        1.5,
        b"acme",
        ["acme"],
    ],
    ids=lambda tenant: repr(tenant)[:12],
)
def test_a_tenant_that_is_no_name_blocks_the_message_which_is_then_nobody_s(noted, tenant):
    """Mended, it would perhaps be another tenant's name."""
    made = of_tenant(noted, tenant)

    assert (made.state, made.tenant, made.recipients) == (MailState.BLOCKED, "", ())
    assert made.problem.startswith("the tenant, ")
    assert "at most 64 characters" in made.problem
    assert len(made.problem) < 300


def test_a_message_that_cannot_be_made_still_belongs_to_its_tenant(noted):
    event = Event("noted", 1, 0, "ann@example.org", "en", values={"number": Unpleasant()}, tenant="acme")

    (made,) = make_messages(noted, [event])

    assert (made.state, made.tenant) == (MailState.BLOCKED, "acme")


def test_each_subject_is_in_its_recipient_s_language(write_template):
    write_template("mail/noted.subject.txt", "{% load i18n %}{% get_current_language as code %}{{ code }} {{ n }}")
    events = [
        Event("noted", number, 0, recipients="ann@example.org", language=language, values={"n": number})
        for number, language in enumerate(["ja", "en", "pl", "ja"])
    ]

    made = {one.event.key: one.subject for one in make_messages(Noted(), events)}

    assert made == {0: "ja 0", 1: "en 1", 2: "pl 2", 3: "ja 3"}
