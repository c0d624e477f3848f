"""Stalls: stops of the fleet with work in hand, told by requests that stayed and made less than they must have.

Where batches come and go, a low interval proves nothing: the batch may have come late. But a request that ran at both
ends of an interval ran throughout. What these *stayers* must have made, each at the pace of the fullest load that there
can have been, is a lower bound of the growth; what is missing to it was a stop, whatever else came and went.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fleetsim.history.history import Floats, History
from fleetsim.replay.observe.intervals import Intervals, Mask, mean, runs_of
from fleetsim.replay.observe.load_curve import LoadCurve
from fleetsim.replay.observe.pause_ends import Turnover

CERTAIN = 0.1  # of an interval: less of the bound missing is the curve's error
LEAST = 0.2  # of an interval in all: less is a late scrape, or noise
SPREAD = 3.0  # standard deviations that come from not knowing when requests ended
NOISE = 0.07  # of an interval beside a stall: less is none
WORKED = 0.03  # of an interval between two silences
TAKE_PART = 0.5  # of the fleet's loss, by the typical instance
WORKS_ON, MANY = 0.25, 0.1  # of the fleet's loss, by more than this share of the instances: no stop of the fleet


@dataclass(frozen=True, slots=True)
class Stall:
    """One stop, unix seconds."""

    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class _Lost:
    """Shares of each interval (T-1,) that the fleet lost, NaN where unknown: at least; if the load fell from one end to
    the other; if a batch came as soon as the stop was over. calm: the second one is right. doubt: its standard
    deviation. each: (I, T-1) the second one by instance."""

    least: Floats
    falling: Floats
    after: Floats
    calm: Mask
    doubt: Floats
    each: Floats


def stalls_of(history: History, intervals: Intervals, curve: LoadCurve | None, usable: Mask) -> list[Stall]:
    """All stalls of the window; none where running or finished requests are not exported.

    usable: (T-1,) intervals to look at. A stall is a run of intervals that lost a tenth for certain, or, where no batch
    came, a fifth by three standard deviations of when requests ended. It reaches into the intervals at both sides by
    what they lost, if it lasts with them for a fifth of an interval; the typical instance must have lost half of that,
    and next to none of them may have worked on. Where nothing was in hand at a time inside, work ran out instead.
    """
    turnover = Turnover.of(history)
    if turnover is None or curve is None:
        return []
    lost = _lost(intervals, turnover, curve)
    with np.errstate(invalid="ignore"):
        seeds = (lost.least > CERTAIN) | (lost.calm & (lost.falling > LEAST + SPREAD * lost.doubt))
    seeds &= usable & ~_backlog(history)
    found: list[Stall] = []
    for run in runs_of(seeds):
        for first, last in _cut(lost.falling, run):
            stall = _stall(intervals, lost, usable, first, last)
            if stall is not None and not _ran_out(intervals, stall):
                found.append(stall)
    return found


def _ran_out(intervals: Intervals, stall: Stall) -> bool:
    """Nothing was in hand at some time of the stop."""
    if intervals.work is None:
        return False
    inside = (intervals.times > stall.start_s) & (intervals.times < stall.end_s)
    return bool((intervals.work[inside] == 0).any())


def _backlog(history: History) -> Mask:
    """(T-1,): at one end more requests wait than run. Engines that take so many in compute prompts, not tokens."""
    running, waiting = history.values["running"], history.values.get("waiting")
    if waiting is None:
        return np.zeros(running.shape[1] - 1, dtype=bool)
    there = np.isfinite(waiting) & np.isfinite(running)
    queued = _sum(waiting, there) > _sum(running, there)
    return queued[:-1] | queued[1:]


def _cut(falling: Floats, run: tuple[int, int]) -> list[tuple[int, int]]:
    """A run in two where the fleet worked between two silences: the interval of that work belongs to neither."""
    first, last = run
    inner = [k for k in range(first + 1, last) if falling[k] < 1 - WORKED <= min(falling[k - 1], falling[k + 1])]
    edges = [first - 1, *inner, last + 1]
    return [(a + 1, b - 1) for a, b in pairwise(edges)]


def _lost(intervals: Intervals, turnover: Turnover, curve: LoadCurve) -> _Lost:
    step, growth = intervals.step_s, intervals.growth
    read = intervals.sharp & intervals.known & np.isfinite(turnover.came)
    kv = intervals.kv_use
    prompts = turnover.prompts
    least = turnover.stayed * curve.decode_s(prompts, step) / curve.iteration_s(turnover.most, kv)
    falling = curve.growth(turnover.falling, kv, step, prompts)
    after = curve.growth(turnover.after, kv, step, prompts)
    left = _sum(turnover.left, read)
    with np.errstate(divide="ignore", invalid="ignore"):
        doubt = np.sqrt(_sum(turnover.finished, read) / 12) / np.maximum(_sum(turnover.falling, read), 1.0)
        each = np.where(read & (turnover.stayed >= 1), 1 - growth / np.where(falling > 0, falling, np.nan), np.nan)
    return _Lost(
        _missing(growth, least, read),
        _missing(growth, falling, read),
        _missing(growth, after, read),
        np.asarray(_sum(turnover.came, read) <= 0.15 * np.maximum(left, 1.0)),
        doubt,
        each,
    )


def _sum(values: Floats, read: Mask) -> Floats:
    return np.asarray(np.where(read, values, 0.0).sum(axis=0))


def _missing(growth: Floats, ought: Floats, read: Mask) -> Floats:
    known = read & np.isfinite(ought)
    expected = _sum(ought, known)
    made = _sum(growth, known)
    return np.where(expected > 0, 1 - made / np.where(expected > 0, expected, 1.0), np.nan)


def _stall(intervals: Intervals, lost: _Lost, usable: Mask, first: int, last: int) -> Stall | None:
    """From the sum of what was lost and its centre; None if it is too little, or not everybody's."""
    shares: dict[int, float] = {}
    for k in range(first - 1, last + 2):
        if not 0 <= k < len(lost.least) or (not usable[k] and not first <= k <= last):
            continue
        if lost.calm[k]:
            share = lost.falling[k]
        elif k < first:
            share = 0.0  # a batch came before it
        else:
            share = lost.after[k]
        if first <= k <= last:
            share = np.nanmax([share, lost.least[k]])
        if np.isfinite(share) and (first <= k <= last or abs(share) > NOISE):
            shares[k] = float(np.clip(share, -0.5, 1.0))
    total = sum(shares.values())
    if total < LEAST:
        return None
    mine = mean(lost.each[:, first : last + 1], axis=1)
    mine = mine[np.isfinite(mine)]
    typical = float(np.mean([shares[k] for k in range(first, last + 1)]))
    if mine.size and (np.median(mine) < TAKE_PART * typical or np.mean(mine < WORKS_ON * typical) > MANY):
        return None
    kept = {k: share for k, share in shares.items() if share > 0}
    weight = sum(kept.values())
    middle = sum(share * (intervals.times[k] + intervals.step_s / 2) for k, share in kept.items()) / weight
    half = min(total, weight) * intervals.step_s / 2
    return Stall(float(middle - half), float(middle + half))
