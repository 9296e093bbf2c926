"""A row that cannot be read costs itself only."""

import gc
import os
import re
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, models
from django.db.models import F, Value
from django.db.models.expressions import RawSQL
from django.db.models.functions import Cast

from notify.errors import PassKnown
from notify.models import Control, MailQueue, RunLog
from notify.passes.runner import run_pass
from portal.models import Comment
from tests.babelfish import stand_in_cannot
from tests.crashing import run_child
from tests.factories import NOW, make_comment, make_contact
from tests.notify.samples import Remark, make_comments

pytestmark = pytest.mark.django_db(transaction=True)

#: What Python cannot read: a text that is no UTF-8, a time after the year 9999.
SPOIL = {
    "sqlite": "UPDATE portal_comment SET body = CAST(X'FFFE41' AS TEXT) WHERE id = %s",
    "postgresql": "UPDATE portal_comment SET created_at = 'infinity' WHERE id = %s",
}


class Dated(Remark):
    """Its template gets the time, so that the time is read."""

    def events(self, scope: Any) -> Any:
        return Comment.objects.values(
            "author",
            "body",
            key=F("pk"),
            event_at=F("created_at"),
            at=F("created_at"),
            recipients=Value("a@example.org"),
        )


@pytest.mark.parametrize("chunk_rows", [2, 5000])
@pytest.mark.parametrize("limit", [False, 50])
def test_a_row_that_cannot_be_read_is_blocked_and_the_others_go_on(add_step, configure, chunk_rows, limit):
    if connection.vendor not in SPOIL:
        pytest.skip("no value of this database is known that Python cannot read")
    add_step(type("Dated", (Dated,), {"breaker": limit}))
    configure(CHUNK_ROWS=chunk_rows)
    comments = make_comments(5)
    with connection.cursor() as cursor:
        cursor.execute(SPOIL[connection.vendor], [comments[2].pk])

    report = run_pass(is_full=True)

    states = dict(MailQueue.objects.values_list("control__key", "state"))
    assert states == {row.pk: "blocked" if row is comments[2] else "queued" for row in comments}
    assert "cannot be read" in MailQueue.objects.get(state="blocked").problem
    assert report.steps[0].outcome == "warning"
    assert str(comments[2].pk) in report.steps[0].error
    assert run_pass(is_full=True).steps[0].candidates == 0


class Hostile(models.CharField):
    """A field of a site's own, whose values raise wherever something is done with them."""

    def from_db_value(self, value: Any, *_: Any) -> Any:
        return Raising() if value == "bad" else value


class Raising:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __bool__(self) -> bool:
        raise RuntimeError("neither")

    def __iter__(self) -> Any:
        raise RuntimeError("no parts")


@pytest.mark.parametrize("column", ["recipients", "language", "assignee", "tenant", "note"])
def test_a_value_that_raises_in_any_column_costs_its_own_event_only(add_step, column):
    class Odd(Remark):
        def events(self, scope: Any) -> Any:
            fixed = {"recipients": Value("a@example.org"), "language": Value("pl"), column: F("odd")}
            rows = Comment.objects.annotate(odd=Cast("author", Hostile(max_length=20)))
            return rows.values("body", key=F("pk"), event_at=F("created_at"), **fixed)

    add_step(Odd)
    good, bad = {"author": "b@example.org"}, {"author": "bad"}
    comments = [make_comments(1, **fields)[0] for fields in (good, bad, good)]

    report = run_pass(now=NOW)

    mails = dict(MailQueue.objects.values_list("control__key", "state"))
    assert mails == {row.pk: "blocked" if row is comments[1] else "queued" for row in comments}
    assert report.steps[0].outcome == "warning"
    assert gc.isenabled()


@pytest.mark.skipif(connection.vendor != "sqlite", reason="other databases compare no text with a number")
def test_a_row_without_a_key_that_cannot_be_read_besides_gets_no_control_row(add_step):
    class Odd(Remark):
        def events(self, scope: Any) -> Any:
            odd = Cast("author", Hostile(max_length=20))
            return Comment.objects.values(key=F("pk"), key2=F("author"), event_at=F("created_at"), language=odd)

    add_step(Odd)
    make_comments(1, author="bad")

    report = run_pass(now=NOW)

    assert "notify.E010: key2 is a CharField, not a 64-bit integer" in report.steps[0].error
    assert not Control.objects.exists()


def test_a_column_that_is_not_there_yet_fails_the_step_and_blocks_no_event(add_step):
    """New code on a database that has not been migrated: every row fails, and none is at fault."""

    class Early(Remark):
        def events(self, scope: Any) -> Any:
            return super().events(scope).annotate(added=RawSQL("portal_comment.not_there_yet", []))

    add_step(Early)
    make_comments(2)

    report = run_pass(now=NOW)

    assert report.outcome == "error"
    assert "not_there_yet" in report.steps[0].error
    assert not Control.objects.exists()


def pass_and_peak() -> dict[str, float]:
    """Run a full pass and say how much memory it needed at its highest beside what was there (runs in a child)."""
    before = memory_mib("VmRSS")
    # So that the peak is the pass's own: Linux starts to count anew.
    Path("/proc/self/clear_refs").write_text("5")
    report = run_pass(kinds=["comment"], is_full=True)
    return {"mails": report.steps[0].mails, "mib": memory_mib("VmHWM") - before}


def memory_mib(name: str) -> float:
    return int(re.search(rf"{name}:\s*(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024


@stand_in_cannot("OPENJSON cuts a part at 4,000 characters")
def test_memory_is_bounded_in_bytes_however_long_the_texts_are():
    """Sixty comments of 1.4 MB took 1.7 GB when a chunk was bounded in rows only."""
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("only Linux says how much memory a process needed at its highest")
    ann = make_contact()
    body = "When will it ship? " * 70_000
    for _ in range(24):
        make_comment(body=body, recipient=ann)

    ended = run_child("tests.notify.test_reading:pass_and_peak")

    assert ended.result["mails"] == 24
    assert ended.result["mib"] < 250, "24 x 1.3 MB, read and written at once, are 700"


def test_a_query_that_fails_as_a_whole_is_the_steps_error(add_step):
    class Broken(Remark):
        def events(self, scope: Any) -> Any:
            return super().events(scope).annotate(number=Cast("author", models.UUIDField()) / Value(0))

    add_step(Broken)
    make_comments(2)

    report = run_pass(is_full=True)

    assert report.outcome == "error"
    assert not MailQueue.objects.exists()


def test_the_id_of_a_pass_is_used_once(add_step):
    add_step(Remark)
    first = run_pass(now=NOW)

    with pytest.raises(PassKnown, match=str(first.pass_id)):
        run_pass(now=NOW, pass_id=first.pass_id)

    assert RunLog.objects.filter(pass_id=first.pass_id).count() == 2
