"""Steps with ``coalesce``: each event has its control row, all new ones of a key have one message, none is missed."""

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.test import override_settings

from notify import checks
from notify.delivery.runner import deliver_due
from notify.dialects import dialect_of
from notify.explain.event import explain_event
from notify.messages import coalesce as coalescing
from notify.models import Control, MailQueue
from notify.operations.preview import preview_example
from notify.operations.rebuild import remake_mails
from notify.passes import writer
from notify.passes.runner import run_pass
from notify.steps import Event
from notify.transports.memory import MemoryTransport
from portal.models import Comment
from portal.notifications import CommentAdded, EachComment
from tests.factories import NOW, make_comment, make_contact, make_line
from tests.notify.samples import Lined, make_comments
from tests.racing import race

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def each(add_step: Any) -> None:
    """Tell of each comment, as PORTAL_EACH_COMMENT has it."""
    add_step(EachComment)


def told() -> Counter[int]:
    """Return how many mails tell of each comment."""
    payloads = MailQueue.objects.filter(control__kind="comment").values_list("payload", flat=True)
    return Counter(event["key2"] for payload in payloads for event in payload["events"])


def comments(n: int, **fields: Any) -> list[Comment]:
    return make_comments(n, recipient=make_contact(), **fields)


def test_all_new_events_of_a_key_become_one_mail_that_has_them_oldest_first(each: None) -> None:
    one, other = comments(3, body="Hm?"), comments(1)

    report = run_pass(now=NOW, is_full=True)

    assert [(step.candidates, step.mails) for step in report.steps] == [(4, 2)]
    assert Control.objects.count() == 4
    mail = MailQueue.objects.get(control__key=one[0].line_id)
    assert [event["key2"] for event in mail.payload["events"]] == [comment.pk for comment in one]
    assert mail.control.key2 == one[-1].pk
    assert mail.subject.endswith(": 3 new comments")
    assert MailQueue.objects.get(control__key=other[0].line_id).subject.endswith(": 1 new comment")
    covered = Control.objects.filter(covered_by=mail.control).values_list("key2", flat=True)
    assert set(covered) == {comment.pk for comment in one[:-1]}


def test_the_body_shows_each_of_them(each: None) -> None:
    line = make_line()
    for body in ("First", "Second"):
        make_comment(line=line, recipient=make_contact(), body=body)
    run_pass(now=NOW, is_full=True)
    transport = MemoryTransport()

    deliver_due(transport=transport)

    [email] = transport.letters
    assert email.text.index("First") < email.text.index("Second")
    assert "First" in email.html
    # Whoever is addressed by one of them gets it.
    assert len(email.recipients) == 2


def test_a_later_event_of_the_key_gives_another_mail_of_its_own(each: None) -> None:
    line = make_line()
    first = comments(2, line=line)
    run_pass(now=NOW, is_full=True)
    late = make_comment(line=line, recipient=make_contact())

    run_pass(now=NOW, is_full=True)
    run_pass(now=NOW, is_full=True)

    assert told() == Counter([*(comment.pk for comment in first), late.pk])
    assert MailQueue.objects.count() == 2


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_key_is_told_in_one_mail_wherever_the_chunks_end(each: None, configure: Any, rows: int) -> None:
    configure(CHUNK_ROWS=rows)
    lines = [make_line() for _ in range(3)]
    for _ in range(3):
        for line in lines:
            comments(1, line=line)

    run_pass(now=NOW, is_full=True)

    assert MailQueue.objects.count() == 3
    assert set(told().values()) == {1}
    assert len(told()) == 9


def test_a_key_with_very_many_events_makes_several_mails(each: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalescing, "EVENTS_MAX", 2)
    found = comments(5)

    run_pass(now=NOW, is_full=True)

    assert MailQueue.objects.count() == 3
    assert told() == Counter(comment.pk for comment in found)


def test_the_circuit_breaker_counts_mails_and_lets_whole_keys_through(add_step: Any) -> None:
    add_step(type("Limited", (EachComment,), {"breaker": 2}))
    lines = [make_line() for _ in range(3)]
    for minute, line in enumerate([*lines, *lines]):
        make_comment(line=line, recipient=make_contact(), created_at=NOW + timedelta(minutes=minute))
    waiting = Comment.objects.filter(line=lines[2]).first()
    assert waiting is not None
    [event] = explain_event(kind="comment", key=lines[2].pk, key2=waiting.pk).events
    assert "behind_breaker" in [finding.code for finding in event.findings]

    report = run_pass(now=NOW, is_full=True)

    assert (report.steps[0].candidates, report.steps[0].mails) == (4, 2)
    assert (report.steps[0].error or "").startswith("circuit breaker: 2 prepared, 2 wait")
    assert set(MailQueue.objects.values_list("control__key", flat=True)) == {line.pk for line in lines[:2]}
    run_pass(now=NOW, is_full=True)
    assert len(told()) == 6


def test_a_baseline_marks_each_event_and_a_dry_run_none(each: None) -> None:
    comments(3)

    dry = run_pass(now=NOW, is_dry_run=True)
    assert (dry.steps[0].candidates, dry.steps[0].mails) == (3, 1)
    assert Control.objects.count() == 0

    run_pass(now=NOW, is_baseline=True)
    assert Control.objects.count() == 3
    assert not Control.objects.filter(covered_by__isnull=False).exists()
    assert MailQueue.objects.count() == 0


