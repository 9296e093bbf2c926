"""What a person may do with mails and tasks, and what it leaves alone."""

import threading

import pytest

from notify.delivery.runner import deliver_due
from notify.delivery.suppressions import suppress, unsuppress
from notify.errors import UnknownMail, WrongAddress
from notify.models import Control, MailQueue, Suppression, TaskQueue
from notify.operations.mails import confirm_mails, correct_mail, hold_mails, release_mails, retry_mails
from notify.operations.tasks import assign_task, complete_task, complete_tasks, reopen_task
from notify.transports.memory import MemoryTransport
from tests.factories import NOW
from tests.mails import make_mail, outcomes, state
from tests.racing import race
from tests.smtp import smtp_server

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def server():
    with smtp_server() as running:
        yield running


def one(mail):
    return MailQueue.objects.filter(pk=mail.pk)


def test_a_retry_asks_only_who_did_not_get_it(server):
    mail = make_mail(to=("gone@example.org", "ok@example.org"))
    server.on_rcpt = lambda address: "550 5.1.1 no such user" if address.startswith("gone") else ""
    deliver_due(transport=server.transport())
    server.on_rcpt = lambda address: ""

    assert retry_mails(one(mail), actor="ann") == 1
    deliver_due(transport=server.transport())

    mail.refresh_from_db()
    assert (mail.state, mail.operator) == ("sent", "ann")
    assert server.recipients() == ["ok@example.org", "gone@example.org"]


def test_a_retry_leaves_sent_queued_and_uncertain_mails_alone(server):
    for name in ("sent", "queued", "uncertain"):
        make_mail(state=name)

    assert retry_mails(MailQueue.objects.all(), actor="ann") == 0


def test_a_mail_without_recipient_is_corrected_released_and_sent(server):
    mail = make_mail(to=[], state="blocked", problem="no recipient")

    with pytest.raises(WrongAddress, match="nobody"):
        correct_mail(mail.pk, recipients="nobody", actor="ann")
    assert correct_mail(mail.pk, recipients="ben@example.org; cy@example.org", actor="ann") == (
        "ben@example.org",
        "cy@example.org",
    )
    assert state(mail) == "blocked"
    assert release_mails(one(mail), actor="ann") == 1
    deliver_due(transport=server.transport())

    assert (state(mail), server.recipients()) == ("sent", ["ben@example.org", "cy@example.org"])


def test_a_sent_mail_cannot_be_corrected():
    mail = make_mail(state="sent")

    with pytest.raises(UnknownMail, match="sent"):
        correct_mail(mail.pk, recipients="ben@example.org", actor="ann")


def test_an_uncertain_mail_is_sent_again_on_release_and_not_on_confirmation(server):
    first, second = make_mail(to=("ann@example.org",)), make_mail(to=("ben@example.org",))
    server.on_data = lambda number: "drop-after"
    deliver_due(transport=server.transport())
    assert (state(first), state(second)) == ("uncertain", "uncertain")
    server.on_data = lambda number: ""

    assert release_mails(one(first), actor="dora") == 1
    assert confirm_mails(one(second), actor="dora") == 1
    deliver_due(transport=server.transport())

    assert (state(first), state(second)) == ("sent", "sent")
    assert server.recipients() == ["ann@example.org", "ben@example.org", "ann@example.org"]
    assert outcomes(second)[-1] == ("ben@example.org", "sent", None)
    assert second.tries.order_by("pk").last().text == "confirmed by dora"


def test_a_held_mail_stays_until_it_is_released():
    mail = make_mail()

    assert hold_mails(one(mail), actor="ann", reason="wrong price") == 1
    assert deliver_due(transport=MemoryTransport()).letters == 0
    mail.refresh_from_db()
    assert (mail.state, mail.problem) == ("blocked", "held by ann: wrong price")

    assert release_mails(one(mail), actor="ann") == 1
    assert deliver_due(transport=MemoryTransport()).sent == 1


