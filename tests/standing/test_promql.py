"""Rates, means and counts over windows, against a second, plain reading of what Prometheus does."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.alerts.signal_values import any_lately, counts, highest, lowest_lately, mended, rates, total, windows

Values = st.lists(st.one_of(st.none(), st.integers(0, 1000)), min_size=1, max_size=40)


def plain_rate(times: list[float], values: list[float], at: float, window: float) -> float:
    """`extrapolatedRate`, written down step by step for one window."""
    seen = [(t, v) for t, v in zip(times, values, strict=True) if at - window < t <= at and not math.isnan(v)]
    if len(seen) < 2:
        return math.nan
    growth = 0.0
    for (_, a), (_, b) in pairwise(seen):
        growth += b if b < a else b - a
    first, last = seen[0][0], seen[-1][0]
    between = (last - first) / (len(seen) - 1)
    to_start, to_end = first - (at - window), at - last
    if growth > 0:
        to_start = min(to_start, (last - first) * seen[0][1] / growth)
    reach = (last - first) + (to_start if to_start < 1.1 * between else between / 2)
    reach += to_end if to_end < 1.1 * between else between / 2
    return growth * reach / (last - first) / window


@given(Values, st.integers(1, 20), st.integers(0, 14))
def test_rates_are_those_of_a_plain_reading(given_values: list[int | None], scrapes: int, phase: int) -> None:
    values = np.array([[math.nan if v is None else float(v) for v in given_values]])
    times = 15.0 * np.arange(values.shape[1])
    at = 30.0 * np.arange(values.shape[1]) + phase
    window = 15.0 * scrapes
    w = windows(times, at, window)
    found = rates(values, w)[0]
    expected = [plain_rate(times.tolist(), values[0].tolist(), t, window) for t in at.tolist()]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    inside = [(times > t - window) & (times <= t) & ~np.isnan(values[0]) for t in at]
    assert counts(values, w)[0].tolist() == [int(i.sum()) for i in inside]
    most = [values[0][i].max() if i.any() else math.nan for i in inside]
    np.testing.assert_array_equal(highest(values, w)[0], most)


def test_a_sample_on_the_windows_start_counts_in_prometheus_2_only() -> None:
    times = np.array([0.0, 15.0, 30.0])
    values = np.array([[1.0, 1.0, 1.0]])
    at = np.array([30.0])
    assert counts(values, windows(times, at, 15.0))[0, 0] == 1
    assert counts(values, windows(times, at, 15.0, left_open=False))[0, 0] == 2


def test_a_counter_that_begins_again_keeps_growing() -> None:
    assert mended(np.array([[5.0, 8.0, np.nan, 2.0, 3.0]]))[0].tolist()[3:] == [5.0, 6.0]


def test_a_sum_leaves_out_what_is_not_there() -> None:
    np.testing.assert_array_equal(total(np.array([[1.0, np.nan], [2.0, np.nan]])), [3.0, np.nan])


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(1, 8))
def test_lately(true: list[bool], points: int) -> None:
    recent = [true[max(0, k - points + 1) : k + 1] for k in range(len(true))]
    assert any_lately(np.array(true), points).tolist() == [any(r) for r in recent]
    lows = lowest_lately(np.array(true, float), points)
    assert [v == 1.0 for v in lows] == [len(r) == points and all(r) for r in recent]