def test_when_another_pass_was_faster_with_one_event_the_others_are_told_alone(
    each: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = comments(3)
    real = writer.make_messages

    def be_slower(step: Any, events: Any, **options: Any) -> Any:
        monkeypatch.setattr(writer, "make_messages", real)
        Control.objects.create(kind="comment", key=found[0].line_id, key2=found[2].pk)
        return real(step, events, **options)

    monkeypatch.setattr(writer, "make_messages", be_slower)

    report = run_pass(now=NOW, is_full=True)

    assert told() == Counter([found[0].pk, found[1].pk])
    assert report.outcome == "ok"


def test_each_event_is_explained_by_the_message_that_tells_of_it(each: None) -> None:
    found = comments(2)
    run_pass(now=NOW, is_full=True)
    mail = MailQueue.objects.get()

    for comment in found:
        [event] = explain_event(kind="comment", key=comment.line_id, key2=comment.pk).events
        assert [finding.code for finding in event.findings] == ["notified", "coalesced"]
        assert [one.id for one in event.mails] == [mail.pk]


def test_a_mail_made_anew_has_all_its_events(each: None) -> None:
    found = comments(3)
    run_pass(now=NOW, is_full=True)
    mail = MailQueue.objects.get()
    MailQueue.objects.update(state="blocked", subject="", problem="x", payload={})

    assert remake_mails([mail.pk], using="default") == 1

    assert told() == Counter(comment.pk for comment in found)
    mail.refresh_from_db()
    assert mail.subject.endswith("3 new comments")


def test_the_example_of_one_event_can_be_previewed(each: None) -> None:
    shown = preview_example("comment", language="en")

    assert "1 new comment" in shown.subject
    assert "When will it ship?" in shown.text


def test_a_flagged_step_cannot_coalesce_and_events_is_a_known_name(each: None) -> None:
    ids = [found.id for found in checks.check_step(type("Both", (Lined,), {"coalesce": True})())]
    assert "notify.E013" in ids
    assert [found for found in checks.check_step(EachComment()) if found.id == "notify.W008"] == []


def test_one_recipient_of_all_stays_as_the_query_gave_it() -> None:
    events = [
        Event("comment", 1, 1, "a@example.org; b@example.org"),
        Event("comment", 1, 2, "a@example.org; b@example.org"),
    ]
    assert coalescing.all_recipients(events) == "a@example.org; b@example.org"

    mixed = [Event("comment", 1, 1, "a@example.org"), Event("comment", 1, 2, ["b@example.org", "a@example.org", "?"])]
    assert coalescing.all_recipients(mixed) == ["a@example.org", "b@example.org", "'?'"]


def insert_late(line: int, recipient: str, *, hold: Any, body: str = "x") -> int:
    """Insert a comment in a transaction that commits only when ``hold`` returns."""
    with transaction.atomic():
        comment = Comment.objects.create(
            line_id=line,
            author="a",
            recipient_id=recipient,
            body=body,
            created_at=dialect_of(connection).now(connection),
        )
        hold()
    return comment.pk


def storm(passes: int = 12, writers: int = 4, each_writes: int = 12) -> set[int]:
    """Write comments in transactions that commit in any order while passes run; return what was written."""
    lines, contact = [make_line().pk for _ in range(3)], make_contact().name

    def work(number: int) -> list[int]:
        if number == 0:
            for _ in range(passes):
                run_pass(is_full=True)
            return []
        order = random.Random(number)
        return [
            insert_late(order.choice(lines), contact, hold=lambda: connections["default"].cursor().execute("SELECT 1"))
            for _ in range(each_writes)
        ]

    outcomes = race(writers + 1, work)
    assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)], outcomes
    run_pass(is_full=True)
    return {pk for outcome in outcomes for pk in outcome}


def test_in_a_storm_of_commits_in_any_order_each_event_is_told_exactly_once(each: None) -> None:
    written = storm()

    assert told() == Counter(written)
    assert set(Control.objects.filter(kind="comment").values_list("key2", flat=True)) == written


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer at a time")
@pytest.mark.parametrize(("step", "is_told"), [(EachComment, True), (CommentAdded, False)])
def test_an_event_that_commits_late_is_told_by_coalesce_and_lost_by_the_newest_rule(
    add_step: Any, step: Any, is_told: bool
) -> None:
    """The control: the rule of the newest comment loses what commits after a newer one was told."""
    add_step(step)
    line, contact = make_line().pk, make_contact().name
    newer: list[int] = []

    def overtake() -> None:
        def other(_: int) -> None:
            newer.append(insert_late(line, contact, hold=lambda: None))
            run_pass(is_full=True)

        (outcome,) = race(1, other)
        assert outcome is None

    late = insert_late(line, contact, hold=overtake)
    run_pass(is_full=True)

    known = set(Control.objects.filter(kind="comment").values_list("key2", flat=True))
    assert known == ({late, *newer} if is_told else set(newer))


def test_the_portal_tells_of_the_newest_unless_the_setting_says_of_each() -> None:
    with override_settings(PORTAL_EACH_COMMENT=False):
        assert not CommentAdded.coalesce
    assert EachComment.kind == CommentAdded.kind
    assert EachComment.coalesce
