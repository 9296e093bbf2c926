"""A clock that was one day ahead and is set back: what was written under it holds nothing up and fools nobody."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connection
from django.test import Client
from django.utils import timezone

from notify import checks
from notify.clock import SKEW, is_future, is_lease_over, lease_end_max
from notify.conf import conf
from notify.delivery.channels import get_pause
from notify.delivery.recovery import rescue, undo_misdating
from notify.dialects import dialect_of
from notify.explain.event import explain_event
from notify.models import Attempt, Channel, MailQueue
from notify.operations.mails import release_mails, retry_mails
from notify.pages.metrics import is_overdue, last_good_pass, read
from notify.passes import run_pass
from tests.factories import make_comment, make_contact
from tests.mails import log, make_mail, state

pytestmark = pytest.mark.django_db(transaction=True)
JUMP = timedelta(days=1)


def clock() -> datetime:
    return dialect_of(connection).now(connection)


def deliver() -> None:
    call_command("notify_deliver", "--json")


def on_the_wire(lease_until: datetime, **fields: Any) -> MailQueue:
    return make_mail(state="sending", worker="w", lease_until=lease_until, flight=0, **fields)


def test_a_dead_workers_mail_is_in_doubt_although_its_lease_ends_tomorrow() -> None:
    now = clock()
    mail = on_the_wire(now + JUMP + conf().LEASE)

    assert rescue(using=DEFAULT_DB_ALIAS, now=now, conf=conf()).uncertain == 1

    assert state(mail) == "uncertain"


def test_a_worker_that_lives_keeps_its_mail_up_to_the_longest_lease() -> None:
    now = clock()
    mail = on_the_wire(now + max(conf().LEASE, conf().HANDOVER_LEASE))

    assert rescue(using=DEFAULT_DB_ALIAS, now=now, conf=conf()).uncertain == 0

    assert state(mail) == "sending"
    assert not is_lease_over(lease_end_max(now), now=now)
    assert is_lease_over(lease_end_max(now) + timedelta(microseconds=1), now=now)


def test_mails_that_were_queued_claimed_or_put_off_under_the_wrong_clock_go_out_at_once(
    mailoutbox: list[Any], settings: Any
) -> None:
    later = clock() + JUMP
    queued = make_mail(due_at=later, created_at=later)
    claimed = make_mail(worker="dead", lease_until=later + conf().LEASE)
    deferred = make_mail(due_at=later + timedelta(minutes=1), attempts=1)
    Attempt.objects.create(mail=deferred, number=1, recipient="ann@example.org", outcome="deferred", code=450, at=later)

    deliver()

    assert [state(mail) for mail in (queued, claimed, deferred)] == ["sent"] * 3


def test_what_waits_lawfully_waits_on() -> None:
    later = clock() + JUMP
    mail = make_mail(due_at=later, held_for="quiet")
    tried = make_mail(due_at=clock() + timedelta(hours=1), attempts=1)
    Attempt.objects.create(mail=tried, number=1, recipient="ann@example.org", outcome="deferred", code=450)

    assert undo_misdating(using=DEFAULT_DB_ALIAS, now=clock()) == 0

    mail.refresh_from_db()
    assert mail.due_at == later


def test_releasing_and_retrying_work_on_what_the_wrong_clock_holds() -> None:
    later = clock() + JUMP
    sending, queued = on_the_wire(later), make_mail(due_at=later, created_at=later)

    assert release_mails(MailQueue.objects.filter(pk__in=[sending.pk, queued.pk]), actor="ann") == 2
    assert state(sending) == "queued"
    assert MailQueue.objects.get(pk=queued.pk).due_at < later

    again = make_mail(due_at=later, created_at=later)
    assert retry_mails(MailQueue.objects.filter(pk=again.pk), actor="ann") == 1


def test_a_pause_that_began_in_the_future_is_over() -> None:
    now = clock()
    Channel.objects.create(name="smtp", paused_at=now + JUMP, paused_until=now + JUMP + conf().PAUSE_MAX)

    assert get_pause("smtp", now=now).is_over


def test_a_log_row_from_the_future_is_nobodys_last_good_pass(admin_client: Client) -> None:
    now = timezone.now()
    log(started_at=now - timedelta(hours=40))
    log(started_at=now + JUMP)
    log("comment", started_at=now + JUMP, is_full=True)

    started_at = last_good_pass(DEFAULT_DB_ALIAS)

    assert started_at == now - timedelta(hours=40)
    assert is_overdue(started_at, 3600)
    [age] = [metric for metric in read(now) if metric.name == "kwit_pass_last_good_age_seconds"]
    assert age.samples[0][1] == pytest.approx(40 * 3600, abs=5)
    assert "The last good pass was 1\xa0day, 16\xa0hours ago;" in admin_client.get("/admin/").content.decode()


def test_the_next_full_scan_is_not_put_off_by_a_row_from_the_future() -> None:
    log("comment", started_at=clock() + JUMP, is_full=True)
    comment = make_comment(recipient=make_contact(), created_at=clock() - timedelta(days=3))

    [event] = explain_event(kind="comment", key=comment.line_id, key2=comment.pk).events
    texts = " ".join(event.sentences)

    assert "The next pass scans all events" in texts
    run_pass()
    assert MailQueue.objects.count() == 1


def test_an_explanation_does_not_say_on_the_wire_of_a_worker_that_a_wrong_clock_keeps_alive() -> None:
    mail = on_the_wire(clock() + JUMP)

    [event] = explain_event(kind="comment", key=mail.control.key).events

    assert "It was on the wire with worker w, not heard of since" in event.mails[0].sentences[-1]


def test_the_doctor_names_rows_from_the_future_and_nothing_else() -> None:
    assert list(checks.check_clock(None, databases=[DEFAULT_DB_ALIAS])) == []
    log(started_at=clock() + JUMP)
    on_the_wire(clock() + JUMP)

    [found] = checks.check_clock(None, databases=[DEFAULT_DB_ALIAS])

    assert found.id == "notify.W010"
    assert "1 run-log rows, 1 mails" in found.msg


def test_clocks_of_two_hosts_may_differ_a_little() -> None:
    now = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)

    assert not is_future(now + SKEW, now=now)
    assert is_future(now + SKEW + timedelta(microseconds=1), now=now)
    assert not is_future(None, now=now)


def test_nobody_holds_the_lock_but_who_took_it() -> None:
    dialect = dialect_of(connection)
    assert dialect.is_lock_free(connection)

    answer = dialect.try_lock(connection)
    assert not dialect.is_lock_free(connection)

    dialect.unlock(connection, answer.token)
    assert dialect.is_lock_free(connection)
