"""Parts of a whole, one bar a step: where the seconds of each optimizer step go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fleetsim.dataclass import dataclass
from fleetsim.tell.charts.chart import LEGEND, Chart, axis, plain_text
from fleetsim.tell.charts.parts import Mark, PartLook, upright

# Bars that a phone can show; more are averaged in runs of equal length.
MOST_BARS = 60


@dataclass(frozen=True, slots=True)
class Layer:
    """values[i] of bar i, from the bottom up in the order of layers."""

    name: str
    values: ArrayLike
    look: PartLook


def stacked_bars(
    id: str,  # noqa: A002  # as the field of Chart
    title: str,
    words: str,
    layers: Sequence[Layer],
    *,
    x_title: str,
    y_title: str,
    begins: Mark | None = None,
    height_px: int = 320,
) -> Chart:
    """Bars 0..n-1; begins: where what is counted begins, a vertical line before that bar."""
    n = len(np.asarray(layers[0].values))
    each = -(-n // MOST_BARS)
    x = [i + (min(each, n - i) - 1) / 2 for i in range(0, n, each)]
    data = tuple(
        {
            "type": "bar",
            "name": plain_text(layer.name),
            "x": x,
            "y": [round(float(np.mean(np.asarray(layer.values)[i : i + each])), 4) for i in range(0, n, each)],
            "width": 0.82 * each,
            "meta": {"colour": layer.look.colour},
            "marker": {"line": {"width": 0.75}, "pattern": {"shape": layer.look.pattern, "solidity": 0.22, "size": 6}},
            "hovertemplate": f"{plain_text(layer.name)}: %{{y:,.4~g}} {plain_text(y_title)}<extra>%{{x}}</extra>",
        }
        for layer in layers
    )
    top = max((sum(bar) for bar in zip(*(trace["y"] for trace in data), strict=True)), default=0.0)
    shapes, notes = upright([begins] if begins is not None else [])
    layout: dict[str, Any] = {
        "barmode": "stack",
        "shapes": shapes,
        "annotations": notes,
        "xaxis": axis(x_title, showgrid=False, range=[-0.7, n - 0.3]),
        "yaxis": axis(y_title, range=[0, 1.15 * top or 1.0]),
        "legend": {**LEGEND, "traceorder": "normal"},
    }
    return Chart(id, title, words, data, layout, height_px)
