"""From candidates to queue rows: duplicates, known events, refusals by the database, windows, going live."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.db.models import BigIntegerField, CharField, F, Max, Value
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from notify import conf
from notify.models import Control, MailQueue, Outcome, RunLog, TaskQueue
from notify.steps import supported_language
from portal.models import Comment, OrderLine
from tests.babelfish import is_stand_in
from tests.factories import NOW, make_advice, make_comment, make_contact, make_line, make_order
from tests.notify.samples import Remark, do_pass, later, log_row, mailed, make_comments, noted
from tests.racing import race

pytestmark = pytest.mark.django_db(transaction=True)


class Repeating(Remark):
    """Gives each line's number once for each of its comments, as a join without DISTINCT does."""

    kind = "repeating"

    def events(self, scope: Any) -> Any:
        return Comment.objects.values(
            "author", key=F("line_id"), event_at=F("created_at"), recipients=Value("ann@example.org")
        )


@pytest.mark.parametrize("chunk_rows", [1, 2, 100])
def test_a_key_that_the_query_gives_twice_gets_one_message_and_is_named(add_step, configure, chunk_rows):
    """E1, within one chunk and across chunks."""
    add_step(Repeating)
    configure(CHUNK_ROWS=chunk_rows)
    twice, once = make_line(), make_line()
    make_comments(3, line=twice)
    make_comments(1, line=once, at=NOW + timedelta(seconds=1))

    report = do_pass()

    assert mailed("repeating") == [twice.pk, once.pk]
    assert (report.outcome, report.steps[0].mails) == ("warning", 2)
    assert f"2 keys more than once: {twice.pk}, {twice.pk}" in report.steps[0].error


def test_a_step_with_tasks_only_notices_a_key_given_twice_as_well(add_step, configure):
    """E1 where there is no mail to find it by."""
    add_step(type("Tasked", (Repeating,), {"kind": "tasked", "template": None, "task": "rejected"}))
    configure(CHUNK_ROWS=1)
    make_comments(2)

    report = do_pass()

    assert TaskQueue.objects.count() == 1
    assert "more than once" in report.steps[0].error


def test_of_five_groups_the_third_is_known_already_and_the_other_four_are_queued(add_step):
    """E4: somebody else prepares the third after the candidates were found and before they are written."""
    add_step(Remark)
    comments = make_comments(5)
    asked: list[None] = []

    def interfere() -> bool:
        asked.append(None)
        if len(asked) == 2:  # before the step, then before its first chunk
            race(1, lambda _: Control.objects.create(kind="remark", key=comments[2].pk))
        return False

    report = do_pass(is_stopping=interfere, is_locking=False)

    assert mailed("remark") == [comment.pk for comment in comments if comment is not comments[2]]
    assert Control.objects.count() == 5
    assert (report.outcome, report.steps[0].candidates, report.steps[0].mails) == ("ok", 5, 4)


def test_known_events_are_not_inserted_again_and_use_up_no_ids(add_step):
    """E5: 3,000 known events and a new one."""
    add_step(Remark)
    comments = make_comments(3000)
    do_pass()
    last = Control.objects.latest("pk").pk

    with CaptureQueriesContext(connection) as captured:
        do_pass(is_full=True)
    make_comments(1, line=comments[0].line)
    do_pass()

    assert [query["sql"] for query in captured if "INSERT INTO notify_control" in query["sql"]] == []
    assert Control.objects.latest("pk").pk == last + 1
    assert MailQueue.objects.count() == 3001


def test_the_order_of_the_queue_is_that_of_the_events(add_step, configure):
    add_step(Remark)
    configure(CHUNK_ROWS=2)
    line = make_line()
    keys = [make_comment(line=line, created_at=NOW + timedelta(minutes=m)).pk for m in (3, 1, 2, 5, 4)]

    do_pass(now=NOW + timedelta(hours=1))

    assert mailed("remark") == [keys[1], keys[2], keys[0], keys[4], keys[3]]


def test_a_step_may_group_its_rows_when_its_key_is_what_they_are_grouped_by(add_step):
    class Busy(Remark):
        kind = "busy"
        is_windowed = False  # grouped, so that no index can serve a window

        def events(self, scope: Any) -> Any:
            grouped = Comment.objects.values(key=F("line_id"))
            return grouped.annotate(event_at=Max("created_at"), recipients=Max(Value("ann@example.org")))

    add_step(Busy)
    comments = make_comments(3)

    assert do_pass().error is None
    do_pass(is_full=True)

    assert mailed("busy") == [comments[0].line_id]


