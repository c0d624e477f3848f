"""Horizontal bars with their values written out: what goes where, by cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleetsim.analysis.intervals import Estimate
from fleetsim.report.charts.parts import look, whiskers, with_interval, wrapped
from fleetsim.report.page import Chart, axis

ROW_PX = 58


@dataclass(frozen=True, slots=True)
class Cause:
    """One bar. strong: it is the one that matters (drawn full, the others hatched)."""

    name: str
    value: Estimate
    strong: bool = False


def cause_bars(
    id: str,  # noqa: A002  # as the field of Chart
    title: str,
    words: str,
    causes: Sequence[Cause],
    *,
    x_title: str,
    how: str,
) -> Chart:
    """A bar for each cause, in the order given, its name above it, its value with the 95 % interval beside it.

    how: seconds, share, number or money; a share is drawn in per cent.
    """
    scale = 100.0 if how == "share" else 1.0
    data = []
    for strong in (True, False):
        rows = [(i, cause) for i, cause in enumerate(causes) if cause.strong == strong]
        if not rows:
            continue
        style = look(0 if strong else 1)
        estimates = [cause.value for _, cause in rows]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "y": [i for i, _ in rows],
                "x": [scale * e.mean for e in estimates],
                "width": 0.38,
                "error_x": whiskers(estimates, scale),
                "meta": {"colour": style.colour},
                "marker": {"line": {"width": 1.5}, "pattern": {"shape": style.pattern, "solidity": 0.3}},
                "hoverinfo": "text",
                "hovertext": [f"{wrapped(cause.name)}<br>{with_interval(cause.value, how)}" for _, cause in rows],
            }
        )
    low = min([scale * c.value.ci_low for c in causes] + [0.0])
    high = max([scale * c.value.ci_high for c in causes] + [0.0])
    span = (high - low) or 1.0
    layout: dict[str, Any] = {
        "barmode": "overlay",
        "annotations": [note for i, c in enumerate(causes) for note in row_notes(i, c.name, c.value, how, low, high)],
        "xaxis": axis(
            x_title, range=[low - (0.03 if low < 0 else 0) * span, high + 0.62 * span], zeroline=True, zerolinewidth=1
        ),
        "yaxis": rows_axis(len(causes)),
        "showlegend": False,
    }
    return Chart(id, title, words, tuple(data), layout, 60 + ROW_PX * len(causes))


def rows_axis(n: int) -> dict[str, Any]:
    """An axis of n rows, the first at the top, without ticks: names stand above what they name."""
    return axis("", showticklabels=False, showgrid=False, ticks="", range=[n - 0.6, -0.75])


def row_notes(i: int, name: str, value: Estimate, how: str, low: float, high: float) -> list[dict[str, Any]]:
    """The name above row i, at the left, and its value to the right of all bars. low, high: ends of the bars."""
    end = max(100.0 * value.ci_high if how == "share" else value.ci_high, 0.0)
    label = {"x": low, "y": i, "text": wrapped(name, 46, 1), "xanchor": "left", "yanchor": "bottom", "yshift": 11}
    figure = {"x": end, "y": i, "text": with_interval(value, how), "xanchor": "left", "yanchor": "middle", "xshift": 6}
    return [{**note, "showarrow": False, "align": "left"} for note in (label, figure)]
