"""What the simulation makes of a window, as charts: lengths that it draws from, back-test, other fleets.

A back-test, told: predicted beside observed, overall and for each slice of the window.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from fleetsim import units
from fleetsim.history.window import has_clock
from fleetsim.quantities import quantity
from fleetsim.replay.backtest import Backtest, Slice
from fleetsim.replay.change.recommendation import AdvisedFleet
from fleetsim.replay.change.what_if import KeySweep
from fleetsim.replay.compared_quantities import QUANTITIES, Compared, ComparedRow, catalogued, error_words
from fleetsim.replay.observe.observed import LengthHistogram
from fleetsim.replay.pictures import panel
from fleetsim.replay.words import clock
from fleetsim.tell.charts.axes import ChartAxis, Clock, from_zero
from fleetsim.tell.charts.bounded import squared, stepped
from fleetsim.tell.charts.chart import Chart, ChartSeries, Mark, MarkLook, Panel, Plot, look
from fleetsim.tell.charts.kinds import Curve, curve_chart
from fleetsim.tell.document import Block, Bullets, Table, Words, terminal_only

_MOST_SLICES = 24
_BY_SLICE = "error by part of the window"


def backtest_blocks(back: Backtest) -> Iterator[Block]:
    """What holds, in one line; the table of the whole window; the slices; where to look if it is off."""
    yield terminal_only(Words(verdict_words(back), strong=back.verdict == "wrong"))
    if back.overall:
        yield overall(back.overall)
    if len(back.hours) > 1:
        yield terminal_only(Words(tail=_BY_SLICE))
        yield by_slice(back.hours)
    if back.where:
        yield terminal_only("The model is wrong somewhere. Where to look:", Bullets(back.where))


def verdict_words(back: Backtest) -> str:
    """The outcome in one sentence."""
    what = f"{back.steps:,} steps" if back.steps else "what was sent to each instance, sent again"
    runs = f"{what}, {units.plural(back.replications, 'replication')}"
    if back.worst is None:
        return "Nothing of what was observed could be compared."
    beyond = sum(not row.within for row in back.overall)
    if beyond:
        which = "one quantity is" if beyond == 1 else f"{beyond} of {len(back.overall)} quantities are"
        return f"Simulated ({runs}): {which} off by more than {units.share(back.limit)}."
    said = error_words(back.worst)
    worst = f", worst: {catalogued(back.worst.quantity).title} {said}" if any(c in "123456789" for c in said) else ""
    return f"Simulated ({runs}): every quantity within {units.share(back.limit)}{worst}."


def overall(rows: Sequence[ComparedRow]) -> Table:
    """Observed and predicted, with the error in its own measure."""
    return Table(
        "back-test: the window, simulated",
        ("", "observed", "predicted", "error", ""),
        tuple(_compared(row) for row in rows),
        words_last=1,
        marked=frozenset(i for i, row in enumerate(rows) if not row.within),
    )


def _compared(row: ComparedRow) -> tuple[str | Words, ...]:
    half = units.half_width(row.interval)
    text = units.percent(half) if row.measure == "points" else units.number(half)
    return (
        catalogued(row.quantity).title,
        _value(row.quantity, row.observed),
        Words(_value(row.quantity, row.predicted), f" ±{text}" if half > 0 else ""),
        error_words(row),
        "" if row.within else "OFF",
    )


def by_slice(slices: Sequence[Slice]) -> Table:
    """The errors of every slice; which of them the engine's speed was fitted on."""
    there = [q for q in QUANTITIES if any(row.quantity == q for s in slices for row in s.rows)]
    began = "from (UTC)" if has_clock(slices[0].start_s) else "from"
    rows: list[tuple[str | Words, ...]] = []
    for part in slices[:_MOST_SLICES]:
        errors = {row.quantity: error_words(row, short=True) for row in part.rows}
        fitted = "" if part.held_out is None else "held out" if part.held_out else "fitted"
        rows.append((clock(part.start_s), *(errors.get(q, "-") for q in there), Words(tail=fitted)))
    if len(slices) > _MOST_SLICES:
        rows.append((f"and {len(slices) - _MOST_SLICES} more", *("",) * (len(there) + 1)))
    return Table(_BY_SLICE, (began, *map(_heading, there), ""), tuple(rows), words_last=1).narrowing(_heading("tok_s"))


def _heading(name: Compared) -> str:
    """Without the unit: below it stand errors."""
    return catalogued(name).heading.partition(",")[0]


def _value(name: Compared, x: float) -> str:
    return units.written(x, catalogued(name).unit)


_CURVES = ("trainer_idle_fraction", "step_s", "cost_per_step")


