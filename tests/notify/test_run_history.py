"""The run history's pages: each pass once with its steps, filters, neighbours, and skips in a row."""

import pytest
from django.test import Client

from notify.models import RunLog
from tests.browser.story import HELD, skipped_by
from tests.mails import log
from tests.notify.pages import address, text_of

pytestmark = pytest.mark.django_db


def test_a_pass_is_one_line_with_its_steps_below(admin_client: Client) -> None:
    whole = log(candidates=3, mails=2)
    for step in ("order", "comment"):
        log(step, pass_id=whole.pass_id, candidates=1)

    page = text_of(admin_client, address(RunLog))

    assert "2 steps" in page
    assert page.count("<details>") == 1
    assert page.index(">all<") < page.index(">order<") < page.index(">comment<")


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ({"outcome": "error"}, {"failed", "died"}),
        ({"outcome": "died"}, {"died"}),
        ({"outcome": "running"}, {"running"}),
        ({"step": "comment"}, {"step"}),
        ({"work": "1"}, {"failed"}),
        ({"since": "2026-01-31T08:02:30+00:00"}, {"died", "running"}),
        ({"until": "2026-01-30"}, set()),
        ({"since": "2026-01-31", "until": "2026-01-31", "outcome": "ok"}, {"good"}),
    ],
)
def test_filters_of_the_run_history(admin_client: Client, query: dict[str, str], shown: set[str]) -> None:
    good = log(minute=1)
    rows = {
        "good": good,
        "step": log("comment", minute=1, pass_id=good.pass_id),
        "failed": log(minute=2, outcome="error", candidates=4, error="boom"),
        "died": log(minute=3, outcome="error", ms=None, error="died: …"),
        "running": log(minute=4, outcome="running", ended_at=None, ms=None),
    }

    page = admin_client.get(address(RunLog), query)

    listed = {row.key for row in page.context["table"].rows}
    assert listed == {str(rows[name].pk) for name in shown}


def test_a_filter_that_makes_no_sense_says_so_and_lists_nothing(admin_client: Client) -> None:
    log()

    page = admin_client.get(address(RunLog), {"since": "soon"})

    assert "is not a date" in page.content.decode()
    assert page.context["table"].rows == []


def test_a_moment_that_a_link_has_given_stays_in_the_form(admin_client: Client) -> None:
    page = text_of(admin_client, address(RunLog), since="2026-01-31T08:00:00+00:00")

    assert 'type="text" id="filter-since" name="since" value="2026-01-31T08:00:00+00:00"' in page
    assert 'type="date" id="filter-until"' in page


def test_the_pages_of_the_run_history_show_each_pass_once(admin_client: Client) -> None:
    rows = {str(log(minute=number % 3).pk) for number in range(120)}

    seen: list[str] = []
    url = address(RunLog) + "?outcome=ok"
    while url:
        page = admin_client.get(url)
        seen += [row.key for row in page.context["table"].rows]
        url = address(RunLog) + "?" + page.context["next_query"] if page.context["next_query"] else ""

    assert len(seen) == 120
    assert set(seen) == rows
    assert "outcome=ok" in page.context["previous_query"]


def test_a_passes_page_shows_the_whole_error_and_its_neighbours(admin_client: Client) -> None:
    before, row, after = log(minute=1), log(minute=2, outcome="error", error="first\nlast line"), log(minute=2)

    page = text_of(admin_client, address(RunLog, "change", row.pk))

    assert "first\nlast line" in page
    assert f'rel="prev" href="{address(RunLog, "change", before.pk)}"' in page
    assert f'rel="next" href="{address(RunLog, "change", after.pk)}"' in page
    assert 'http-equiv="refresh"' not in page


def test_the_page_of_a_pass_under_way_loads_itself_anew(admin_client: Client) -> None:
    row = log(outcome="running", ended_at=None, ms=None)

    assert 'http-equiv="refresh"' in text_of(admin_client, address(RunLog, "change", row.pk))


def test_skips_in_a_row_are_one_line_and_a_pass_between_parts_them(admin_client: Client) -> None:
    other = skipped_by("app-3")
    for minute, said in enumerate([HELD, None, HELD, other, other]):
        log(minute=minute, outcome="skipped" if said else "ok", said=[said] if said else [])
    log(minute=5, outcome="error", error="x")

    page = admin_client.get(address(RunLog, "skipped"))

    lines = [[str(cell.text) for cell in row.cells] for row in page.context["table"].rows]
    assert [line[2] for line in lines] == ["3", "1"]
    assert lines[0][3] == "2\xa0minutes"
    assert [line[4] for line in lines] == ["-1", "-1"]
    assert "app-3" in lines[0][5]
    assert "app-2" in lines[0][5]


def test_a_run_of_skips_that_goes_on_on_another_page_says_so(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("notify.pages.runs.SKIPS_PER_PAGE", 3)
    for minute, outcome in enumerate(["ok", "skipped", "ok", *["skipped"] * 4, "ok", "skipped"]):
        log(minute=minute, outcome=outcome, said=[HELD] if outcome == "skipped" else [])

    first = admin_client.get(address(RunLog, "skipped"))
    second = admin_client.get(f"{address(RunLog, 'skipped')}?{first.context['next_query']}")

    counts = [[str(row.cells[2].text) for row in page.context["table"].rows] for page in (first, second)]
    assert counts == [["1", "2+"], ["2+", "1"]]


def test_a_skip_at_the_very_moment_of_a_pass_belongs_to_no_later_run(admin_client: Client) -> None:
    log(minute=1)
    log(minute=1, outcome="skipped", said=[HELD])

    page = admin_client.get(address(RunLog, "skipped"))

    assert len(page.context["table"].rows) == 1
