"""Pages by key: no row twice, none left out, whatever happens between two pages."""

from datetime import timedelta
from uuid import UUID

import pytest
from django.core.exceptions import BadRequest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwit.admin.keyset import page_of
from notify.models import RunLog
from tests.factories import NOW

pytestmark = pytest.mark.django_db
ORDER = ("-started_at", "-id")
PASS = UUID(int=1)


def log_at(*seconds: int) -> None:
    RunLog.objects.bulk_create(
        RunLog(pass_id=PASS, step="pass", started_at=NOW + timedelta(seconds=s)) for s in seconds
    )


def walk_forwards(size: int) -> list[list[int]]:
    pages, after = [], ""
    while True:
        page = page_of(RunLog.objects.all(), order=ORDER, size=size, after=after)
        pages.append([row.pk for row in page.rows])
        if not page.next:
            return pages
        after = page.next


def walk_backwards(size: int, before: str) -> list[list[int]]:
    pages = []
    while before:
        page = page_of(RunLog.objects.all(), order=ORDER, size=size, before=before)
        pages.append([row.pk for row in page.rows])
        before = page.previous
    return pages


@given(seconds=st.lists(st.integers(0, 3), max_size=12), size=st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_walking_through_rows_with_equal_times_shows_each_once_in_order(seconds: list[int], size: int) -> None:
    RunLog.objects.all().delete()
    log_at(*seconds)
    expected = list(RunLog.objects.order_by(*ORDER).values_list("pk", flat=True))

    pages = walk_forwards(size)

    assert [pk for page in pages for pk in page] == expected
    assert all(len(page) == size for page in pages[:-1])


def test_a_page_by_number_would_repeat_a_row_when_one_comes_in_and_a_page_by_key_does_not() -> None:
    log_at(0, 0, 0, 0)
    rows = RunLog.objects.order_by(*ORDER)
    first = page_of(RunLog.objects.all(), order=ORDER, size=2)
    log_at(9)

    naive = list(rows[2:4])
    second = page_of(RunLog.objects.all(), order=ORDER, size=2, after=first.next)

    assert first.rows[-1] in naive  # the positive control: this is what offsets do
    assert {row.pk for row in first.rows} & {row.pk for row in second.rows} == set()
    assert len(second.rows) == 2


def test_the_way_back_shows_the_same_pages() -> None:
    log_at(*[1, 1, 1, 2, 2, 3])
    forwards = walk_forwards(2)
    last = page_of(RunLog.objects.all(), order=ORDER, size=2, after=cursor_after(forwards[1]))

    back = walk_backwards(2, last.previous)

    assert back == [forwards[1], forwards[0]]


def cursor_after(page: list[int]) -> str:
    row = RunLog.objects.get(pk=page[-1])
    return f"{row.started_at.isoformat()}~{row.pk}"


def test_the_way_back_ends_with_a_whole_first_page() -> None:
    log_at(1, 2, 3, 4, 5)
    middle = page_of(RunLog.objects.all(), order=ORDER, size=3, after=cursor_after(walk_forwards(2)[0]))

    first = page_of(RunLog.objects.all(), order=ORDER, size=3, before=middle.previous)

    assert len(first.rows) == 3
    assert first.previous == ""
    assert first.next


def test_the_first_and_the_last_page_have_one_neighbour_only() -> None:
    log_at(1, 2, 3)

    first = page_of(RunLog.objects.all(), order=ORDER, size=2)
    last = page_of(RunLog.objects.all(), order=ORDER, size=2, after=first.next)

    assert (bool(first.previous), bool(first.next)) == (False, True)
    assert (bool(last.previous), bool(last.next)) == (True, False)


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "2026-01-31~",
        "~1",
        "2026-01-31T08:00:00+00:00~x",
        "2026-01-31T08:00:00+00:00~1~2",
        "9999-99-99~1",
        "2026-01-31T08:00:00+00:00~1\x00",
    ],
)
def test_a_cursor_that_is_none_of_ours_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        page_of(RunLog.objects.all(), order=ORDER, size=2, after=text)


def test_an_order_that_no_single_index_serves_is_refused() -> None:
    log_at(1)

    with pytest.raises(ValueError, match="same way"):
        page_of(RunLog.objects.all(), order=("-started_at", "id"), size=2, after=cursor_after(walk_forwards(1)[0]))