def test_a_mail_held_after_its_claim_is_not_sent():
    held, other = make_mail(to=("held@example.org",)), make_mail(to=("other@example.org",))
    # The other mail goes first, and while it is on the wire a person holds the second one.
    MailQueue.objects.filter(pk=other.pk).update(due_at="2020-01-01T00:00:00Z")
    transport = MemoryTransport(lambda letter: hold_mails(one(held), actor="ann") and None)

    report = deliver_due(transport=transport)

    assert [letter.recipients for letter in transport.letters] == [("other@example.org",)]
    assert (report.sent, state(held)) == (1, "blocked")


def test_a_suppressed_address_is_not_mailed_and_the_others_are(server):
    mail = make_mail(to=("No@Example.org", "ok@example.org"))
    alone = make_mail(to=("no@example.org",))
    assert suppress("no@EXAMPLE.org", reason="asked us to stop") is True
    assert suppress("no@example.org", reason="again") is False

    deliver_due(transport=server.transport())

    assert (state(mail), state(alone)) == ("partial", "blocked")
    assert server.recipients() == ["ok@example.org"]
    assert ("No@Example.org", "suppressed", None) in outcomes(mail)

    assert unsuppress(["no@example.org"]) == 1
    release_mails(one(alone), actor="ann")
    deliver_due(transport=server.transport())
    assert state(alone) == "sent"


def test_a_hard_refusal_suppresses_the_address_only_when_the_site_says_so(server, settings):
    server.on_rcpt = lambda address: "550 5.1.1 no such user" if address.startswith("gone") else "550 5.7.1 go away"
    make_mail(to=("gone@example.org", "angry@example.org"))
    deliver_due(transport=server.transport())
    assert not Suppression.objects.exists()

    settings.NOTIFY = {"SUPPRESS_REFUSED": True}
    make_mail(to=("gone@example.org", "angry@example.org"))
    deliver_due(transport=server.transport())

    [row] = Suppression.objects.all()
    assert (row.address, row.reason) == ("gone@example.org", "550 5.1.1 no such user")


def make_task(**fields):
    control = Control.objects.create(kind="rejected", key=1)
    return TaskQueue.objects.create(control=control, title="Find another supplier", assignee="ann", **fields)


def test_a_task_is_done_once_and_by_one_person():
    task = make_task(due_at=NOW)

    won = race(4, lambda number: complete_task(task.pk, by=f"person{number}"))

    assert sorted(won) == [False, False, False, True]
    task.refresh_from_db()
    assert task.done_by == f"person{won.index(True)}"
    assert list(TaskQueue.objects.open()) == []


def test_a_task_is_reopened_and_given_to_somebody_else():
    task = make_task()
    complete_task(task.pk, by="ann")

    assert assign_task(task.pk, to="ben") is False
    assert reopen_task(task.pk) is True
    assert reopen_task(task.pk) is False
    assert assign_task(task.pk, to="ben", due_at=NOW) is True

    assert [row.pk for row in TaskQueue.objects.overdue(NOW.replace(year=2027))] == [task.pk]
    with pytest.raises(UnknownMail):
        complete_task(task.pk + 1, by="ann")


def test_tasks_are_done_together_but_for_those_that_somebody_had_done():
    control = Control.objects.create(kind="rejected", key=1)
    mine, others = (TaskQueue.objects.create(control=control, title="T") for _ in range(2))
    complete_task(others.pk, by="piotr")

    assert complete_tasks([mine.pk, others.pk], by="olga") == 1

    assert list(TaskQueue.objects.order_by("pk").values_list("done_by", flat=True)) == ["olga", "piotr"]


def test_whoever_looks_first_and_writes_afterwards_believes_to_have_won():
    """The positive control of the race for a task: everybody looks at the same moment."""
    task = TaskQueue.objects.create(control=Control.objects.create(kind="rejected", key=1), title="T")
    everybody_looked = threading.Barrier(4)

    def naive(number):
        is_open = TaskQueue.objects.get(pk=task.pk).done_at is None
        everybody_looked.wait(20)
        return TaskQueue.objects.filter(pk=task.pk).update(done_at=NOW, done_by=str(number)) if is_open else 0

    assert race(4, naive) == [1, 1, 1, 1]
