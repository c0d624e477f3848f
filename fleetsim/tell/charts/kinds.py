"""What is drawn again and again: estimates over a count, values over time, lengths, causes, changes, a whole and its
parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.tell.charts.axes import ChartAxis, from_zero, unit_axis
from fleetsim.tell.charts.bounded import MOST_BARS, averaged, thinned
from fleetsim.tell.charts.chart import Chart, ChartRow, ChartSeries, Mark, MarkLook, Panel, Plot, RowMark, Rows, look

_BINS = 40
# Ticks at counts that a phone has room for.
_MOST_COUNTS = 9
_STAR = MarkLook("second", symbol="star")


class Curve(Struct, frozen=True):
    """Estimates over x, in ascending order. name: in the legend where there are several."""

    name: str
    x: Sequence[float]
    estimates: Sequence[Estimate]


def curve_chart(
    chart_id: str,
    title: str,
    words: str,
    curves: Sequence[Curve],
    *,
    x_title: str,
    y_title: str,
    how: units.Unit,
    recommended: float | None = None,
    star: str = "",
    targets: Sequence[Mark] = (),
    levels: Sequence[Mark] = (),
    upright: Sequence[Mark] = (),
    height_px: int = 240,
) -> Chart:
    """Lines with dots and the areas of their intervals; the recommended x as a star with a line through it.

    how: how values are written; a share is drawn in per cent. targets: horizontal lines, named in the plot, levels:
    likewise, named in the legend; in the unit of the estimates. star: what the legend calls the recommended x.
    """
    scale = 100.0 if how == "share" else 1.0
    series: list[ChartSeries] = []
    for i, one in enumerate(curves):
        y, low, high = ([scale * getattr(e, end) for e in one.estimates] for end in ("mean", "ci_low", "ci_high"))
        ones = x_title.removesuffix("s")
        said = [
            f"{v:,g} {ones if v == 1 else x_title}: {units.with_ends(e, how)}"
            for v, e in zip(one.x, one.estimates, strict=True)
        ]
        series += [ChartSeries(one.name, kind, one.x, y, look(i), low, high, said) for kind in ("line", "dots")]
    xs = sorted({x for one in curves for x in one.x})
    for i, mark in enumerate(levels, len(curves)):
        series.append(ChartSeries(mark.text, "line", [xs[0], xs[-1]], [scale * mark.at] * 2, look(i), said=("", "")))
    lines = list(upright)
    if recommended is not None:
        at = [e for one in curves for x, e in zip(one.x, one.estimates, strict=True) if x == recommended]
        name = star or f"recommended: {recommended:,g}"
        y, said = [scale * e.mean for e in at], [f"{name}: {units.with_ends(e, how)}" for e in at]
        series.append(ChartSeries(name, "dots", [recommended] * len(at), y, _STAR, said=said, sizes=[16.0] * len(at)))
        lines.append(Mark(recommended, star=True))
    across = tuple(Mark(scale * mark.at, mark.text) for mark in targets)
    heights = [v for s in series for values in (s.y, s.high) for v in values if v is not None]
    y_axis = unit_axis("" if y_title == title.lower() else y_title, how, [*heights, *(mark.at for mark in across)])
    panel = Panel(y_axis, tuple(series), across, height_px=height_px)
    return Chart(chart_id, title, words, Plot(_counts(x_title, xs), (panel,), tuple(lines)))


def _counts(title: str, xs: Sequence[float]) -> ChartAxis:
    """An axis with a tick at every value, as far as a phone has room for them."""
    span = (xs[-1] - xs[0]) or 1.0
    ends = xs[0] - 0.03 * span, xs[-1] + 0.03 * span
    whole = all(x == round(x) for x in xs)
    if len(xs) > _MOST_COUNTS or not whole:
        return ChartAxis(title, *ends, grid=False)
    return ChartAxis(title, *ends, ticks=tuple((x, f"{x:,g}") for x in xs), grid=False)


class StepSeries(Struct, frozen=True):
    """values[i] holds from times[i] until times[i + 1]; times ascend."""

    name: str
    times: ArrayLike
    values: ArrayLike


def step_chart(
    chart_id: str,
    title: str,
    words: str,
    series: Sequence[StepSeries],
    *,
    x_title: str,
    y_title: str,
    limits: Sequence[Mark] = (),
    begins: Mark | None = None,
) -> Chart:
    """Steps for each series. limits: horizontal lines. begins: a vertical one where what is counted begins."""
    made = []
    for i, one in enumerate(series):
        times, values = thinned(np.asarray(one.times, dtype=float), np.asarray(one.values, dtype=float))
        made.append(ChartSeries(one.name, "steps", times.tolist(), values.tolist(), look(i)))
    heights = [*(v or 0.0 for one in made for v in one.y), *(mark.at for mark in limits)]
    y = from_zero(y_title, heights, 0.12 if begins is None else 0.2)
    ends = [x for one in made for x in one.x]
    x = ChartAxis(x_title, min(ends), max(*ends, min(ends) + 1e-9), grid=False)
    upright = () if begins is None else (begins,)
    return Chart(chart_id, title, words, Plot(x, (Panel(y, tuple(made), tuple(limits), height_px=220),), upright))


class Layer(Struct, frozen=True):
    """values[i] of bar i, from the bottom up in the order of layers."""

    name: str
    values: ArrayLike
    look: MarkLook


def stacked_bars(
    chart_id: str,
    title: str,
    words: str,
    layers: Sequence[Layer],
    *,
    x_title: str,
    y_title: str,
    begins: Mark | None = None,
) -> Chart:
    """Bars 0..n-1, averaged where they are many; begins: where what is counted begins, a line before that bar."""
    series = []
    for layer in layers:
        x, y, width = averaged(np.asarray(layer.values, dtype=float))
        series.append(ChartSeries(layer.name, "bars", x, y, layer.look, width=width))
    if len(np.asarray(layers[0].values)) > MOST_BARS:
        words += f" Each bar is the mean of {-(-len(np.asarray(layers[0].values)) // MOST_BARS)}."
    tops = [sum(values) for values in zip(*(one.y for one in series), strict=True)]
    axis = ChartAxis(x_title, -0.7, len(np.asarray(layers[0].values)) - 0.3, grid=False)
    panel = Panel(from_zero(y_title, tops, 0.12), tuple(series), height_px=240)
    return Chart(chart_id, title, words, Plot(axis, (panel,), () if begins is None else (begins,)))


def histogram_chart(
    chart_id: str, title: str, words: str, sets: Mapping[str, ArrayLike], *, x_title: str, caps: Sequence[Mark] = ()
) -> Chart:
    """The share of each set's values in each bin: the first as a filled outline, the others as dashed ones over it.

    sets: by their names. The last bin ends at the largest value and holds it.
    """
    values = [np.asarray(found, dtype=float) for found in sets.values()]
    edges = bins_of(values)
    series = []
    for i, (name, found) in enumerate(zip(sets, values, strict=True)):
        shares = 100.0 * np.histogram(found, edges)[0] / len(found)
        y = [*shares.tolist(), float(shares[-1])]  # a step ends where the last bin does
        series.append(ChartSeries(name, "steps", edges.tolist(), y, look(i), fill=i == 0))
    y_axis = from_zero("share of samples", [v or 0.0 for one in series for v in one.y], 0.12, after=" %")
    x = ChartAxis(x_title, 0.0, max([float(edges[-1]), *(1.02 * cap.at for cap in caps)]), grid=False)
    return Chart(chart_id, title, words, Plot(x, (Panel(y_axis, tuple(series), height_px=220),), tuple(caps)))


def bins_of(values: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Edges of equal bins from zero to the largest value of all sets."""
    top = max(float(v.max(initial=0.0)) for v in values)
    edges: NDArray[np.float64] = np.linspace(0.0, top or 1.0, _BINS + 1)
    return edges


