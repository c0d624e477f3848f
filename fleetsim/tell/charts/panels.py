"""Panels above one another over one time axis: lines, bands of many, pauses shaded, events marked by letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleetsim.tell.charts.chart import Chart, axis, plain_text
from fleetsim.tell.charts.gantt import Clock

_GAP_PX, _EDGE_PX, _ROW_PX, _FOOT_PX = 44, 24, 20, 52
# A shaded pause narrower than this share of the window could not be seen; more of them than that would be a grey wall.
_THINNEST, _MOST_SHADES = 0.0025, 120
# Letters of events closer than this share of the window stand together.
_APART = 0.05
# A legend in rows has columns as wide as its widest entry: what a phone has room for, and what an entry takes.
_PHONE_PX, _LETTER_PX, _SYMBOL_PX = 340, 7.2, 44

Places = Sequence[float]
Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Line:
    """One line. dash: how it is told apart without colour. steps: it holds each value until the next. fill: the area
    down to 0 is tinted."""

    name: str
    x: Places
    y: Values
    colour: str = "accent"
    dash: str = "solid"
    steps: bool = False
    fill: bool = False
    width: float = 1.6


@dataclass(frozen=True, slots=True)
class Band:
    """Between two lines: of many things, most. What is not known in x is not there."""

    name: str
    x: Places
    low: Values
    high: Values
    colour: str = "accent"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. title: what is drawn, with its unit, above it. suffix: of its numbers. level: a dotted line across,
    and what it is, which the title says."""

    title: str
    lines: tuple[Line, ...] = ()
    bands: tuple[Band, ...] = ()
    suffix: str = ""
    level: tuple[float, str] | None = None
    height_px: int = 150
    top: float | None = None


def panels(
    id: str,  # noqa: A002
    title: str,
    words: str,
    each: Sequence[Panel],
    clock: Clock,
    *,
    shades: Sequence[tuple[float, float]] = (),
    letters: Sequence[tuple[float, str]] = (),
) -> Chart:
    """The chart. shades: spans in seconds behind all panels; those too short to be seen are left out. letters: events
    by time, in the order of time."""
    traces = [t for k, panel in enumerate(each) for t in _traces(panel, k)]
    _one_legend_entry_each(traces)
    named = [t["name"] for t in traces if t["showlegend"]]
    head_px = _EDGE_PX * (2 if letters else 1)
    above_px = head_px + legend_px(named)
    plot_px = sum(p.height_px for p in each) + _GAP_PX * (len(each) - 1)
    layout: dict[str, Any] = {
        # Room above for the letters, the titles and the legend, as many rows as a phone makes of it.
        "margin": {"l": 8, "r": 14, "t": above_px, "b": 8, "pad": 2},
        "legend": {
            "orientation": "h", "x": 0, "xanchor": "left", "y": 1 + head_px / plot_px, "yanchor": "bottom",
            "itemclick": False, "itemdoubleclick": False,
        },
        "showlegend": bool(named),
        "annotations": [],
        "shapes": [],
        "hovermode": "x unified" if len(each) == 1 else "closest",
    }  # fmt: skip
    wide, groups = visible(shades, clock), together(letters, clock)
    bottom = 1.0
    for k, panel in enumerate(each):
        low = max(0.0, bottom - panel.height_px / plot_px)
        n = "" if k == 0 else str(k + 1)
        last = k == len(each) - 1
        layout[f"yaxis{n}"] = _y_axis(panel, [low, bottom])
        layout[f"xaxis{n}"] = clock.axis(
            anchor=f"y{n}",
            **({} if last else {"showticklabels": False, "ticks": ""}),
            **({"matches": f"x{len(each)}"} if not last and len(each) > 1 else {}),
        )
        if not last:
            layout[f"xaxis{n}"]["title"] = {"text": ""}
        above = panel.title if panel.level is None else f"{panel.title}; dotted: {panel.level[1]}"
        layout["annotations"].append(_said(above, 0.0, bottom, yanchor="bottom", yshift=3))
        if panel.level is not None:
            layout["shapes"].append(_level(panel.level[0], k))
        layout["shapes"] += [_shade(a, b, clock, n) for a, b in wide]
        layout["shapes"] += [_mark(clock.at(at_s), n) for at_s, _ in groups]
        bottom = low - _GAP_PX / plot_px
    for at_s, letter in groups:
        layout["annotations"].append(
            _said(letter, clock.at(at_s), 1.0, xref="x", yanchor="bottom", yshift=_EDGE_PX - 3, xanchor="center")
        )
    return Chart(id, title, words, tuple(traces), layout, above_px + plot_px + _FOOT_PX)


