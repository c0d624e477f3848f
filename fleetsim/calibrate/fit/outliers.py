"""Which durations count, and how much. Hiccups are left out; all loads count alike, but one that is known badly less.

Three things spoil durations.

- A hiccup (garbage collection, a graph captured late, a neighbour) makes one iteration long; a result that arrives late
  makes one long and the next short. Such rows are found inside their own load, beside iterations that held the same. So
  a load that the model predicts badly as a whole is never taken for an outlier.
- What is left still has long tails. Huber's weights make it count less.
- What a load shares (a clock, a temperature, the model's own error) does not average out over its iterations. So a load
  counts with 1 / (tau^2 + sigma^2 / n), tau between loads, sigma within.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from fleetsim.calibrate.fit.design import Array, solve, sum_up
from fleetsim.calibrate.fit.observations import Observations
from fleetsim.dataclass import dataclass

ALIKE = 5  # iterations that held the same, at least, to judge one by the others
ROUNDS = 4
HUBER = 3.0  # standard deviations from which on a row counts less
FAR, FAR_LEAST = 6.0, 0.10  # left out beside iterations alike: standard deviations, and relative
LONE, LONE_LEAST = 8.0, 0.50  # left out where only the model can judge
FINEST = 1e-3  # relative: noise is never taken to be less
SHARED_LEAST = 5e-3  # tau is never taken to be less: no load outweighs another because it ran longer


@dataclass(frozen=True, slots=True)
class Weights:
    """How each observation counts.

    scale_s: seconds that its error is relative to, shape (observations,). row: 0 = left out. unit: a load's iterations
    with or without prefill, 0, 1, 2... load: the load of each unit. weight: how much each unit counts, 1 / variance.
    """

    scale_s: Array
    row: Array
    unit: NDArray[np.int64]
    load: NDArray[np.int64]
    weight: Array

    @property
    def left_out(self) -> NDArray[np.bool_]:
        """Observations that do not count at all, shape (observations,)."""
        return np.asarray(self.row == 0.0)


def weigh(o: Observations, rows: Array) -> Weights:
    """Weights from a fit with as many knots as the data bear. rows: its columns, shape (observations, columns)."""
    y = o.seconds
    prompt = per_observation(o, o.prefill_tokens) > 0
    load = np.unique(o.segment, return_inverse=True)[1].astype(np.int64)
    keys, unit = np.unique(2 * load + prompt, return_inverse=True)
    unit = unit.astype(np.int64)
    cell = _cells(o, load)
    many = np.bincount(cell)[cell] >= ALIKE
    center = np.where(many, _medians(y, cell), y)
    keep = ~many | ((y < 2.0 * center) & (y > 0.5 * center))
    scale, row = center, keep.astype(np.float64)
    alike = np.ones(len(keys))
    error = np.zeros(len(y))
    for _ in range(ROUNDS):
        grams = sum_up(rows / scale[:, None], y / scale, unit, row, keys // 2, alike)
        expected = rows @ solve(*grams.total())
        scale = np.clip(expected, 0.5 * center, 2.0 * center)
        error = (y - expected) / scale
        row = _robust(error, cell, many, prompt, keep)
    return Weights(scale, row, unit, (keys // 2).astype(np.int64), _unit_weights(error, row, unit, keys))


def per_observation(o: Observations, values: Array) -> Array:
    """Sums over the iterations of each observation."""
    return values if len(o.of) == len(o) else np.bincount(o.of, values, minlength=len(o)).astype(np.float64)


def _cells(o: Observations, load: NDArray[np.int64]) -> NDArray[np.int64]:
    """Observations of a load that held the same decodes and prefill share a number."""
    held = [per_observation(o, v) for v in (o.decodes, o.prefill_tokens, o.attn_pairs)]
    return np.unique(np.column_stack([load, *held]), axis=0, return_inverse=True)[1].reshape(-1)


def _medians(values: Array, cell: NDArray[np.int64]) -> Array:
    """Each row's median over its cell."""
    return np.asarray(ndimage.median(values, cell, np.arange(cell.max(initial=-1) + 1)))[cell]


def _robust(
    error: Array,
    cell: NDArray[np.int64],
    many: NDArray[np.bool_],
    prompt: NDArray[np.bool_],
    keep: NDArray[np.bool_],
) -> Array:
    """Row weights: 0 for what is far off, Huber's for what is off."""
    row = keep.astype(np.float64)
    off = np.abs(error - np.where(many, _medians(error, cell), 0.0))
    kinds = product(((many, FAR, FAR_LEAST), (~many, LONE, LONE_LEAST)), (prompt, ~prompt))
    for group, far, least in ((rows & kind, far, least) for (rows, far, least), kind in kinds):
        if not np.any(group & keep):
            continue
        spread = max(1.4826 * float(np.median(off[group & keep])), FINEST)
        row[group] *= np.minimum(1.0, HUBER * spread / np.maximum(off[group], 1e-300))
        row[group & (off > max(far * spread, least))] = 0.0
    return row


def _unit_weights(error: Array, row: Array, unit: NDArray[np.int64], keys: NDArray[np.int64]) -> Array:
    """1 / (tau^2 + sigma^2 / n) per unit; sigma is pooled over units with and over units without prefill."""
    n = np.bincount(unit, row, minlength=len(keys))
    mean = np.bincount(unit, row * error, minlength=len(keys)) / np.maximum(n, 1e-300)
    within = np.bincount(unit, row * (error - mean[unit]) ** 2, minlength=len(keys))
    noise = np.zeros(len(keys))
    for kind in (0, 1):
        here = (keys % 2 == kind) & (n > 1.0)
        if np.any(here):
            noise[keys % 2 == kind] = within[here].sum() / np.maximum(n[here] - 1.0, 0.5).sum()
    used = n > 0
    noise = noise / np.maximum(n, 1.0)
    shared = float(np.mean(mean[used] ** 2 - noise[used])) if np.any(used) else 0.0
    return np.where(used, 1.0 / (max(shared, SHARED_LEAST**2) + noise), 0.0)
