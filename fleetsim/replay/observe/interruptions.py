"""Times at which a fleet or an instance stood still, and of which nothing was read.

A row says what each kind of silence is, and what finds it:

| kind | what shows it | found by |
| --- | --- | --- |
| silence | no instance that was read made a token | `observe/pauses.py` |
| stall | requests that stayed made less than they must have, in all of the fleet | `observe/stops.py` (`stalls_of`) |
| stop | the same of one instance after the other: a rolling weight sync | `observe/stops.py` (`rolling_of`) |
| dip | too short to silence an interval: all made too little for their load | `observe/dips.py` |
| sleep, counter | the engines say so | `observe/pauses.py` |
| hole | nothing was read | `observe/intervals.py` (`holes_of`) |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from fleetsim.distributions import binomial_above
from fleetsim.history.history import Floats
from fleetsim.replay.observe.intervals import Intervals, Mask

FEWEST, CHANCE = 4, 0.01  # stops make a rhythm; of as many without one that look like it


class Still(Struct, frozen=True):
    """From start to end, unix seconds."""

    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end_s - self.start_s


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

    def standing(self, times: Floats, size: int) -> Mask:
        """(I, T): the instance stands in its own stop at that time. size: I."""
        found = np.zeros((size, len(times)), dtype=bool)
        for stop in self.stops:
            found[stop.row] |= (times >= stop.start_s) & (times <= stop.end_s)
        return found

    def overlapping(self, times: Floats, size: int) -> Mask:
        """(I, T-1): the interval overlaps a stop of the instance."""
        found = np.zeros((size, len(times) - 1), dtype=bool)
        for stop in self.stops:
            found[stop.row] |= (times[1:] > stop.start_s) & (times[:-1] < stop.end_s)
        return found


def outside(intervals: Intervals, pauses: tuple[Pause, ...]) -> Mask:
    """(T-1,): the interval overlaps no pause."""
    left, right = intervals.times[:-1], intervals.times[1:]
    free = np.ones(len(left), dtype=bool)
    for pause in pauses:
        free &= (right <= pause.start_s) | (left >= pause.end_s)
    return free


def paused_s(left: Floats, right: Floats, pauses: tuple[Pause, ...]) -> Floats:
    """Seconds of each range left to right that lie in pauses."""
    total = np.zeros(len(left))
    for pause in pauses:
        total += np.clip(np.minimum(right, pause.end_s) - np.maximum(left, pause.start_s), 0.0, None)
    return total


def widened(mask: Mask, by: int) -> Mask:
    """True also up to `by` places beside a True, along the last axis."""
    wide = mask.copy()
    for shift in range(1, by + 1):
        wide[..., shift:] |= mask[..., :-shift]
        wide[..., :-shift] |= mask[..., shift:]
    return wide


def have_rhythm(times_s: Sequence[float], step_s: float) -> bool:
    """Three of four distances are multiples of their median, and as many would be by chance once in a hundred times."""
    if len(times_s) < FEWEST:
        return False
    distances = np.diff(times_s)
    period = float(np.median(distances))
    if period <= 0:
        return False
    turns = distances / period
    slack = max(0.2, min(step_s / period, 0.25))
    fit = np.abs(turns - np.maximum(np.round(turns), 1)) <= slack
    others = len(fit) - 1  # the median fits itself
    chance = binomial_above(int(fit.sum()) - 2, others, 2 * slack) if fit.sum() >= 2 else 1.0
    return bool(fit.mean() >= 0.75 and chance <= CHANCE)
