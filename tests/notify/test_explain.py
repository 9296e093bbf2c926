"""Why an event was or was not notified, in plain sentences and as data."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import translation

from notify.delivery.runner import deliver_due
from notify.delivery.suppressions import suppress
from notify.explain.event import explain_event
from notify.models import Channel, MailQueue
from notify.operations.preview import preview_example
from notify.passes.runner import run_pass
from notify.steps import registered
from notify.transports.memory import MemoryTransport
from portal.models import OrderLine
from tests.factories import make_comment, make_contact, make_line, make_order
from tests.mails import make_mail
from tests.smtp import smtp_server

pytestmark = pytest.mark.django_db(transaction=True)


def codes(kind, key, key2=None):
    told = explain_event(kind=kind, key=key, key2=key2)
    return [finding.code for event in told.events for finding in event.findings]


def text(kind, key, key2=None):
    return "\n".join(said for event in explain_event(kind=kind, key=key, key2=key2).events for said in event.sentences)


def comment_now(**fields):
    return make_comment(recipient=make_contact(), created_at=datetime.now(UTC), **fields)


def test_a_sent_mail_is_told_from_its_pass_to_the_servers_words():
    comment = comment_now()
    report = run_pass()
    with smtp_server() as server:
        server.on_rcpt = lambda address: "450 4.2.0 greylisted" if server.mails == 1 else ""
        deliver_due(transport=server.transport())
        MailQueue.objects.update(due_at=comment.created_at)
        deliver_due(transport=server.transport())

    told = text("comment", comment.line_id)

    assert f"by pass {report.pass_id} on " in told
    assert "attempt 1" in told
    assert "not now, to be tried again: 450 4.2.0 greylisted (over smtp by " in told
    assert "sent: 250 2.0.0 taken" in told
    assert "It was sent on " in told
    assert codes("comment", comment.line_id, comment.pk) == ["notified"]


def test_what_a_waiting_mail_waits_for_is_said():
    comment = comment_now()
    run_pass()
    suppress(comment.recipient.email, reason="asked us to stop")
    now = datetime.now(UTC)
    Channel.objects.create(name="smtp", paused_at=now, paused_until=now + timedelta(hours=1), reason="421 too much")

    told = text("comment", comment.line_id)

    assert "waits for a delivery" in told
    assert "Channel smtp pauses until " in told
    assert "421 too much" in told
    assert f"{comment.recipient.email} is on the suppression list" in told


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"state": "blocked", "problem": "no recipient"}, "It is blocked: no recipient. Correct that"),
        ({"state": "failed"}, "nobody got it. To try the others again: notify_retry"),
        ({"state": "uncertain"}, "nobody knows whether it arrived"),
        ({"held_for": "quiet", "due_at": datetime(2126, 1, 1, tzinfo=UTC)}, "the end of the recipient's quiet hours"),
        ({"held_for": "digest", "due_at": datetime(2126, 1, 1, tzinfo=UTC)}, "others to join its digest until 2126"),
        ({"due_at": datetime(2126, 1, 1, tzinfo=UTC)}, "It is tried again after 2126"),
    ],
)
def test_how_a_mail_stands_and_what_to_do_is_said(fields, said):
    mail = make_mail(**fields)

    assert said in text("comment", mail.control.key)


def test_a_mail_in_a_digest_points_to_the_one_that_was_sent():
    leader = make_mail()
    follower = make_mail(digest_of=leader)
    deliver_due(transport=MemoryTransport())

    told = text("comment", follower.control.key)

    assert f"It travels in a digest, with mail {leader.pk}" in told
    assert "sent: 250 2.0.0 kept" in told
    assert "leads a digest of 2 mails" in text("comment", leader.control.key)


@pytest.mark.parametrize(
    ("language", "sent", "waiting"),
    [
        ("en", "It was sent on", "there is no such row"),
        ("pl", "Wysłano ją", "nie ma takiego wiersza"),
        ("ja", "に送信されました", "該当する行がない"),
    ],
)
def test_the_story_is_told_in_the_reader_s_language(language, sent, waiting):
    mail = make_mail(subject="100% of it")
    deliver_due(transport=MemoryTransport())

    with translation.override(language):
        told, untold = text("comment", mail.control.key), text("rejected", 987654)

    assert sent in told
    assert "100% of it" in told
    assert "250 2.0.0 kept" in told
    assert waiting in untold
    # Whatever a step's query asks for is said in the same language.
    with translation.override(language):
        line = make_line(order=make_order(registered_at=datetime.now(UTC)))
        OrderLine.objects.update(handled=True)
        conditions = [each for each in text("rejected", line.pk).splitlines() if "state" in each]
    assert conditions
    assert ("must be" in conditions[0]) is (language == "en")


def test_an_event_marked_by_a_baseline_is_told_from_a_notified_one():
    comment = comment_now()
    run_pass(is_baseline=True)

    assert codes("comment", comment.line_id) == ["baseline"]


def test_an_event_that_no_pass_has_seen_says_so():
    comment = comment_now()
    assert codes("comment", comment.line_id) == ["not_notified", "no_pass"]

    run_pass()
    later = comment_now()
    assert codes("comment", later.line_id) == ["not_notified", "not_seen_yet"]


def test_an_event_before_the_window_or_before_not_before_says_so(configure):
    comment = make_comment(recipient=make_contact(), created_at=datetime.now(UTC) - timedelta(days=3))
    assert codes("comment", comment.line_id) == ["not_notified", "outside_window", "no_pass"]
    assert "notify_pass --full" in text("comment", comment.line_id)

    configure(NOT_BEFORE=datetime.now(UTC) - timedelta(days=2))
    assert codes("comment", comment.line_id) == ["not_notified", "before_not_before"]


def test_an_event_behind_the_circuit_breaker_says_how_many_are_before_it(configure):
    configure(BREAKER=2)
    at = datetime.now(UTC)
    orders = [make_line(order=make_order(registered_at=at + timedelta(seconds=n))).order for n in range(3)]

    assert "behind_breaker" not in codes("order", orders[1].pk)
    assert "behind_breaker" in codes("order", orders[2].pk)
    assert "lets 2 of its kind through per pass, oldest first; 2 are before it" in text("order", orders[2].pk)


def test_the_condition_that_an_event_fails_is_named_with_what_is_there_instead():
    line = make_line(state="pending")

    told = text("rejected", line.pk)

    assert codes("rejected", line.pk) == ["not_notified", "condition"]
    assert "order line: state must be 'rejected', but is 'pending'" in told


def test_each_condition_that_fails_is_named():
    order = make_line(handled=True).order

    assert codes("order", order.pk) == ["not_notified", "handled", "condition", "condition"]
    told = text("order", order.pk)
    assert "there must be a matching order line" in told
    assert "order: registered_at must not be empty" in told


def test_an_older_comment_says_that_a_newer_one_took_its_place():
    older = comment_now()
    newer = comment_now(line=older.line)

    assert "there must be no comment like the one there is" in text("comment", older.line_id, older.pk)
    assert codes("comment", older.line_id) == ["not_notified", "no_pass"]
    run_pass()
    assert codes("comment", older.line_id, newer.pk) == ["notified"]


def test_handled_rows_without_a_message_are_told_as_handled_elsewhere():
    line = make_line(order=make_order(registered_at=datetime.now(UTC)))
    OrderLine.objects.update(handled=True)

    assert "handled" in codes("order", line.order_id)


def test_what_is_not_there_and_what_nobody_looks_for_is_said():
    assert codes("rejected", 987654) == ["not_notified", "no_row"]
    assert codes("nonsense", 1) == ["no_step"]


def test_a_step_that_failed_says_why(add_step):
    from tests.notify.samples import Remark

    class Failing(Remark):
        def candidates(self, scope, *, not_before, using):
            raise ValueError("the view is gone")

    add_step(Failing)
    comment = comment_now()
    run_pass()

    assert "failed: ValueError: the view is gone" in text("remark", comment.pk)


def test_every_finding_is_also_data(capsys):
    comment = comment_now()
    run_pass()
    deliver_due(transport=MemoryTransport())

    call_command("notify_explain", "comment", str(comment.line_id), "--json")

    told = json.loads(capsys.readouterr().out)
    [event] = told["events"]
    assert (told["kind"], told["key"], told["key2"]) == ("comment", comment.line_id, None)
    assert (event["key2"], event["is_notified"]) == (comment.pk, True)
    [attempt] = event["mails"][0]["attempts"]
    assert (attempt["outcome"], attempt["code"], attempt["recipient"]) == ("sent", 250, comment.recipient.email)
    assert event["sentences"]

    call_command("notify_explain", "comment", str(comment.line_id))
    assert capsys.readouterr().out.strip() == "\n".join(event["sentences"])


@pytest.mark.parametrize("language", ["en", "pl", "ja"])
@pytest.mark.parametrize("kind", ["order", "rejected", "advice", "comment"])
def test_each_kind_has_its_bodies_in_each_language_without_missing_values(kind, language, settings):
    settings.TEMPLATES = [
        {**settings.TEMPLATES[0], "OPTIONS": {**settings.TEMPLATES[0]["OPTIONS"], "string_if_invalid": "MISSING"}}
    ]
    from notify.messages import loading

    loading.clear_cache()
    try:
        preview = preview_example(kind, language=language)
    finally:
        loading.clear_cache()

    assert "object at" not in preview.headers["Message-ID"]
    assert "MISSING" not in preview.subject + preview.text + preview.html
    assert f'lang="{language}"' in preview.html
    english = preview_example(kind, language="en")
    assert (preview.text == english.text) is (language == "en")
    for step in registered():
        if step.kind == kind:
            assert all(str(value) in preview.text for name, value in step.example.items() if name != "tenant")


def test_a_value_full_of_markup_is_text_in_the_html_body():
    make_mail(payload={"author": "<b>x</b>", "body": "<script>alert(1)</script>", "item": "i", "number": "n"})
    transport = MemoryTransport()

    deliver_due(transport=transport)

    [letter] = transport.letters
    assert "<script>" not in letter.html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in letter.html
    assert "<script>alert(1)</script>" in letter.text


def test_a_preview_shows_the_queued_mail_or_what_a_pass_would_queue(capsys):
    comment = comment_now(body="When?")
    call_command("notify_preview", "comment", str(comment.line_id))
    assert "[would be queued]" in capsys.readouterr().out

    run_pass()
    call_command("notify_preview", "comment", str(comment.line_id))
    shown = capsys.readouterr().out
    assert "(queued)]" in shown
    assert f"Message-ID: <kwit.comment.{comment.line_id}.{comment.pk}.0." in shown
    assert "When?" in shown

    call_command("notify_preview", "comment", str(comment.line_id), "--html", "--language", "ja")
    assert 'lang="ja"' in capsys.readouterr().out
    call_command("notify_preview", "comment", "--json")
    assert json.loads(capsys.readouterr().out)["mails"][0]["recipients"] == ["somebody@example.org"]
    with pytest.raises(CommandError, match="notify_explain"):
        call_command("notify_preview", "comment", "987654")
    assert not MailQueue.objects.exclude(message_text="").exists()
