"""`Edges`: where a pause begins and ends inside the intervals that are only partly silent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetsim.history.history import Floats
from fleetsim.replay.intervals import Intervals, Mask

NOTHING = 0.5  # tokens in an interval: less is rounding
REACH = 6  # intervals looked at beside a silence
STRETCH = 2  # of them an instance may be silent in already: scrapes differ by up to one interval


@dataclass(frozen=True, slots=True)
class Edges:
    """Tokens per interval, and the usual ones, of every instance and of the fleet as a whole.

    each: (I, T-1), NaN where an interval has no growth of its own. steady: (I, T-1) those not beside a silent interval.
    typical: (I,) of the steady ones. fleet, fleet_steady, fleet_typical: the same for the sum, (1, T-1) and (1,).
    """

    each: Floats
    steady: Floats
    typical: Floats
    fleet: Floats
    fleet_steady: Floats
    fleet_typical: Floats

    @classmethod
    def of(cls, intervals: Intervals) -> Edges:
        """The edges of a window."""
        sharp = np.where(intervals.sharp.any(axis=0), intervals.sharp, intervals.known)
        each = np.where(sharp, intervals.growth, np.nan)
        fleet = intervals.fleet_growth()[None]
        return cls(each, *_steady(each), fleet, *_steady(fleet))

    def before(self, first: int, *, dry: bool) -> float:
        """Intervals that a pause, silent from interval `first` on, reaches back before it: the median over instances.

        dry: the batch ran out. Then instances fall silent one by one and the pause begins with the last: the fleet's
        own growth says when, against what it made just before.
        """
        at = np.arange(first - 1, first - 1 - REACH, -1)
        if dry:
            return _reach(self.fleet, self.fleet_steady, self.fleet_typical, at, nearest=True)
        return _reach(self.each, self.steady, self.typical, at, nearest=False)

    def after(self, last: int) -> float:
        """Intervals that a pause, silent up to interval `last`, reaches beyond it."""
        return _reach(self.each, self.steady, self.typical, np.arange(last + 1, last + 1 + REACH), nearest=False)


def widened(mask: Mask, by: int) -> Mask:
    """True also up to `by` places beside a True, along the last axis."""
    wide = mask.copy()
    for shift in range(1, by + 1):
        wide[..., shift:] |= mask[..., :-shift]
        wide[..., :-shift] |= mask[..., shift:]
    return wide


def _steady(rows: Floats) -> tuple[Floats, Floats]:
    silent = np.isfinite(rows) & (rows <= NOTHING)
    steady = np.where(np.isfinite(rows) & ~widened(silent, 1), rows, np.nan)
    typical = np.full(len(rows), np.nan)
    for n, row in enumerate(rows):
        usual = steady[n][np.isfinite(steady[n])]
        if usual.size == 0:
            usual = row[np.isfinite(row) & (row > NOTHING)]
        if usual.size:
            typical[n] = np.percentile(usual, 75)
    return steady, typical


def _reach(rows: Floats, steady: Floats, typical: Floats, at: NDArray[np.intp], *, nearest: bool) -> float:
    """Of each row: silent intervals at once, and of the next one the share 1 - tokens / usual tokens; their median.

    at: interval indices from the silence outwards. A share below 0 is a late scrape, which shows more than usual.
    """
    inside = (at >= 0) & (at < rows.shape[1])
    columns = np.clip(at, 0, rows.shape[1] - 1)
    seen = np.where(inside, rows[:, columns], np.nan)
    usable = np.where(inside, steady[:, columns], np.nan)
    still = np.isfinite(seen[:, :STRETCH]) & (seen[:, :STRETCH] <= NOTHING)
    silent = np.cumprod(still, axis=1).sum(axis=1)
    each = np.arange(len(rows))
    near = seen[each, silent]
    reaches = []
    for n in np.flatnonzero(np.isfinite(near)):
        beside = usable[n, silent[n] + 1 :][np.isfinite(usable[n, silent[n] + 1 :])]
        usual = (beside[0] if nearest else np.median(beside[:3])) if beside.size else typical[n]
        if usual > 0:
            reaches.append(silent[n] + float(np.clip(1 - near[n] / usual, -1, 1)))
    return float(np.median(reaches)) if reaches else 0.0
