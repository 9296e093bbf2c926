"""Charts drawn on the server as SVG: geometry only, colours come from the stylesheet; pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .components import NONE, Cell, Row, Table, Text

WIDTH, HEIGHT = 640, 170
LEFT, RIGHT, TOP, BOTTOM = 46, 6, 10, 24
#: Room for a character of a label as it is drawn on a phone, where the chart is scaled down and its text is larger; and
#: between a label and the columns.
CHARACTER, TICK_GAP = 10, 12
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


@dataclass(frozen=True)
class Scale:
    """The plane of a chart: ``top`` is the greatest value, ``steps`` the number of columns."""

    top: float
    steps: int
    unit: str

    def label(self, value: float) -> str:
        """Return a value with its unit."""
        return f"{number_text(value)}{self.unit}"

    @property
    def left(self) -> int:
        """The left edge of the columns: beside the longest label."""
        return max(LEFT, TICK_GAP + CHARACTER * max(len(self.label(value)) for value in self.ticks))

    @property
    def ticks(self) -> tuple[float, ...]:
        """The labelled values of the vertical axis."""
        return (0, self.top / 2, self.top)

    def column(self, place: int) -> tuple[float, float]:
        """Return the left edge and the width of a step's bar."""
        slot = (WIDTH - self.left - RIGHT) / max(self.steps, 1)
        return round(self.left + place * slot + slot * 0.12, 1), round(slot * 0.76, 1)

    def middle(self, place: int) -> float:
        """Return the middle of a step."""
        x, width = self.column(place)
        return round(x + width / 2, 1)

    def y(self, value: float) -> float:
        """Return a value's place on the vertical axis; SVG counts downwards."""
        return round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (value / self.top), 1)


def stacked(*, title: Text, labels: Sequence[str], series: Sequence[Series], first: Text, unit: str = "") -> Chart:
    """Return a chart of stacked bars; ``first`` is the heading of the labels in the table."""
    sums = [sum(one.values[place] or 0 for one in series) for place in range(len(labels))]
    scale = Scale(nice(max(sums, default=0)), len(labels), unit)
    bars, tops = [], [0.0] * len(labels)
    for one in series:
        for place, value in enumerate(one.values):
            if value:
                x, width = scale.column(place)
                upper, lower = scale.y(tops[place] + value), scale.y(tops[place])
                tip = f"{labels[place]} · {one.name}: {scale.label(value)}"
                bars.append(Mark(x, upper, width, round(lower - upper, 1), one.tone, tip))
                tops[place] += value
    return chart_of(title, labels, series, first, scale, bars=bars)


def lines(*, title: Text, labels: Sequence[str], series: Sequence[Series], first: Text, unit: str = "") -> Chart:
    """Return a chart of one line per series, broken where there is no value."""
    most = max((value for one in series for value in one.values if value is not None), default=0)
    scale = Scale(nice(most), len(labels), unit)
    dots, paths = [], []
    for one in series:
        points: list[str] = []
        for place, value in enumerate([*one.values, None]):
            if value is None:
                paths += [(one.tone, " ".join(points))] if len(points) > 1 else []
                points = []
                continue
            points.append(f"{scale.middle(place)},{scale.y(value)}")
            tip = f"{labels[place]} · {one.name}: {scale.label(value)}"
            dots.append(Mark(scale.middle(place), scale.y(value), 3, 3, one.tone, tip))
    return chart_of(title, labels, series, first, scale, dots=dots, paths=paths)


def chart_of(
    title: Text,
    labels: Sequence[str],
    series: Sequence[Series],
    first: Text,
    scale: Scale,
    *,
    bars: Sequence[Mark] = (),
    dots: Sequence[Mark] = (),
    paths: Sequence[tuple[str, str]] = (),
) -> Chart:
    """Add axes, legend and table to the marks."""
    every = math.ceil(len(labels) / LABELS_MAX) or 1
    return Chart(
        title=title,
        bars=bars,
        dots=dots,
        lines=paths,
        rows=[Tick(scale.y(value), scale.label(value)) for value in scale.ticks],
        columns=[Tick(scale.middle(place), labels[place]) for place in range(0, len(labels), every)],
        legend=[(one.tone, one.name) for one in series],
        table=as_table(title, labels, series, first, scale),
        is_empty=not bars and not dots,
        left=scale.left,
    )


def as_table(title: Text, labels: Sequence[str], series: Sequence[Series], first: Text, scale: Scale) -> Table:
    """Return the chart's data as a table."""
    rows = []
    for place, label in enumerate(labels):
        values = [one.values[place] for one in series]
        cells = [Cell(text=NONE if v is None else scale.label(v), is_number=True) for v in values]
        rows.append(Row(cells=[Cell(text=label), *cells]))
    head = [first, *(one.name for one in series)]
    return Table(head=head, rows=rows, caption=title, numbers=frozenset(range(1, len(head))))


def nice(value: float) -> float:
    """Return the round number at the top of the axis: 2, 4, 10, 20, 40, 100, …"""
    if value <= 0:
        return 2
    power = 10 ** math.floor(math.log10(value))
    return next((float(step * power) for step in (1, 2, 4, 10) if value <= step * power and step * power >= 2), 2.0)


def number_text(value: float) -> str:
    """Return a number without needless digits."""
    return f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}") if value == int(value) else f"{value:.1f}"
