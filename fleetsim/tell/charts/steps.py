"""What changes at points in time and stays in between, and how values are spread: steps, histograms, strips of dots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fleetsim.tell.charts.chart import Chart, axis, plain_text
from fleetsim.tell.charts.gantt import Clock
from fleetsim.tell.charts.panels import legend_px
from fleetsim.tell.charts.parts import Mark, across, look, upright

# Points that a plot can show; more are thinned.
MOST_POINTS = 600


@dataclass(frozen=True, slots=True)
class StepSeries:
    """values[i] holds from times[i] until times[i + 1]; times ascend. dots: a symbol at each point as well."""

    name: str
    times: ArrayLike
    values: ArrayLike
    dots: bool = False


def step_chart(
    id: str,  # noqa: A002  # as the field of Chart
    title: str,
    words: str,
    series: Sequence[StepSeries],
    *,
    x_title: str,
    y_title: str,
    limits: Sequence[Mark] = (),
    begins: Mark | None = None,
    height_px: int = 300,
) -> Chart:
    """A stepped line for each series. limits: horizontal lines. begins: a vertical one where what is counted begins."""
    data = []
    for i, one in enumerate(series):
        style = look(i)
        times, values = thinned(np.asarray(one.times, dtype=float), np.asarray(one.values, dtype=float))
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if one.dots and len(times) <= 80 else "lines",
                "name": plain_text(one.name),
                "x": [round(float(t), 3) for t in times],
                "y": [round(float(v), 4) for v in values],
                "meta": {"colour": style.colour},
                "line": {"width": 1.75, "dash": style.dash, "shape": "hv"},
                "marker": {"symbol": style.symbol, "size": 6},
                "hovertemplate": f"{plain_text(one.name)}: %{{y:,.4~g}}<extra>%{{x:,.4~g}}</extra>",
            }
        )
    shapes, notes = across(limits)
    if begins is not None:
        more_shapes, more_notes = upright([begins])
        shapes, notes = [*shapes, *more_shapes], [*notes, *more_notes]
    top = max([float(np.max(np.asarray(s.values, dtype=float), initial=0.0)) for s in series] + [m.at for m in limits])
    layout: dict[str, Any] = {
        "shapes": shapes,
        "annotations": notes,
        "xaxis": axis(x_title, showgrid=False),
        "yaxis": axis(y_title, range=[0, 1.16 * top or 1.0]),
        "showlegend": len(series) > 1,
    }
    return Chart(id, title, words, tuple(data), layout, height_px)


def thinned(
    times: NDArray[np.float64], values: NDArray[np.float64], most: int = MOST_POINTS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A step function with so many points at most: of each stretch its first, lowest, highest and last value stay.

    A function that has no more points comes back as it is.
    """
    n = len(times)
    if n <= most:
        return times, values
    kept: set[int] = {0, n - 1}
    edges = np.linspace(0, n, max(1, (most - 2) // 4) + 1).astype(int)
    for a, b in pairwise(edges):
        if a < b:
            part = values[a:b]
            kept |= {int(a), int(b) - 1, int(a + part.argmin()), int(a + part.argmax())}
    index = sorted(kept)
    return times[index], values[index]


BINS = 40


@dataclass(frozen=True, slots=True)
class Sampled:
    """A set of values, at least one."""

    name: str
    values: ArrayLike


def histogram_chart(
    id: str,  # noqa: A002  # as the field of Chart
    title: str,
    words: str,
    sets: Sequence[Sampled],
    *,
    x_title: str,
    caps: Sequence[Mark] = (),
    height_px: int = 320,
) -> Chart:
    """The share of each set's values in each bin: the first as a filled outline, the others as dashed ones over it.

    caps: vertical lines, named on their left. The last bin ends at the largest value and holds it.
    """
    values = [np.asarray(s.values, dtype=float) for s in sets]
    edges = bins_of(values)
    data, top = [], 0.0
    for i, (one, found) in enumerate(zip(sets, values, strict=True)):
        shares = 100.0 * np.histogram(found, edges)[0] / len(found)
        top = max(top, float(shares.max()))
        style = look(i)
        # A step ends where the last bin does.
        y = [round(float(s), 4) for s in (*shares, shares[-1])]
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": plain_text(one.name),
                "x": [round(float(e), 4) for e in edges],
                "y": y,
                "meta": {"colour": style.colour},
                "line": {"width": 2, "dash": style.dash, "shape": "hv"},
                **({"fill": "tozeroy", "fillcolor": f"var(--{style.colour}-soft)"} if i == 0 else {}),
                "hovertemplate": f"from %{{x:,.0f}}: %{{y:.2f}} %<extra>{plain_text(one.name)}</extra>",
            }
        )
    shapes, notes = upright(caps, left=True)
    layout: dict[str, Any] = {
        "shapes": shapes,
        "annotations": notes,
        "xaxis": axis(x_title, rangemode="tozero", showgrid=False),
        "yaxis": axis("share of samples", ticksuffix=" %", range=[0, 1.12 * top]),
    }
    return Chart(id, title, words, tuple(data), layout, height_px)


