"""One mail's end and the next one's start, written together: what each database's dialect must do."""

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


def go_on(first: MailQueue, second: MailQueue, **changed: Any) -> bool:
    given = {"attempts": [attempt(first)], "settled": Change(first.pk, SENT), "begun": Change(second.pk, BEGUN)}
    return dialect_of(connection).try_go_on(connection, worker="w", now=NOW, **given | changed)


def test_the_last_mail_ends_and_the_next_one_begins_together():
    first, second = make_pair()

    assert go_on(first, second)

    first.refresh_from_db()
    assert (first.state, first.worker, first.lease_until, first.flight) == ("sent", "", None, None)
    assert outcomes(first) == [("ann@example.org", "sent", 250)]
    assert state(second) == "sending"


def test_a_claim_that_is_lost_is_told_and_what_came_of_the_last_mail_is_written_all_the_same():
    first, second = make_pair(second="another")

    assert not go_on(first, second)

    assert (state(first), state(second)) == ("sent", "queued")
    assert len(outcomes(first)) == 1


def test_neither_is_written_when_one_is_refused():
    first, second = make_pair()

    with pytest.raises(IntegrityError):
        go_on(first, second, attempts=[attempt(first, "no outcome")])

    assert (state(first), state(second), outcomes(first)) == ("sending", "queued", [])


def test_any_of_the_three_may_be_absent():
    first, second = make_pair()

    assert go_on(first, second, attempts=[], settled=None, begun=None)
    assert go_on(first, second, attempts=[attempt(first), attempt(first)], settled=None, begun=None)
    assert go_on(first, second, attempts=[], begun=None)
    assert go_on(first, second, attempts=[], settled=None)

    assert (state(first), state(second), len(outcomes(first))) == ("sent", "sending", 2)
