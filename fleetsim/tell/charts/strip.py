"""A strip for each of many things: what it did when, told by thickness and pattern as well as by colour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fleetsim.dataclass import dataclass
from fleetsim.tell.charts.chart import Chart, axis, plain_text
from fleetsim.tell.charts.clock import Clock
from fleetsim.tell.charts.panels import legend_px

_ROW_PX, _LEAST_PX, _FOOT_PX = 20, 60, 62
_LONGEST = 20  # characters of a name; its end tells pods of one deployment apart


@dataclass(frozen=True, slots=True)
class StateLook:
    """How one state is drawn. thick: share of the row. pattern: of plotly's ("" = plain)."""

    name: str
    colour: str
    thick: float
    pattern: str = ""


Spans = Iterable[tuple[str, float, float]]


def strip(
    id: str,  # noqa: A002
    title: str,
    words: str,
    rows: Sequence[tuple[str, Spans]],
    looks: Mapping[str, StateLook],
    clock: Clock,
) -> Chart:
    """The chart. rows: (name, (state, start, end) in seconds), from the top."""
    bars: dict[str, tuple[list[float], list[float], list[int]]] = {state: ([], [], []) for state in looks}
    for k, (_, spans) in enumerate(rows):
        for state, start_s, end_s in spans:
            base, length, row = bars[state]
            base.append(clock.at(start_s))
            length.append(clock.length(end_s - start_s))
            row.append(k)
    data: tuple[dict[str, Any], ...] = tuple(
        {
            "type": "bar",
            "orientation": "h",
            "name": plain_text(look.name),
            "base": base,
            "x": length,
            "y": row,
            "width": look.thick,
            "meta": {"colour": look.colour},
            "marker": {"line": {"width": 0}, "pattern": {"shape": look.pattern, "solidity": 0.35, "size": 6}},
            "hoverinfo": "name",
        }
        for look, (base, length, row) in ((looks[state], bars[state]) for state in looks)
        if row
    )
    above_px, plot_px = 8 + legend_px([look.name for look in looks.values()]), max(_LEAST_PX, _ROW_PX * len(rows))
    layout: dict[str, Any] = {
        "barmode": "overlay",
        "bargap": 0.1,
        "xaxis": clock.axis(),
        "yaxis": axis(
            "", tickvals=list(range(len(rows))), ticktext=[plain_text(short(name)) for name, _ in rows],
            range=[len(rows) - 0.4, -0.6], showgrid=False, ticks="",
        ),
        "margin": {"l": 8, "r": 14, "t": above_px, "b": 8, "pad": 2},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1 + 4 / plot_px, "yanchor": "bottom",
                   "itemclick": False, "itemdoubleclick": False},
    }  # fmt: skip
    return Chart(id, title, words, data, layout, above_px + plot_px + _FOOT_PX)


def short(name: str, most: int = _LONGEST) -> str:
    """A name that fits beside a row."""
    return name if len(name) <= most else f"...{name[3 - most :]}"
