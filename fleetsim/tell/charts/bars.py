"""Horizontal bars with their values written out: what goes where, by cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetsim import units
from fleetsim.dataclass import dataclass
from fleetsim.estimates import Estimate
from fleetsim.tell.charts.chart import Chart, axis
from fleetsim.tell.charts.parts import BEHIND, look, whiskers, wrapped

ROW_PX = 58
SHORT = 24  # letters of a name that leave its value room in the same line, on a phone


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar. strong: it is the one that matters (drawn full, the others hatched)."""

    name: str
    value: Estimate
    strong: bool = False


def cause_bars(
    id: str,  # noqa: A002  # as the field of Chart
    title: str,
    words: str,
    causes: Sequence[Bar],
    *,
    x_title: str,
    how: units.Unit,
) -> Chart:
    """A bar for each cause, in the order given, its name and its value with the 95 % interval above it.

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
                "hovertext": [f"{wrapped(cause.name)}<br>{units.with_ends(cause.value, how)}" for _, cause in rows],
            }
        )
    low = min([scale * c.value.ci_low for c in causes] + [0.0])
    high = max([scale * c.value.ci_high for c in causes] + [0.0])
    span = (high - low) or 1.0
    layout: dict[str, Any] = {
        "barmode": "overlay",
        "annotations": [_name(i, cause, how, low) for i, cause in enumerate(causes)],
        "xaxis": axis(
            x_title, range=[low - (0.03 if low < 0 else 0) * span, high + 0.04 * span], zeroline=True, zerolinewidth=1
        ),
        "yaxis": rows_axis(len(causes)),
        "showlegend": False,
    }
    return Chart(id, title, words, tuple(data), layout, 60 + ROW_PX * len(causes))


def rows_axis(n: int) -> dict[str, Any]:
    """An axis of n rows, the first at the top, without ticks: names stand above what they name."""
    return axis("", showticklabels=False, showgrid=False, ticks="", range=[n - 0.6, -0.75])


def _name(i: int, cause: Bar, how: units.Unit, low: float) -> dict[str, Any]:
    """The name and the value above row i, at the left: beside a long bar a phone has no room."""
    between = "  " if len(cause.name) <= SHORT else "<br>"
    text = f"{wrapped(cause.name, 40, 1)}{between}<b>{units.with_ends(cause.value, how)}</b>"
    note = {"x": low, "y": i, "text": text, "xanchor": "left", "yanchor": "bottom", "yshift": 11}
    return {**note, "showarrow": False, "align": "left", **BEHIND}
