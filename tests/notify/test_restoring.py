"""A database that returns from a backup: recognised, held, brought up to date, and nobody hears of anything twice."""

import json
from collections import Counter
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core import serializers
from django.core.management import CommandError, call_command
from django.db import DEFAULT_DB_ALIAS, connection, transaction
from django.test import Client

from notify import checks, mail_checks
from notify.delivery import epoch
from notify.delivery.runner import deliver_due
from notify.dialects import dialect_of
from notify.explain.event import explain_event
from notify.models import Attempt, Control, Epoch, MailQueue, RunLog, TaskQueue
from notify.passes import run_pass
from notify.transports.memory import MemoryTransport
from portal.models import Comment, Contact, Order, OrderLine
from tests.factories import make_comment, make_contact
from tests.mails import make_mail

pytestmark = pytest.mark.django_db(transaction=True)

#: Parents first.
ENGINE = (Epoch, RunLog, Control, MailQueue, TaskQueue, Attempt)
BUSINESS = (Contact, Order, OrderLine, Comment)


def clock() -> datetime:
    return dialect_of(connection).now(connection)


def back_up(*models: Any) -> str:
    """Return the rows of tables, as a dump has them."""
    return serializers.serialize("json", [row for model in models for row in model._base_manager.order_by("pk")])


def restore(dump: str, *models: Any) -> None:
    """Put tables back to what a dump has; as a database does, numbers go on where the dump ends."""
    with transaction.atomic():
        with connection.constraint_checks_disabled():
            for model in reversed(models):
                model._base_manager.all().delete()
            for row in serializers.deserialize("json", dump):
                row.save()
        connection.check_constraints()


@pytest.fixture
def epoch_file(configure: Any, tmp_path: Path) -> Path:
    path = tmp_path / "kwit-epoch"
    configure(EPOCH_FILE=str(path))
    return tmp_path / f"kwit-epoch.{DEFAULT_DB_ALIAS}"


def deliver(sent: Counter[str]) -> Any:
    """Deliver what is due; count what went out by subject and recipient."""
    transport = MemoryTransport()
    report = deliver_due(transport=transport)
    sent.update(f"{letter.subject} {letter.recipients}" for letter in transport.letters)
    return report


def comments(n: int) -> None:
    for _ in range(n):
        make_comment(recipient=make_contact(), created_at=clock())


def call(name: str, *arguments: str) -> dict[str, Any]:
    out = StringIO()
    call_command(name, *arguments, "--json", stdout=out)
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def test_an_older_whole_database_waits_and_sends_nothing_twice_when_the_steps_are_followed(epoch_file: Path) -> None:
    """The steps of docs/restoring.md, in its order."""
    sent: Counter[str] = Counter()
    comments(2)
    run_pass()
    deliver(sent)
    comments(3)
    run_pass()
    comments(2)
    backed_up_at, dump = clock(), back_up(*ENGINE, *BUSINESS)
    run_pass()
    deliver(sent)
    assert len(sent) == 7

    restore(dump, *BUSINESS, *ENGINE)
    assert "looks restored" in deliver(sent).error
    assert max(sent.values()) == 1

    assert call("notify_hold", "--all", "--reason", "restored") == {"held": 3}
    since = (backed_up_at - timedelta(hours=1)).isoformat()
    assert call("notify_pass", "--baseline-since", since)["outcome"] == "ok"
    assert call("notify_release", "--restored")["accepted"] == 1
    comments(1)
    run_pass()
    report = deliver(sent)

    assert (report.sent, report.error) == (1, "")
    assert len(sent) == 8
    assert max(sent.values()) == 1


