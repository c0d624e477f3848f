"""How a series falls into pieces of time: runs, spans, holes, a rhythm; and whether it is constant, rises, has spikes
that come again, or changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.distributions import binomial_above, student_quantile
from fleetsim.history.counters import MAX_HOLE_S
from fleetsim.history.history import Floats
from fleetsim.records import replace

Mask = NDArray[np.bool_]


class Still(Struct, frozen=True):
    """From start to end, unix seconds."""

    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end_s - self.start_s


def overlap_s(left: Floats, right: Floats, spans: Iterable[Still]) -> Floats:
    """Seconds of each range left to right that lie in spans."""
    total = np.zeros(len(left))
    for span in spans:
        total += np.clip(np.minimum(right, span.end_s) - np.maximum(left, span.start_s), 0.0, None)
    return total


def inside(times: Floats, spans: Iterable[Still]) -> Mask:
    """Whether each time lies in a span; a reading stands for the time up to the next, so the end does not."""
    found = np.zeros(len(times), dtype=bool)
    for span in spans:
        found |= (times >= span.start_s) & (times < span.end_s)
    return found


def runs_of(mask: Mask) -> list[tuple[int, int]]:
    """First and last index of every run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def widened(mask: Mask, by: int) -> Mask:
    """True also up to `by` places beside a True, along the last axis."""
    wide = mask.copy()
    for shift in range(1, by + 1):
        wide[..., shift:] |= mask[..., :-shift]
        wide[..., :-shift] |= mask[..., shift:]
    return wide


def holes_of(times: Floats, known: Mask) -> tuple[tuple[float, float], ...]:
    """(start, end) in unix seconds where nothing is known (T-1,) for longer than growth is spread over (MAX_HOLE_S),
    between the first known interval and the last."""
    inside = [(a, b) for a, b in runs_of(~known) if a > 0 and b < len(known) - 1]
    ends = ((float(times[a]), float(times[b + 1])) for a, b in inside)
    return tuple((a, b) for a, b in ends if b - a > MAX_HOLE_S)


FEWEST_TURNS, CHANCE = 4, 0.01  # stops make a rhythm; of as many without one that look like it


def have_rhythm(times_s: Sequence[float], step_s: float) -> bool:
    """Three of four distances are multiples of their median, and as many would be by chance once in a hundred times."""
    if len(times_s) < FEWEST_TURNS:
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


class PhaseCourse(Struct, frozen=True):
    """How a row of numbers goes on over a run's steps.

    mean: of all rows that say something. usual: of those outside the spikes, after the last change: what it is now.
    spread: standard deviation of the rows of that level. before: the same before the change (None without one). at: the
    row at which the change begins. every: rows from one spike to the next. again: of a constant one, rows far above the
    others that come at no distance.
    """

    kind: Literal["constant", "since", "rising", "periodic"]
    mean: float
    usual: float
    spread: float
    before: float | None = None
    at: int | None = None
    every: int | None = None
    again: int = 0

    @property
    def excess(self) -> float:
        """What it is now beyond what it was before; 0 without a change."""
        return 0.0 if self.before is None else self.usual - self.before


FEWEST = 4  # rows on either side of a change
# Of the median, robust standard deviations, and of the highest row: what stands out above all three is a spike.
SPIKE, ROBUST, HEIGHT = 0.5, 8.0, 0.1
MANY = 0.4  # of the rows: more that stand out are another level
REGULAR = 0.8  # of the distances between spikes: so many must be the usual one, or a multiple of it
SURE = 0.99997  # two levels differ: so sure by Student's law, four standard errors of many rows and more of few
BY = 0.1  # of the higher level: a change by less is no other level
FEWEST_AGAIN = 3  # rows that come at no distance and are no accident


