"""Stops with work in hand, of the fleet or of one instance after the other, told by requests that stayed.

Where batches come and go, a low interval proves nothing: the batch may have come late. But a request that ran at both
ends of an interval ran throughout. What these *stayers* must have made, each at the pace of the fullest load that there
can have been, is a lower bound of the growth; what is missing to it was a stop, whatever else came and went.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.distributions import binomial_above
from fleetsim.history.counters import increments
from fleetsim.history.history import Floats, History
from fleetsim.records import replace
from fleetsim.replay.observe.interruptions import Pause, Rolling, Stop
from fleetsim.replay.observe.intervals import Intervals, made_of, mean
from fleetsim.replay.observe.paces import curve_of
from fleetsim.replay.observe.segments import Mask, have_rhythm, runs_of, widened

NOTHING = 0.5  # tokens in an interval: less is rounding
QUANTILES = (0.7, 0.55)  # of two rounds: the second knows what stood in the first
COUNTED = ("finished", "prompt_tokens", "prefix_hits")
FEW = 0.3  # of what ran at the start: fewer that came leave the load between both ends known


class Turnover(Struct, frozen=True):
    """Requests of I instances in the T-1 intervals, all arrays (I, T-1) and NaN where they were not read.

    left, right: running at both ends. finished: that ended in between. came: that began to run in between. prompts:
    prompt tokens computed, those that the prefix cache held aside; None where they are not counted.
    """

    left: Floats
    right: Floats
    finished: Floats
    came: Floats
    prompts: Floats | None

    @classmethod
    def of(cls, history: History) -> Turnover | None:
        """None where running or finished requests are not exported."""
        running = history.values.get("running")
        if running is None or "finished" not in history.values:
            return None
        left, right = running[:, :-1], running[:, 1:]
        grown = {name: increments(values, history.step_s) for name, values in history.values.items() if name in COUNTED}
        prompts, hits, ended = grown.get("prompt_tokens"), grown.get("prefix_hits"), grown["finished"]
        if prompts is not None and hits is not None:
            prompts = np.maximum(prompts - np.nan_to_num(hits), 0.0)
        return cls(left, right, ended, np.maximum(right - left + ended, 0.0), prompts)

    @property
    def stayed(self) -> Floats:
        """Those that ran from end to end, at the least."""
        return np.clip(np.minimum(self.left - self.finished, self.right), 0.0, None)

    @property
    def most(self) -> Floats:
        """That can have run at once."""
        return np.maximum(self.left, self.right + self.finished)

    @property
    def calm(self) -> Mask:
        """(I, T-1): hardly any came, so that the load fell from left to right and the logarithmic mean is its own."""
        return np.asarray(self.came <= FEW * np.maximum(self.left, 1.0))

    @property
    def falling(self) -> Floats:
        """Mean load if it fell, as a batch does, by the same share every second."""
        high, low = np.maximum(self.left, self.right), np.maximum(np.minimum(self.left, self.right), 0.5)
        same = high <= 1.01 * low
        ratio = np.where(same, 2.0, high / low)
        return np.where(same, (self.left + self.right) / 2, (high - low) / np.log(ratio))

    @property
    def after(self) -> Floats:
        """Mean load if those that came did so at once, and what ended did later."""
        return self.right + self.finished / 2


class TokensDue(Struct, frozen=True):
    """Tokens that each instance must have made in each interval, all (I, T-1), by the curve of all of them: at the
    least; if the load fell from one end to the other; if a batch came as soon as a stop was over."""

    least: Floats
    falling: Floats
    after: Floats

    @classmethod
    def of(cls, intervals: Intervals, turnover: Turnover, among: Mask, quantile: float) -> TokensDue | None:
        """By the curve of the calm intervals `among`; None where the load is not exported, or too few are."""
        step, kv, prompts = intervals.step_s, intervals.kv_use, turnover.prompts
        among = intervals.sharp & turnover.calm & among
        curve = curve_of(intervals, among, quantile, turnover.falling, prompts)
        if curve is None:
            return None
        return cls(
            turnover.stayed * curve.decode_s(prompts, step) / curve.iteration_s(turnover.most, kv),
            curve.growth(turnover.falling, kv, step, prompts),
            curve.growth(turnover.after, kv, step, prompts),
        )

    def at_own_pace(self, intervals: Intervals, among: Mask) -> TokensDue:
        """The same of instances of which some are slower than the others, as the intervals `among` show."""
        own = _own(intervals, self, among)
        return TokensDue(own * self.least, own * self.falling, own * self.after)


CERTAIN = 0.1  # of an interval: less of the bound missing is the curve's error
LEAST = 0.2  # of an interval in all: less is a late scrape, or noise
SPREAD = 3.0  # standard deviations that come from not knowing when requests ended
NOISE = 0.07  # of an interval beside a stall: less is none
RAN_OUT = 0.05  # of what was in hand beside a stop: less inside is the end of a batch
WORKED = 0.03  # of an interval between two silences
TAKE_PART = 0.5  # of the fleet's loss, by the typical instance
WORKS_ON, MANY = 0.25, 0.1  # of the fleet's loss, by more than this share of the instances: no stop of the fleet


def stalls_of(
    history: History, intervals: Intervals, turnover: Turnover, expected: TokensDue, usable: Mask
) -> list[Pause]:
    """All stalls of the fleet.

    usable: (T-1,) intervals to look at. A stall is a run of intervals that lost a tenth for certain, or, where no batch
    came, a fifth by three standard deviations of when requests ended. It reaches into the intervals at both sides by
    what they lost, if it lasts with them for a fifth of an interval; the typical instance must have lost half of that,
    and next to none of them may have worked on. Where nothing was in hand at a time inside, work ran out instead; so
    it did where little was and nothing is certain: the last few of a batch do not end by the same share every second.
    """
    read = intervals.sharp & intervals.known & np.isfinite(turnover.came)
    least, falling, after = (
        1 - made_of(intervals.growth, due, read & np.isfinite(due))
        for due in (expected.least, expected.falling, expected.after)
    )
    calm = _sum(turnover.came, read) <= 0.15 * np.maximum(_sum(turnover.left, read), 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        doubt = np.sqrt(_sum(turnover.finished, read) / 12) / np.maximum(_sum(turnover.falling, read), 1.0)
        own = np.where(expected.falling > 0, expected.falling, np.nan)
        each = np.where(read & (turnover.stayed >= 1), 1 - intervals.growth / own, np.nan)
        seeds = (least > CERTAIN) | (calm & (falling > LEAST + SPREAD * doubt))
    runs = (part for run in runs_of(seeds & usable & ~_backlog(history)) for part in _cut(falling, run))
    # where a batch came before the stop, nothing was lost there
    before, then = np.where(calm, falling, 0.0), np.where(calm, falling, after)
    work = np.ones(len(intervals.times)) if intervals.work is None else intervals.work
    found = []
    for first, last in runs:
        at = np.arange(max(first - 1, 0), min(last + 2, len(falling)))
        inside = (at >= first) & (at <= last)
        share = np.where(inside, np.fmax(then[at], least[at]), np.where(at < first, before[at], then[at]))
        share = np.where(inside | (usable[at] & (np.abs(share) > NOISE)), np.clip(share, -0.5, 1.0), 0.0)
        typical, mine = share[inside].mean(), mean(each[:, at[inside]], axis=1)
        mine = mine[np.isfinite(mine)]
        alone = mine.size and (np.median(mine) < TAKE_PART * typical or np.mean(mine < WORKS_ON * typical) > MANY)
        if share.sum() >= LEAST and not alone:
            start, end = _ends(intervals, at, share)
            sure = np.nanmax(least[first : last + 1], initial=0.0) > CERTAIN
            few = 0.0 if sure else RAN_OUT * work[at[0] : at[-1] + 2].max()
            if not (work[(intervals.times > start) & (intervals.times < end)] <= few).any():
                found.append(Pause(start, end, "silence", False))
    return found


def _sum(values: Floats, read: Mask) -> Floats:
    return np.asarray(np.where(read, values, 0.0).sum(axis=0))


def _ends(intervals: Intervals, at: NDArray[np.intp], share: Floats) -> tuple[float, float]:
    """Start and end of a stop: by the sum of what the intervals `at` lost, a share of each (n,), and by its centre."""
    lost = np.maximum(share, 0.0)
    middle = float((lost * (intervals.times[at] + intervals.step_s / 2)).sum() / lost.sum())
    half = float(share.sum()) * intervals.step_s / 2
    return middle - half, middle + half


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


STANDS = 0.3  # of an interval that requests which stayed must have worked in: more missing is a stop
FLEET = 0.5  # of the instances with work that stand at once: more is a pause of the fleet
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
    at its own pace, or if none ran and some waited; intervals in which most of the instances stand are the fleet's. How
    long a stop was comes from what was lost in it and in the intervals beside it.
    """
    turnover = Turnover.of(history)
    size, count = intervals.growth.shape
    if turnover is None or size < 2 or count < FEWEST:
        return None
    stands = np.zeros(intervals.growth.shape, dtype=bool)
    each: list[list[Stop]] = []
    for quantile in QUANTILES:
        clear = ~widened(stands, 1)
        expected = TokensDue.of(intervals, turnover, clear, quantile)
        if expected is None:
            return None
        expected = expected.at_own_pace(intervals, intervals.sharp & turnover.calm & clear)
        stands = _stands(history, intervals, turnover, expected)
        found = (
            (_stop(intervals, turnover, expected, row, run) for run in runs_of(stands[row])) for row in range(size)
        )
        each = [[stop for stop in mine if stop is not None] for mine in found]
    typical = float(np.median([len(mine) for mine in each]))
    if typical < FEWEST or sum(len(mine) >= EACH * typical for mine in each) < ALL * size:
        return None
    if not _in_turn(each, intervals):
        return None
    most = max(each, key=len)  # the others may have had no work when their turn came
    period = float(np.median(np.diff([s.start_s for s in most])))
    stops = tuple(stop for mine in each for stop in mine)
    total = sum(s.seconds for s in stops)
    return Rolling(stops, total / (float(intervals.known.sum()) * intervals.step_s), total / len(stops), period)


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


