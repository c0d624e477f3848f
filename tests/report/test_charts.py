"""Kinds of charts against what they are made of."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.tell.charts.bars import MOST_BARS, Bar, Layer, Part, cause_bars, stacked_bars, waterfall_chart
from fleetsim.tell.charts.curve import Curve, curve_chart
from fleetsim.tell.charts.dots import DotsRow, change_dots
from fleetsim.tell.charts.forest import ratio_axis
from fleetsim.tell.charts.gantt import MOST_ROWS, PARTS, GanttRow, Kind, Span, clipped, gantt_chart, merged, spread
from fleetsim.tell.charts.parts import Mark, look
from fleetsim.tell.charts.steps import MOST_POINTS, Sampled, bins_of, histogram_chart, thinned

KINDS = {"busy": Kind("busy", look(0)), "idle": Kind("idle", look(3), thin=True)}
seconds = st.floats(1e-4, 50.0)


@st.composite
def rows(draw: st.DrawFn) -> list[Span]:
    """Spans in the order of time, some of them apart."""
    spans, now = [], 0.0
    for length, gap in draw(st.lists(st.tuples(seconds, st.sampled_from([0.0, 0.0, 0.5])), max_size=60)):
        begin = now + gap
        now = begin + length
        spans.append(Span(draw(st.sampled_from(["busy", "idle", "down"])), begin, now))
    return spans


def covered(spans: list[Span]) -> float:
    return sum(s.end_s - s.start_s for s in spans)


@given(rows(), st.floats(0.01, 20.0))
def test_merging_leaves_no_time_out_and_nothing_overlaps(spans: list[Span], shortest: float) -> None:
    drawn = merged(spans, shortest)
    assert covered(drawn) == pytest.approx(covered(spans))
    assert all(a.end_s <= b.start_s for a, b in pairwise(drawn))
    assert len(drawn) <= len(spans)
    # What is long enough on its own keeps its kind where it is.
    for span in spans:
        if span.end_s - span.start_s >= shortest:
            home = next(d for d in drawn if d.start_s <= span.start_s and span.end_s <= d.end_s)
            assert home.kind == span.kind
    # Short ones are left only where their neighbours do not touch them, or are long themselves.
    touching = [a.end_s == b.start_s for a, b in pairwise(drawn)]
    short = [s.end_s - s.start_s < shortest for s in drawn]
    assert not any(near and a and b for near, a, b in zip(touching, short, short[1:], strict=False))


@given(rows(), st.floats(0.0, 100.0), st.floats(0.1, 100.0))
def test_a_window_cuts_and_keeps_the_rest(spans: list[Span], start: float, length: float) -> None:
    inside = clipped(spans, start, start + length)
    expected = sum(max(0.0, min(s.end_s, start + length) - max(s.start_s, start)) for s in spans)
    assert covered(inside) == pytest.approx(expected)


@given(st.integers(1, 5000))
def test_rows_are_spread_over_the_whole_fleet(n: int) -> None:
    shown = spread(n)
    assert shown == sorted(set(shown))
    assert (shown[0], shown[-1], len(shown)) == (0, n - 1, min(n, MOST_ROWS))
    assert max((b - a for a, b in pairwise(shown)), default=1) <= n / (min(n, MOST_ROWS) - 1 or 1) + 1


def test_a_busy_fleet_stays_small() -> None:
    fleet = [
        GanttRow(f"inst. {i}", [Span(("busy", "idle")[k % 2], k / 25, (k + 1) / 25) for k in range(5_000)])
        for i in range(MOST_ROWS)
    ]
    chart = gantt_chart("g", "Who", "When.", fleet, KINDS, (0.0, 200.0))
    assert sum(len(t["x"]) for t in chart.data) <= MOST_ROWS * (PARTS + 1)
    assert len(json.dumps(chart.data)) < 600_000
    total = sum(sum(t["x"]) for t in chart.data)
    assert total == pytest.approx(200.0 * MOST_ROWS, rel=1e-3)


def test_every_span_of_a_gantt_is_where_it_was() -> None:
    fleet = [GanttRow("a", [Span("busy", 1.0, 4.0), Span("idle", 4.0, 5.0)]), GanttRow("b", [Span("busy", 2.0, 9.0)])]
    chart = gantt_chart("g", "Who", "When.", fleet, KINDS, (2.0, 6.0))
    drawn = {t["name"]: list(zip(t["y"], t["base"], t["x"], strict=True)) for t in chart.data}
    assert drawn == {"busy": [(0, 2.0, 2.0), (1, 2.0, 4.0)], "idle": [(0, 4.0, 1.0)]}
    assert chart.layout["yaxis"]["ticktext"] == ["a", "b"]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=3000))
def test_thinning_keeps_the_ends_and_the_extremes(values: list[float]) -> None:
    times = np.arange(len(values), dtype=float)
    at, kept = thinned(times, np.array(values))
    assert len(at) <= MOST_POINTS
    assert (at[0], at[-1]) == (0.0, len(values) - 1)
    assert (kept.min(), kept.max()) == (min(values), max(values))
    assert kept.tolist() == [values[int(i)] for i in at]


@given(st.floats(0.1, 10.0), st.lists(st.floats(-1.0, 1.0), max_size=8))
def test_a_waterfall_ends_where_its_parts_lead(whole: float, parts: list[float]) -> None:
    rest = whole - sum(parts)
    chart = waterfall_chart(
        "w", "W", "W.", Part("all", whole), [Part(str(i), p) for i, p in enumerate(parts)], Part("rest", rest),
        x_title="x", how="number",
    )  # fmt: skip
    bars = {y: (base, base + x) for t in chart.data for y, base, x in zip(t["y"], t["base"], t["x"], strict=True)}
    assert len(bars) == len(parts) + 2
    now = whole
    for i, part in enumerate(parts):
        low, high = bars[i + 1]
        assert sorted((low, high)) == pytest.approx(sorted((now, now - part)))
        now -= part
    assert bars[len(parts) + 1] == pytest.approx((0.0, rest))


def test_a_waterfall_that_does_not_add_up_is_refused() -> None:
    with pytest.raises(ValueError, match="the parts leave"):
        waterfall_chart("w", "W", "W.", Part("all", 1.0), [Part("a", 0.4)], Part("rest", 0.7), x_title="x", how="share")


def test_a_curve_shows_the_estimates_and_no_others() -> None:
    estimates = [Estimate(0.5, 0.4, 0.65), Estimate(0.25, 0.2, 0.3)]
    chart = curve_chart(
        "c", "C", "C.", [Curve("idle", [3, 4], estimates)], x_title="instances", y_title="idle", how="share",
        recommended=4, targets=[Mark(0.05, "target")],
    )  # fmt: skip
    band, line, star = chart.data
    assert line["y"] == [50.0, 25.0]
    assert line["error_y"]["array"] == pytest.approx([15.0, 5.0])
    assert line["error_y"]["arrayminus"] == pytest.approx([10.0, 5.0])
    assert band["y"] == pytest.approx([65.0, 30.0, 20.0, 40.0])
    assert (star["x"], star["y"], star["name"]) == ([4], [25.0], "recommended: 4")
    assert any(shape.get("y0") == 5.0 for shape in chart.layout["shapes"])


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=300), st.lists(st.floats(0, 1e5), min_size=1, max_size=300))
def test_a_histogram_leaves_nobody_out(sent: list[float], trained: list[float]) -> None:
    chart = histogram_chart(
        "h", "H", "H.", [Sampled("sent", sent), Sampled("trained", trained)], x_title="tokens", caps=[]
    )
    for trace, values in zip(chart.data, (sent, trained), strict=True):
        assert sum(trace["y"][:-1]) == pytest.approx(100.0, abs=0.01)
        counts = np.histogram(values, bins_of([np.array(sent), np.array(trained)]))[0]
        assert trace["y"][:-1] == pytest.approx((100 * counts / len(values)).tolist(), abs=1e-4)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=500))
def test_stacks_of_many_steps_are_averaged_not_cut(values: list[float]) -> None:
    chart = stacked_bars(
        "s", "S", "S.", [Layer("a", np.array(values), look(0)), Layer("b", np.ones(len(values)), look(1))],
        x_title="step", y_title="seconds",
    )  # fmt: skip
    a, b = chart.data
    each = -(-len(values) // MOST_BARS)
    counts = [min(each, len(values) - i) for i in range(0, len(values), each)]
    assert len(a["y"]) <= MOST_BARS
    assert sum(y * n for y, n in zip(a["y"], counts, strict=True)) == pytest.approx(sum(values), abs=0.05)
    assert b["y"] == [1.0] * len(counts)


def test_bars_and_dots_carry_their_values_in_writing() -> None:
    bars = cause_bars("b", "B", "B.", [Bar("stale", Estimate(0.3, 0.2, 0.4))], x_title="x", how="share")
    assert bars.data[0]["x"] == [30.0]
    assert [note["text"] for note in bars.layout["annotations"]] == ["stale  <b>30.0 % [20.0, 40.0]</b>"]
    ratio = Estimate(0.9, 0.85, 0.96)
    dots = change_dots("d", "D", "D.", [DotsRow("cap", (ratio, None))], ("step", "cost"))
    assert dots.data[0]["x"] == pytest.approx([-10.0])
    assert dots.data[0]["error_x"]["array"] == pytest.approx([6.0])
    assert dots.data[1]["x"] == []
    assert units.ratio_change(ratio) == "-10.0 % [-15.0, -4.0]"
    assert len({t["marker"]["symbol"] for t in dots.data}) == 2


@pytest.mark.parametrize(
    ("estimate", "how", "text"),
    [
        (Estimate(39.5, 39.0, 40.0), "seconds", "39.5 s [39.0, 40.0]"),
        (Estimate(64.0, 63.64, 64.6), "seconds", "1 min 04 s [63.6 s, 64.6 s]"),
        (Estimate(0.43, 0.42, 0.438), "money", "$0.43 [0.42, 0.438]"),
        (Estimate(0.469, 0.462, 0.475), "share", "46.9 % [46.2, 47.5]"),
        (Estimate(2.0, 2.0, 2.0), "number", "2"),
    ],
)
def test_intervals_are_written_to_the_figure_that_they_need(estimate: Estimate, how: str, text: str) -> None:
    assert units.with_ends(estimate, how) == text


@given(st.floats(0.04, 1.0), st.floats(1.0, 25.0))
def test_ticks_of_ratios_hold_the_values_and_stand_apart(low: float, high: float) -> None:
    axis = ratio_axis("B / A", low, high)
    ticks = axis["tickvals"]
    assert 1.0 in ticks
    assert ticks[0] <= 1.01 * low
    assert ticks[-1] >= high / 1.01
    wide = math.log10(max(high, ticks[-1]) / min(low, ticks[0]))
    apart = [math.log10(b / a) / wide for a, b in pairwise(ticks)]
    assert min(apart) > 0.08, "a tick's words take as much of a phone"
