"""How far back a pass looks: the window, each step's full look, the limit; and settings that cannot be meant."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from notify import conf
from notify.models import Outcome, RunLog
from tests.factories import NOW
from tests.notify.samples import Remark, do_pass, log_row, mailed, make_comments, noted

pytestmark = pytest.mark.django_db(transaction=True)


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


def test_a_step_may_say_its_limit_as_a_date_beside_the_site_s(add_step, configure):
    class Dated(Remark):
        kind = "dated"
        not_before = date(2020, 1, 1)

    configure(NOT_BEFORE=datetime(2020, 1, 1, tzinfo=UTC))
    add_step(Dated)
    make_comments(1)

    assert do_pass().outcome == "ok"
