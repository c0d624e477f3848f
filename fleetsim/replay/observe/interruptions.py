"""Times at which a fleet or an instance stood still, and of which nothing was read.

A row says what each kind of silence is, and what finds it:

| kind | what shows it | found by |
| --- | --- | --- |
| silence | no instance that was read made a token | `observe/pauses.py` |
| stall | requests that stayed made less than they must have, in all of the fleet | `observe/stops.py` (`stalls_of`) |
| stop | the same of one instance after the other: a rolling weight sync | `observe/stops.py` (`rolling_of`) |
| sleep, counter | the engines say so | `observe/pauses.py` |
| hole | nothing was read | `observe/segments.py` (`holes_of`) |
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct

from fleetsim.history.history import Floats
from fleetsim.replay.observe.intervals import Intervals
from fleetsim.replay.observe.segments import Mask, Still, inside, overlap_s


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
