"""What changes at points in time and stays in between: queue depth, staleness, instances."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fleetsim.dataclass import dataclass
from fleetsim.tell.charts.chart import Chart, axis, plain_text
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
