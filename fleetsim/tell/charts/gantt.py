"""Who does what when: rows of spans over a window of time.

A fleet of a thousand instances stays readable and small: `spread` picks the rows, and spans too short to be seen are
merged (`merged`), at most PARTS of them in a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim.history.window import has_clock
from fleetsim.tell.charts.chart import Chart, axis, plain_text
from fleetsim.tell.charts.parts import PartLook

MOST_ROWS = 24
# What is shorter than this part of the window is not seen on its own: about a pixel of a phone, two of a screen.
PARTS = 450
MERGED = (
    f"Spans shorter than 1/{PARTS} of the window are drawn together, as what most of their time is spent on; "
    "no time is left out."
)


@dataclass(frozen=True, slots=True)
class Span:
    """What a row does from start_s to end_s; kind: a key of the chart's kinds."""

    kind: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class GanttRow:
    """One row: spans in the order of time that do not overlap."""

    label: str
    spans: Sequence[Span]


@dataclass(frozen=True, slots=True)
class Kind:
    """How a kind of span is called and drawn; thin: a slim bar, for doing nothing."""

    name: str
    look: PartLook
    thin: bool = False


def gantt_chart(
    id: str,  # noqa: A002  # as the field of Chart
    title: str,
    words: str,
    rows: Sequence[GanttRow],
    kinds: Mapping[str, Kind],
    window: tuple[float, float],
    *,
    lines: Sequence[float] = (),
) -> Chart:
    """The rows from the top down over the window, in seconds; what lies outside it is cut off.

    lines: vertical hair lines, for example where steps end.
    """
    start, end = window
    shortest = (end - start) / PARTS
    drawn = [merged(clipped(row.spans, start, end), shortest) for row in rows]
    data = []
    for key, kind in kinds.items():
        found = [(i, span) for i, spans in enumerate(drawn) for span in spans if span.kind == key]
        if not found:
            continue
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": plain_text(kind.name),
                "y": [i for i, _ in found],
                "base": [round(span.start_s, 3) for _, span in found],
                "x": [round(span.end_s - span.start_s, 3) for _, span in found],
                "width": 0.3 if kind.thin else 0.74,
                "meta": {"colour": kind.look.colour},
                "marker": {
                    "line": {"width": 0 if kind.thin else 0.5},
                    "pattern": {"shape": kind.look.pattern, "solidity": 0.35, "size": 6},
                },
                "customdata": [plain_text(rows[i].label) for i, _ in found],
                "hovertemplate": f"%{{customdata}}: {plain_text(kind.name)}<br>from %{{base:,.1f}} s<extra></extra>",
            }
        )
    layout: dict[str, Any] = {
        "barmode": "overlay",
        "bargap": 0,
        "shapes": [
            {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1,
             "line": {"color": "var(--quiet)", "width": 1, "dash": "dot"}}
            for x in lines
            if start <= x <= end
        ],
        "xaxis": axis("seconds of the run", range=[start, end], showgrid=False),
        "yaxis": axis(
            "",
            tickvals=list(range(len(rows))),
            ticktext=[plain_text(row.label) for row in rows],
            range=[len(rows) - 0.4, -0.6],
            showgrid=False,
            ticks="",
        ),
    }  # fmt: skip
    return Chart(id, title, words, tuple(data), layout, 150 + 19 * len(rows))


def spread(n: int, most: int = MOST_ROWS) -> list[int]:
    """Which of n things are shown: all of them, or so many spread evenly over them, from the first to the last."""
    if n <= most:
        return list(range(n))
    return [round(i * (n - 1) / (most - 1)) for i in range(most)]


def clipped(spans: Sequence[Span], start: float, end: float) -> list[Span]:
    """The parts of spans inside a window."""
    inside = (Span(s.kind, max(s.start_s, start), min(s.end_s, end)) for s in spans if s.end_s > start)
    return [s for s in inside if s.end_s > s.start_s]