def lengths_chart(lengths: LengthHistogram | None) -> Chart | None:
    """Shares of the finished requests by bucket, as exported."""
    if lengths is None or not sum(lengths.count) > 0:
        return None
    pairs = list(zip(lengths.le, lengths.count, strict=True))
    filled = [k for k, (_, count) in enumerate(pairs) if count > 0]
    first, last = max(0, filled[0] - 1), filled[-1]
    total = sum(lengths.count)
    names, shares, told = [], [], []
    for k in range(first, last + 1):
        bound, count = pairs[k]
        low = pairs[k - 1][0] if k else 0.0
        names.append(f"> {units.tokens(low)}" if math.isinf(bound) else units.tokens(bound))
        shares.append(float(f"{100 * count / total:.4g}"))
        upto = "no bound" if math.isinf(bound) else f"{bound:,.0f}"
        told.append(f"over {low:,.0f}, up to {upto} tokens: {units.share(count / total)}, {count:,.0f} requests")
    places, closed = [float(k) for k in range(len(names))], len(names) - math.isinf(pairs[last][0])
    series = [
        ChartSeries(name, "bars", places[of], shares[of], style, said=told[of], width=0.9)
        for name, of, style in (
            ("bounded", slice(closed), look(0)),
            ("without upper bound", slice(closed, None), MarkLook("accent", pattern="/")),
        )
        if places[of]
    ]
    every = max(1, math.ceil(len(names) / 6))
    ticks = tuple((places[k], names[k]) for k in range(len(names)) if k % every == 0)
    x = ChartAxis("tokens of a response, up to", -0.6, len(names) - 0.4, ticks=ticks, grid=False)
    y = from_zero("share of the requests", shares, after=" %")
    unbounded = " The hatched bar has no upper bound." if math.isinf(pairs[last][0]) else ""
    above = {q: "above " if lengths.unbounded(q) else "" for q in (0.5, 0.9, 0.99)}
    words = (
        f"{total:,.0f} finished requests: mean {units.number(lengths.mean)} tokens, half of them up to {above[0.5]}"
        f"{units.number(lengths.p50)}, p90 {above[0.9]}{units.number(lengths.p90)}, p99 {above[0.99]}"
        f"{units.number(lengths.p99)}."
        f" The bars are the engine's own buckets, which differ in width.{unbounded}"
    )
    return Chart("lengths", "Response lengths", words, Plot(x, (Panel(y, tuple(series), height_px=220),)))


def backtest_chart(back: Backtest | None) -> Chart | None:
    """Observed and simulated side by side over the parts of the window; None where there are not two."""
    if back is None or not back.overall or len(back.hours) < 2:
        return None
    clock = Clock.of(back.hours[0].start_s, back.hours[-1].end_s)
    start = np.array([s.start_s for s in back.hours])
    end = np.array([s.end_s for s in back.hours])
    each = []
    for name in QUANTITIES:
        rows = [next((r for r in s.rows if r.quantity == name), None) for s in back.hours]
        if not any(rows):
            continue
        q = catalogued(name)
        title, (factor, suffix) = q.title, (100.0, " %") if q.unit == "share" else (1.0, "")
        whole = back.row(name)
        if whole is not None:
            title += f": {error_words(whole)} off"

        nothing = (np.nan,) * 4
        told = [
            nothing if r is None else (r.observed, r.predicted, r.interval.ci_low, r.interval.ci_high) for r in rows
        ]
        lines = (stepped(clock, start, end, factor * column) for column in np.array(told).T)
        (x, observed), (x2, predicted), (_, low), (_, high) = lines
        x3, low = squared(x2, low)
        _, high = squared(x2, high)
        series = (
            ChartSeries("simulated, 95 % interval", "band", x3, high, MarkLook("second"), low=low),
            ChartSeries("observed", "steps", x, observed, look(0)),
            ChartSeries("simulated", "steps", x2, predicted, look(1)),
        )
        each.append(panel(title, series, 100, suffix))
    held = [s for s in back.hours if s.held_out]
    words = f"{verdict_words(back)} Observed and simulated over the parts of the window."
    if held:
        words += " The engine's speed was fitted on the first half; the second half is predicted, not fitted."
    return Chart("backtest", "Back-test: observed and simulated", words, Plot(clock.axis(), tuple(each)))


def swept_charts(sweep: KeySweep, advised: AdvisedFleet | None) -> Iterator[Chart]:
    """Step, idle and cost over a key that is a number; none over another. advised: marked among them."""
    points = [(float(p.value), p.estimates) for p in sweep.points if _is_number(p.value) and p.estimates is not None]
    if len(points) < 2 or not all(_is_number(p.value) for p in sweep.points):
        return
    points.sort(key=lambda p: p[0])
    of_fleets = sweep.key == "fleet.instances"
    recommended = float(advised.instances) if advised is not None and of_fleets else None
    if recommended not in [x for x, _ in points]:
        recommended = None  # it stands in the charts of the recommendation
    stuck = [str(p.value) for p in sweep.points if p.estimates is None]
    words = f"Every value of {sweep.key} under the same draws, {units.plural(sweep.replications, 'replication')} each."
    if stuck:
        words += f" At {', '.join(stuck)} the run gets stuck: nothing is drawn there."
    beyond = [str(p.value) for p in sweep.points if p.extrapolated is not None]
    if beyond:
        words += f" At {', '.join(beyond)} the engines run at loads that the window never saw."
    x = [value for value, _ in points]
    here = _is_number(sweep.now) and sweep.now != recommended and x[0] <= sweep.now <= x[-1]
    for metric in _CURVES:
        title, how = quantity(metric).title, quantity(metric).unit
        y = [estimates[metric] for _, estimates in points]
        begins, ends = (units.written(end.mean, how) for end in (y[0], y[-1]))
        told = words if metric == _CURVES[0] else f"From {begins} at {x[0]:g} to {ends} at {x[-1]:g}."
        yield curve_chart(
            f"sweep-{metric}", units.capital(f"{title} against {sweep.key}"), told, [Curve(title, x, y)],
            x_title=sweep.key, y_title=title, how=how, recommended=recommended,
            upright=[Mark(float(sweep.now), "now")] if here else [], height_px=200,
        )  # fmt: skip


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
