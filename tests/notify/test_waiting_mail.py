"""Mails that wait on purpose: digests and quiet hours."""

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from django.db.models import F, Value
from hypothesis import assume, given, settings, strategies

from notify.conf import Conf
from notify.delivery.runner import deliver_due
from notify.delivery.schedule import quiet_until, retry_at
from notify.models import MailQueue
from notify.transports.memory import MemoryTransport
from portal.models import Comment
from portal.notifications import CommentAdded
from tests.factories import NOW
from tests.mails import COMMENT, make_mail, outcomes, state
from tests.notify.samples import Remark, do_pass, make_comments
from tests.smtp import smtp_server

pytestmark = pytest.mark.django_db(transaction=True)


class Collected(Remark):
    """A step whose mails are collected."""

    digest = True

    def events(self, scope):
        both = Value("ann@example.org;ben@example.org")
        return Comment.objects.values(
            "author", "body", key=F("pk"), event_at=F("created_at"), item=Value("i"), number=Value("n"), recipients=both
        )


def test_mails_to_one_recipient_are_collected_and_sent_as_one(add_step, configure):
    add_step(type("Digested", (Remark,), {"digest": timedelta(hours=1)}))
    recent = {"kind": "remark", "created_at": datetime.now(UTC)}
    mails = [make_mail(to=("ann@example.org",), **recent) for _ in range(3)]
    other = make_mail(to=("ben@example.org",), **recent)
    transport = MemoryTransport()

    assert deliver_due(transport=transport).held == 4
    assert transport.letters == []
    mails[0].refresh_from_db()
    assert (mails[0].held_for, mails[0].attempts) == ("digest", 0)

    long_ago = datetime.now(UTC) - timedelta(hours=2)
    MailQueue.objects.filter(pk=mails[0].pk).update(created_at=long_ago, due_at=long_ago)
    report = deliver_due(transport=transport)

    [letter] = transport.letters
    assert report.sent == 3
    assert letter.recipients == ("ann@example.org",)
    assert letter.subject == "3 notifications"
    for mail in mails:
        assert mail.subject in letter.text
    assert [state(mail) for mail in mails] == ["sent"] * 3
    assert state(other) == "queued"
    assert dict(letter.headers)["Message-ID"].startswith(f"<kwit.remark.{mails[0].control.key}.0.0.")
    assert outcomes(mails[0]) == [("ann@example.org", "sent", 250)]
    assert deliver_due(transport=transport).letters == 0


def test_a_digest_holds_the_mails_of_one_tenant_only(add_step):
    """Its text stands on one mail, which whoever belongs to that mail's tenant may read."""
    add_step(type("Digested", (Remark,), {"digest": timedelta(hours=1)}))
    mails = [make_mail(kind="remark", tenant=tenant) for tenant in ("acme", "globex", "acme", "")]
    transport = MemoryTransport()

    assert deliver_due(transport=transport).sent == 4

    told = sorted([mail.subject in letter.text + letter.subject for mail in mails] for letter in transport.letters)
    assert told == [[False, False, False, True], [False, True, False, False], [True, False, True, False]]


def test_a_digest_that_was_deferred_is_tried_again_as_it_was(add_step, configure):
    from notify.models import AttemptOutcome
    from notify.transports.base import Reply, Result

    add_step(type("Digested", (Remark,), {"digest": timedelta(hours=1)}))
    mails = [make_mail(kind="remark") for _ in range(2)]
    transport = MemoryTransport(lambda letter: [Result("ann@example.org", AttemptOutcome.DEFERRED, Reply(450))])
    assert deliver_due(transport=transport).retried == 2
    late = make_mail(kind="remark", created_at=datetime.now(UTC))

    transport.answer = None
    MailQueue.objects.filter(attempts=1).update(due_at=NOW)
    deliver_due(transport=transport)

    first, second = transport.letters
    assert first.text == second.text
    assert dict(first.headers)["Message-ID"] == dict(second.headers)["Message-ID"]
    assert [state(mail) for mail in (*mails, late)] == ["sent", "sent", "queued"]


def test_each_recipient_of_a_collected_event_has_a_mail_and_a_digest_of_their_own(add_step):
    add_step(Collected)
    make_comments(2)
    do_pass()
    MailQueue.objects.update(created_at=NOW, due_at=NOW)
    transport = MemoryTransport()

    deliver_due(transport=transport)

    assert sorted(letter.recipients for letter in transport.letters) == [("ann@example.org",), ("ben@example.org",)]
    assert set(MailQueue.objects.values_list("state", flat=True)) == {"sent"}
    assert len({dict(letter.headers)["Message-ID"] for letter in transport.letters}) == 2


def test_two_workers_do_not_put_one_mail_into_two_digests(add_step):
    from tests.racing import race

    add_step(type("Digested", (Remark,), {"digest": timedelta(hours=1)}))
    for _ in range(20):
        make_mail(kind="remark")
    transports = [MemoryTransport() for _ in range(4)]

    reports = race(4, lambda number: deliver_due(transport=transports[number]))

    deliver_due(transport=transports[0])
    told = "\n".join(letter.text + letter.subject for transport in transports for letter in transport.letters)
    assert all(told.count(mail.subject + "\n") + told.endswith(mail.subject) <= 1 for mail in MailQueue.objects.all())
    assert set(MailQueue.objects.values_list("state", flat=True)) == {"sent"}, reports