def legend_px(names: Sequence[str]) -> int:
    """The height that a legend of these entries has on a phone."""
    if not names:
        return 0
    columns = max(1, int(_PHONE_PX // (_SYMBOL_PX + _LETTER_PX * max(map(len, names)))))
    return _ROW_PX * -(-len(names) // columns) + 8


@dataclass(frozen=True, slots=True)
class Scene:
    """What all charts of a window have in common. step_s: between two readings."""

    clock: Clock
    step_s: float
    shades: Sequence[tuple[float, float]] = ()
    letters: Sequence[tuple[float, str]] = ()

    def panels(
        self,
        id: str,  # noqa: A002
        title: str,
        words: str,
        each: Sequence[Panel],
        shaded: bool = True,
    ) -> Chart:
        """A chart in it; what is shaded is said."""
        if shaded:
            words += shade_words(self.shades, self.clock)
        return panels(id, title, words, each, self.clock, shades=self.shades if shaded else (), letters=self.letters)


def shade_words(shades: Sequence[tuple[float, float]], clock: Clock) -> str:
    """What the shaded spans are, and whether all of them are shown."""
    seen = visible(shades, clock)
    if not seen:
        return ""
    some = "" if len(seen) == len(shades) else f", those long enough to be seen ({len(seen):,} of {len(shades):,})"
    return f" Shaded: pauses of the whole fleet{some}."


def visible(shades: Sequence[tuple[float, float]], clock: Clock) -> list[tuple[float, float]]:
    """Spans wide enough to be seen; none where they are too many to be told apart."""
    span = clock.end_s - clock.start_s
    wide = [(a, b) for a, b in shades if b - a >= _THINNEST * span]
    return wide if len(wide) <= _MOST_SHADES else []


def together(letters: Sequence[tuple[float, str]], clock: Clock) -> list[tuple[float, str]]:
    """Letters that would overlap, joined at the first one's place: "A B", or "A-D" where they are many."""
    groups: list[list[tuple[float, str]]] = []
    for one in letters:
        if groups and one[0] - groups[-1][0][0] < _APART * (clock.end_s - clock.start_s):
            groups[-1].append(one)
        else:
            groups.append([one])
    return [(g[0][0], " ".join(x for _, x in g) if len(g) <= 2 else f"{g[0][1]}-{g[-1][1]}") for g in groups]


def _traces(panel: Panel, k: int) -> list[dict[str, Any]]:
    n = "" if k == 0 else str(k + 1)
    axes: dict[str, Any] = {"xaxis": f"x{n}", "yaxis": f"y{n}", "type": "scatter", "mode": "lines"}
    made: list[dict[str, Any]] = []
    alone = len(panel.lines) + len(panel.bands) == 1
    for band in panel.bands:
        for x, low, high in _pieces(band):
            made.append(
                {
                    **axes,
                    "name": band.name,
                    "legendgroup": band.name,
                    "x": [*x, *reversed(x)],
                    "y": [*high, *reversed(low)],
                    "fill": "toself",
                    "meta": {"colour": band.colour},
                    "fillcolor": f"var(--{band.colour}-soft)",
                    "line": {"width": 0},
                    "hoverinfo": "skip",
                    "alone": alone,
                }
            )
    made += [
        {
            **axes,
            "name": line.name,
            "legendgroup": line.name,
            "x": list(line.x),
            "y": list(line.y),
            "meta": {"colour": line.colour},
            "line": {"width": line.width, "dash": line.dash, **({"shape": "hv"} if line.steps else {})},
            "connectgaps": False,
            **({"fill": "tozeroy", "fillcolor": f"var(--{line.colour}-soft)"} if line.fill else {}),
            "alone": alone,
        }
        for line in panel.lines
    ]
    return made


def _pieces(band: Band) -> list[tuple[list[float], list[float], list[float]]]:
    """The runs of a band in which both its ends are known."""
    pieces: list[tuple[list[float], list[float], list[float]]] = []
    open_ = False
    for x, low, high in zip(band.x, band.low, band.high, strict=True):
        if low is None or high is None:
            open_ = False
            continue
        if not open_:
            pieces.append(([], [], []))
            open_ = True
        for values, value in zip(pieces[-1], (x, low, high), strict=True):
            values.append(value)
    return pieces


def _one_legend_entry_each(traces: list[dict[str, Any]]) -> None:
    """The same name in another panel, or the next piece of a band, is the same thing. What is alone in its panel has
    its name in the title above it."""
    seen: set[str] = set()
    for trace in traces:
        trace["showlegend"] = not trace.pop("alone") and trace["name"] not in seen
        if not trace["showlegend"]:
            trace["name"] = trace["legendgroup"] = plain_text(trace["name"])
            continue
        seen.add(trace["name"])
        trace["name"] = trace["legendgroup"] = plain_text(trace["name"])


def _y_axis(panel: Panel, domain: list[float]) -> dict[str, Any]:
    found = [v for line in panel.lines for v in line.y if v is not None]
    found += [v for band in panel.bands for v in band.high if v is not None]
    if panel.level is not None:
        found.append(panel.level[0])
    most = panel.top if panel.top is not None else 1.06 * max(found, default=0.0)
    return axis("", domain=domain, range=[0, most or 1.0], nticks=5, tickformat=",.10~g", ticksuffix=panel.suffix)


def _said(text: str, x: float, y: float, **more: Any) -> dict[str, Any]:
    placed = {"xref": "paper", "yref": "paper", "xanchor": "left", **more}
    return {"text": plain_text(text), "x": x, "y": y, "showarrow": False, "align": "left", **placed}


def _level(value: float, k: int) -> dict[str, Any]:
    yref = "y" if k == 0 else f"y{k + 1}"
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": yref, "y0": value, "y1": value,
            "line": {"width": 1.2, "dash": "dot", "color": "var(--quiet)"}}  # fmt: skip


def _shade(start_s: float, end_s: float, clock: Clock, n: str) -> dict[str, Any]:
    return {"type": "rect", "xref": "x", "x0": clock.at(start_s), "x1": clock.at(end_s), "yref": f"y{n} domain",
            "y0": 0, "y1": 1, "layer": "below", "line": {"width": 0}, "fillcolor": "var(--quiet-soft)"}  # fmt: skip


def _mark(x: float, n: str) -> dict[str, Any]:
    return {"type": "line", "xref": "x", "x0": x, "x1": x, "yref": f"y{n} domain", "y0": 0, "y1": 1,
            "line": {"width": 1.2, "dash": "dash", "color": "var(--quiet)"}}  # fmt: skip
