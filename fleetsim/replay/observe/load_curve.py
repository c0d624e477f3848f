"""How fast an instance is at its load: the fleet's own curve, fitted over the window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetsim.history.history import Floats
from fleetsim.least_squares import non_negative
from fleetsim.replay.observe.intervals import Intervals, Mask, percentile

MOST_POINTS = 20_000  # more say nothing new about three numbers
ROUNDS = 12
HANDFUL = 10.0  # requests: with fewer, when one of them ended is most of the error
FEWEST = 10  # points for three numbers


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """An iteration of the typical instance takes base_s + per_seq_s * running + per_kv_s * KV use seconds, and every
    prompt token that it computes per_prompt_s more."""

    base_s: float
    per_seq_s: float
    per_kv_s: float
    per_prompt_s: float = 0.0

    def iteration_s(self, running: Floats, kv_use: Floats | None) -> Floats:
        """Seconds of an iteration at a load; KV use that is not known counts as none."""
        kv = 0.0 if kv_use is None else np.where(np.isfinite(kv_use), kv_use, 0.0)
        # base 0 and nothing running: nothing is expected anyway
        return np.maximum(self.base_s + self.per_seq_s * running + self.per_kv_s * kv, 1e-9)

    def decode_s(self, prompts: Floats | None, step_s: float) -> Floats:
        """What prompts computed in an interval of `step_s` leave of it; those that are not known take nothing."""
        if prompts is None:
            return np.asarray(step_s)
        return np.maximum(step_s - self.per_prompt_s * np.nan_to_num(prompts), 0.0)

    def growth(self, running: Floats, kv_use: Floats | None, step_s: float, prompts: Floats | None = None) -> Floats:
        """Output tokens in `step_s` at a load: one per request and iteration. NaN where the load is not known."""
        made = running * self.decode_s(prompts, step_s) / self.iteration_s(running, kv_use)
        return np.where(running > 0, made, np.where(np.isnan(running), np.nan, 0.0))


def expected_growth(intervals: Intervals, clean: Mask) -> Floats:
    """(I, T-1) output tokens that the typical instance makes in each interval at that instance's load.

    The curve of the intervals in `clean` (T-1,) at the mean of what ran at both ends. Where `running` is not exported,
    an instance's own 65th percentile stands in, which knows no load. NaN where the load is not known.
    """
    curve = curve_of(intervals, clean & intervals.sharp)
    if curve is None or intervals.running is None:
        return _own_pace(intervals, clean)
    return curve.growth(intervals.running, intervals.kv_use, intervals.step_s)


def curve_of(
    intervals: Intervals,
    among: Mask,
    quantile: float = 0.5,
    running: Floats | None = None,
    prompts: Floats | None = None,
) -> LoadCurve | None:
    """The curve that fits the intervals `among` (I, T-1); None where the load is not exported, or too few are.

    Its numbers, none negative, minimize the sum of |relative errors|: like a median, it is moved neither by slow
    instances nor by short stops as long as they are fewer than half of the points. quantile: above 0.5, that share of
    the points is slower than the curve, for points that stops which are not yet known have slowed. running: (I, T-1)
    mean loads, where more is known of them than the mean of both ends. prompts: (I, T-1) prompt tokens computed.
    """
    if running is None:
        running = intervals.running
    if running is None:
        return None
    kv_use = np.zeros_like(running) if intervals.kv_use is None else np.nan_to_num(intervals.kv_use)
    columns = [np.ones_like(running), running, kv_use]
    if prompts is not None:  # seconds of an interval / its iterations
        columns.append(np.nan_to_num(prompts) * running / np.where(intervals.growth > 0, intervals.growth, np.nan))
    usable = among & (np.nan_to_num(running) >= 1) & (np.nan_to_num(intervals.growth) > 0)
    even = usable & intervals.steady
    if quantile == 0.5 and even.sum() >= max(FEWEST, usable.sum() / 4):
        usable = even
    elif usable.sum() < FEWEST:
        return None
    load = np.stack([column[usable] for column in columns], axis=1)
    seconds = running[usable] * intervals.step_s / intervals.growth[usable]
    every = max(1, len(seconds) // MOST_POINTS)
    trust = running[usable] / (running[usable] + HANDFUL)
    found = _least_absolute(load[::every] / seconds[::every, None], trust[::every], quantile)
    return LoadCurve(*(float(x) for x in found))


def _least_absolute(rows: Floats, trust: Floats, quantile: float) -> Floats:
    """x >= 0 that minimizes sum trust |rows x - 1|, by reweighting least squares. An error above 0 counts `quantile`
    times, one below 0 the rest of 1 times."""
    scale = np.where(rows.max(axis=0) > 0, rows.max(axis=0), 1.0)
    scale = scale * (1 + 1e-9 * np.arange(rows.shape[1]))  # of columns that say the same, the first one counts
    scaled = rows / scale
    weights = np.sqrt(trust)
    x: Floats = np.zeros(rows.shape[1])
    for _ in range(ROUNDS):
        x = non_negative(scaled * weights[:, None], weights)
        over = scaled @ x - 1
        weights = np.sqrt(trust * np.where(over > 0, quantile, 1 - quantile) / np.maximum(np.abs(over), 1e-3))
    return np.asarray(x / scale)


def _own_pace(intervals: Intervals, clean: Mask) -> Floats:
    found = np.full(intervals.growth.shape, np.nan)
    for row, growth in enumerate(intervals.growth):
        usual = percentile(np.where(clean & (growth > 0), growth, np.nan), 65)
        if usual is not None:
            found[row] = usual
    return found
