"""Finished mails go after a time, an address goes when somebody asks, and nothing is sent again."""

import json
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from notify import retention
from notify.delivery.runner import deliver_due
from notify.delivery.suppressions import suppress
from notify.models import Attempt, Control, MailQueue, RunLog, Suppression, TaskQueue
from notify.passes import run_pass
from notify.retention import FINISHED, forget_address, prune_mails
from tests.factories import NOW
from tests.mails import PAST, make_mail

pytestmark = pytest.mark.django_db(transaction=True)
OLD, NEW = NOW - timedelta(days=31), NOW - timedelta(days=29)


def make_old(state="sent", at=OLD, **fields):
    mail = make_mail(state=state, created_at=at, message_text="body", message_html="<p>body</p>", problem="p", **fields)
    Attempt.objects.create(mail=mail, number=1, recipient="ann@example.org", outcome="sent", at=at)
    return mail


@pytest.mark.parametrize("state", ["queued", "sent", "partial", "failed", "blocked", "uncertain", "withdrawn"])
@pytest.mark.parametrize("at", [OLD, NEW])
def test_finished_mails_go_when_they_are_old_and_all_others_stay(state, at):
    mail = make_old(state, at)

    done = prune_mails(now=NOW, days=30)

    is_gone = at == OLD and state in FINISHED
    assert MailQueue.objects.filter(pk=mail.pk).exists() is not is_gone
    assert Attempt.objects.exists() is not is_gone
    assert (done.mails, done.attempts) == ((1, 1) if is_gone else (0, 0))
    assert Control.objects.count() == 1


def test_bodies_go_before_any_mail():
    for _ in range(3):
        make_old()

    first = prune_mails(now=NOW, days=30, limit=3)
    assert (first.bodies, first.mails) == (3, 0)
    assert set(MailQueue.objects.values_list("message_text", "message_html")) == {("", "")}

    second = prune_mails(now=NOW, days=30, limit=2)
    assert (second.bodies, second.mails, MailQueue.objects.count()) == (0, 2, 1)


def test_a_digest_goes_as_a_whole_and_its_leader_last(monkeypatch):
    leader = make_old()
    for _ in range(5):
        make_old(digest_of=leader)
    monkeypatch.setattr(retention, "BATCH_ROWS", 2)

    done = prune_mails(now=NOW, days=30)

    assert (done.mails, done.attempts, MailQueue.objects.count()) == (6, 6, 0)


def test_what_was_pruned_is_not_sent_again(add_step, server):
    mail = make_mail()
    deliver_due(transport=server.transport())
    MailQueue.objects.filter(pk=mail.pk).update(created_at=OLD)
    prune_mails(now=NOW, days=30)

    run_pass(now=NOW)
    deliver_due(transport=server.transport())

    assert len(server.received) == 1
    assert Control.objects.count() == 1


def test_a_pass_does_a_bounded_part(configure):
    configure(MAIL_RETENTION_DAYS=30, MAIL_PRUNE_BATCH=4)
    for _ in range(5):
        make_old(at=PAST - timedelta(days=40))
    MailQueue.objects.update(message_text="", message_html="")

    run_pass()

    assert MailQueue.objects.count() == 1


def test_the_command_prunes_and_says_what(capsys, configure):
    make_old(at=PAST - timedelta(days=400))
    with pytest.raises(CommandError, match="NOTIFY_MAIL_RETENTION_DAYS"):
        call_command("notify_prune")

    call_command("notify_prune", "--json", "--days", "300")

    assert json.loads(capsys.readouterr().out) == {"bodies": 1, "mails": 1, "attempts": 1}