def test_a_step_whose_key_is_an_aggregate_fails_and_says_what_to_do(add_step):
    class Newest(Remark):
        kind = "newest"
        is_windowed = False

        def events(self, scope: Any) -> Any:
            return Comment.objects.values(key=F("line_id")).annotate(key2=Max("pk"), event_at=Max("created_at"))

    add_step(Newest)
    make_comments(1)

    report = do_pass()

    assert "step newest: key2 must not be an aggregate; select the one row" in report.steps[0].error


def test_a_step_that_knows_it_has_no_events_is_no_failure(add_step):
    add_step(type("Idle", (Remark,), {"events": lambda self, scope: super(type(self), self).events(scope).none()}))

    assert do_pass().outcome == "ok"


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


def test_one_event_has_one_mail_for_two_spellings_of_an_address():
    """M9, the preparing half: supplier and buyer are the same person."""
    order = make_order(
        supplier=make_contact(email="ok@example.org"), buyer=make_contact(email="OK@example.org"), registered_at=NOW
    )
    make_line(order=order)

    do_pass()

    assert MailQueue.objects.get(control__key=order.pk).recipients == ["ok@example.org"]


class Owned(Remark):
    """A remark that belongs to its line's tenant, as a mail and as a task."""

    kind = "owned"
    task = "rejected"

    def events(self, scope: Any) -> Any:
        return super().events(scope).values(*self.columns, tenant=F("line__item"))

    columns = ("author", "body", "key", "event_at", "recipients")


def whose(model: Any) -> dict[int, str]:
    """Return the tenant of each event's row."""
    path = "" if model is Control else "control__"
    return dict(model.objects.values_list(f"{path}key", "tenant"))


def test_an_event_s_tenant_stands_on_each_of_its_rows_and_in_its_values(add_step):
    add_step(Owned)
    keys = [make_comment(line=make_line(item=tenant)).pk for tenant in ("acme", "日本", "")]

    do_pass()

    expected = dict(zip(keys, ("acme", "日本", ""), strict=True))
    assert whose(Control) == whose(MailQueue) == whose(TaskQueue) == expected
    assert {mail.tenant: mail.payload["tenant"] for mail in MailQueue.objects.all()} == {
        t: t for t in expected.values()
    }


def test_an_event_whose_tenant_cannot_be_one_is_blocked_and_the_others_go_on(add_step):
    add_step(Owned)
    keys = [make_comment(line=make_line(item=tenant)).pk for tenant in ("acme", "x" * 65, "globex ", "globex")]

    report = do_pass()

    assert whose(Control) == dict(zip(keys, ("acme", "", "", "globex"), strict=True))
    states = dict(MailQueue.objects.values_list("control__key", "state"))
    assert [states[key] for key in keys] == ["queued", "blocked", "blocked", "queued"]
    assert (report.outcome, report.steps[0].mails, report.steps[0].tasks) == ("warning", 2, 2)


def test_a_step_without_tenants_and_one_whose_tenant_is_null_give_rows_of_nobody(add_step):
    add_step(type("Whose", (Remark,), {"kind": "null", "events": null_tenant}))
    add_step(Remark)
    make_comments(1)

    assert do_pass().outcome == "ok"

    assert set(Control.objects.values_list("kind", "tenant")) == {("null", ""), ("remark", "")}
    assert set(MailQueue.objects.values_list("tenant", flat=True)) == {""}


def null_tenant(step: Any, scope: Any) -> Any:
    return Remark.events(step, scope).annotate(tenant=Value(None, CharField()))


def test_a_baseline_notes_the_tenant_as_well_and_a_faulty_one_stops_nothing(add_step):
    add_step(Owned)
    keys = [make_comment(line=make_line(item=tenant)).pk for tenant in ("acme", "x" * 65)]

    assert do_pass(is_baseline=True).outcome == "ok"

    assert whose(Control) == dict(zip(keys, ("acme", ""), strict=True))