def merged(spans: Sequence[Span], shortest_s: float) -> list[Span]:
    """Spans none of which is shorter than so many seconds, unless it stands alone; the time covered stays the same.

    Neighbours that touch and are too short are taken together until they are long enough; together they are what most
    of their time is. Then touching neighbours of one kind become one.
    """
    out: list[Span] = []
    held: list[Span] = []

    def settle() -> None:
        if held:
            spent: dict[str, float] = {}
            for s in held:
                spent[s.kind] = spent.get(s.kind, 0.0) + s.end_s - s.start_s
            _append(out, Span(max(spent, key=lambda kind: spent[kind]), held[0].start_s, held[-1].end_s))
            held.clear()

    for span in spans:
        if held and held[-1].end_s != span.start_s:
            settle()
        if span.end_s - span.start_s >= shortest_s:
            settle()
            _append(out, span)
        else:
            held.append(span)
            if held[-1].end_s - held[0].start_s >= shortest_s:
                settle()
    settle()
    return out


def _append(out: list[Span], span: Span) -> None:
    if out and out[-1].kind == span.kind and out[-1].end_s == span.start_s:
        out[-1] = Span(span.kind, out[-1].start_s, span.end_s)
    else:
        out.append(span)


Floats = NDArray[np.float64]
_UNITS = ((3 * 86_400.0, 86_400.0, "days"), (3 * 3600.0, 3600.0, "hours"), (180.0, 60.0, "minutes"))


@dataclass(frozen=True, slots=True)
class Clock:
    """The time axis of a window, in seconds on the way in. zero_s, unit_s: what stands at 0 and what 1 is."""

    start_s: float
    end_s: float
    zero_s: float
    unit_s: float
    title: str

    @classmethod
    def of(cls, start_s: float, end_s: float) -> Clock:
        """A calendar's, in milliseconds as plotly has them, or hours, minutes or seconds since the beginning."""
        if has_clock(end_s):
            return cls(start_s, end_s, 0.0, 1e-3, "UTC")
        span = end_s - start_s
        unit, name = next(((unit, name) for least, unit, name in _UNITS if span >= least), (1.0, "seconds"))
        return cls(start_s, end_s, start_s, unit, f"{name} since the beginning")

    @property
    def is_date(self) -> bool:
        """Whether the axis is a calendar's."""
        return self.title == "UTC"

    def at(self, time_s: float) -> float:
        """Where a time stands."""
        x = (time_s - self.zero_s) / self.unit_s
        return round(x) if self.is_date else round(x, 4)

    def places(self, times_s: Iterable[float]) -> list[float]:
        """Where times stand."""
        return [self.at(t) for t in times_s]

    def length(self, seconds: float) -> float:
        """How long a span is on the axis."""
        return round(seconds / self.unit_s, 0 if self.is_date else 4)

    def axis(self, **more: Any) -> dict[str, Any]:
        """The axis over the window."""
        dated: dict[str, Any] = {"type": "date"} if self.is_date else {}
        return axis(
            self.title, range=[self.at(self.start_s), self.at(self.end_s)], nticks=6, tickangle=0, **dated, **more
        )


def known(values: Iterable[float]) -> list[float | None]:
    """Numbers for a chart, to five significant digits; what is not known is left out, not drawn as zero."""
    return [float(f"{v:.5g}") if np.isfinite(v) else None for v in values]


def stepped(clock: Clock, start_s: Floats, end_s: Floats, values: Floats) -> tuple[list[float], list[float | None]]:
    """A line that holds each value from its start to its end (line shape "hv"), broken where rows do not adjoin."""
    shown, x, y = known(values), [], []
    gap = 0.5 * float(np.median(end_s - start_s)) if len(start_s) else 0.0
    for k, value in enumerate(shown):
        x.append(clock.at(float(start_s[k])))
        y.append(value)
        if k + 1 == len(shown) or start_s[k + 1] > end_s[k] + gap or (shown[k + 1] is None) != (value is None):
            x.append(clock.at(float(end_s[k])))
            y.append(value)
            if k + 1 < len(shown):
                x.append(x[-1])
                y.append(None)
    return x, y
