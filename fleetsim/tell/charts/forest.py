"""Dots with intervals, a row each, beside a line that means "no difference" and a band that is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

from fleetsim import units
from fleetsim.tell.charts.chart import Chart, axis, plain_text
from fleetsim.tell.charts.panels import legend_px

_ROW_PX, _FOOT_PX = 42, 62
# Where the dot of a row stands below its words, and half the height of what is drawn beside it, in rows.
_DOT, _LANE = 0.5, 0.24
# Characters that a row has on a phone, its name and its value together, and those of a heading in bold.
_WIDEST, _WIDEST_HEADING = 46, 38
# How far a value may stand beyond the last tick, and the share of a phone that a tick's words take.
_EDGE, _TICK = 1.005, 0.14


@dataclass(frozen=True, slots=True)
class Dot:
    """A row. said: its value in words. low, high: ends of the interval, None = none. style: a key of the chart's
    styles. told: what hovering says beside it."""

    name: str
    value: float
    said: str
    style: str
    low: float | None = None
    high: float | None = None
    told: str = ""


@dataclass(frozen=True, slots=True)
class Style:
    """How a kind of dots is drawn and called; symbols differ, so that colour tells nothing alone."""

    name: str
    colour: str
    symbol: str


@dataclass(frozen=True, slots=True)
class Heading:
    """A row that names those below it."""

    text: str


def forest(
    id: str,  # noqa: A002
    title: str,
    words: str,
    rows: Sequence[Dot | Heading],
    styles: dict[str, Style],
    x_axis: dict[str, Any],
    *,
    centre: float,
    bands: Sequence[tuple[float, float]] = (),
) -> Chart:
    """The chart. x_axis: its range holds all values; centre: where there is no difference; bands: allowed, the widest
    first."""
    annotations = []
    places: list[tuple[float, Dot]] = []
    y = 0.0
    for row in rows:
        if isinstance(row, Heading):
            y += 0.5
            annotations.append(_row_words(f"<b>{plain_text(_cut(row.text, _WIDEST_HEADING))}</b>", y, 0.0))
            y += 0.62
            continue
        annotations.append(_row_words(plain_text(_middle(row.name, _WIDEST - len(row.said))), y, 0.0))
        annotations.append(_row_words(plain_text(row.said), y, 1.0))
        places.append((y + _DOT, row))
        y += 1.0
    data = tuple(
        trace
        for key, style in styles.items()
        for trace in _traces(style, [(at, row) for at, row in places if row.style == key])
    )
    kinds = [trace["name"] for trace in data if trace["showlegend"]]
    above_px = 8 + (legend_px(kinds) if len(kinds) > 1 else 0)
    plot_px = round(_ROW_PX * (y + 0.45))
    layout: dict[str, Any] = {
        "annotations": annotations,
        "shapes": [
            # Beside the dots alone: across the whole chart they would run through the words of a narrow one.
            *({"type": "rect", "xref": "x", "x0": a, "x1": b, "yref": "y", "y0": at - _LANE, "y1": at + _LANE,
               "layer": "below", "line": {"width": 0}, "fillcolor": "var(--quiet-soft)"}
              for at, _ in places for a, b in bands),
            *({"type": "line", "xref": "x", "x0": centre, "x1": centre, "yref": "y", "y0": at - _LANE,
               "y1": at + _LANE, "layer": "between", "line": {"width": 1.2, "color": "var(--quiet)"}}
              for at, _ in places),
        ],
        "xaxis": x_axis,
        "yaxis": axis("", showticklabels=False, showgrid=False, ticks="", range=[y + 0.1, -0.35]),
        "margin": {"l": 8, "r": 8, "t": above_px, "b": 8, "pad": 2},
        "showlegend": len(kinds) > 1,
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1 + 4 / plot_px, "yanchor": "bottom",
                   "itemclick": False, "itemdoubleclick": False},
    }  # fmt: skip
    return Chart(id, title, words, data, layout, above_px + plot_px + _FOOT_PX)


def ratio_axis(title: str, low: float, high: float) -> dict[str, Any]:
    """A logarithmic axis of ratios with ticks in per cent of 1: "-20 %", "0", "+25 %"."""
    low, high = min(low, 0.95), max(high, 1.05)
    wide = log10(high / low)
    if wide < 0.12:
        ticks = [0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.15, 1.2, 1.25, 1.35]
    elif wide < 0.45:
        ticks = [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0]
    elif wide < 1.5:
        ticks = [0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0]
    else:
        ticks = [10.0**e for e in range(floor(log10(low)), ceil(log10(high)) + 1)]
    # The first and the last tick hold all values between them.
    far = [t for t in ticks if t < 1.0 and -log10(t) >= _TICK * log10(high / t)]
    low = min(low, max((t for t in far if t <= low * _EDGE), default=low))
    far = [t for t in ticks if t > 1.0 and log10(t) >= _TICK * log10(t / low)]
    high = max(high, min((t for t in far if t >= high / _EDGE), default=high))
    wide = log10(high / low)
    shown = _apart([t for t in ticks if low / _EDGE <= t <= high * _EDGE], _TICK * wide)
    return axis(
        title,
        type="log",
        tickvals=shown,
        ticktext=[_ratio_words(t) for t in shown],
        range=[log10(low) - 0.04 * wide, log10(high) + 0.04 * wide],
        tickangle=0,
    )


def _apart(ticks: Sequence[float], least: float) -> list[float]:
    """Keeps ticks that stand far enough apart on a logarithmic axis, from 1 outwards, and both ends."""
    kept = [1.0]
    for side in ([t for t in ticks if t > 1.0], [t for t in reversed(ticks) if t < 1.0]):
        last = [1.0]
        for tick in side:
            if abs(log10(tick / last[-1])) >= least:
                last.append(tick)
        if side and last[-1] != side[-1]:
            last = [*(last[:-1] if len(last) > 1 else last), side[-1]]
        kept += last[1:]
    return sorted(kept)


def _ratio_words(ratio: float) -> str:
    if ratio == 1.0:
        return "same"
    return units.change(ratio - 1, 0) if ratio < 2 else f"x {ratio:g}"


def _traces(style: Style, rows: Sequence[tuple[float, Dot]]) -> list[dict[str, Any]]:
    """Rows of one style as two traces: with an interval, and without one (it would be drawn as a bare cap)."""
    wide = [(at, row) for at, row in rows if row.low is not None and row.high is not None and row.low < row.high]
    bare = [one for one in rows if one not in wide]
    made = [_trace(style, some) for some in (wide, bare) if some]
    for trace in made[1:]:
        trace["showlegend"] = False
    if wide:
        made[0]["error_x"] = {
            "type": "data", "symmetric": False, "thickness": 1.6, "width": 4, "color": "var(--ink)",
            "array": [_short(row.high - row.value) for _, row in wide if row.high is not None],
            "arrayminus": [_short(row.value - row.low) for _, row in wide if row.low is not None],
        }  # fmt: skip
    return made


def _trace(style: Style, rows: Sequence[tuple[float, Dot]]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plain_text(style.name),
        "legendgroup": plain_text(style.name),
        "showlegend": True,
        "x": [_short(row.value) for _, row in rows],
        "y": [round(at, 3) for at, _ in rows],
        "meta": {"colour": style.colour},
        "marker": {"symbol": style.symbol, "size": 10, "line": {"width": 1.5}},
        "text": [plain_text(": ".join(t for t in (row.name, row.told or row.said) if t)) for _, row in rows],
        "hoverinfo": "text",
    }


def _row_words(text: str, y: float, x: float) -> dict[str, Any]:
    return {
        "text": text, "xref": "paper", "x": x, "xanchor": "left" if x == 0 else "right", "y": y, "yanchor": "middle",
        "showarrow": False, "align": "left",
    }  # fmt: skip


def _cut(text: str, most: int) -> str:
    """Cuts the end of a text that is too long."""
    return text if len(text) <= most else f"{text[: most - 4].rstrip()} ..."


def _middle(text: str, most: int) -> str:
    """Cuts the middle of a name that is too long: what tells names apart stands at either end."""
    if len(text) <= most:
        return text
    room = max(most - 5, 8)
    return f"{text[: room // 2].rstrip()} ... {text[room // 2 - room :].lstrip()}"


def _short(x: float) -> float:
    return float(f"{x:.5g}")
