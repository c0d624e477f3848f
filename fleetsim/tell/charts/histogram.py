"""How a quantity is distributed, for two or three sets of samples on the same bins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fleetsim.dataclass import dataclass
from fleetsim.tell.charts.chart import Chart, axis, plain_text
from fleetsim.tell.charts.parts import Mark, look, upright

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
