"""Means over a window with intervals: the window in blocks, because what neighbouring steps do is not independent.

The method of batch means (B. W. Schmeiser, "Batch size effects in the analysis of simulation output", Operations
Research 30 (1982): 10 to 30 batches): a mean is a ratio of two sums, its error that of the blocks' residuals
numerator - ratio x denominator. What is left of the correlation between neighbouring blocks is taken as that of a
first-order autoregression with coefficient r: m blocks are worth m (1 - r) / (1 + r) independent ones. r is the lag-1
autocorrelation, corrected for its bias of -(1 + 3 r) / m (F. H. C. Marriott and J. A. Pope, Biometrika 41 (1954)), and
counts only above 0. Percentiles have no such ratio: their residuals are block percentiles - the window's ("sectioning",
S. Asmussen and P. W. Glynn, Stochastic Simulation (2007), III.5).
"""

from __future__ import annotations

import math

import numpy as np

from fleetsim.history.history import Floats, History
from fleetsim.replay.observe.steps import Steps
from fleetsim.sim.contrast import Mean

MOST, FEWEST = 20, 5
STEPS_EACH = 2  # rows of steps in a block, at least
SCRAPES_EACH = 4
STRONGEST = 0.9  # correlation of neighbouring blocks that anything is still said of


def edges_of(history: History, steps: Steps | None) -> Floats:
    """(m + 1,) unix seconds: m blocks of about as many steps each, so that none ends within a step; of as much time
    each where no steps are known. Empty where the window is too short for five."""
    if steps is not None and len(steps.end_s) >= FEWEST * STEPS_EACH:
        ends = steps.end_s
        known = steps.elapsed_s[np.isfinite(steps.elapsed_s)]
        first = float(ends[0]) - float(steps.elapsed_s[0] if np.isfinite(steps.elapsed_s[0]) else known.mean())
        blocks = min(MOST, len(ends) // STEPS_EACH)
        last = np.round(np.linspace(0, len(ends), blocks + 1)[1:]).astype(int) - 1
        return np.concatenate([[first], ends[last]])
    blocks = min(MOST, (len(history.times) - 1) // SCRAPES_EACH)
    if blocks < FEWEST or steps is not None:
        return np.zeros(0)
    return np.linspace(history.start_s, history.end_s, blocks + 1)


def ratio_mean(top: Floats, bottom: Floats) -> Mean | None:
    """sum(top) / sum(bottom) over blocks (m,); one with nothing below, or NaN, has nothing to say. None without any.

    Such blocks count for nothing: what is read every few minutes would look sure of itself by them."""
    known = np.isfinite(top) & np.isfinite(bottom) & (np.nan_to_num(bottom) > 0)
    top, bottom = top[known], bottom[known]
    if not top.size:
        return None
    value = float(top.sum() / bottom.sum())
    return _with_error(value, (top - value * bottom) / bottom.mean())


def section_mean(value: float, blocks: Floats) -> Mean | None:
    """A statistic of the whole window with the error that its values over blocks (m,) tell."""
    blocks = blocks[np.isfinite(blocks)]
    return _with_error(value, blocks - value) if math.isfinite(value) else None


def _with_error(value: float, residuals: Floats) -> Mean:
    m = len(residuals)
    if m < FEWEST:
        return Mean(value, 0.0, 0.0)
    square = float(np.sum(residuals**2)) / (m - 1)
    if square <= 0.0:
        return Mean(value, 0.0, m - 1.0)
    alike = correlation(residuals)
    worth = m * (1.0 - alike) / (1.0 + alike)
    return Mean(value, math.sqrt(square / worth), max(worth - 1.0, 1.0))


def correlation(residuals: Floats) -> float:
    """Of neighbouring blocks, 0 to 0.9."""
    m = len(residuals)
    about = residuals - residuals.mean()
    whole = float(np.sum(about**2))
    if whole <= 0.0 or m < FEWEST:
        return 0.0
    lag = float(np.sum(about[1:] * about[:-1])) / whole
    return min(max((m * lag + 1.0) / (m - 3.0), 0.0), STRONGEST)