def test_a_digest_is_split_by_what_the_server_and_the_site_take_at_once(add_step, configure):
    add_step(type("Digested", (Remark,), {"digest": timedelta(hours=1)}))
    for _ in range(30):
        make_mail(kind="remark", payload=COMMENT | {"body": "Ż" * 2500})
    with smtp_server(data_size_limit=100_000) as server:
        assert deliver_due(transport=server.transport()).sent == 30
        by_server = [len(received.content) for received in server.received]
        MailQueue.objects.update(state="queued", message_text="", message_html="", attempts=0, digest_of=None)
        configure(DIGEST_BYTES=50_000)
        assert deliver_due(transport=server.transport()).sent == 30
        by_site = [len(received.content) for received in server.received[len(by_server) :]]

    assert max(by_server) <= 100_000
    assert max(by_site) <= 50_000
    assert 1 < len(by_server) < len(by_site) < 30


QUIET = Conf(QUIET_HOURS="22:00-07:00")
STEP = CommentAdded()


@pytest.mark.parametrize(
    ("utc", "zone", "ends"),
    [
        ("2026-01-31T21:59:59", "UTC", None),
        ("2026-01-31T22:00:00", "UTC", "2026-02-01T07:00:00"),
        ("2026-01-31T06:59:59", "UTC", "2026-01-31T07:00:00"),
        ("2026-01-31T07:00:00", "UTC", None),
        ("2026-01-31T13:00:00", "Asia/Tokyo", "2026-01-31T22:00:00"),
        ("2026-01-31T12:59:59", "Asia/Tokyo", None),
        # The night in which Warsaw's clocks go forward, and the one in which they go back.
        ("2026-03-28T21:30:00", "Europe/Warsaw", "2026-03-29T05:00:00"),
        ("2026-10-24T21:30:00", "Europe/Warsaw", "2026-10-25T06:00:00"),
        ("2026-01-31T23:00:00", "Nowhere/Land", "2026-02-01T07:00:00"),
        ("2026-01-31T23:00:00", "../../etc/passwd", "2026-02-01T07:00:00"),
        ("2026-01-31T23:00:00", None, "2026-02-01T07:00:00"),
    ],
)
def test_quiet_hours_end_at_seven_by_the_recipients_clock(utc, zone, ends):
    now = datetime.fromisoformat(utc).replace(tzinfo=UTC)

    until = quiet_until(now, STEP, QUIET, zone)

    assert (until and until.astimezone(UTC)) == (ends and datetime.fromisoformat(ends).replace(tzinfo=UTC))


def test_quiet_hours_that_end_in_the_repeated_hour_of_autumn_end_once():
    conf = Conf(QUIET_HOURS="22:00-02:30")

    def ends(utc):
        until = quiet_until(datetime.fromisoformat(utc).replace(tzinfo=UTC), STEP, conf, "Europe/Warsaw")
        return until and until.astimezone(UTC).strftime("%H:%M")

    assert ends("2026-10-24T23:59:00") == "00:30", "half past two for the first time"
    assert ends("2026-10-25T00:30:00") is None
    assert ends("2026-10-25T01:00:00") == "01:30", "two o'clock has come again"
    assert ends("2026-10-25T01:30:00") is None


@given(
    zone=strategies.sampled_from(sorted(available_timezones())),
    now=strategies.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31, 23), timezones=strategies.just(UTC)),
    first=strategies.times(),
    last=strategies.times(),
)
@settings(max_examples=400, deadline=None)
def test_a_mail_that_is_held_waits_until_after_now_and_not_for_long(zone, now, first, last):
    assume(first != last)

    until = quiet_until(now, STEP, Conf(QUIET_HOURS=(first, last)), zone)

    assert until is None or now < until <= now + timedelta(hours=27)


@pytest.mark.parametrize(
    "zone", ["Europe/Warsaw", "America/New_York", "Australia/Lord_Howe", "Asia/Tehran", "Africa/Cairo"]
)
def test_every_hour_of_a_year_ends_its_quiet_hours(zone):
    for hour in range(24 * 365):
        now = datetime(2026, 1, 1, 0, 29, tzinfo=UTC) + timedelta(hours=hour)
        for conf in (QUIET, Conf(QUIET_HOURS="22:00-02:30"), Conf(QUIET_HOURS="01:15-01:45")):
            until = quiet_until(now, STEP, conf, zone)
            assert until is None or now < until <= now + timedelta(hours=26), (now, until)


def test_quiet_hours_within_one_day():
    conf = Conf(QUIET_HOURS=(time(12), time(14)))

    assert quiet_until(NOW.replace(hour=13), STEP, conf, "UTC") == NOW.replace(hour=14, tzinfo=ZoneInfo("UTC"))
    assert quiet_until(NOW.replace(hour=14), STEP, conf, "UTC") is None


def test_a_mail_waits_for_the_end_of_the_quiet_hours_and_another_kind_does_not(configure):
    now = datetime.now(UTC)
    configure(QUIET_HOURS=((now - timedelta(hours=1)).time(), (now + timedelta(hours=1)).time()))
    waits, goes = make_mail(payload=COMMENT | {"timezone": "UTC"}), make_mail(kind="advice")

    report = deliver_due(transport=MemoryTransport())

    waits.refresh_from_db()
    assert (report.held, report.sent, state(goes)) == (1, 1, "sent")
    assert (waits.state, waits.held_for, waits.attempts) == ("queued", "quiet", 0)
    assert timedelta(minutes=50) < waits.due_at - now < timedelta(minutes=61)


def test_pauses_between_attempts_grow_to_the_most_and_differ():
    from random import Random

    conf, random = Conf(), Random(1)

    pauses = [retry_at(NOW, attempts=attempts, conf=conf, random=random) - NOW for attempts in (1, 2, 5, 9, 1000)]

    for pause, base in zip(pauses, (1, 2, 16, 240, 240), strict=True):
        assert timedelta(minutes=base) <= pause <= timedelta(minutes=base * 1.5)
    assert len({retry_at(NOW, attempts=1, conf=conf, random=random) for _ in range(20)}) == 20
