"""A quantity against another, with its 95 % interval: trainer idle against instance count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.tell.charts.chart import Chart, axis, plain_text
from fleetsim.tell.charts.parts import Mark, across, look, whiskers


@dataclass(frozen=True, slots=True)
class Curve:
    """Estimates over x, in ascending order. name: in the legend where there are several."""

    name: str
    x: Sequence[float]
    estimates: Sequence[Estimate]


def curve_chart(
    id: str,  # noqa: A002  # as the field of Chart
    title: str,
    words: str,
    curves: Sequence[Curve],
    *,
    x_title: str,
    y_title: str,
    how: units.Unit,
    recommended: float | None = None,
    star: str | None = None,
    targets: Sequence[Mark] = (),
    levels: Sequence[Mark] = (),
    height_px: int = 340,
) -> Chart:
    """Lines with symbols, whiskers and bands of the intervals; the recommended x as a star with a line through it.

    how: seconds, share, number or money: how values are written; a share is drawn in per cent. targets: horizontal
    lines, named in the plot, levels: likewise, named in the legend; in the unit of the estimates. star: what the legend
    calls the recommended x.
    """
    scale = 100.0 if how == "share" else 1.0
    data: list[dict[str, Any]] = []
    for i, one in enumerate(curves):
        data += _traces(one, i, scale, how, x_title, len(curves) + len(levels) > 1)
    shapes, notes = across([Mark(scale * mark.at, mark.text) for mark in targets])
    if recommended is not None:
        stars = [(one.x[k], scale * one.estimates[k].mean) for one in curves for k in _at(one, recommended)]
        data.append(_stars(stars, star or f"recommended: {recommended:,g}"))
        shapes.append({**_upright(recommended), "layer": "below"})
    ends = [min(x for one in curves for x in one.x), max(x for one in curves for x in one.x)]
    data += [_level(mark, len(curves) + i, ends, scale) for i, mark in enumerate(levels)]
    xs = sorted({x for one in curves for x in one.x})
    layout: dict[str, Any] = {
        "shapes": shapes,
        "annotations": notes,
        "xaxis": axis(x_title, **_ticks(xs), showgrid=False),
        "yaxis": axis(y_title, rangemode="tozero", **_unit(how)),
        "showlegend": len(curves) + len(levels) > 1 or recommended is not None,
    }
    return Chart(id, title, words, tuple(data), layout, height_px)


def _traces(one: Curve, i: int, scale: float, how: units.Unit, x_title: str, named: bool) -> list[dict[str, Any]]:
    style = look(i)
    means = [scale * e.mean for e in one.estimates]
    x = list(one.x)
    band = {
        "type": "scatter",
        "mode": "lines",
        "x": [*x, *reversed(x)],
        "y": [*(scale * e.ci_high for e in one.estimates), *(scale * e.ci_low for e in reversed(one.estimates))],
        "fill": "toself",
        "fillcolor": f"var(--{style.colour}-soft)",
        "line": {"width": 0},
        "meta": {"colour": style.colour, "role": "band"},
        "hoverinfo": "skip",
        "showlegend": False,
        "legendgroup": str(i),
    }
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plain_text(one.name),
        "x": x,
        "y": means,
        "error_y": whiskers(one.estimates, scale, color=f"var(--{style.colour})"),
        "meta": {"colour": style.colour, "role": "means"},
        "line": {"width": 2, "dash": style.dash},
        "marker": {"symbol": style.symbol, "size": 8},
        "hoverinfo": "text",
        "text": [
            f"{plain_text(one.name)}<br>{v:,g} {plain_text(x_title)}: {units.with_ends(e, how)}"
            for v, e in zip(one.x, one.estimates, strict=True)
        ],
        "legendgroup": str(i),
        "showlegend": named,
    }
    return [band, line]


def _level(mark: Mark, i: int, ends: Sequence[float], scale: float) -> dict[str, Any]:
    style = look(i)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plain_text(mark.text),
        "x": list(ends),
        "y": [scale * mark.at] * 2,
        "meta": {"colour": style.colour, "role": "level"},
        "line": {"width": 2, "dash": style.dash},
        "hoverinfo": "name",
    }


def _at(one: Curve, x: float) -> list[int]:
    return [k for k, value in enumerate(one.x) if value == x]


def _stars(points: Sequence[tuple[float, float]], name: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plain_text(name),
        "x": [x for x, _ in points],
        "y": [y for _, y in points],
        "meta": {"colour": "second", "role": "recommended"},
        "marker": {"symbol": "star", "size": 17},
        "hoverinfo": "skip",
    }


def _upright(x: float) -> dict[str, Any]:
    line = {"color": "var(--second)", "width": 1.5, "dash": "dot"}
    return {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def _ticks(xs: Sequence[float]) -> dict[str, Any]:
    """A tick at every count, as far as a phone has room for them."""
    every = -(-len(xs) // 9)
    shown = xs[::every]
    return {
        "tickvals": list(shown),
        "ticktext": [f"{x:,g}" if x == round(x) else f"{x:,.3g}" for x in shown],
        "tickangle": 0,
    }


def _unit(how: units.Unit) -> dict[str, Any]:
    return {"share": {"ticksuffix": " %"}, "money": {"tickprefix": "$"}}.get(how, {})
