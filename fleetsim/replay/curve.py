"""How fast an instance is at its load: the fleet's own curve, fitted over the window."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from fleetsim.history.history import Floats
from fleetsim.replay.intervals import Intervals, Mask, percentile

MOST_POINTS = 20_000  # more say nothing new about three numbers
ROUNDS = 12
FEWEST = 10  # points for three numbers


def expected_growth(intervals: Intervals, clean: Mask) -> Floats:
    """(I, T-1) output tokens that the typical instance makes in each interval at that instance's load.

    An iteration takes a + b * running + c * KV use seconds and yields `running` tokens, so tokens = running * step /
    that. a, b, c >= 0 minimize the sum of |relative errors| over the intervals in `clean` (T-1,): like a median, it is
    moved neither by slow instances nor by short stops as long as they are fewer than half of the points. Where
    `running` is not exported, an instance's own 65th percentile stands in, which knows no load. NaN where the load is
    not known.
    """
    if intervals.running is None:
        return _own_pace(intervals, clean)
    running = intervals.running
    columns = [np.ones_like(running), running]
    if intervals.kv_use is not None:
        columns.append(np.where(np.isfinite(intervals.kv_use), intervals.kv_use, 0.0))
    usable = clean & intervals.sharp & (np.nan_to_num(running) >= 1) & (np.nan_to_num(intervals.growth) > 0)
    even = usable & intervals.steady
    if even.sum() >= max(FEWEST, usable.sum() / 4):
        usable = even
    elif usable.sum() < FEWEST:
        return _own_pace(intervals, clean)
    load = np.stack([column[usable] for column in columns], axis=1)
    seconds = running[usable] * intervals.step_s / intervals.growth[usable]
    every = max(1, len(seconds) // MOST_POINTS)
    coefficients = _least_absolute(load[::every] / seconds[::every, None])
    iteration = sum(c * column for c, column in zip(coefficients, columns, strict=True))
    slowest = np.maximum(iteration, 1e-9)  # a = 0 and nothing running: nothing is expected anyway
    found: Floats = np.where(
        running > 0, running * intervals.step_s / slowest, np.where(np.isnan(running), np.nan, 0.0)
    )
    return found


def _least_absolute(rows: Floats) -> Floats:
    """x >= 0 that minimizes sum |rows x - 1|, by reweighting least squares."""
    scale = np.where(rows.max(axis=0) > 0, rows.max(axis=0), 1.0)
    scaled = rows / scale
    weights = np.ones(len(rows))
    x: Floats = np.zeros(rows.shape[1])
    for _ in range(ROUNDS):
        x, _ = nnls(scaled * weights[:, None], weights)
        weights = 1 / np.sqrt(np.maximum(np.abs(scaled @ x - 1), 1e-3))
    return np.asarray(x / scale)


def _own_pace(intervals: Intervals, clean: Mask) -> Floats:
    found = np.full(intervals.growth.shape, np.nan)
    for row, growth in enumerate(intervals.growth):
        usual = percentile(np.where(clean & (growth > 0), growth, np.nan), 65)
        if usual is not None:
            found[row] = usual
    return found