def test_the_portal_s_events_belong_to_the_tenant_of_their_order():
    order = make_order(tenant="globex", registered_at=NOW, supplier=make_contact(), buyer=make_contact())
    line = make_line(order=order, tenant="globex", state="rejected", rejected_at=NOW)
    make_comment(line=line, recipient=make_contact())
    make_advice(order=order, state="accepted", accepted_at=NOW)

    do_pass()

    expected = {(kind, "globex") for kind in ("order", "rejected", "advice", "comment")}
    assert set(Control.objects.values_list("kind", "tenant")) == expected
    assert set(MailQueue.objects.values_list("control__kind", "tenant")) == expected
    assert TaskQueue.objects.get().tenant == "globex"


def test_ninety_nine_others_go_out_beside_an_order_with_a_header_in_its_note():
    """M1, M2 and M7 through a whole pass, on this database."""
    supplier = make_contact(email="Ann <ann@example.org>")
    notes = ["A\r\nBcc: x@example.org", "<a href='https://example.org'>bot</a>", "x" * 1500, "Ж" * 300, "\0 \ud7ff 🧾"]
    if connection.vendor == "postgresql" or is_stand_in():
        notes[4] = "\ud7ff 🧾"  # PostgreSQL has no NUL to give
    for note in [*notes, *["plain"] * 95]:
        make_line(order=make_order(supplier=supplier, note=note, registered_at=NOW))

    report = do_pass()

    subjects = [mail.subject for mail in MailQueue.objects.order_by("control__key")]
    assert (report.outcome, len(subjects)) == ("ok", 100)
    assert all(len(subject.splitlines()) == 1 for subject in subjects)
    assert subjects[0].endswith(": A Bcc: x@example.org")
    assert subjects[1].endswith(": <a href='https://example.org'>bot</a>")
    assert {len(subjects[2]), len(subjects[3])} == {255}
    assert {mail.state for mail in MailQueue.objects.all()} == {"queued"}


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


@pytest.mark.parametrize(
    ("code", "language"),
    [("pl", "pl"), ("ja-JP", "ja"), ("PL", "pl"), ("xx", "en"), ("", "en"), (None, "en"), ("x" * 501, "en")],
)
def test_a_recipient_s_language_is_the_nearest_the_site_has(code, language):
    assert supported_language(code) == language


@given(st.text(max_size=20))
def test_no_language_code_fails(code):
    assert supported_language(code) in ("en", "pl", "ja")


@pytest.mark.parametrize(("age", "is_found"), [(timedelta(days=1), True), (timedelta(days=1, microseconds=1), False)])
def test_an_ordinary_pass_finds_what_is_as_old_as_the_window_and_nothing_older(add_step, age, is_found):
    add_step(Remark)
    do_pass(now=NOW - timedelta(hours=1))
    (comment,) = make_comments(1, at=NOW - age)

    do_pass(now=NOW)

    assert mailed("remark") == ([comment.pk] if is_found else [])


def test_an_event_committed_late_is_found_by_the_next_full_look(add_step):
    add_step(Remark)
    do_pass(now=NOW)
    make_comments(1, at=NOW - timedelta(days=30))

    do_pass(now=NOW + timedelta(hours=23))
    assert mailed("remark") == []

    report = do_pass(now=NOW + timedelta(days=1, seconds=5))
    assert len(mailed("remark")) == 1
    assert log_row(report, "remark").is_full


def test_the_full_option_looks_at_all_at_once(add_step):
    add_step(Remark)
    do_pass(now=NOW)
    make_comments(1, at=NOW - timedelta(days=30))

    do_pass(now=NOW + timedelta(seconds=5), is_full=True)

    assert len(mailed("remark")) == 1


@pytest.mark.parametrize(("since", "is_due"), [(timedelta(days=1), False), (timedelta(days=1, microseconds=1), True)])
def test_a_step_looks_at_all_when_it_last_did_longer_ago_than_full_every(add_step, since, is_due):
    add_step(Remark)
    RunLog.objects.create(
        pass_id="0" * 32, step="remark", started_at=NOW - since, ended_at=NOW, outcome=Outcome.OK, is_full=True
    )

    report = do_pass(now=NOW)

    assert log_row(report, "remark").is_full is is_due


def test_each_step_has_its_own_full_look(add_step):
    add_step(Remark)
    do_pass(now=NOW)
    add_step(type("Second", (Remark,), {"kind": "second"}))
    make_comments(1, at=NOW - timedelta(days=30))

    do_pass(now=NOW + timedelta(minutes=1))

    assert (mailed("remark"), len(mailed("second"))) == ([], 1)


