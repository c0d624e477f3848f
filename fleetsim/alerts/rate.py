"""`rate`, `avg_over_time` and `count_over_time` over scraped samples, as Prometheus computes them.

Source: `extrapolatedRate` in `promql/functions.go` of prometheus/prometheus: growth between the first and the last
sample of the window, resets mended, is stretched to the window's edges where a sample interval (1.1 of it) reaches
them, by half an interval where not, and never to before the counter was zero. Prometheus 2 counts a sample that lies
exactly on the window's start, Prometheus 3 does not (`left_open`).
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Windows(Struct, frozen=True):
    """Which samples the windows (at - window_s, at] hold. first, last: (E,) indices into times, last < first = none."""

    times: Floats
    at: Floats
    window_s: float
    first: Ints
    last: Ints


def windows(times: Floats, at: Floats, window_s: float, left_open: bool = True) -> Windows:
    """The windows that end at each of `at` (E,), over samples at `times` (T,), increasing."""
    # a thousandth of a second is the resolution of Prometheus
    first = np.searchsorted(times, at - window_s + (5e-4 if left_open else -5e-4))
    last = np.searchsorted(times, at + 5e-4, "right") - 1
    return Windows(times, at, window_s, first.astype(np.int64), last.astype(np.int64))


class _Ends(Struct, frozen=True):
    """Per series and window: the first and the last sample that are there, and how many. Arrays (S, E)."""

    first: Ints
    last: Ints
    count: Ints


def _ends(values: Floats, w: Windows) -> _Ends:
    there = ~np.isnan(values)
    count = np.zeros((values.shape[0], values.shape[1] + 1), np.int64)
    np.cumsum(there, axis=1, out=count[:, 1:])
    n = values.shape[1]
    index = np.arange(n)
    following = np.minimum.accumulate(np.where(there, index, n)[:, ::-1], axis=1)[:, ::-1]
    previous = np.maximum.accumulate(np.where(there, index, -1), axis=1)
    a, b = np.minimum(w.first, n - 1), np.maximum(w.last, 0)
    held = np.where(w.last >= w.first, count[:, b + 1] - count[:, np.minimum(w.first, n)], 0)
    return _Ends(np.clip(following[:, a], 0, n - 1), np.clip(previous[:, b], 0, n - 1), np.maximum(held, 0))


def rates(values: Floats, w: Windows) -> Floats:
    """`rate(counter[window])`: (S, T), NaN where nothing was scraped -> (S, E), NaN with fewer than two samples."""
    ends = _ends(values, w)
    rows = np.arange(len(values))[:, None]
    grown = mended(values)
    growth = grown[rows, ends.last] - grown[rows, ends.first]
    start, end = w.times[ends.first], w.times[ends.last]
    sampled = end - start
    known = (ends.count >= 2) & (sampled > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        between = sampled / (ends.count - 1)
        to_start, to_end = start - (w.at - w.window_s), w.at - end
        to_zero = sampled * values[rows, ends.first] / growth
        to_start = np.where((growth > 0) & (to_zero < to_start), to_zero, to_start)
        reach = sampled + np.where(to_start < 1.1 * between, to_start, between / 2)
        reach = reach + np.where(to_end < 1.1 * between, to_end, between / 2)
        result = growth * reach / sampled / w.window_s
    return np.where(known, result, np.nan)


def averages(values: Floats, w: Windows) -> Floats:
    """`avg_over_time(gauge[window])`: (S, T) -> (S, E), NaN where the window holds no sample."""
    there = ~np.isnan(values)
    total = np.zeros((values.shape[0], values.shape[1] + 1))
    np.cumsum(np.where(there, values, 0.0), axis=1, out=total[:, 1:])
    count = counts(values, w)
    a, b = np.minimum(w.first, values.shape[1]), np.maximum(w.last, -1) + 1
    with np.errstate(invalid="ignore"):
        mean: Floats = np.where(count > 0, (total[:, b] - total[:, a]) / count, np.nan)
    return mean


def counts(values: Floats, w: Windows) -> Ints:
    """`count_over_time(series[window])`: (S, T) -> (S, E), zero where Prometheus would return nothing."""
    return _ends(values, w).count


def mended(values: Floats) -> Floats:
    """A counter without its resets: (S, T), what it showed before each of them added; NaN where nothing was scraped."""
    n = values.shape[1]
    there = ~np.isnan(values)
    previous = np.maximum.accumulate(np.where(there, np.arange(n), -1), axis=1)
    rows = np.arange(len(values))[:, None]
    before = np.concatenate([np.full((len(values), 1), -1), previous[:, :-1]], axis=1)
    last = np.where(before >= 0, values[rows, np.maximum(before, 0)], np.nan)
    with np.errstate(invalid="ignore"):
        lost = np.where(there & (values < last), last, 0.0)
    whole: Floats = values + np.cumsum(lost, axis=1)
    return whole


def total(parts: Floats) -> Floats:
    """`sum()` of (S, E) over series: (E,), those that are not there left out, NaN where none is."""
    there = ~np.isnan(parts)
    return np.where(there.any(axis=0), np.where(there, parts, 0.0).sum(axis=0), np.nan)


def lowest_lately(values: Floats, points: int) -> Floats:
    """The least of the last `points` values (E,), the current one included; NaN where fewer than that are known."""
    if points <= 1:
        return values.copy()
    padded = np.concatenate([np.full(points - 1, np.nan), values])
    seen = np.lib.stride_tricks.sliding_window_view(padded, points)
    found: Floats = seen.min(axis=1)  # NaN wins, which is what a broken `for` needs
    return found


def any_lately(true: NDArray[np.bool_], points: int) -> NDArray[np.bool_]:
    """Whether one of the last `points` values (E,), the current one included, is true."""
    so_far = np.concatenate([np.zeros(max(points, 1), np.int64), np.cumsum(true)])
    return so_far[max(points, 1) :] > so_far[: -max(points, 1)]