def change_rows(
    chart_id: str,
    title: str,
    words: str,
    changes: Sequence[tuple[str, Sequence[Estimate | None], bool]],
    measures: Sequence[str],
    *,
    x_title: str = "change, %",
) -> Chart:
    """A dot with its interval for each measure of each row: its name, paired ratios (with / without), whether it is the
    one that matters. Left of zero is less, right is more."""
    rows = []
    for name, ratios, strong in changes:
        known = [(measure, r) for measure, r in zip(measures, ratios, strict=True) if r is not None]
        ends = ((100.0 * (x - 1.0) for x in (r.mean, r.ci_low, r.ci_high)) for _, r in known)
        said = (f"{name}: {measure} {units.ratio_change(r)}" for measure, r in known)
        marks = (RowMark(m, *e, said=s) for (m, _), e, s in zip(known, ends, said, strict=True))
        rows.append(ChartRow(name, "", tuple(marks), strong))
    reached = [v for row in rows for m in row.marks for v in (m.low, m.high) if v is not None]
    looks = {measure: (measure, look(i)) for i, measure in enumerate(measures)}
    low, high = min([*reached, 0.0]), max([*reached, 0.0])
    room = 0.06 * ((high - low) or 1.0)
    axis = ChartAxis(x_title, low - room, high + room, after=" %", grid=False)
    return Chart(chart_id, title, words, Rows(axis, tuple(rows), looks, 0.0))


