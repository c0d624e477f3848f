"""Changes with their intervals, several measures a row: what each lever buys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.tell.charts.bars import rows_axis
from fleetsim.tell.charts.chart import Chart, axis, plain_text
from fleetsim.tell.charts.parts import BEHIND, look, whiskers, wrapped


@dataclass(frozen=True, slots=True)
class DotsRow:
    """One row: a paired ratio (with / without) for each measure, None where there is none."""

    name: str
    ratios: Sequence[Estimate | None]
    strong: bool = False


def change_dots(
    id: str,  # noqa: A002  # as the field of Chart
    title: str,
    words: str,
    changes: Sequence[DotsRow],
    measures: Sequence[str],
    *,
    x_title: str = "change, %",
) -> Chart:
    """A symbol with whiskers for each measure of each row; left of zero is less, right is more."""
    data = []
    # One symbol stands level with its row, several below one another.
    row_px = 30 + 18 * len(measures)
    offset = 15 / row_px
    for m, measure in enumerate(measures):
        style = look(m)
        rows = [(i, c, r) for i, c in enumerate(changes) if (r := c.ratios[m]) is not None]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": plain_text(measure),
                "x": [100.0 * (r.mean - 1.0) for _, _, r in rows],
                "y": [i + offset * m for i, _, _ in rows],
                "error_x": whiskers([r for _, _, r in rows], 100.0, color=f"var(--{style.colour})"),
                "meta": {"colour": style.colour},
                "marker": {"symbol": style.symbol, "size": 11},
                "hoverinfo": "text",
                "text": [f"{wrapped(c.name)}<br>{plain_text(measure)}: {units.ratio_change(r)}" for _, c, r in rows],
            }
        )
    every = [100.0 * (end - 1.0) for c in changes for r in c.ratios if r is not None for end in (r.ci_low, r.ci_high)]
    low, high = min([*every, 0.0]), max([*every, 0.0])
    span = (high - low) or 1.0
    left = low - 0.06 * span
    names = [
        {"x": left, "y": i, "text": ("<b>%s</b>" if c.strong else "%s") % wrapped(c.name, 46, 1), "xanchor": "left",
         "yanchor": "bottom", "yshift": 7, "showarrow": False, "align": "left", **BEHIND}
        for i, c in enumerate(changes)
    ]  # fmt: skip
    layout: dict[str, Any] = {
        "annotations": names,
        "xaxis": axis(x_title, range=[left, high + 0.06 * span], ticksuffix=" %", zeroline=True, zerolinewidth=2),
        "yaxis": rows_axis(len(changes)),
    }
    return Chart(id, title, words, tuple(data), layout, 110 + row_px * len(changes))