@pytest.mark.parametrize("has_row", [True, False])
def test_a_restore_is_recognised_and_accepted_before_any_delivery(epoch_file: Path, has_row: bool) -> None:
    """The services are stopped and every mail is held, so that no delivery has found anything; or counted, before."""
    sent: Counter[str] = Counter()
    if has_row:
        comments(1)
        run_pass()
        deliver(sent)
    comments(2)
    run_pass()
    dump = back_up(*ENGINE, *BUSINESS)
    deliver(sent)
    number = json.loads(epoch_file.read_text())["number"]
    restore(dump, *BUSINESS, *ENGINE)
    held = list(MailQueue.objects.filter(state="queued").values_list("pk", flat=True))

    assert call("notify_hold", "--all", "--reason", "restored") == {"held": 2}
    assert [found.id for found in mail_checks.check_epoch(None, databases=[DEFAULT_DB_ALIAS])] == ["notify.E024"]
    assert call("notify_release", "--restored")["accepted"] == 1
    assert list(mail_checks.check_epoch(None, databases=[DEFAULT_DB_ALIAS])) == []
    assert call("notify_release", "--restored")["accepted"] == 0
    assert call("notify_release", str(held[0]))["released"] == 1
    report = deliver(Counter())

    assert (report.sent, report.error) == (1, "")
    assert json.loads(epoch_file.read_text())["number"] == Epoch.objects.get().number == number + 1


def test_control_without_the_steps_an_older_database_sends_again(configure: Any) -> None:
    configure(EPOCH_FILE="")
    sent: Counter[str] = Counter()
    comments(2)
    run_pass()
    dump = back_up(*ENGINE, *BUSINESS)
    deliver(sent)

    restore(dump, *BUSINESS, *ENGINE)
    run_pass()
    deliver(sent)

    assert set(sent.values()) == {2}


def test_events_told_after_the_backup_are_known_again_by_a_baseline_since_it() -> None:
    """An older control table alone: the business goes on, so what was told since is in its tables."""
    comments(2)
    run_pass()
    backed_up_at, dump = clock(), back_up(*ENGINE)
    comments(3)
    run_pass()
    restore(dump, *ENGINE)

    report = run_pass(baseline_since=backed_up_at)

    assert [(step.step, step.candidates, step.mails) for step in report.steps if step.candidates] == [("comment", 3, 0)]
    assert not RunLog.objects.filter(pass_id=report.pass_id, is_full=True).exists()
    assert run_pass(is_full=True).steps[-1].candidates == 0
    assert MailQueue.objects.count() == 2


def test_a_baseline_since_leaves_older_events_to_the_next_pass() -> None:
    old = make_comment(recipient=make_contact(), created_at=clock() - timedelta(hours=3))
    comments(1)

    call("notify_pass", "--baseline-since", (clock() - timedelta(hours=1)).isoformat())

    assert Control.objects.count() == 1
    run_pass()
    assert MailQueue.objects.get().control.key2 == old.pk


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", ""])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="is no moment"):
        call_command("notify_pass", f"--baseline-since={text}")


