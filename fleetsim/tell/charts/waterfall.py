"""A waterfall: a whole, the parts that are taken from it, and what is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetsim import units
from fleetsim.dataclass import dataclass
from fleetsim.tell.charts.bars import ROW_PX, rows_axis
from fleetsim.tell.charts.chart import Chart, axis, plain_text
from fleetsim.tell.charts.parts import BEHIND, look, wrapped


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
