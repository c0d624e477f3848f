"""Running totals as exposed: growth between scrapes, with restarts mended and holes told from silence.

A total that drops has started again at 0 (its process restarted): what it shows is then the growth since the restart,
and what was counted between the last scrape and the restart is lost to every reader. A hole without a restart loses
nothing: the total after it holds the growth, only not when it happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# A total falls where its process restarts, now and then. What falls in this share of its changes is none.
FALLS, FEWEST_FALLS = 0.2, 5
MAX_HOLE_S = 300.0  # Prometheus itself looks back so far for a sample; over more, an even spread would be invention


class _Neighbours(NamedTuple):
    """For each of the T-1 intervals: indices of the samples around it (-1: none), and the growth between the two."""

    before: NDArray[np.intp]
    after: NDArray[np.intp]
    growth: Floats  # nan where a neighbour is missing
    restart: NDArray[np.bool_]


def _neighbours(values: Floats) -> _Neighbours:
    size = values.shape[-1]
    there = np.isfinite(values)
    index = np.arange(size)
    before = np.maximum.accumulate(np.where(there, index, -1), axis=-1)[..., :-1]
    flipped = np.where(there, index, size)[..., ::-1]
    after = np.minimum.accumulate(flipped, axis=-1)[..., ::-1][..., 1:]
    after = np.where(after == size, -1, after)
    known = (before >= 0) & (after >= 0)
    old = np.take_along_axis(values, np.maximum(before, 0), axis=-1)
    new = np.take_along_axis(values, np.maximum(after, 0), axis=-1)
    restart = known & (new < old)
    growth = np.where(known, np.maximum(np.where(restart, new, new - old), 0.0), np.nan)
    return _Neighbours(before, after, growth, restart)


def lifespan(there: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(..., T) whether there was a sample -> whether it lies between the first and the last, both included."""
    begun = np.maximum.accumulate(there, axis=-1)
    return begun & np.maximum.accumulate(there[..., ::-1], axis=-1)[..., ::-1]


def no_total(values: Floats) -> tuple[int, int] | None:
    """(falls, changes) of a series (T,) that falls too often to be a running total: a rate, a gauge, or the totals of
    several engines in turn. None where it may be one."""
    moved = np.diff(values[np.isfinite(values)])
    moved = moved[moved != 0]
    falls = int((moved < 0).sum())
    return (falls, len(moved)) if falls >= FEWEST_FALLS and falls >= FALLS * len(moved) else None


def increments(values: Floats, step_s: float) -> Floats:
    """Growth of running totals between neighbouring grid times.

    values: (..., T), NaN where there was no sample; step_s between them. Returns (..., T-1), never negative. A hole of
    up to MAX_HOLE_S without a restart has its growth spread evenly; a longer one, one with a restart inside, and
    whatever lies before the first sample or after the last is NaN.
    """
    n = _neighbours(values)
    width = np.maximum(n.after - n.before, 1)
    spread = (width == 1) | ((width * step_s <= MAX_HOLE_S * (1 + 1e-9)) & ~n.restart)
    return np.where(spread, n.growth / width, np.nan)


def restarts(values: Floats) -> NDArray[np.intp]:
    """How often each running total (..., T) started again, holes looked across: (...)."""
    n = _neighbours(values)
    ends_here = n.after == np.arange(1, values.shape[-1])  # a hole's restart is counted once, in its last interval
    return np.asarray(np.count_nonzero(n.restart & ends_here, axis=-1))


def mended(values: Floats) -> Floats:
    """The running totals as they were, had nothing restarted: (..., T), 0 at the first sample, NaN where there is none.

    Across a hole with a restart the growth is what the scrapes can know: the total after it.
    """
    n = _neighbours(values)
    ends_here = n.after == np.arange(1, values.shape[-1])
    grown = np.cumsum(np.where(ends_here & (n.before >= 0), n.growth, 0.0), axis=-1)
    total = np.concatenate([np.zeros((*values.shape[:-1], 1)), grown], axis=-1)
    return np.where(np.isfinite(values), total, np.nan)


def growth(values: Floats) -> Floats:
    """Growth from the first sample to the last, restarts mended: (..., T) -> (...). NaN with fewer than two samples."""
    enough = np.count_nonzero(np.isfinite(values), axis=-1) >= 2
    total = np.max(np.nan_to_num(mended(values), nan=0.0), axis=-1, initial=0.0)
    return np.where(enough, total, np.nan)


def growth_between(times: Floats, values: Floats, ends_s: Floats) -> Floats:
    """Growth of a running total from each of K ends to the next, restarts mended: (K-1,).

    times, values: (T,), unix seconds. Between two samples growth is taken as even, however long the hole, so that the
    growth of adjoining ranges adds up. Outside the first and last sample nothing grows; NaN with fewer than two
    samples, or where none of their time lies in the range.
    """
    totals = mended(values)
    there = np.isfinite(totals)
    if np.count_nonzero(there) < 2:
        return np.full(max(0, len(ends_s) - 1), np.nan)
    at = times[there]
    grown = np.maximum(np.diff(np.interp(ends_s, at, totals[there])), 0.0)
    return np.where((at[-1] <= ends_s[:-1]) | (at[0] >= ends_s[1:]), np.nan, grown)


def summed(parts: Sequence[Floats]) -> Floats:
    """Sum of the parts that are there; NaN where none is."""
    if len(parts) == 1:
        return parts[0]
    stack = np.stack(parts).astype(float, copy=False)
    out: Floats = np.nansum(stack, axis=0)
    out[np.isnan(stack).all(axis=0)] = np.nan
    return out
