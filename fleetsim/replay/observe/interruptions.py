"""Times at which a fleet or an instance stood still, and of which nothing was read.

A row says what each kind of silence is, and what finds it:

| kind | what shows it | found by |
| --- | --- | --- |
| silence | no instance that was read made a token | `observe/pauses.py` |
| stall | requests that stayed made less than they must have, in all of the fleet | `observe/stops.py` (`stalls_of`) |
| stop | the same of one instance after the other: a rolling weight sync | `observe/stops.py` (`rolling_of`) |
| dip | too short to silence an interval: all made too little for their load | `dips_of` |
| sleep, counter | the engines say so | `observe/pauses.py` |
| hole | nothing was read | `observe/segments.py` (`holes_of`) |
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct

from fleetsim.history.history import Floats
from fleetsim.replay.observe.intervals import ALIKE, Intervals, made_of
from fleetsim.replay.observe.segments import Mask, Still, have_rhythm, inside, overlap_s, runs_of


class Pause(Still, frozen=True):
    """The fleet stood still: every present instance stopped generating together (unix seconds).

    source: silence (the fleet fell silent with work in hand, or empty between batches) | sleep (engine_sleep_state) |
    counter (the engine counts weight updates). empty: nothing was running meanwhile (a barrier, or engines that the
    trainer's batch has drained), else work was held.
    """

    source: Literal["silence", "sleep", "counter"]
    empty: bool


class Hole(Still, frozen=True):
    """A time, longer than growth can be spread over, of which nothing was read (unix seconds): it is part of no elapsed
    time, as what happened in it is part of no count. of: whose metrics are missing."""

    of: Literal["engines", "trainer"]


class Pauses(Struct, frozen=True):
    """All pauses of a window. share: of the window, holes left out. period_s: median distance of their starts, None
    below three."""

    each: tuple[Pause, ...]
    share: float
    mean_s: float
    period_s: float | None

    @property
    def held(self) -> tuple[Pause, ...]:
        """Those with work in hand: something stops the engines, a weight sync. Without, they have run out of it."""
        return tuple(p for p in self.each if not p.empty)


class Stop(Still, frozen=True):
    """One instance stood with work in hand while others went on (unix seconds). row: of the history's instances."""

    row: int


class Rolling(Struct, frozen=True):
    """A weight sync that takes one instance after the other. share: of instance-time that was read, in stops. mean_s:
    of a stop. period_s: median distance of the stops of the instance that has most: one without work in hand does
    not show its stop."""

    stops: tuple[Stop, ...]
    share: float
    mean_s: float
    period_s: float

    def each(self, size: int) -> list[list[Stop]]:
        """Those of each of so many instances."""
        return [[stop for stop in self.stops if stop.row == row] for row in range(size)]

    def standing(self, times: Floats, size: int) -> Mask:
        """(I, T): the instance stands in its own stop at that time. size: I."""
        return np.array([inside(times, stops) for stops in self.each(size)])

    def overlapping(self, times: Floats, size: int) -> Mask:
        """(I, T-1): the interval overlaps a stop of the instance."""
        return np.array([overlap_s(times[:-1], times[1:], stops) > 0 for stops in self.each(size)])


def outside(intervals: Intervals, pauses: tuple[Pause, ...]) -> Mask:
    """(T-1,): the interval overlaps no pause."""
    return np.asarray(overlap_s(intervals.times[:-1], intervals.times[1:], pauses) == 0)


WINDOW = 21  # intervals over which the usual rate is taken
LONGEST = 4  # intervals that one dip may spread over: a stop of up to 3 and the scrapes' different times
SURE = 5.0  # standard deviations of the fleet's usual scatter
LEAST = 0.04  # of an interval's tokens
SMALL = 0.3  # of the typical dip: less beside it is noise
DEEP = 0.8  # of an interval


def dips_of(intervals: Intervals, expected: Floats, usable: Mask) -> list[Pause]:
    """Stops of the fleet that show as missing growth; a rhythm of them, or deep ones that all took part in.

    usable: (T-1,) intervals away from silences. An interval's quality is the fleet's growth / expected at its load, and
    what is usual the 65th percentile of 21 intervals around. A dip is a run of at most 4 intervals below that by 5
    standard deviations (of the better half of the intervals: dips spoil the other) and by 4 %; its loss is measured
    against the intervals at its sides, so that a slow sag is none, and the work in hand must be the same on both. The
    typical instance must have lost half as much as the fleet. Dips make a rhythm if three of four distances are a
    multiple of their median, within a fifth, and that is no chance. A single dip counts only if it cost 0.8 of an
    interval and nine of ten instances took part.
    """
    read = intervals.sharp & intervals.known & np.isfinite(expected) & usable
    quality = made_of(intervals.growth, expected, read)
    quality[read.any(axis=0) & np.isnan(quality)] = 0.0  # every gauge shows an engine that was emptied meanwhile
    if np.isfinite(quality).sum() < WINDOW:
        return []
    relative = quality / _usual(quality)
    good = relative[np.isfinite(relative)]
    center = float(np.median(good))
    sigma = float(np.median(good[good >= center] - center)) / 0.6745
    low = np.isfinite(relative) & (1 - relative > max(SURE * sigma, LEAST))
    found = [dip for run in runs_of(low) if (dip := _dip(intervals, quality, run, sigma)) is not None]
    step = intervals.step_s
    if not have_rhythm([(dip.start_s + dip.end_s) / 2 for dip, _ in found], step):
        return [dip for dip, everybody in found if everybody and dip.seconds >= DEEP * step]
    least = SMALL * float(np.median([dip.seconds for dip, _ in found]))
    return [dip for dip, _ in found if dip.seconds >= least]


def _usual(quality: Floats) -> Floats:
    """65th percentile of the finite values in a window around each."""
    padded = np.pad(quality, WINDOW // 2, constant_values=np.nan)
    ordered = np.sort(np.lib.stride_tricks.sliding_window_view(padded, WINDOW), axis=1)  # NaN last
    count = np.isfinite(ordered).sum(axis=1)
    at = np.floor(0.65 * np.maximum(count - 1, 0)).astype(np.intp)
    found = ordered[np.arange(len(ordered)), at]
    return np.where((count > 0) & (found > 0), found, np.nan)


def _dip(intervals: Intervals, quality: Floats, run: tuple[int, int], sigma: float) -> tuple[Pause, bool] | None:
    """The stop, and whether at least 9 of 10 instances lost half as much as the fleet or more."""
    first, last = run
    sides = [k for k in (first - 3, first - 2, last + 2, last + 3) if 0 <= k < len(quality)]
    beside = quality[sides][np.isfinite(quality[sides])]
    if last - first >= LONGEST or len(beside) < 2 or not _same_work(intervals, first, last):
        return None
    usual = float(np.median(beside))
    span = range(max(first - 1, 0), min(last + 2, len(quality)))
    losses = {k: 1 - quality[k] / usual for k in span if np.isfinite(quality[k])}
    kept = {k: loss for k, loss in losses.items() if first <= k <= last or loss > 2 * sigma}
    total = float(sum(kept.values()))
    if total <= max(SURE * sigma, LEAST):
        return None
    shares = _lost_by_each(intervals, list(kept), sides)
    if shares.size and float(np.median(shares)) < 0.5 * total:
        return None
    everybody = bool(shares.size and (shares >= 0.5 * total).mean() >= 0.9)
    middle = sum(loss * (intervals.times[k] + intervals.step_s / 2) for k, loss in kept.items()) / total
    # What ran is no measure of a stop that takes it away: if all took part, each against itself tells more.
    lost = float(np.median(_lost_by_each(intervals, list(span), sides))) if everybody and total >= DEEP else total
    half = intervals.step_s * lost / 2
    return Pause(float(middle - half), float(middle + half), "silence", False), everybody


def _same_work(intervals: Intervals, first: int, last: int) -> bool:
    """As much in hand before and after: else what is missing may be load that came late."""
    if intervals.work is None:
        return True
    sides = intervals.work[[k for k in (first - 2, first - 1, last + 2, last + 3) if 0 <= k < len(intervals.work)]]
    seen = sides[np.isfinite(sides)]
    return bool(seen.size and seen.min() >= ALIKE * seen.max())


def _lost_by_each(intervals: Intervals, within: list[int], sides: list[int]) -> Floats:
    """Intervals' worth of growth that each instance lost, against its own at the sides."""
    own = intervals.growth[:, sides].mean(axis=1)
    lost = len(within) - intervals.growth[:, within].sum(axis=1) / np.where(own > 0, own, np.nan)
    return np.asarray(lost[np.isfinite(lost)])