def cause_bars(
    chart_id: str, title: str, words: str, causes: Sequence[tuple[str, Estimate]], *, x_title: str, how: units.Unit
) -> Chart:
    """A bar for each cause, in the order given, with its name and its value with the 95 % interval above it."""
    scale = 100.0 if how == "share" else 1.0
    rows = tuple(
        ChartRow(
            name, units.with_ends(e, how), (RowMark("", scale * e.mean, scale * e.ci_low, scale * e.ci_high, 0.0),)
        )
        for name, e in causes
    )
    axis = from_zero(x_title, [v for row in rows for m in row.marks for v in (m.low or 0.0, m.high or 0.0)], grid=False)
    return Chart(chart_id, title, words, Rows(axis, rows, {"": ("", look(0))}, 0.0))


def waterfall_chart(
    chart_id: str,
    title: str,
    words: str,
    whole: tuple[str, float],
    parts: Sequence[tuple[str, float]],
    rest: tuple[str, float],
    *,
    x_title: str,
    how: units.Unit,
) -> Chart:
    """Bars from `whole` down to `rest`: each part, taken away (above 0) or given back, begins where the one before it
    ended.

    how: share (drawn in per cent) or number. Raises ValueError unless whole - parts = rest, up to rounding.
    """
    left = whole[1] - sum(value for _, value in parts)
    if abs(left - rest[1]) > 1e-6 * max(1.0, abs(whole[1])):
        raise ValueError(f"the parts leave {left:g} of {whole[0]}, not {rest[1]:g}")
    scale = 100.0 if how == "share" else 1.0
    end, rows = whole[1], []
    for i, (name, value) in enumerate((whole, *parts, rest)):
        outer = i in (0, len(parts) + 1)
        start = 0.0 if outer else end
        end = value if outer else end - value
        said = units.written(abs(value), how)
        key = "whole" if outer else "lost" if value >= 0 else "back"
        sign = "" if outer else "-" if value >= 0 else "+"
        mark = RowMark(key, scale * end, base=scale * start)
        rows.append(ChartRow(name, f"{sign}{said}", (mark,), link=None if i > len(parts) else scale * end))
    looks = {"whole": ("whole and rest", look(0)), "lost": ("lost", look(1)), "back": ("given back", look(2))}
    ends = [v for row in rows for m in row.marks for v in (m.value, m.base or 0.0)]
    return Chart(chart_id, title, words, Rows(from_zero(x_title, ends, 0.02, grid=False), tuple(rows), looks))
