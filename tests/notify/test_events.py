"""From candidates to queue rows: duplicates, known events, their order, groups, languages and names of values."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F, Max, Value
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from notify.models import Control, MailQueue, RunLog, TaskQueue
from notify.steps import find_language, supported_language
from portal.models import Comment
from tests.babelfish import is_stand_in
from tests.factories import NOW, make_comment, make_contact, make_line, make_order
from tests.notify.samples import Remark, do_pass, later, mailed, make_comments, noted
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


def test_one_event_has_one_mail_for_two_spellings_of_an_address():
    """M9, the preparing half: supplier and buyer are the same person."""
    order = make_order(
        supplier=make_contact(email="ok@example.org"), buyer=make_contact(email="OK@example.org"), registered_at=NOW
    )
    make_line(order=order)

    do_pass()

    assert MailQueue.objects.get(control__key=order.pk).recipients == ["ok@example.org"]


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


@pytest.mark.parametrize(
    ("code", "language"),
    [
        *[(code, "pl") for code in ("pl", "PL", "pl_PL", "pl-pl", "PL_pl", " pl ", "pl\n", "pl_PL.UTF-8", "pl@euro")],
        *[(code, "ja") for code in ("ja-JP", "ja_jp", "ja-Hira-JP")],
        *[(code, "en") for code in ("xx", "", " ", None, "x" * 501, "_", "-", "pl PL", "\0", "p", "polski")],
    ],
)
def test_a_recipient_s_language_is_the_nearest_the_site_has(code, language):
    assert supported_language(code) == language


@pytest.mark.parametrize(
    ("given", "found", "asked"),
    [
        ("pt_BR", "pt-br", ""),
        ("pt_PT", "pt", "pt-pt"),
        ("zh_Hans", "zh-hans", ""),
        ("zh-Hant", "zh-hant", ""),
        ("zh_CN", "zh-hans", "zh-cn"),
        ("zh_TW", "zh-hant", "zh-tw"),
        ("de_CH", "de-ch", ""),
        ("fr_FR", "en", "fr_FR"),
        ("", "en", ""),
    ],
)
def test_spellings_of_one_language_are_one_and_another_falls_back_to_its_parent(settings, given, found, asked):
    settings.LANGUAGES = [(code, code) for code in ("en", "pt", "zh-hans", "zh-hant", "pt-br", "de-ch")]
    find_language.cache_clear()
    try:
        assert find_language(given) == (found, asked)
    finally:
        find_language.cache_clear()


def test_a_language_that_the_site_does_not_have_is_said_in_the_row_and_once_in_the_pass(add_step):
    """A variant whose parent the site has is said in the row only: its reader reads that."""

    class Spoken(Remark):
        def events(self, scope):
            return super().events(scope).annotate(language=F("author"))

    add_step(Spoken)
    for author in ("pl", "pl_PL", "xx", "xx", "tlh-KX"):
        make_comments(1, author=author)

    report = do_pass()

    mails = [(m.language, m.problem, m.payload.get("$language"), m.state) for m in MailQueue.objects.order_by("pk")]
    assert mails == [
        ("pl", "", None, "queued"),
        ("pl", "", "pl-pl", "queued"),
        ("en", "no language 'xx' on this site: in en", "xx", "queued"),
        ("en", "no language 'xx' on this site: in en", "xx", "queued"),
        ("en", "no language 'tlh-KX' on this site: in en", "tlh-KX", "queued"),
    ]
    [step] = report.steps
    assert step.error.count("asked for a language") == 1
    assert step.error.startswith("3 asked for a language that this site does not have: xx, tlh-KX")


@given(st.text(max_size=20))
def test_no_language_code_fails(code):
    assert supported_language(code) in ("en", "pl", "ja")


@pytest.mark.parametrize("kinds", [["comment"], ["comment", "advice"]])
def test_only_the_asked_steps_run_in_their_own_order(kinds):
    report = do_pass(kinds=kinds, now=later())

    assert [step.step for step in report.steps] == sorted(kinds)
    assert set(RunLog.objects.values_list("step", flat=True)) == {"pass", *kinds}


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

    assert do_pass().outcome == "warning"
    assert Control.objects.get(kind="numbered").language == "en"
