"""Bars: causes with their values written out, layers on each other, and what is left of a whole part by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.tell.charts.chart import LEGEND, Chart, axis, plain_text
from fleetsim.tell.charts.parts import BEHIND, Mark, PartLook, look, upright, whiskers, wrapped

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


@dataclass(frozen=True, slots=True)
class Part:
    """What is taken away (above 0) or given back (below)."""

    name: str
    value: float


def waterfall_chart(
    id: str,  # noqa: A002  # as the field of Chart
    title: str,
    words: str,
    whole: Part,
    parts: Sequence[Part],
    rest: Part,
    *,
    x_title: str,
    how: units.Unit,
) -> Chart:
    """Bars from `whole` down to `rest`: each part begins where the one before it ended.

    how: share (drawn in per cent) or number. Raises ValueError unless whole - parts = rest, up to rounding.
    """
    left = whole.value - sum(p.value for p in parts)
    if abs(left - rest.value) > 1e-6 * max(1.0, abs(whole.value)):
        raise ValueError(f"the parts leave {left:g} of {whole.name}, not {rest.value:g}")
    scale = 100.0 if how == "share" else 1.0
    edges = [whole.value]
    for part in parts:
        edges.append(edges[-1] - part.value)
    kinds = (
        ("whole and rest", look(0), [(0, 0.0, whole.value), (len(parts) + 1, 0.0, rest.value)]),
        ("lost", look(1), [(i + 1, edges[i + 1], p.value) for i, p in enumerate(parts) if p.value >= 0]),
        ("given back", look(2), [(i + 1, edges[i], -p.value) for i, p in enumerate(parts) if p.value < 0]),
    )
    names = [whole, *parts, rest]
    data = tuple(
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": [i for i, _, _ in rows],
            "base": [scale * base for _, base, _ in rows],
            "x": [scale * size for _, _, size in rows],
            "width": 0.38,
            "meta": {"colour": style.colour},
            "marker": {"line": {"width": 1.5}, "pattern": {"shape": style.pattern, "solidity": 0.3}},
            "hoverinfo": "text",
            "hovertext": [f"{plain_text(names[i].name)}: {_signed(i, names, how)}" for i, _, _ in rows],
        }
        for name, style, rows in kinds
        if rows
    )
    low, high = scale * min(0.0, *edges), scale * max(edges)
    notes = [
        {"x": low, "y": i, "text": f"{wrapped(part.name, 40, 1)}  <b>{_signed(i, names, how)}</b>", "xanchor": "left",
         "yanchor": "bottom", "yshift": 11, "showarrow": False, "align": "left", **BEHIND}
        for i, part in enumerate(names)
    ]  # fmt: skip
    layout: dict[str, Any] = {
        "barmode": "overlay",
        "annotations": notes,
        "shapes": [_link(scale * x, i) for i, x in enumerate(edges)],
        "xaxis": axis(x_title, range=[low - 0.01 * (high - low), high + 0.04 * (high - low)]),
        "yaxis": rows_axis(len(names)),
    }
    return Chart(id, title, words, data, layout, 100 + ROW_PX * len(names))


def _link(x: float, row: int) -> dict[str, Any]:
    """Where the next bar begins: a thin line down from the end of the one before."""
    line = {"color": "var(--quiet)", "width": 1, "dash": "dot"}
    return {"type": "line", "x0": x, "x1": x, "y0": row + 0.19, "y1": row + 0.81, "line": line}


def _signed(i: int, names: Sequence[Part], how: units.Unit) -> str:
    value = names[i].value
    if i in (0, len(names) - 1):
        return units.written(value, how)
    return f"{'-' if value >= 0 else '+'}{units.written(abs(value), how)}"
