"""`Edges`: where a pause begins and ends inside the intervals that are only partly silent.

`Turnover`: what ran at both ends of every interval, and which of it came and went in between.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetsim.history.counters import increments
from fleetsim.history.history import Floats, History
from fleetsim.replay.observe.intervals import Intervals, Mask

FEW = 0.3  # of what ran at the start: fewer that came leave the load between both ends known


@dataclass(frozen=True, slots=True)
class Turnover:
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
        running, finished = history.values.get("running"), history.values.get("finished")
        if running is None or finished is None:
            return None
        left, right = running[:, :-1], running[:, 1:]
        ended = increments(finished, history.step_s)
        return cls(left, right, ended, np.maximum(right - left + ended, 0.0), _computed(history))

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


def _computed(history: History) -> Floats | None:
    prompts, hits = history.values.get("prompt_tokens"), history.values.get("prefix_hits")
    if prompts is None:
        return None
    given = increments(prompts, history.step_s)
    if hits is None:
        return given
    return np.asarray(np.maximum(given - np.nan_to_num(increments(hits, history.step_s)), 0.0))


NOTHING = 0.5  # tokens in an interval: less is rounding
REACH = 6  # intervals looked at beside a silence
STRETCH = 2  # of them an instance may be silent in already: scrapes differ by up to one interval


@dataclass(frozen=True, slots=True)
class Edges:
    """Tokens per interval, and the usual ones, of every instance and of the fleet as a whole.

    each: (I, T-1), NaN where an interval has no growth of its own. steady: (I, T-1) those not beside a silent one.
    typical: (I,) of the steady ones. fleet: (1, T-1), the sum. work: (T,) requests in hand, None if not exported.
    """

    each: Floats
    steady: Floats
    typical: Floats
    fleet: Floats
    work: Floats | None

    @classmethod
    def of(cls, intervals: Intervals) -> Edges:
        """The edges of a window."""
        sharp = np.where(intervals.sharp.any(axis=0), intervals.sharp, intervals.known)
        each = np.where(sharp, intervals.growth, np.nan)
        return cls(each, *_steady(each), intervals.fleet_growth()[None], intervals.work)

    def before(self, first: int, *, dry: bool) -> float:
        """Intervals that a pause, silent from interval `first` on, reaches back before it: the median over instances.

        dry: the batch ran out. Then instances fall silent one by one and the pause begins with the last: what the
        fleet's last requests made, against what as many made just before, says when.
        """
        at = np.arange(first - 1, first - 1 - REACH, -1)
        if dry:
            return self._dry(first)
        return max(_reach(self.each, self.steady, self.typical, at, nearest=False), 0.0)

    def after(self, last: int, *, empty: bool, late: bool) -> float:
        """Intervals that a pause, silent up to interval `last`, reaches beyond it; below 0 only if `late`.

        empty: a new batch starts, fastest at first: the nearest rate counts. late: one interval of one instance was
        silent; if the next one shows as much more, nothing stood still, the scrape was late.
        """
        at = np.arange(last + 1, last + 1 + REACH)
        reach = _reach(self.each, self.steady, self.typical, at, nearest=empty)
        return reach if late else max(reach, 0.0)

    def _dry(self, first: int) -> float:
        """1 - tokens / (requests at its start x what a request makes in an interval, as in the one before)."""
        if first < 2 or self.work is None:
            return 0.0
        near, before = float(self.fleet[0, first - 1]), float(self.fleet[0, first - 2])
        held, left = float(self.work[first - 1]), float(self.work[first - 2])
        if not np.isfinite(near + before + held + left) or before <= NOTHING or held <= 0:
            return 0.5 if near > NOTHING else 0.0
        return float(np.clip(1 - near / (held * before / ((held + left) / 2)), 0, 1))


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
