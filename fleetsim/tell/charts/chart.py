"""A picture as data: an id, a title, what it shows in words, and points of one of three shapes.

How a shape is drawn stands in one table, `SHAPES` of `draw.py`. Nothing is told by colour alone: lines have dashes,
dots symbols, bars patterns and spans lanes of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from fleetsim.tell.charts.axes import ChartAxis

# Shades of one hue, from the palest to the strongest, for what has an order; --shade-1 .. of the style sheet.
SHADES = 6


class MarkLook(Struct, frozen=True):
    """How one of several things is drawn: the name of a colour in the style sheet, and what tells it apart without.

    dash: of lines. symbol: of dots; "-open" at its end: not filled. pattern: of bars, "" for a full one. lanes: which
    parts of its row a span fills, from 0, the top, to 1.
    """

    colour: str
    dash: Literal["", "dash", "dot", "dashdot", "longdash"] = ""
    symbol: str = "circle"
    pattern: Literal["", "/", "\\", "x", ".", "-"] = ""
    lanes: tuple[tuple[float, float], ...] = ((0.0, 1.0),)


LOOKS: tuple[MarkLook, ...] = (
    MarkLook("accent"),
    MarkLook("second", "dash", "square", "/"),
    MarkLook("third", "dot", "diamond", "x"),
    MarkLook("quiet", "dashdot", "triangle", "."),
    MarkLook("bad", "longdash", "cross", "\\"),
    MarkLook("shade-6", "dot", "star", "-"),
)


def look(i: int) -> MarkLook:
    """The look of the i-th of several things; they repeat after len(LOOKS)."""
    return LOOKS[i % len(LOOKS)]


def shade(i: int, of: int) -> str:
    """The colour of the i-th of so many things that have an order."""
    return f"shade-{SHADES if of == 1 else 1 + round(i * (SHADES - 1) / (of - 1))}"


Values = Sequence[float | None]
Kind = Literal["line", "steps", "band", "dots", "bars"]


class ChartSeries(Struct, frozen=True):
    """Points of one kind in a panel; where y is None nothing is known, and nothing is drawn.

    steps: a value holds until the next x. band: from low to y. bars: on those of the series before it, as wide as
    `width`. low, high: ends of intervals: whiskers of dots, an area around a line. said: what hovering says of each
    point; without it, name and value. sizes: of dots, in pixels. fill: the area down to 0 is tinted. name: empty = not
    in the legend.
    """

    name: str
    kind: Kind
    x: Sequence[float]
    y: Values
    look: MarkLook = LOOKS[0]
    low: Values = ()
    high: Values = ()
    said: Sequence[str] = ()
    sizes: Sequence[float] = ()
    width: float = 1.0
    fill: bool = False


class Mark(Struct, frozen=True):
    """A line across the plot with words at its end: a target, a cap, where warm-up ends. star: it is the answer."""

    at: float
    text: str = ""
    star: bool = False


class Panel(Struct, frozen=True):
    """ChartSeries over a common x. y: its title stands above the panel. across: lines; bands: from, to of y, tinted."""

    y: ChartAxis
    series: tuple[ChartSeries, ...]
    across: tuple[Mark, ...] = ()
    bands: tuple[tuple[float, float], ...] = ()
    height_px: int = 180


class Plot(Struct, frozen=True):
    """Panels above one another over one axis. upright: lines through all of them; shades: spans of x behind them;
    letters: events by x, named above the first panel."""

    x: ChartAxis
    panels: tuple[Panel, ...]
    upright: tuple[Mark, ...] = ()
    shades: Sequence[tuple[float, float]] = ()
    letters: Sequence[tuple[float, str]] = ()


class RowMark(Struct, frozen=True):
    """A dot of a row with its interval, or a bar from `base` to the value. key: into the looks of the chart."""

    key: str
    value: float
    low: float | None = None
    high: float | None = None
    base: float | None = None
    said: str = ""


class ChartRow(Struct, frozen=True):
    """A name, what there is to say of it, and its marks, each in a lane of its own; one without marks is a heading.
    strong: it is the one that matters. link: a thin line down to the next row."""

    name: str
    said: str = ""
    marks: tuple[RowMark, ...] = ()
    strong: bool = False
    link: float | None = None


class Rows(Struct, frozen=True):
    """Rows over one axis. looks: name and look of each key. centre: where there is no difference; bands: what is
    allowed, the widest first."""

    x: ChartAxis
    rows: tuple[ChartRow, ...]
    looks: Mapping[str, tuple[str, MarkLook]]
    centre: float | None = None
    bands: tuple[tuple[float, float], ...] = ()


class Span(Struct, frozen=True):
    """What a row does from start to end, on the axis; kind: a key of the chart's looks."""

    kind: str
    start: float
    end: float


class Spans(Struct, frozen=True):
    """Rows of spans that do not overlap, in the order of time, over one axis. upright: hair lines."""

    x: ChartAxis
    rows: tuple[tuple[str, Sequence[Span]], ...]
    looks: Mapping[str, tuple[str, MarkLook]]
    upright: tuple[float, ...] = ()


Points = Plot | Rows | Spans


class Chart(Struct, frozen=True):
    """One picture. words: what it shows, for those who cannot see it too."""

    id: str
    title: str
    words: str
    points: Points
