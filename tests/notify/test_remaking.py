"""A message that could not be made is made anew when a person releases it; one bad mail spoils no digest."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.db.models import F, FloatField, Value
from django.template.autoreload import reset_loaders
from django.test import Client
from django.urls import reverse

from notify.delivery.runner import deliver_due
from notify.messages import loading
from notify.models import MailQueue, TaskQueue
from notify.operations.mails import correct_mail, release_mails
from notify.transports.memory import MemoryTransport
from portal.models import Comment, OrderLine
from tests.factories import NOW
from tests.mails import make_mail, state
from tests.notify.samples import Lined, Remark, do_pass, make_comments, make_lines

pytestmark = pytest.mark.django_db(transaction=True)
BROKEN, MENDED = '{% include "not/there.txt" %}', "Comment by {{ author }}"


@pytest.fixture
def mend(write_template):
    """Break the subject's template; return the function that mends it."""
    write_template("mail/odd.subject.txt", BROKEN)
    write_template("mail/odd.body.txt", "{{ author }}: {{ body }}")

    def mended() -> None:
        write_template("mail/odd.subject.txt", MENDED)
        forget_templates()

    return mended


def forget_templates() -> None:
    """Read templates anew, as the next process would."""
    reset_loaders()
    loading.clear_cache()


def the_mail() -> MailQueue:
    return MailQueue.objects.get()


def test_a_mail_that_could_not_be_made_is_made_anew_on_release(add_step, mend):
    add_step(type("Odd", (Remark,), {"template": "odd"}))
    make_comments(1)
    do_pass()
    assert the_mail().problem.startswith("cannot be made: TemplateDoesNotExist")
    mend()

    assert release_mails(MailQueue.objects.all(), actor="ann") == 1
    transport = MemoryTransport()
    deliver_due(transport=transport)

    [letter] = transport.letters
    assert (letter.subject, letter.recipients) == ("Comment by bob", ("ann@example.org",))
    assert letter.text == "bob:\n"
    assert (the_mail().state, the_mail().operator) == ("sent", "ann")


def test_one_that_still_cannot_be_made_stays_blocked_and_says_why(add_step, mend):
    add_step(type("Odd", (Remark,), {"template": "odd"}))
    make_comments(1)
    do_pass()
    MailQueue.objects.update(problem="cannot be made: something of before")

    assert release_mails(MailQueue.objects.all(), actor="ann") == 0

    assert (the_mail().state, the_mail().subject) == ("blocked", "")
    assert the_mail().problem.startswith("cannot be made: TemplateDoesNotExist")


def test_the_rows_of_now_count_and_the_frozen_values_when_they_are_gone(add_step, mend):
    add_step(type("Odd", (Remark,), {"template": "odd"}))
    first, second = make_comments(2)
    do_pass()
    mend()
    Comment.objects.filter(pk=first.pk).update(author="carl")
    Comment.objects.filter(pk=second.pk).delete()

    assert release_mails(MailQueue.objects.all(), actor="ann") == 2

    made = dict(MailQueue.objects.values_list("control__key", "subject"))
    assert made == {first.pk: "Comment by carl", second.pk: "Comment by bob"}


def test_a_flagged_event_which_its_query_gives_no_more_is_made_of_its_frozen_values(add_step, write_template):
    write_template("mail/odd.subject.txt", BROKEN)
    add_step(type("Odd", (Lined,), {"template": "odd"}))
    make_lines(1, item="Bolt M8")
    do_pass()
    assert OrderLine.objects.filter(handled=False).count() == 0
    write_template("mail/odd.subject.txt", "Line: {{ item }}")
    forget_templates()

    assert release_mails(MailQueue.objects.all(), actor="ann") == 1

    assert (the_mail().subject, the_mail().recipients) == ("Line: Bolt M8", ["ann@example.org"])


def test_a_value_that_no_json_has_is_made_anew_of_the_row_that_was_corrected(add_step, write_template):
    factor = {"value": float("nan")}

    class Odd(Remark):
        def events(self, scope):
            known = Value(factor["value"], FloatField())
            return Comment.objects.values(
                "author",
                "body",
                key=F("pk"),
                event_at=F("created_at"),
                recipients=Value("ann@example.org"),
                item=Value("i"),
                number=known if factor["value"] == factor["value"] else Value("nan"),
            )

    add_step(Odd)
    make_comments(1)
    do_pass()
    MailQueue.objects.update(
        state="blocked", subject="", payload={}, recipients=[], problem="cannot be made: ValueError"
    )
    factor["value"] = 1.5

    assert release_mails(MailQueue.objects.all(), actor="ann") == 1

    assert the_mail().payload["number"] == 1.5
    assert the_mail().recipients == ["ann@example.org"]


def test_what_a_person_has_corrected_stays(add_step, mend):
    add_step(type("Odd", (Remark,), {"template": "odd"}))
    make_comments(1)
    do_pass()
    correct_mail(the_mail().pk, recipients="ben@example.org", actor="ann")
    mend()

    release_mails(MailQueue.objects.all(), actor="ann")

    assert (the_mail().recipients, the_mail().subject) == (["ben@example.org"], "Comment by bob")


def test_a_mail_of_a_kind_that_no_app_registers_stays_blocked(add_step):
    make_mail(kind="gone", state="blocked", subject="", payload={}, problem="cannot be made: x")

    assert release_mails(MailQueue.objects.all(), actor="ann") == 0
    assert the_mail().problem == "cannot be made: x"