@pytest.mark.parametrize("spoiler", ["failing", "limited", "stopped"])
def test_a_full_look_that_did_not_see_all_puts_nothing_off(add_step, configure, spoiler):
    class Spoilt(Remark):
        breaker = 1 if spoiler == "limited" else False

        def candidates(self, scope: Any, **options: Any) -> Any:
            if spoiler == "failing":
                raise RuntimeError("no events today")
            return super().candidates(scope, **options)

    add_step(Spoilt)
    configure(CHUNK_ROWS=1)
    make_comments(2, at=NOW - timedelta(days=30))
    asked: list[None] = []

    def is_stopping() -> bool:
        asked.append(None)
        return spoiler == "stopped" and len(asked) > 2

    first = do_pass(now=NOW, is_stopping=is_stopping)
    spoiler = ""
    second = do_pass(now=NOW + timedelta(minutes=1))

    assert not log_row(first, "remark").is_full
    assert log_row(second, "remark").is_full
    assert len(mailed("remark")) == 2


def test_a_clock_that_was_set_back_puts_no_full_look_off(add_step):
    """E16: the last full look lies in the future, so it says nothing."""
    add_step(Remark)
    do_pass(now=NOW)
    make_comments(1, at=NOW - timedelta(days=30))

    first = do_pass(now=NOW - timedelta(hours=1))
    second = do_pass(now=NOW - timedelta(minutes=59))

    assert len(mailed("remark")) == 1
    assert log_row(first, "remark").is_full
    assert not log_row(second, "remark").is_full, (
        "one look at all is enough; it must not look at all until the clock is back"
    )


@pytest.mark.parametrize("where", ["setting", "step", "both"])
@pytest.mark.parametrize(("offset", "is_found"), [(timedelta(0), True), (timedelta(microseconds=-1), False)])
def test_events_older_than_the_limit_are_never_notified(add_step, configure, where, offset, is_found):
    """Both sides of NOT_BEFORE; the later of the site's and the step's counts."""
    limit, earlier = NOW - timedelta(days=10), NOW - timedelta(days=20)
    add_step(type("Limited", (Remark,), {"not_before": {"setting": None, "step": limit, "both": earlier}[where]}))
    configure(NOT_BEFORE={"setting": limit, "step": None, "both": limit}[where])
    make_comments(1, at=limit + offset)

    do_pass(is_full=True)

    assert bool(mailed("remark")) is is_found
    assert bool(noted("remark")) is is_found


def test_a_date_as_limit_means_its_first_moment(configure):
    configure(NOT_BEFORE=date(2026, 1, 31))

    assert NOW.replace(hour=0) == conf.conf().NOT_BEFORE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LOOKBACK", timedelta(0)),
        ("LOOKBACK", timedelta(days=-1)),
        ("LOOKBACK", 1),
        ("BREAKER", 0),
        ("BREAKER", True),
        ("CHUNK_ROWS", "5"),
        ("NOT_BEFORE", "2026-01-31"),
        ("FOLD_LOCAL_PART", 1),
        ("NO_SUCH_SETTING", 1),
        ("LOG_RETENTION_DAYS", 1_000_000),
        ("BREAKER", 2**31),
        ("LOOKBACK", timedelta(days=999_999)),
        ("FULL_EVERY", timedelta(days=999_999)),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused_by_name(configure, name, value):
    configure(**{name: value})

    with pytest.raises(ImproperlyConfigured, match=name):
        conf.conf()


def test_a_baseline_marks_all_that_is_there_and_the_next_event_gives_a_mail(configure):
    """E15, with 300 old comments instead of 100,000: the number is the benchmark's affair."""
    configure(CHUNK_ROWS=100, NOT_BEFORE=NOW - timedelta(days=5))
    ann = make_contact()
    line, order = make_line(), make_order(registered_at=NOW - timedelta(days=400))
    waiting = make_line(order=order)
    make_comments(300, at=NOW - timedelta(days=400), line=line, recipient=ann)

    report = do_pass(is_baseline=True)
    do_pass(is_full=True)

    assert (MailQueue.objects.count(), TaskQueue.objects.count()) == (0, 0)
    assert (report.outcome, sum(step.mails for step in report.steps)) == ("ok", 0)
    assert noted("comment") == [line.pk], "one event a line: its newest comment"
    assert noted("order") == [order.pk], "older than NOT_BEFORE, but marked all the same"
    assert OrderLine.objects.get(pk=waiting.pk).handled

    make_comments(1, at=NOW, line=line, recipient=ann)
    do_pass()
    assert mailed("comment") == [line.pk]


