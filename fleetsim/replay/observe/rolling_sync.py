"""Rolling weight syncs: one instance after the other stands still with work in hand while the others go on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fleetsim.distributions import binomial_above
from fleetsim.history.history import Floats, History
from fleetsim.replay.observe.interruptions import Rolling, Stop
from fleetsim.replay.observe.intervals import Intervals, Mask, runs_of
from fleetsim.replay.observe.load_curve import LoadCurve, curve_of
from fleetsim.replay.observe.pause_ends import NOTHING, Turnover, widened
from fleetsim.replay.observe.short_stops import have_rhythm

STANDS = 0.3  # of an interval that requests which stayed must have worked in: more missing is a stop
FLEET = 0.5  # of the instances with work that stand at once: more is a pause of the fleet
QUANTILES = (0.7, 0.55)  # of two rounds, as for stalls: the second knows what stood in the first
OWN = 75  # percentile of an instance's pace: that of the intervals in which it worked
FEWEST = 4  # stops of the typical instance
EACH, ALL = 0.2, 0.7  # of the typical instance's stops, by this share of the instances: a fault is not everybody's
TURN = 0.4  # of an instance's stops, or more, lie at one distance from those of the instance that has most ...
SLACK = 1.5  # ... to so many intervals, ...
CHANCE = 0.01  # ... and as many would by chance once in a hundred times
APART = 1.25  # intervals between the first and the last in turn: scrapes of a stop of all are nearer together
NAMES = ("running", "waiting")  # what a stop says nothing about


def rolling_of(history: History, intervals: Intervals) -> Rolling | None:
    """The stops of single instances, where nearly all of them have such, one after the other; else None.

    An instance stands in an interval if the requests that ran at both ends made three tenths less than they must have
    at its own pace (`replay/observe/stalls.py` has the bound), or if none ran and some waited; intervals in which most
    of the
    instances stand are the fleet's. How long a stop was comes from what was lost in it and in the intervals beside it.
    """
    turnover = Turnover.of(history)
    size, count = intervals.growth.shape
    if turnover is None or size < 2 or count < FEWEST:
        return None
    stands = np.zeros(intervals.growth.shape, dtype=bool)
    stops: list[Stop] = []
    for quantile in QUANTILES:
        among = intervals.sharp & turnover.calm & ~widened(stands, 1)
        curve = curve_of(intervals, among, quantile, turnover.falling, turnover.prompts)
        if curve is None:
            return None
        own = _own(intervals, turnover, curve, among)
        stands = _stands(history, intervals, turnover, curve, own)
        runs = ((row, run) for row in range(size) for run in runs_of(stands[row]))
        found = (_stop(intervals, turnover, curve, own, row, run) for row, run in runs)
        stops = [stop for stop in found if stop is not None]
    each = [[s for s in stops if s.row == row] for row in range(size)]
    typical = float(np.median([len(mine) for mine in each]))
    if typical < FEWEST or sum(len(mine) >= EACH * typical for mine in each) < ALL * size:
        return None
    if not _in_turn(each, intervals):
        return None
    present_s = float(intervals.known.sum()) * intervals.step_s
    most = max(each, key=len)  # the others may have had no work when their turn came
    period = float(np.median(np.diff([s.start_s for s in most])))
    total = sum(s.seconds for s in stops)
    return Rolling(tuple(stops), total / present_s, total / len(stops), period)


def _in_turn(each: list[list[Stop]], intervals: Intervals) -> bool:
    """Nearly all instances stop at a distance of their own from the one that has most stops: one after the other."""
    step, span = intervals.step_s, float(intervals.times[-1] - intervals.times[0])
    starts = [np.array([stop.start_s for stop in mine]) for mine in each]
    first = max(starts, key=len)
    distances = []
    for mine in starts:
        if len(mine) < 2:
            continue
        offsets = mine - first[np.abs(mine[:, None] - first[None, :]).argmin(axis=1)]
        middle = float(np.median(offsets))
        fit = int((np.abs(offsets - middle) <= SLACK * step).sum())
        share = min(1.0, 2 * SLACK * step * len(first) / span)
        chance = binomial_above(fit - 2, len(mine) - 1, share) if fit >= 2 else 1.0
        if fit >= TURN * len(mine) and (chance <= CHANCE or have_rhythm(mine.tolist(), step)):
            distances.append(middle)
    return len(distances) >= ALL * len(each) and max(distances) - min(distances) >= APART * step


def standing(times: Floats, rolling: Rolling, size: int) -> Mask:
    """(I, T): the instance stands in its own stop at that time."""
    found = np.zeros((size, len(times)), dtype=bool)
    for stop in rolling.stops:
        found[stop.row] |= (times >= stop.start_s) & (times <= stop.end_s)
    return found


def overlapping(times: Floats, rolling: Rolling, size: int) -> Mask:
    """(I, T-1): the interval overlaps a stop of the instance."""
    found = np.zeros((size, len(times) - 1), dtype=bool)
    for stop in rolling.stops:
        found[stop.row] |= (times[1:] > stop.start_s) & (times[:-1] < stop.end_s)
    return found


def without_stops(history: History, intervals: Intervals, rolling: Rolling | None) -> tuple[History, Intervals]:
    """Both as if nobody had read an instance while it stood: what is left shows the fleet's pauses and paces."""
    if rolling is None:
        return history, intervals
    size = len(intervals.growth)
    there, away = standing(intervals.times, rolling, size), widened(overlapping(intervals.times, rolling, size), 1)
    values = {k: np.where(there, np.nan, v) if k in NAMES else v for k, v in history.values.items()}
    growth = np.where(away, np.nan, intervals.growth)
    return replace(history, values=values), replace(intervals, growth=growth, sharp=intervals.sharp & ~away)