def without_stops(history: History, intervals: Intervals, rolling: Rolling | None) -> tuple[History, Intervals]:
    """Both as if nobody had read an instance while it stood: what is left shows the fleet's pauses and paces."""
    if rolling is None:
        return history, intervals
    size = len(intervals.growth)
    there, away = rolling.standing(intervals.times, size), widened(rolling.overlapping(intervals.times, size), 1)
    values = {k: np.where(there, np.nan, v) if k in NAMES else v for k, v in history.values.items()}
    growth = np.where(away, np.nan, intervals.growth)
    return replace(history, values=values), replace(intervals, growth=growth, sharp=intervals.sharp & ~away)


def _own(intervals: Intervals, expected: TokensDue, among: Mask) -> Floats:
    """(I, 1) each instance's pace where it works, against the fleet's; none is faster than 1, for a bound is wanted."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(among & (expected.falling > 0), intervals.growth / expected.falling, np.nan)
    paces = np.array([np.percentile(r[np.isfinite(r)], OWN) if np.isfinite(r).any() else 1.0 for r in ratio])
    typical = float(np.median(paces))
    if typical <= 0:  # most stand whenever they hold something: none is the measure of another
        return np.ones((len(paces), 1))
    return np.asarray(np.clip(paces / typical, 0.01, 1.0))[:, None]


def _stands(history: History, intervals: Intervals, turnover: Turnover, expected: TokensDue) -> Mask:
    running, waiting = history.values["running"], history.values.get("waiting")
    with np.errstate(invalid="ignore"):
        stands = (turnover.stayed >= 1) & (intervals.growth < (1 - STANDS) * expected.least)
        if waiting is not None:
            held = (running == 0) & (waiting >= 1)
            stands |= held[:, :-1] & held[:, 1:] & (intervals.growth <= NOTHING)
        busy = (np.nan_to_num(running[:, :-1]) >= 1) | (np.nan_to_num(running[:, 1:]) >= 1) | stands
    stands &= intervals.sharp & intervals.known
    fleet = stands.sum(axis=0) > FLEET * np.maximum(busy.sum(axis=0), 1)
    return np.asarray(stands & ~(fleet & (busy.sum(axis=0) >= 2)))


def _stop(intervals: Intervals, turnover: Turnover, expected: TokensDue, row: int, run: tuple[int, int]) -> Stop | None:
    """None where it is cut by an end of the window."""
    first, last = run
    if first == 0 or last == intervals.growth.shape[1] - 1:
        return None
    at = np.arange(first - 1, last + 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        falling, after = (
            np.where(ought[row, at] > 0, 1 - intervals.growth[row, at] / ought[row, at], 1.0)
            for ought in (expected.falling, expected.after)
        )
    share = np.where(turnover.calm[row, at], falling, np.where(at < first, 0.0, after))
    share = np.clip(np.nan_to_num(share), 0.0, 1.0)
    return Stop(*_ends(intervals, at, share), row) if share.any() else None
