"""Some mails' ends and others' starts, written together: what each database's dialect must do."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection

from notify.dialects import dialect_of
from notify.dialects.base import AttemptRow, Change
from notify.models import MailQueue
from tests.factories import NOW
from tests.mails import make_mail, outcomes, state

pytestmark = pytest.mark.django_db(transaction=True)

LEASE = NOW + timedelta(minutes=5)
SENT = {"state": "sent", "sent_at": NOW, "attempts": 1}
BEGUN = {"lease_until": LEASE, "flight": 0}


def make_pair(*, second: str = "w") -> tuple[MailQueue, MailQueue]:
    """Make a mail that is on the wire and one that is claimed, by ``w`` and by another worker as told."""
    first = make_mail(state="sending", worker="w", lease_until=LEASE, flight=0)
    return first, make_mail(worker=second, lease_until=LEASE)


def attempt(mail: MailQueue, outcome: str = "sent") -> AttemptRow:
    return AttemptRow(mail.pk, 1, 0, "ann@example.org", outcome, 250, "2.0.0", "100 % taken", NOW, "w", "smtp")


def write(first: MailQueue, second: MailQueue, **changed: Any) -> bool:
    given = {"attempts": [attempt(first)], "settled": [Change(first.pk, SENT)], "begun": [Change(second.pk, BEGUN)]}
    begun = dialect_of(connection).write_progress(connection, worker="w", now=NOW, **given | changed)
    assert begun <= {second.pk}
    return bool(begun)


def test_the_last_mail_ends_and_the_next_one_begins_together():
    first, second = make_pair()

    assert write(first, second)

    first.refresh_from_db()
    assert (first.state, first.worker, first.lease_until, first.flight) == ("sent", "", None, None)
    assert outcomes(first) == [("ann@example.org", "sent", 250)]
    assert state(second) == "sending"


def test_a_claim_that_is_lost_is_told_and_what_came_of_the_last_mail_is_written_all_the_same():
    first, second = make_pair(second="another")

    assert not write(first, second)

    assert (state(first), state(second)) == ("sent", "queued")
    assert len(outcomes(first)) == 1


def test_neither_is_written_when_one_is_refused():
    first, second = make_pair()

    with pytest.raises(IntegrityError):
        write(first, second, attempts=[attempt(first, "no outcome")])

    assert (state(first), state(second), outcomes(first)) == ("sending", "queued", [])


def test_any_of_the_three_may_be_absent():
    first, second = make_pair()

    assert not write(first, second, attempts=[], settled=[], begun=[])
    assert not write(first, second, attempts=[attempt(first), attempt(first)], settled=[], begun=[])
    assert not write(first, second, attempts=[], begun=[])
    assert write(first, second, attempts=[], settled=[])

    assert (state(first), state(second), len(outcomes(first))) == ("sent", "sending", 2)


def test_each_mail_of_many_gets_its_own_values_and_only_those_that_are_named():
    later = NOW + timedelta(hours=1)
    ended = [
        make_mail(state="sending", worker="w", lease_until=LEASE, flight=0, problem="from the start") for _ in range(3)
    ]
    begun = [make_mail(worker=worker, lease_until=LEASE, message_html="<p>") for worker in ("w", "another", "w")]
    values = [SENT, {"state": "queued", "attempts": 2, "due_at": later}, {"state": "blocked", "problem": "two\n words"}]

    won = dialect_of(connection).write_progress(
        connection,
        worker="w",
        now=NOW,
        attempts=[attempt(mail) for mail in ended],
        settled=[Change(mail.pk, given) for mail, given in zip(ended, values, strict=True)],
        begun=[Change(mail.pk, {**BEGUN, "message_text": f"text {mail.pk} %s \\"}) for mail in begun],
    )

    assert won == {begun[0].pk, begun[2].pk}
    for mail in (*ended, *begun):
        mail.refresh_from_db()
    assert [(mail.state, mail.attempts, mail.problem, mail.worker) for mail in ended] == [
        ("sent", 1, "from the start", ""),
        ("queued", 2, "from the start", ""),
        ("blocked", 0, "two\n words", ""),
    ]
    assert (ended[0].sent_at, ended[1].due_at, ended[2].sent_at) == (NOW, later, None)
    assert [(mail.state, mail.message_html) for mail in begun] == [
        ("sending", "<p>"),
        ("queued", "<p>"),
        ("sending", "<p>"),
    ]
    assert begun[0].message_text == f"text {begun[0].pk} %s \\"