def test_a_crash_between_database_and_file_is_no_restore(epoch_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: Counter[str] = Counter()
    make_mail()
    with monkeypatch.context() as patch:
        patch.setattr(epoch, "write_mark", lambda path, mark: None)
        deliver(sent)
    make_mail()

    assert deliver(sent).error == ""
    assert len(sent) == 2
    assert json.loads(epoch_file.read_text())["number"] == 2


def test_a_worker_that_counts_up_both_in_between_is_no_restore(
    epoch_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_mail(to=("a@example.org",))
    deliver_due(transport=MemoryTransport())
    make_mail(to=("b@example.org",))
    read, others = epoch.read_mark, []

    def read_late(path: Path) -> Any:
        if not others:
            others.append(path)
            epoch.advance(path, using=DEFAULT_DB_ALIAS)
        return read(path)

    monkeypatch.setattr(epoch, "read_mark", read_late)

    report = deliver_due(transport=MemoryTransport())

    assert (report.sent, len(others)) == (1, 1)


def test_a_file_that_cannot_be_written_stops_no_mail_and_is_logged(
    configure: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    configure(EPOCH_FILE=str(tmp_path / "missing" / "epoch"))
    make_mail()

    assert deliver_due(transport=MemoryTransport()).sent == 1

    assert "a restored database cannot be recognised" in caplog.text


def test_a_file_that_cannot_be_read_is_reported(epoch_file: Path) -> None:
    epoch_file.write_text("[]")

    assert [found.id for found in mail_checks.check_epoch(None, databases=[DEFAULT_DB_ALIAS])] == ["notify.E027"]
    with pytest.raises(CommandError, match="EPOCH_FILE"):
        call("notify_release", "--restored")


def test_another_database_than_the_file_knows_waits_too(epoch_file: Path) -> None:
    make_mail()
    deliver(Counter())
    Epoch.objects.all().delete()
    make_mail()

    assert "looks restored" in deliver(Counter()).error
    assert MailQueue.objects.filter(state="queued").count() == 1


def test_nothing_is_counted_while_nothing_is_due(epoch_file: Path) -> None:
    deliver(Counter())

    assert not epoch_file.exists()
    assert Epoch.objects.count() == 0


def test_page_and_doctor_say_that_delivery_waits(epoch_file: Path, admin_client: Client) -> None:
    assert list(mail_checks.check_epoch(None, databases=[DEFAULT_DB_ALIAS])) == []
    make_mail()
    deliver(Counter())
    Epoch.objects.update(number=0)
    make_mail()
    deliver(Counter())

    [found] = mail_checks.check_epoch(None, databases=[DEFAULT_DB_ALIAS])
    assert found.id == "notify.E024"
    assert "delivery waits for a person" in admin_client.get("/admin/").content.decode()

    call("notify_release", "--restored")
    assert list(mail_checks.check_epoch(None, databases=[DEFAULT_DB_ALIAS])) == []


def test_the_doctor_finds_mails_whose_control_row_is_newer_than_they_are() -> None:
    """A control table that was restored alone gives its numbers again."""
    mail = make_mail(created_at=clock() - timedelta(days=1))
    Control.objects.filter(pk=mail.control_id).update(created_at=clock() - timedelta(days=1))
    assert list(checks.check_restored(None, databases=[DEFAULT_DB_ALIAS])) == []

    Control.objects.filter(pk=mail.control_id).update(created_at=clock())

    [found] = checks.check_restored(None, databases=[DEFAULT_DB_ALIAS])
    assert found.id == "notify.E025"
    assert "1 mails have a control row that is newer" in found.msg


def test_the_doctor_finds_mails_without_their_control_row() -> None:
    mail = make_mail()
    with connection.constraint_checks_disabled():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SET session_replication_role = replica")
                cursor.execute("DELETE FROM notify_control")
                cursor.execute("SET session_replication_role = DEFAULT")
        else:
            Control.objects.all()._raw_delete(DEFAULT_DB_ALIAS)

    [found] = checks.check_restored(None, databases=[DEFAULT_DB_ALIAS])

    assert found.id == "notify.E025"
    assert "1 mails have no control row" in found.msg
    MailQueue.objects.filter(pk=mail.pk)._raw_delete(DEFAULT_DB_ALIAS)


def test_all_queued_mails_are_held_and_no_others() -> None:
    queued, sent = make_mail(), make_mail(state="sent")

    assert call("notify_hold", "--all", "--actor", "ann") == {"held": 1}

    queued.refresh_from_db()
    sent.refresh_from_db()
    assert (queued.state, queued.problem, sent.state) == ("blocked", "held by ann", "sent")
    with pytest.raises(CommandError, match="name some mails, or --all"):
        call_command("notify_hold")


def test_a_key_that_was_used_before_is_found_and_explained() -> None:
    """RESTART IDENTITY: the same line and comment number, and another comment."""
    comment = make_comment(recipient=make_contact(), created_at=clock() - timedelta(hours=1))
    run_pass()
    assert list(checks.check_reused_keys(None, databases=[DEFAULT_DB_ALIAS])) == []
    Control.objects.update(created_at=clock() - timedelta(days=90))

    [found] = checks.check_reused_keys(None, databases=[DEFAULT_DB_ALIAS])
    [event] = explain_event(kind="comment", key=comment.line_id, key2=comment.pk).events

    assert found.id == "notify.W013"
    assert f"{comment.line_id}/{comment.pk}" in found.msg
    assert [finding.code for finding in event.findings] == ["notified", "reused_key"]
