"""Events without an address, a message, a key or the database's consent: each fails alone, the others go on."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import BigIntegerField, F, Value

from notify.models import Control, MailQueue
from portal.models import Comment
from tests.factories import NOW, make_comment, make_contact, make_line
from tests.notify.samples import Remark, do_pass, log_row, make_comments, noted

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_message_that_cannot_be_made_is_blocked_and_the_others_go_on(add_step, write_template):
    write_template("mail/odd.subject.txt", "{{ body.0 }}{% if body == 'bad' %}{% include missing %}{% endif %}")
    add_step(type("Odd", (Remark,), {"template": "odd"}))
    line = make_line()
    bodies = ["good", "bad", "fine"]
    keys = [
        make_comment(line=line, body=body, created_at=NOW + timedelta(seconds=n)).pk for n, body in enumerate(bodies)
    ]

    report = do_pass(now=NOW + timedelta(hours=1))

    mails = {mail.control.key: mail for mail in MailQueue.objects.select_related("control")}
    assert [mails[key].state for key in keys] == ["queued", "blocked", "queued"]
    assert mails[keys[1]].problem.startswith("cannot be made: ")
    assert (report.outcome, report.steps[0].mails) == ("warning", 2)
    assert f"1 blocked: {keys[1]} (cannot be made" in report.steps[0].error
    assert noted("remark") == keys


@pytest.mark.parametrize("email", ["", "nobody", "a@example.org\r\nBcc: x@example.org"])
def test_an_event_without_an_address_has_its_control_row_and_a_blocked_mail(email):
    """M6 (and M1 in the address): the event is settled, and what is wrong with it can be seen."""
    comment = make_comment(recipient=make_contact(email=email))

    do_pass()

    mail = MailQueue.objects.get(control__kind="comment", control__key=comment.line_id)
    assert (mail.state, mail.recipients) == ("blocked", [])
    assert mail.problem.startswith("no recipient")
    assert mail.subject.endswith("new comment by author")


@pytest.mark.parametrize("place", [0, 3, 6])
def test_the_one_row_that_the_database_refuses_is_blocked_and_the_others_go_on(add_step, refusing_trigger, place):
    add_step(Remark)
    line = make_line(item="")
    comments = [
        make_comment(line=line, author=f"a{number}", created_at=NOW + timedelta(seconds=number)) for number in range(7)
    ]
    refusing_trigger("notify_mail_queue", "subject", f"Order , : new comment by a{place}")

    report = do_pass(now=NOW + timedelta(hours=1))

    states = {mail.control.key: mail.state for mail in MailQueue.objects.select_related("control")}
    assert states == {comment.pk: "blocked" if number == place else "queued" for number, comment in enumerate(comments)}
    blocked = MailQueue.objects.get(state="blocked")
    assert blocked.problem.startswith("refused by the database: ")
    assert "refused by a trigger" in blocked.problem
    assert (report.outcome, report.steps[0].mails) == ("warning", 6)


def test_an_event_whose_control_row_is_refused_is_an_error_that_names_it_and_the_others_go_on(
    add_step, refusing_trigger
):
    add_step(Remark)
    comments = make_comments(5)
    refusing_trigger("notify_control", "key", comments[2].pk)

    report = do_pass()

    assert noted("remark") == [comment.pk for comment in comments if comment is not comments[2]]
    assert report.outcome == "error"
    assert f"1 not prepared: {comments[2].pk}" in report.steps[0].error
    assert not log_row(report, "remark").is_full, "it has not done all, so the next pass looks at all again"


def test_an_event_without_a_second_key_where_one_is_needed_fails_alone(add_step):
    class Keyless(Remark):
        kind = "keyless"

        def events(self, scope: Any) -> Any:
            found = super().events(scope)
            return found.annotate(key2=F("line__qty"))

    add_step(Keyless)
    make_comments(1, line=make_line(qty=None))
    (good,) = make_comments(1, line=make_line(qty=7))

    report = do_pass()

    assert noted("keyless") == [good.pk]
    assert report.outcome == "error"


@pytest.mark.parametrize("key2", [F("line__item"), F("line__qty") + 0.5, Value("7"), F("created_at")])
def test_an_event_whose_key_is_no_whole_number_is_an_error_and_no_message(add_step, key2):
    class Odd(Remark):
        kind = "odd"

        def events(self, scope: Any) -> Any:
            return super().events(scope).annotate(key2=key2)

        def candidates(self, scope: Any, **options: Any) -> Any:
            # PostgreSQL compares no text with a number; SQLite does, and that is what this is about.
            return self.events(scope)

    add_step(Odd)
    make_comments(1, line=make_line(qty=7))

    report = do_pass()

    assert noted("odd") == []
    # The check of the step's columns finds it before its first event does.
    assert "notify.E010: key2 is a " in report.steps[0].error
    assert "not a 64-bit integer" in report.steps[0].error


def test_one_key_with_and_without_a_second_key_fails_for_that_one_alone(add_step):
    class Halved(Remark):
        kind = "halved"

        def events(self, scope: Any) -> Any:
            return Comment.objects.values(
                "author",
                "body",
                key=Value(1, BigIntegerField()),
                key2=F("line__qty"),
                event_at=F("created_at"),
                recipients=Value("ann@example.org"),
            )

    add_step(Halved)
    for qty in (None, 7, 8):
        make_comments(1, line=make_line(qty=qty))

    report = do_pass()

    assert sorted(Control.objects.filter(kind="halved").values_list("key2", flat=True)) == [7, 8]
    assert "1 not prepared: 1/None" in report.steps[0].error