def bins_of(values: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Edges of equal bins from zero to the largest value of all sets."""
    top = max(float(v.max(initial=0.0)) for v in values)
    edges: NDArray[np.float64] = np.linspace(0.0, top or 1.0, BINS + 1)
    return edges


_ROW_PX, _LEAST_PX, _FOOT_PX = 20, 60, 62
_LONGEST = 20  # characters of a name; its end tells pods of one deployment apart


@dataclass(frozen=True, slots=True)
class StateLook:
    """How one state is drawn. thick: share of the row. pattern: of plotly's ("" = plain)."""

    name: str
    colour: str
    thick: float
    pattern: str = ""


Spans = Iterable[tuple[str, float, float]]


def strip(
    id: str,  # noqa: A002
    title: str,
    words: str,
    rows: Sequence[tuple[str, Spans]],
    looks: Mapping[str, StateLook],
    clock: Clock,
) -> Chart:
    """The chart. rows: (name, (state, start, end) in seconds), from the top."""
    bars: dict[str, tuple[list[float], list[float], list[int]]] = {state: ([], [], []) for state in looks}
    for k, (_, spans) in enumerate(rows):
        for state, start_s, end_s in spans:
            base, length, row = bars[state]
            base.append(clock.at(start_s))
            length.append(clock.length(end_s - start_s))
            row.append(k)
    data: tuple[dict[str, Any], ...] = tuple(
        {
            "type": "bar",
            "orientation": "h",
            "name": plain_text(look.name),
            "base": base,
            "x": length,
            "y": row,
            "width": look.thick,
            "meta": {"colour": look.colour},
            "marker": {"line": {"width": 0}, "pattern": {"shape": look.pattern, "solidity": 0.35, "size": 6}},
            "hoverinfo": "name",
        }
        for look, (base, length, row) in ((looks[state], bars[state]) for state in looks)
        if row
    )
    above_px, plot_px = 8 + legend_px([look.name for look in looks.values()]), max(_LEAST_PX, _ROW_PX * len(rows))
    layout: dict[str, Any] = {
        "barmode": "overlay",
        "bargap": 0.1,
        "xaxis": clock.axis(),
        "yaxis": axis(
            "", tickvals=list(range(len(rows))), ticktext=[plain_text(short(name)) for name, _ in rows],
            range=[len(rows) - 0.4, -0.6], showgrid=False, ticks="",
        ),
        "margin": {"l": 8, "r": 14, "t": above_px, "b": 8, "pad": 2},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1 + 4 / plot_px, "yanchor": "bottom",
                   "itemclick": False, "itemdoubleclick": False},
    }  # fmt: skip
    return Chart(id, title, words, data, layout, above_px + plot_px + _FOOT_PX)


def short(name: str, most: int = _LONGEST) -> str:
    """A name that fits beside a row."""
    return name if len(name) <= most else f"...{name[3 - most :]}"
