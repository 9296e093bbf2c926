"""Charts drawn on the server as SVG: geometry only, colours come from the stylesheet; pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .components import NONE, Cell, Row, Table, Text

WIDTH, HEIGHT = 640, 170
LEFT, RIGHT, TOP, BOTTOM = 46, 6, 10, 24
#: Labels on the axis at most, so that they do not overlap on a phone.
LABELS_MAX = 8


@dataclass(frozen=True, kw_only=True)
class Series:
    """One named row of numbers; None where there is nothing to show. ``tone`` is a class of the stylesheet."""

    name: Text
    tone: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Mark:
    """A rectangle or a dot, with its tooltip."""

    x: float
    y: float
    width: float
    height: float
    tone: str
    tip: str


@dataclass(frozen=True)
class Tick:
    """A label on an axis."""

    at: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """What the template draws, and the same data as a table."""

    title: Text
    bars: Sequence[Mark]
    dots: Sequence[Mark]
    lines: Sequence[tuple[str, str]]
    rows: Sequence[Tick]
    columns: Sequence[Tick]
    legend: Sequence[tuple[str, Text]]
    table: Table
    is_empty: bool
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    baseline: int = HEIGHT - BOTTOM


def stacked(*, title: Text, labels: Sequence[str], series: Sequence[Series], first: Text, unit: str = "") -> Chart:
    """Return a chart of stacked bars; ``first`` is the heading of the labels in the table."""
    sums = [sum(one.values[place] or 0 for one in series) for place in range(len(labels))]
    top = nice(max(sums, default=0))
    bars, tops = [], [0.0] * len(labels)
    for one in series:
        for place, value in enumerate(one.values):
            if value:
                x, width = column(place, len(labels))
                upper, lower = y_of(tops[place] + value, top), y_of(tops[place], top)
                tip = f"{labels[place]} · {one.name}: {shown(value)}{unit}"
                bars.append(Mark(x, upper, width, round(lower - upper, 1), one.tone, tip))
                tops[place] += value
    return framed(title, labels, series, first, top, unit, bars=bars)


def lines(*, title: Text, labels: Sequence[str], series: Sequence[Series], first: Text, unit: str = "") -> Chart:
    """Return a chart of one line per series, broken where there is no value."""
    top = nice(max((value for one in series for value in one.values if value is not None), default=0))
    dots, paths = [], []
    for one in series:
        points: list[str] = []
        for place, value in enumerate([*one.values, None]):
            if value is None:
                paths += [(one.tone, " ".join(points))] if len(points) > 1 else []
                points = []
                continue
            x, width = column(place, len(labels))
            middle = round(x + width / 2, 1)
            points.append(f"{middle},{y_of(value, top)}")
            tip = f"{labels[place]} · {one.name}: {shown(value)}{unit}"
            dots.append(Mark(middle, y_of(value, top), 3, 3, one.tone, tip))
    return framed(title, labels, series, first, top, unit, dots=dots, paths=paths)


def framed(
    title: Text,
    labels: Sequence[str],
    series: Sequence[Series],
    first: Text,
    top: float,
    unit: str,
    *,
    bars: Sequence[Mark] = (),
    dots: Sequence[Mark] = (),
    paths: Sequence[tuple[str, str]] = (),
) -> Chart:
    """Put axes, legend and table around the marks."""
    every = math.ceil(len(labels) / LABELS_MAX)
    columns = []
    for place in range(0, len(labels), every):
        x, width = column(place, len(labels))
        columns.append(Tick(round(x + width / 2, 1), labels[place]))
    return Chart(
        title=title,
        bars=bars,
        dots=dots,
        lines=paths,
        rows=[Tick(y_of(value, top), f"{shown(value)}{unit}") for value in (0, top / 2, top)],
        columns=columns,
        legend=[(one.tone, one.name) for one in series],
        table=as_table(title, labels, series, first, unit),
        is_empty=not bars and not dots,
    )


def as_table(title: Text, labels: Sequence[str], series: Sequence[Series], first: Text, unit: str) -> Table:
    """Return the chart's data as a table."""
    rows = []
    for place, label in enumerate(labels):
        values = [one.values[place] for one in series]
        cells = [Cell(text=NONE if v is None else f"{shown(v)}{unit}", is_number=True) for v in values]
        rows.append(Row(cells=[Cell(text=label), *cells]))
    head = [first, *(one.name for one in series)]
    return Table(head=head, rows=rows, caption=title, numbers=frozenset(range(1, len(head))))


def column(place: int, count: int) -> tuple[float, float]:
    """Return the left edge and the width of a step's bar."""
    slot = (WIDTH - LEFT - RIGHT) / max(count, 1)
    return round(LEFT + place * slot + slot * 0.12, 1), round(slot * 0.76, 1)


def y_of(value: float, top: float) -> float:
    """Return a value's height on the page; SVG counts downwards."""
    return round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (value / top), 1)


def nice(value: float) -> float:
    """Return the round number at the top of the axis: 2, 4, 10, 20, 40, 100, …"""
    if value <= 0:
        return 2
    power = 10 ** math.floor(math.log10(value))
    return next((float(step * power) for step in (1, 2, 4, 10) if value <= step * power and step * power >= 2), 2.0)


def shown(value: float) -> str:
    """Return a number without needless digits."""
    return f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}") if value == int(value) else f"{value:.1f}"