def _own(intervals: Intervals, turnover: Turnover, curve: LoadCurve, among: Mask) -> Floats:
    """(I, 1) each instance's pace where it works, against the fleet's; none is faster than 1, for a bound is wanted."""
    ought = curve.growth(turnover.falling, intervals.kv_use, intervals.step_s, turnover.prompts)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(among & (ought > 0), intervals.growth / ought, np.nan)
    paces = np.array([np.percentile(r[np.isfinite(r)], OWN) if np.isfinite(r).any() else 1.0 for r in ratio])
    typical = float(np.median(paces))
    if typical <= 0:  # most stand whenever they hold something: none is the measure of another
        return np.ones((len(paces), 1))
    return np.asarray(np.clip(paces / typical, 0.01, 1.0))[:, None]


def _stands(history: History, intervals: Intervals, turnover: Turnover, curve: LoadCurve, own: Floats) -> Mask:
    running, waiting = history.values["running"], history.values.get("waiting")
    decode = curve.decode_s(turnover.prompts, intervals.step_s)
    least = own * turnover.stayed * decode / curve.iteration_s(turnover.most, intervals.kv_use)
    with np.errstate(invalid="ignore"):
        stands = (turnover.stayed >= 1) & (intervals.growth < (1 - STANDS) * least)
        if waiting is not None:
            held = (running == 0) & (waiting >= 1)
            stands |= held[:, :-1] & held[:, 1:] & (intervals.growth <= NOTHING)
        busy = (np.nan_to_num(running[:, :-1]) >= 1) | (np.nan_to_num(running[:, 1:]) >= 1) | stands
    stands &= intervals.sharp & intervals.known
    fleet = stands.sum(axis=0) > FLEET * np.maximum(busy.sum(axis=0), 1)
    return np.asarray(stands & ~(fleet & (busy.sum(axis=0) >= 2)))


def _stop(
    intervals: Intervals, turnover: Turnover, curve: LoadCurve, own: Floats, row: int, run: tuple[int, int]
) -> Stop | None:
    """From the sum of what was lost and its centre; None where it is cut by an end of the window."""
    first, last = run
    if first == 0 or last == intervals.growth.shape[1] - 1:
        return None
    kv = intervals.kv_use
    at = np.arange(first - 1, last + 2)
    prompts = None if turnover.prompts is None else turnover.prompts[row, at]
    lost = []
    for load in (turnover.falling, turnover.after):
        ought = own[row] * curve.growth(load[row, at], None if kv is None else kv[row, at], intervals.step_s, prompts)
        with np.errstate(divide="ignore", invalid="ignore"):
            lost.append(np.where(ought > 0, 1 - intervals.growth[row, at] / ought, 1.0))
    calm = turnover.calm[row, at]
    share = np.where(calm, lost[0], np.where(at < first, 0.0, lost[1]))
    share = np.clip(np.nan_to_num(share), 0.0, 1.0)
    total = float(share.sum())
    if total <= 0:
        return None
    middle = float((share * (intervals.times[at] + intervals.step_s / 2)).sum()) / total
    half = total * intervals.step_s / 2
    return Stop(row, middle - half, middle + half)
