"""Kinds of charts against what they are made of."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.tell.charts.axes import ChartAxis as Axis
from fleetsim.tell.charts.axes import Clock, from_zero, ratio_axis
from fleetsim.tell.charts.bounded import MOST_BARS, MOST_POINTS, MOST_ROWS, PARTS, clipped, merged, spread, thinned
from fleetsim.tell.charts.chart import Chart, Mark, Panel, Plot, RowMark, Rows, Span, Spans, look
from fleetsim.tell.charts.chart import ChartRow as Row
from fleetsim.tell.charts.chart import ChartSeries as Series
from fleetsim.tell.charts.chart import MarkLook as Look
from fleetsim.tell.charts.draw import chart_html
from fleetsim.tell.charts.kinds import (
    Curve,
    Layer,
    bins_of,
    cause_bars,
    change_rows,
    curve_chart,
    histogram_chart,
    stacked_bars,
    waterfall_chart,
)
from fleetsim.tell.page import svg
from tests.report.test_profile_html import Page, marks_of, series_of

LOOKS = {"busy": ("busy", look(0)), "idle": ("idle", Look("quiet", lanes=((0.4, 0.6),)))}
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
    return sum(s.end - s.start for s in spans)


@given(rows(), st.floats(0.01, 20.0))
def test_merging_leaves_no_time_out_and_nothing_overlaps(spans: list[Span], shortest: float) -> None:
    drawn = merged(spans, shortest)
    assert covered(drawn) == pytest.approx(covered(spans))
    assert all(a.end <= b.start for a, b in pairwise(drawn))
    assert len(drawn) <= len(spans)
    # What is long enough on its own keeps its kind where it is.
    for span in spans:
        if span.end - span.start >= shortest:
            home = next(d for d in drawn if d.start <= span.start and span.end <= d.end)
            assert home.kind == span.kind
    # Short ones are left only where their neighbours do not touch them, or are long themselves.
    touching = [a.end == b.start for a, b in pairwise(drawn)]
    short = [s.end - s.start < shortest for s in drawn]
    assert not any(near and a and b for near, a, b in zip(touching, short, short[1:], strict=False))


@given(rows(), st.floats(0.0, 100.0), st.floats(0.1, 100.0))
def test_a_window_cuts_and_keeps_the_rest(spans: list[Span], start: float, length: float) -> None:
    inside = clipped(spans, start, start + length)
    expected = sum(max(0.0, min(s.end, start + length) - max(s.start, start)) for s in spans)
    assert covered(inside) == pytest.approx(expected)


@given(st.integers(1, 5000))
def test_rows_are_spread_over_the_whole_fleet(n: int) -> None:
    shown = spread(n)
    assert shown == sorted(set(shown))
    assert (shown[0], shown[-1], len(shown)) == (0, n - 1, min(n, MOST_ROWS))
    assert max((b - a for a, b in pairwise(shown)), default=1) <= n / (min(n, MOST_ROWS) - 1 or 1) + 1


def test_a_busy_fleet_stays_small() -> None:
    fleet = [[Span(("busy", "idle")[k % 2], k / 25, (k + 1) / 25) for k in range(5_000)] for _ in range(MOST_ROWS)]
    rows = tuple((f"inst. {i}", merged(spans, 200.0 / PARTS)) for i, spans in enumerate(fleet))
    assert sum(len(spans) for _, spans in rows) <= MOST_ROWS * (PARTS + 1)
    chart = Chart("g", "Who", "When.", Spans(Axis("s", 0.0, 200.0), rows, LOOKS))
    assert len(chart_html(chart)) < 400_000
    assert sum(covered(spans) for _, spans in rows) == pytest.approx(200.0 * MOST_ROWS, rel=1e-3)


def test_every_span_is_drawn_where_it_was() -> None:
    rows = (("a", [Span("busy", 2.0, 4.0), Span("idle", 4.0, 5.0)]), ("b", [Span("busy", 2.0, 6.0)]))
    drawn = chart_html(Chart("g", "Who", "When.", Spans(Axis("s", 2.0, 6.0), rows, LOOKS, (3.0,))))
    paths = re.findall(r'd="M([\d.]+) ([\d.]+)h([\d.]+)[^"]*"><title>([^<]*)', drawn)
    assert [(float(x), float(wide), said) for x, _, wide, said in paths] == [
        (0.0, 500.0, "a: busy"), (500.0, 250.0, "a: idle"), (0.0, 1000.0, "b: busy"),
    ]  # fmt: skip
    assert 'x1="25%"' in drawn


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
        "w", "W", "W.", ("all", whole), [(str(i), p) for i, p in enumerate(parts)], ("rest", rest),
        x_title="x", how="number",
    )  # fmt: skip
    bars = [(m.base or 0.0, m.value) for m in marks_of(chart)]
    assert len(bars) == len(parts) + 2
    now = whole
    for i, part in enumerate(parts):
        assert sorted(bars[i + 1]) == pytest.approx(sorted((now, now - part)))
        now -= part
    assert bars[-1] == pytest.approx((0.0, rest))


def test_a_waterfall_that_does_not_add_up_is_refused() -> None:
    with pytest.raises(ValueError, match="the parts leave"):
        waterfall_chart("w", "W", "W.", ("all", 1.0), [("a", 0.4)], ("rest", 0.7), x_title="x", how="share")


def test_a_curve_shows_the_estimates_and_no_others() -> None:
    estimates = [Estimate(0.5, 0.4, 0.65), Estimate(0.25, 0.2, 0.3)]
    chart = curve_chart(
        "c", "C", "C.", [Curve("idle", [3, 4], estimates)], x_title="instances", y_title="idle", how="share",
        recommended=4, targets=[Mark(0.05, "target")],
    )  # fmt: skip
    line, dots, star = series_of(chart)
    assert line.y == dots.y == [50.0, 25.0]
    assert (line.low, line.high) == ([40.0, 20.0], [pytest.approx(65.0), 30.0])
    assert (star.x, star.y, star.name) == ([4], [25.0], "recommended: 4")
    assert isinstance(chart.points, Plot)
    assert chart.points.panels[0].across == (Mark(5.0, "target"),)


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=300), st.lists(st.floats(0, 1e5), min_size=1, max_size=300))
def test_a_histogram_leaves_nobody_out(sent: list[float], trained: list[float]) -> None:
    chart = histogram_chart("h", "H", "H.", {"sent": sent, "trained": trained}, x_title="tokens", caps=[])
    for one, values in zip(series_of(chart), (sent, trained), strict=True):
        assert sum(one.y[:-1]) == pytest.approx(100.0, abs=0.01)
        counts = np.histogram(values, bins_of([np.array(sent), np.array(trained)]))[0]
        assert one.y[:-1] == pytest.approx((100 * counts / len(values)).tolist(), abs=1e-4)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=500))
def test_stacks_of_many_steps_are_averaged_not_cut(values: list[float]) -> None:
    chart = stacked_bars(
        "s", "S", "S.", [Layer("a", np.array(values), look(0)), Layer("b", np.ones(len(values)), look(1))],
        x_title="step", y_title="seconds",
    )  # fmt: skip
    a, b = series_of(chart)
    each = -(-len(values) // MOST_BARS)
    counts = [min(each, len(values) - i) for i in range(0, len(values), each)]
    assert len(a.y) <= MOST_BARS
    assert sum(y * n for y, n in zip(a.y, counts, strict=True)) == pytest.approx(sum(values), abs=0.05)
    assert b.y == [1.0] * len(counts)


def test_bars_and_dots_carry_their_values_in_writing() -> None:
    bars = cause_bars("b", "B", "B.", [("stale", Estimate(0.3, 0.2, 0.4))], x_title="x", how="share")
    assert [mark.value for mark in marks_of(bars)] == [30.0]
    assert "<span>stale</span><b>30.0 % [20.0, 40.0]</b>" in chart_html(bars)
    ratio = Estimate(0.9, 0.85, 0.96)
    dots = change_rows("d", "D", "D.", [("cap", (ratio, None), True)], ("step", "cost"))
    (mark,) = marks_of(dots)
    assert (mark.value, mark.high) == pytest.approx((-10.0, -4.0))
    assert units.ratio_change(ratio) == "-10.0 % [-15.0, -4.0]"
    assert isinstance(dots.points, Rows)
    assert len({style.symbol for _, style in dots.points.looks.values()}) == 2


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
    ticks = [tick for tick, _ in axis.ticks]
    assert 1.0 in ticks
    assert ticks[0] <= 1.01 * low
    assert ticks[-1] >= high / 1.01
    wide = math.log10(max(high, ticks[-1]) / min(low, ticks[0]))
    apart = [math.log10(b / a) / wide for a, b in pairwise(ticks)]
    assert min(apart) > 0.08, "a tick's words take as much of a phone"


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_ticks_are_round_few_and_told_apart(low: float, span: float) -> None:
    ticks = Axis("x", low, low + max(span, abs(low) * 1e-6)).marks()
    assert 2 <= len(ticks) <= 7
    assert len({text for _, text in ticks}) == len(ticks)
    assert [share for share, _ in ticks] == sorted(share for share, _ in ticks)


@pytest.mark.parametrize("hours", [0.005, 0.1, 1, 7, 30, 24 * 9, 24 * 400])
def test_ticks_of_a_calendar_are_times_of_the_day_or_days(hours: float) -> None:
    ticks = Clock.of(1_763_700_123.0, 1_763_700_123.0 + 3600 * hours).axis().marks()
    assert 2 <= len(ticks) <= 7
    assert all(re.fullmatch(r"\d\d:\d\d(:\d\d)?|[A-Z][a-z]{2} \d\d", text) for _, text in ticks)


def plotted(*series: Series) -> str:
    panel = Panel(from_zero("ms", [v for s in series for v in s.y if v is not None]), series, height_px=100)
    return chart_html(Chart("c", "C", "C.", Plot(Axis("x", 0.0, 10.0), (panel,))))


def test_what_is_not_known_is_a_hole_and_steps_hold_their_value() -> None:
    drawn = plotted(Series("a", "line", [0, 5, 10], [1.0, None, 2.0]), Series("b", "steps", [0, 5], [1.0, 2.0]))
    line, steps = re.findall(r'class="line c-[^"]*" d="([^"]*)"', drawn)
    assert (line.count("M"), line.count("L")) == (2, 0)
    assert re.fullmatch(r"M0 [\d.]+H500V[\d.]+", steps)
    assert 'data-name="a" data-x="0 500 1000" data-y="1||2"' in drawn


def test_stacked_bars_stand_on_each_other() -> None:
    drawn = plotted(
        Series("a", "bars", [1], [2.0]), Series("b", "bars", [1], [1.0], look(1)), Series("", "line", [0], [4.0])
    )
    (low, high) = re.findall(r'<rect class="bar" x="([^"]*)" width="10%" y="([\d.]+)" height="([\d.]+)"', drawn)
    assert low[0] == high[0] == "5%"
    assert float(high[1]) + float(high[2]) == pytest.approx(float(low[1]), abs=0.11)
    assert float(low[2]) == pytest.approx(2 * float(high[2]), abs=0.11)


BAD = '</svg><script>alert("1")</script><img src=x onerror=alert(1)> & "quoted" \x1b'


def test_words_of_others_stay_words_in_every_shape() -> None:
    """In text, in attributes and in a file of its own."""
    looks = {"k": (BAD, look(1)), "l": (BAD, look(2))}
    rows = Rows(
        Axis(BAD, 0.0, 2.0), (Row(BAD, BAD, (RowMark("k", 1.0), RowMark("l", 1.0, base=0.0)), link=1.0),), looks
    )
    shapes = (
        Plot(
            Axis(BAD, 0.0, 1.0, ticks=((0.5, BAD),)),
            (Panel(Axis(BAD, 0.0, 1.0), tuple(Series(BAD + kind, kind, [0.5], [0.5], low=[0.1], high=[0.9], said=[BAD])
             for kind in ("line", "dots", "band", "bars")), (Mark(0.5, BAD),)),),
            (Mark(0.5, BAD),), (), ((0.5, BAD),),
        ),
        rows,
        Spans(Axis(BAD, 0.0, 1.0), ((BAD, [Span("k", 0.0, 0.5)]),), looks),
    )  # fmt: skip
    for drawn in (*(chart_html(Chart("c", BAD, "", shape)) for shape in shapes), svg(Chart("c", BAD, "", rows))):
        page = Page(drawn)
        assert (page.wrong, page.open) == ([], [])
        assert not any(tag in ("script", "img") for tag, _ in page.tags)
        assert "\x1b" not in drawn
        assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
