"""What people decide about the queues."""

from typing import Any

import pytest

from notify.errors import WrongAddress
from notify.models import Control, MailQueue, TaskQueue
from notify.queues import correct_mails, finish_tasks, hold_mails, release_mails
from tests.factories import NOW
from tests.racing import race

pytestmark = pytest.mark.django_db
USING = "default"


def make_mail(*, key: int = 1, **fields: Any) -> MailQueue:
    control = Control.objects.create(kind="comment", key=key)
    return MailQueue.objects.create(control=control, **{"subject": "S", "recipients": ["a@example.org"]} | fields)


def make_task(**fields: Any) -> TaskQueue:
    return TaskQueue.objects.create(control=Control.objects.create(kind="rejected", key=1), title="T", **fields)


def test_a_held_mail_is_blocked_with_who_and_why_and_released_as_it_was() -> None:
    mail = make_mail(due_at=NOW)

    assert hold_mails([mail.pk], actor="olga", using=USING, reason="ask first") == 1
    mail.refresh_from_db()
    assert (mail.state, mail.problem) == ("blocked", "held by olga: ask first")

    assert release_mails([mail.pk], actor="olga", using=USING) == 1
    mail.refresh_from_db()
    assert (mail.state, mail.problem, mail.recipients) == ("queued", "", ["a@example.org"])
    assert mail.due_at > NOW


@pytest.mark.parametrize("state", ["sending", "sent", "partial", "failed", "uncertain", "blocked"])
def test_only_a_waiting_mail_can_be_held(state: str) -> None:
    flight = {"lease_until": NOW, "flight": 1} if state == "sending" else {}
    mail = make_mail(state=state, problem="x", **flight)

    assert hold_mails([mail.pk], actor="olga", using=USING) == 0


@pytest.mark.parametrize("fields", [{"recipients": []}, {"subject": ""}, {"state": "sent"}, {"state": "queued"}])
def test_a_mail_that_could_not_be_sent_or_was_not_held_is_not_released(fields: dict[str, Any]) -> None:
    mail = make_mail(**{"state": "blocked", "problem": "x"} | fields)

    assert release_mails([mail.pk], actor="olga", using=USING) == 0


def test_a_corrected_mail_goes_back_into_the_queue_with_each_address_once() -> None:
    mail = make_mail(state="blocked", problem="no recipient", recipients=[])

    assert (
        correct_mails([mail.pk], actor="o", using=USING, recipients="B@Example.org, b@example.org; c@example.org") == 1
    )

    mail.refresh_from_db()
    assert mail.state == "queued"
    assert len(mail.recipients) == 2


@pytest.mark.parametrize("recipients", ["", "nobody", "ok@example.org, bad", "a@example.org\r\nBcc: x"])
def test_a_correction_that_holds_no_address_is_refused_and_changes_nothing(recipients: str) -> None:
    mail = make_mail(state="blocked", problem="no recipient", recipients=[])

    with pytest.raises(WrongAddress):
        correct_mails([mail.pk], actor="o", using=USING, recipients=recipients)

    mail.refresh_from_db()
    assert (mail.state, mail.recipients) == ("blocked", [])


def test_a_task_is_done_once_and_keeps_who_was_first() -> None:
    task = make_task()

    assert finish_tasks([task.pk], actor="olga", using=USING) == 1
    assert finish_tasks([task.pk], actor="piotr", using=USING) == 0

    task.refresh_from_db()
    assert task.done_by == "olga"
    assert task.done_at is not None


@pytest.mark.django_db(transaction=True)
def test_of_four_people_who_finish_one_task_one_wins() -> None:
    task = make_task()

    won = race(4, lambda number: finish_tasks([task.pk], actor=f"person{number}", using=USING))

    assert sorted(won) == [0, 0, 0, 1]
    assert TaskQueue.objects.get().done_by == f"person{won.index(1)}"


@pytest.mark.django_db(transaction=True)
def test_the_naive_way_lets_all_four_believe_they_won() -> None:
    """The positive control: look first, write afterwards, while everybody looks at the same moment."""
    import threading

    task = make_task()
    everybody_looked = threading.Barrier(4)

    def naive(number: int) -> int:
        is_open = TaskQueue.objects.get(pk=task.pk).done_at is None
        everybody_looked.wait(20)
        return TaskQueue.objects.filter(pk=task.pk).update(done_at=NOW, done_by=str(number)) if is_open else 0

    assert race(4, naive) == [1, 1, 1, 1]