def course_of(values: Floats, *, again: bool = False) -> PhaseCourse:
    """The course of (n,) numbers, NaN where nothing is said. A change must be seen in FEWEST rows on either side.
    again: whether rows far above the others, which come at no distance, are none of its level.

    Of the three simple laws (one level, two levels, a straight line) the one that explains most for its parameters
    counts (Schwarz 1978, "Estimating the dimension of a model": n log(residual) + parameters log(n)).
    """
    known = np.isfinite(values)
    if not known.any():
        return PhaseCourse("constant", 0.0, 0.0, 0.0)
    mean = float(values[known].mean())
    spikes, every = spikes_of(values, known)
    rows = np.flatnonzero(known & ~spikes)
    y = values[rows]
    far = _far_above(y)[1] & again & (every is None)
    count = int(far.sum()) if FEWEST_AGAIN <= far.sum() <= MANY * len(y) else 0
    usual = y[~far] if count else y
    kind: Literal["constant", "periodic"] = "constant" if every is None else "periodic"
    level = PhaseCourse(kind, mean, float(usual.mean()), float(usual.std()), every=every, again=count)
    if len(y) < 2 * FEWEST:
        return level
    place, two = _split(y)
    before, after = y[:place], y[place:]
    slope = np.polyfit(np.arange(len(y)), y, 1)
    fitted = np.polyval(slope, np.arange(len(y)))
    line = float(((y - fitted) ** 2).sum())
    one, least = float(((y - y.mean()) ** 2).sum()), 1e-9 * (1.0 + float((y**2).sum()))
    costs = [
        len(y) * np.log(max(rest, least) / len(y)) + parameters * np.log(len(y))
        for rest, parameters in ((one, 1), (two, 3), (line, 2))
    ]
    best, errors = int(np.argmin(costs)), student_quantile(len(y) - 2, SURE)
    was, now = float(before.mean()), float(after.mean())
    error = float(np.sqrt(before.var() / len(before) + after.var() / len(after)))
    if best == 1 and abs(now - was) > max(errors * error, BY * max(abs(was), abs(now))):
        later = course_of(np.where(np.arange(len(values)) < rows[place], np.nan, values), again=again)
        if later.excess * (now - was) < 0.0:  # it is over
            return replace(later, mean=mean)
        return PhaseCourse("since", mean, now, float(after.std()), was, int(rows[place]), every)
    first, last, spread = float(fitted[0]), float(fitted[-1]), float(np.sqrt(line / len(y)))
    error = float(np.sqrt(12.0 * line / (len(y) - 2) / len(y)))  # of what a line through so many rows rises by
    if best == 2 and abs(last - first) > max(errors * error, BY * max(abs(first), abs(last))):
        return PhaseCourse("rising", mean, last, spread, first, None, every)
    return level


def spikes_of(values: Floats, known: Mask) -> tuple[Mask, int | None]:
    """Rows far above the others that come again at one distance, and that distance; none where they do not. Of every
    other row it is no spike: so a trainer waits whose two batches are made together."""
    y = values[known]
    middle, far = _far_above(y)
    high = np.zeros(len(values), dtype=bool)
    high[known] = far & (y > middle + HEIGHT * (float(y.max()) - middle))
    at = np.flatnonzero(high)
    nothing = np.zeros(len(values), dtype=bool)
    if at.size > MANY * len(y):
        return nothing, None
    if at.size < 2:
        return high, None
    apart = np.diff(at)
    every = int(np.median(apart))
    regular = every > 2 and np.mean(apart % every == 0) >= REGULAR
    return (high, every) if regular else (nothing, None)


def _far_above(y: Floats) -> tuple[float, Mask]:
    """The median, and which rows (n,) stand out above it."""
    middle = float(np.median(y))
    scatter = 1.4826 * float(np.median(np.abs(y - middle)))
    return middle, np.asarray(y > middle + max(SPIKE * middle, ROBUST * scatter))


def _split(y: Floats) -> tuple[int, float]:
    """Where two levels explain most, and the squares that they leave."""
    size = np.arange(1, len(y))
    sums, squares = np.cumsum(y), np.cumsum(y**2)
    left = squares[:-1] - sums[:-1] ** 2 / size
    right = squares[-1] - squares[:-1] - (sums[-1] - sums[:-1]) ** 2 / (len(y) - size)
    rest = (left + right)[FEWEST - 1 : len(y) - FEWEST]
    best = int(np.argmin(rest))
    return best + FEWEST, float(max(rest[best], 0.0))
