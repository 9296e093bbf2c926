"""Filters, ranges, charts, panels and the policy."""

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import DatabaseError
from django.test import Client, RequestFactory

from kwit.admin.charts import Series, lines, nice, stacked
from kwit.admin.dashboard import Panel, PanelContent, build
from kwit.admin.filters import ChoiceFilter, DateTimeFilter, FlagFilter, NumberFilter, UuidFilter, equals, parse_filters
from kwit.admin.time_ranges import RANGES, get_time_range
from kwit.models import Action

NOW = datetime(2026, 3, 29, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize("text", ["1.0", "\N{ARABIC-INDIC DIGIT ONE}", "1e3", "9" * 30, "--1", " ", "²"])
def test_what_is_no_whole_number_is_refused_with_a_sentence(text: str) -> None:
    asked = parse_filters([NumberFilter("key", "Key", equals("key"))], {"key": text})

    assert "key" not in asked.values
    assert text.strip() == "" or "whole number" in asked.errors["key"]


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("-5", -5), (str(2**63 - 1), 2**63 - 1)])
def test_a_whole_number_is_read(text: str, value: int) -> None:
    assert parse_filters([NumberFilter("key", "Key", equals("key"))], {"key": text}).values == {"key": value}


def test_a_date_as_the_end_of_a_range_takes_in_the_whole_day(settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Warsaw"

    asked = parse_filters([DateTimeFilter("until", "To", equals("at__lte"), is_end=True)], {"until": "2026-03-29"})

    assert asked.values["until"].astimezone(UTC) == datetime(2026, 3, 29, 21, 59, 59, 999999, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2026-13-01", "yesterday", "2026-02-30", "2026-01-31T25:00:00"])
def test_what_is_no_date_is_refused(text: str) -> None:
    assert parse_filters([DateTimeFilter("since", "From", equals("at__gte"))], {"since": text}).errors


def test_a_choice_a_check_and_an_id_take_only_what_they_offer() -> None:
    filters = [
        ChoiceFilter("state", "State", equals("state"), choices=lambda: [("open", "open")]),
        FlagFilter("work", "Work", equals("x")),
        UuidFilter("pass", "Pass", equals("pass_id")),
    ]

    assert set(parse_filters(filters, {"state": "drop", "work": "yes", "pass": "1"}).errors) == {
        "state",
        "work",
        "pass",
    }
    assert not parse_filters(filters, {"state": "open", "work": "1", "pass": "0" * 32}).errors


def test_a_day_of_23_hours_is_one_step_of_the_range(settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Warsaw"

    window = get_time_range({"range": "7d"}, now=NOW + timedelta(days=1))

    assert len(window.edges) == 7
    moments = [edge.astimezone(UTC) for edge in window.edges]
    assert moments[-1] - moments[-2] == timedelta(hours=23)


def test_the_hours_of_a_day_on_which_the_clock_is_set_back_are_an_hour_apart(settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Warsaw"

    window = get_time_range({}, now=datetime(2026, 10, 25, 10, 30, tzinfo=UTC))

    moments = [edge.astimezone(UTC) for edge in window.edges]
    assert {later - earlier for earlier, later in itertools.pairwise(moments)} == {timedelta(hours=1)}
    assert window.labels().count("02:00") == 2


def test_an_unknown_range_is_the_shortest() -> None:
    assert get_time_range({"range": "1000y"}, now=NOW).range == RANGES[0]
    assert get_time_range({}, now=NOW).edges[-1] == datetime(2026, 3, 29, 12, tzinfo=UTC)


def test_the_bars_of_a_step_stand_on_each_other_and_the_table_has_the_same_numbers() -> None:
    chart = stacked(
        title="Passes",
        labels=["a", "b"],
        series=[Series(name="ok", tone="c1", values=[3, 0]), Series(name="bad", tone="c2", values=[1, 2])],
        first="time",
    )

    ok, bad = chart.bars[0], chart.bars[1]
    assert bad.y + bad.height == pytest.approx(ok.y)
    assert ok.height == pytest.approx(3 * bad.height, abs=0.2)
    assert [[cell.text for cell in row.cells] for row in chart.table.rows] == [["a", "3", "1"], ["b", "0", "2"]]
    assert ok.tip == "a · ok: 3"


def test_a_line_is_broken_where_there_is_no_value() -> None:
    series = [Series(name="median", tone="c1", values=[1, 2, None, 4, None, 5, 6])]

    chart = lines(title="t", labels=list("abcdefg"), series=series, first="time")

    assert [len(points.split()) for _, points in chart.lines] == [2, 2]
    assert len(chart.dots) == 5


@pytest.mark.parametrize(
    ("value", "top"), [(0, 2), (1, 2), (2, 2), (3, 4), (10, 10), (11, 20), (99, 100), (100.5, 200), (0.2, 2)]
)
def test_the_axis_ends_at_a_round_number(value: float, top: float) -> None:
    assert nice(value) == top


def test_a_chart_of_nothing_says_so() -> None:
    assert stacked(title="t", labels=["a"], series=[Series(name="x", tone="c1", values=[0])], first="time").is_empty


def test_a_database_that_does_not_answer_is_a_finding_and_not_an_empty_dashboard() -> None:
    def fail(request: Any, window: Any) -> PanelContent:
        raise DatabaseError("connection refused")

    panel = Panel(name="x", title="Receipts", template="x.html", permission="x.y", build=fail)

    built = build(panel, RequestFactory().get("/"), get_time_range({}, now=NOW))

    assert "Receipts" in str(built.findings[0].text)
    assert "connection refused" in str(built.findings[0].text)


@pytest.mark.django_db
def test_nobody_changes_the_record_of_actions(admin_client: Client) -> None:
    action = Action.objects.create(actor="<b>eve", name="hold", subject="notify.mailqueue", scope="1, 2", asked=2)

    assert "&lt;b&gt;eve" in admin_client.get("/admin/kwit/action/").content.decode()
    assert admin_client.get(f"/admin/kwit/action/{action.pk}/change/").status_code == 200
    assert admin_client.post(f"/admin/kwit/action/{action.pk}/change/", {"actor": "x"}).status_code == 405
    for data in ({}, {"post": "yes"}, {"_to_field": ""}, {"_to_field": "actor"}):
        assert admin_client.post(f"/admin/kwit/action/{action.pk}/delete/", data).status_code == 403
        assert admin_client.get(f"/admin/kwit/action/{action.pk}/delete/", data).status_code == 403
    assert admin_client.get("/admin/kwit/action/add/").status_code == 403


@pytest.mark.django_db
def test_the_record_of_actions_is_for_those_with_its_permission(client: Client) -> None:
    client.force_login(User.objects.create_user("bob", is_staff=True))

    assert client.get("/admin/kwit/action/").status_code == 403
    assert client.get("/admin/").status_code == 200


@pytest.mark.django_db
def test_an_action_without_an_actor_is_refused() -> None:
    with pytest.raises(ValidationError):
        Action(actor="", name="x", subject="y").full_clean()


@pytest.mark.parametrize(
    ("values", "unit"), [([1], ""), ([1000], " ms"), ([10_000_000], " ms"), ([0.5], " s"), ([], "")]
)
def test_the_labels_of_the_axis_fit_beside_the_columns(values: list[float], unit: str) -> None:
    series = [Series(name="p95", tone="c1", values=values)]
    for draw in (lines, stacked):
        chart = draw(
            title="Duration", labels=[str(n) for n in range(len(values))], series=series, first="step", unit=unit
        )

        longest = max(len(tick.text) for tick in chart.rows)
        assert chart.left - 6 >= longest * 10, "10 px is a wide character of the 18 px that phones get"
        assert all(mark.x >= chart.left for mark in [*chart.bars, *chart.dots])
        assert all(mark.x + mark.width <= chart.right + 3 for mark in [*chart.bars, *chart.dots])