def test_the_command_and_the_page_make_it_anew_too(add_step, mend):
    from django.contrib.auth.models import User

    add_step(type("Odd", (Remark,), {"template": "odd"}))
    make_comments(2)
    do_pass()
    mend()
    one, other = MailQueue.objects.order_by("pk")
    out = StringIO()
    call_command("notify_release", str(one.pk), "--actor", "ann", "--json", stdout=out)
    client = Client()
    client.force_login(User.objects.create_superuser("root"))

    page = client.get(reverse("admin:notify_mailqueue_change", args=[other.pk]))
    assert b"action/release/" in page.content
    data = {"pk": [other.pk], "scope": "selected", "confirmed": "1"}
    client.post(reverse("admin:notify_mailqueue_action", args=["release"]), data)

    assert '"released": 1' in out.getvalue()
    assert set(MailQueue.objects.values_list("state", "subject")) == {("queued", "Comment by bob")}


def test_a_mail_that_cannot_be_rendered_is_blocked_alone_and_the_others_of_the_digest_go(add_step):
    add_step(type("Digested", (Remark,), {"digest": timedelta(hours=1)}))
    for place in range(3):
        mails = [
            make_mail(kind="remark", payload=["no object"]) if n == place else make_mail(kind="remark")
            for n in range(3)
        ]
        transport = MemoryTransport()

        report = deliver_due(transport=transport)

        assert (report.sent, report.blocked) == (2, 1), place
        [letter] = transport.letters
        assert letter.subject == "2 notifications"
        assert [state(mail) for mail in mails] == ["blocked" if n == place else "sent" for n in range(3)]
        assert set(MailQueue.objects.filter(state="blocked").values_list("digest_of", flat=True)) == {None}


def test_a_digest_of_which_one_mail_only_can_be_rendered_is_that_mail(add_step):
    add_step(type("Digested", (Remark,), {"digest": timedelta(hours=1)}))
    good, bad = make_mail(kind="remark"), make_mail(kind="remark", payload=["no object"])
    transport = MemoryTransport()

    deliver_due(transport=transport)

    assert [letter.subject for letter in transport.letters] == [good.subject]
    assert (state(good), state(bad)) == ("sent", "blocked")


def test_a_digest_that_was_sent_once_is_tried_again_as_it_was_though_a_mail_of_it_cannot_be_rendered_now(add_step):
    from notify.models import AttemptOutcome
    from notify.transports.base import Reply, Result

    add_step(type("Digested", (Remark,), {"digest": timedelta(hours=1)}))
    mails = [make_mail(kind="remark") for _ in range(2)]
    first = MemoryTransport(lambda letter: [Result("ann@example.org", AttemptOutcome.DEFERRED, Reply(450))])
    deliver_due(transport=first)
    MailQueue.objects.update(payload=["no object"], due_at=NOW)
    again = MemoryTransport()

    deliver_due(transport=again)

    assert [(one.subject, one.text) for one in again.letters] == [(one.subject, one.text) for one in first.letters]
    assert [state(mail) for mail in mails] == ["sent", "sent"]


def test_a_digest_that_could_not_be_made_goes_to_each_recipient_once(add_step, mend):
    class Two(Remark):
        template, digest = "odd", True

        def events(self, scope):
            both = Value("ann@example.org;ben@example.org")
            return Comment.objects.values("author", key=F("pk"), event_at=F("created_at"), recipients=both)

    add_step(Two)
    make_comments(1)
    do_pass()
    mend()

    assert release_mails(MailQueue.objects.all(), actor="ann") == 2

    made = MailQueue.objects.order_by("pk").values_list("recipients", "subject")
    assert list(made) == [([f"{name}@example.org"], "Comment by bob") for name in ("ann", "ben")]


def test_the_task_that_could_not_be_made_with_the_mail_is_made_with_it_once(add_step, mend, write_template):
    write_template("task/odd.title.txt", "Answer {{ author }}")
    add_step(type("Odd", (Remark,), {"template": "odd", "task": "odd"}))
    make_comments(1)
    do_pass()
    assert not TaskQueue.objects.exists()
    mend()

    for _ in range(2):
        release_mails(MailQueue.objects.all(), actor="ann")

    assert list(TaskQueue.objects.values_list("title", "payload__author")) == [("Answer bob", "bob")]


def test_a_step_whose_query_fails_now_keeps_no_mail_from_being_made_of_its_frozen_values(add_step, mend):
    class Odd(Remark):
        template = "odd"
        faults: list[Exception] = []

        def events(self, scope):
            for fault in self.faults:
                raise fault
            return super().events(scope)

    add_step(Odd)
    make_comments(1)
    do_pass()
    mend()
    Odd.faults.append(TypeError("no such luck"))

    assert release_mails(MailQueue.objects.all(), actor="ann") == 1
    assert the_mail().subject == "Comment by bob"


def test_a_task_without_a_mail_that_cannot_be_made_is_there_and_says_why(add_step, write_template):
    write_template("task/odd.title.txt", BROKEN)
    add_step(type("Odd", (Remark,), {"template": None, "task": "odd"}))
    make_comments(1)

    report = do_pass()

    [(title, payload)] = TaskQueue.objects.values_list("title", "payload")
    assert title.startswith("cannot be made: TemplateDoesNotExist")
    assert payload["author"] == "bob"
    assert (report.outcome, report.steps[0].tasks) == ("warning", 1)