def test_a_baseline_is_not_held_up_by_the_circuit_breaker(configure):
    configure(BREAKER=1)
    for _ in range(3):
        make_line(order=make_order(registered_at=NOW))

    do_pass(is_baseline=True)

    assert len(noted("order")) == 3


def everything() -> dict[str, list[Any]]:
    models = (Control, MailQueue, TaskQueue, RunLog, OrderLine)
    return {model.__name__: list(model.objects.order_by("pk").values()) for model in models}


def test_a_dry_run_writes_nothing_at_all_and_lists_what_it_would_queue(configure):
    RunLog.objects.create(pass_id="0" * 32, step="pass", started_at=NOW - timedelta(days=400))
    buyer = make_contact(email="buyer@example.org")
    order = make_order(buyer=buyer, number="PO-1", registered_at=NOW)
    line = make_line(order=order, item="Bolt", state="rejected", rejected_at=NOW)
    make_comment(line=line, author="Eve")
    before = everything()

    report = do_pass(is_dry_run=True)

    assert everything() == before
    assert report.outcome == "warning", "the comment has no recipient"
    assert [(one.event.kind, one.event.key, one.subject, one.state) for one in report.listed] == [
        ("order", order.pk, "New order PO-1", "queued"),
        ("rejected", line.pk, "Order PO-1: Bolt rejected", "queued"),
        ("comment", line.pk, "Order PO-1, Bolt: new comment by Eve", "blocked"),
    ]
    assert report.listed[1].title == "Find another supplier for Bolt of order PO-1"
    assert [(step.step, step.mails, step.tasks) for step in report.steps] == [
        ("order", 1, 0),
        ("rejected", 1, 1),
        ("advice", 0, 0),
        ("comment", 0, 0),
    ]


def test_after_a_dry_run_the_real_pass_queues_what_was_listed():
    make_comment(recipient=make_contact())
    listed = do_pass(is_dry_run=True).listed

    do_pass()

    assert [mail.subject for mail in MailQueue.objects.all()] == [one.subject for one in listed]
    assert len(listed) == 1


def test_a_dry_run_shows_the_circuit_breaker_as_the_real_pass_would(configure):
    configure(BREAKER=2)
    for minute in range(5):
        make_line(order=make_order(registered_at=NOW + timedelta(minutes=minute)))

    report = do_pass(is_dry_run=True, now=NOW + timedelta(hours=1))

    assert "circuit breaker: 2 prepared, 3 wait, the oldest since 2026-01-31T08:02:00" in report.steps[0].error


@pytest.mark.parametrize("kinds", [["comment"], ["comment", "advice"]])
def test_only_the_asked_steps_run_in_their_own_order(kinds):
    report = do_pass(kinds=kinds, now=later())

    assert [step.step for step in report.steps] == sorted(kinds)
    assert set(RunLog.objects.values_list("step", flat=True)) == {"pass", *kinds}


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
    (comment,) = make_comments(1, line=make_line(qty=7))

    report = do_pass()

    assert noted("odd") == []
    assert f"1 not prepared: {comment.pk}/" in report.steps[0].error


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


@pytest.mark.parametrize("name", ["rowid", "RowId", "oid", "_rowid_"])
def test_a_value_may_have_any_name(add_step, name):
    """SQLite calls the number of a row like that: taken for it, a value of 0 would hide every event."""

    class Named(Remark):
        kind = "named"

        def events(self, scope: Any) -> Any:
            return super().events(scope).annotate(**{name: Value(0)})

    add_step(Named)
    comments = make_comments(3)

    do_pass()

    assert noted("named") == [comment.pk for comment in comments]


def test_a_language_that_is_no_text_is_the_site_s_own(add_step):
    class Numbered(Remark):
        kind = "numbered"

        def events(self, scope: Any) -> Any:
            return super().events(scope).annotate(language=Value(7))

    add_step(Numbered)
    make_comments(1)

    assert do_pass().outcome == "ok"
    assert Control.objects.get(kind="numbered").language == "en"


def test_a_step_may_say_its_limit_as_a_date_beside_the_site_s(add_step, configure):
    class Dated(Remark):
        kind = "dated"
        not_before = date(2020, 1, 1)

    configure(NOT_BEFORE=datetime(2020, 1, 1, tzinfo=UTC))
    add_step(Dated)
    make_comments(1)

    assert do_pass().outcome == "ok"