def test_an_address_is_erased_everywhere_and_nobody_elses(capsys):
    mail = make_mail(
        to=("Ann <Ann@Example.org>", "joann@example.org", "ben@example.org"),
        subject="For ann@example.org",
        payload={"who": ["ANN@EXAMPLE.ORG", {"ann@example.org": 1}], "n": 1},
        message_text="Dear ann@example.org, not joann@example.org",
        state="sent",
    )
    Control.objects.update(recipients="ann@example.org; ben@example.org")
    Attempt.objects.create(
        mail=mail, number=1, recipient="ann@example.org", outcome="refused", text="<ann@example.org> no"
    )
    TaskQueue.objects.create(control=mail.control, title="Call ann@example.org", assignee="ann@example.org")
    RunLog.objects.create(pass_id="00000000-0000-0000-0000-000000000001", step="pass", error="ann@example.org")
    suppress("ann@example.org", reason="x")
    suppress("joann@example.org", reason="x")

    call_command("notify_forget", "--json", "ANN@example.org")

    places = json.loads(capsys.readouterr().out)["places"]
    mail.refresh_from_db()
    assert mail.recipients == ["joann@example.org", "ben@example.org"]
    assert mail.subject == "For [erased]"
    assert mail.payload == {"who": ["[erased]", {"[erased]": 1}], "n": 1}
    assert mail.message_text == "Dear [erased], not joann@example.org"
    assert Control.objects.get().recipients == "[erased]; ben@example.org"
    attempt = Attempt.objects.get()
    assert (attempt.recipient, attempt.text) == ("[erased]", "<[erased]> no")
    task = TaskQueue.objects.get()
    assert (task.title, task.assignee) == ("Call [erased]", "[erased]")
    assert RunLog.objects.get().error == "[erased]"
    assert [row.address for row in Suppression.objects.all()] == ["joann@example.org"]
    assert places["notify_mail_queue.recipients"] == places["notify_attempt.recipient"] == 1
    assert places["notify_suppression.address"] == 1
    assert forget_address("ann@example.org").places == {}


def test_a_mail_that_waits_loses_that_recipient(server):
    mail = make_mail(to=("ann@example.org", "ben@example.org"))

    forget_address("ann@example.org")
    deliver_due(transport=server.transport())

    assert server.recipients() == ["ben@example.org"]
    mail.refresh_from_db()
    assert mail.state == "sent"


def test_a_mail_that_waits_loses_copies_sender_and_reply_addresses_and_is_sent(server):
    options = {
        "from_email": "Ann <ann@example.org>",
        "reply_to": ["Ann <ann@example.org>", "office@example.org"],
        "cc": ["ann@example.org", "books@example.org"],
        "bcc": ["ANN@example.org"],
        "headers": {"X-Clerk": "ann@example.org"},
    }
    mail = make_mail(to=("ben@example.org",), payload={"n": 1, "$mail": options})

    forget_address("ann@example.org")
    mail.refresh_from_db()
    assert mail.payload == {
        "n": 1,
        "$mail": {
            "reply_to": ["office@example.org"],
            "cc": ["books@example.org"],
            "bcc": [],
            "headers": {"X-Clerk": "[erased]"},
        },
    }
    deliver_due(transport=server.transport())

    assert server.recipients() == ["ben@example.org", "books@example.org"]
    mail.refresh_from_db()
    assert mail.state == "sent"


def test_a_withdrawn_mail_is_cleaned_too_and_stays_withdrawn():
    mail = make_mail(state="withdrawn", payload={"$mail": {"cc": ["ann@example.org"]}}, to=("ann@example.org",))

    forget_address("ann@example.org")

    mail.refresh_from_db()
    assert (mail.state, mail.recipients, mail.payload) == ("withdrawn", [], {"$mail": {"cc": []}})


def test_each_spelling_is_erased():
    mail = make_mail(to=("ann@bücher.example", "ann@xn--bcher-kva.example", "ann@buecher.example"))

    forget_address("ann@XN--BCHER-kva.example")

    mail.refresh_from_db()
    assert mail.recipients == ["ann@buecher.example"]


@pytest.mark.parametrize("text", ["", "nobody", "a@example.org, b@example.org"])
def test_what_is_not_one_address_is_refused(text):
    with pytest.raises(CommandError, match="not one mail address"):
        call_command("notify_forget", text)
