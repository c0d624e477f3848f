"""Data of any length as so much of it as a page can show: what is thinned keeps its extremes, and what is merged its
time, and both are said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fleetsim.tell.charts.axes import Clock
from fleetsim.tell.charts.chart import Span

Floats = NDArray[np.float64]
# Points of a line, bars side by side, and rows of spans.
MOST_POINTS, MOST_BARS, MOST_ROWS = 600, 60, 24
# What is shorter than this part of the window is not seen on its own: about a pixel of a phone, two of a screen.
PARTS = 450
MERGED = (
    f"Spans shorter than 1/{PARTS} of the window are drawn together, as what most of their time is spent on; "
    "no time is left out."
)
# A shaded pause narrower than this share of the window could not be seen; more of them than that would be a grey wall.
_THINNEST, _MOST_SHADES = 0.0025, 120
# Letters of events closer than this share of the window stand together.
_APART = 0.05


def thinned(times: Floats, values: Floats, most: int = MOST_POINTS) -> tuple[Floats, Floats]:
    """A step function with so many points at most: of each stretch its first, lowest, highest and last value stay.

    A function that has no more points comes back as it is.
    """
    n = len(times)
    if n <= most:
        return times, values
    kept: set[int] = {0, n - 1}
    edges = np.linspace(0, n, max(1, (most - 2) // 4) + 1).astype(int)
    for a, b in pairwise(edges):
        if a < b:
            part = values[a:b]
            kept |= {int(a), int(b) - 1, int(a + part.argmin()), int(a + part.argmax())}
    index = sorted(kept)
    return times[index], values[index]


def averaged(values: Floats) -> tuple[list[float], list[float], float]:
    """Places, means and width of so many bars at most, each of a run of equal length."""
    n, each = len(values), -(-len(values) // MOST_BARS)
    places = [i + (min(each, n - i) - 1) / 2 for i in range(0, n, each)]
    return places, [float(np.mean(values[i : i + each])) for i in range(0, n, each)], 0.82 * each


def spread(n: int, most: int = MOST_ROWS) -> list[int]:
    """Which of n things are shown: all of them, or so many spread evenly over them, from the first to the last."""
    if n <= most:
        return list(range(n))
    return [round(i * (n - 1) / (most - 1)) for i in range(most)]


def clipped(spans: Iterable[Span], start: float, end: float) -> list[Span]:
    """The parts of spans inside a window."""
    inside = (Span(s.kind, max(s.start, start), min(s.end, end)) for s in spans if s.end > start)
    return [s for s in inside if s.end > s.start]


def merged(spans: Iterable[Span], shortest: float) -> list[Span]:
    """Spans none of which is shorter than so much, unless it stands alone; the time covered stays the same.

    Neighbours that touch and are too short are taken together until they are long enough; together they are what most
    of their time is. Then touching neighbours of one kind become one.
    """
    out: list[Span] = []
    held: list[Span] = []

    def settle() -> None:
        if held:
            spent: dict[str, float] = {}
            for s in held:
                spent[s.kind] = spent.get(s.kind, 0.0) + s.end - s.start
            _append(out, Span(max(spent, key=lambda kind: spent[kind]), held[0].start, held[-1].end))
            held.clear()

    for span in spans:
        if held and held[-1].end != span.start:
            settle()
        if span.end - span.start >= shortest:
            settle()
            _append(out, span)
        else:
            held.append(span)
            if held[-1].end - held[0].start >= shortest:
                settle()
    settle()
    return out


def _append(out: list[Span], span: Span) -> None:
    if out and out[-1].kind == span.kind and out[-1].end == span.start:
        out[-1] = Span(span.kind, out[-1].start, span.end)
    else:
        out.append(span)


def known(values: Iterable[float]) -> list[float | None]:
    """Numbers for a chart, to five significant digits; what is not known is left out, not drawn as zero."""
    return [float(f"{v:.5g}") if np.isfinite(v) else None for v in values]


def stepped(clock: Clock, start_s: Floats, end_s: Floats, values: Floats) -> tuple[list[float], list[float | None]]:
    """Steps that hold each value from its start to its end, broken where rows do not adjoin."""
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


def squared(x: Sequence[float], y: Sequence[float | None]) -> tuple[list[float], list[float | None]]:
    """The corners of steps, for a band, whose sides are straight."""
    xs, ys = list(x[:1]), list(y[:1])
    for k in range(1, len(x)):
        if y[k] is not None and y[k - 1] is not None and y[k] != y[k - 1]:
            xs.append(x[k])
            ys.append(y[k - 1])
        xs.append(x[k])
        ys.append(y[k])
    return xs, ys


def wide_enough(shades: Sequence[tuple[float, float]], clock: Clock) -> list[tuple[float, float]]:
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
