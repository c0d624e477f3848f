"""How a series falls into pieces of time: runs, spans, holes, a rhythm; and whether it is constant, rises, has spikes
that come again, or changed."""

from __future__ import annotations

import math
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
    others that come at no distance. over: first and last row of the last level that came and went; before is it.
    """

    kind: Literal["constant", "since", "rising", "periodic", "over"]
    mean: float
    usual: float
    spread: float
    before: float | None = None
    at: int | None = None
    every: int | None = None
    again: int = 0
    over: tuple[int, int] | None = None

    @property
    def excess(self) -> float:
        """What it is now beyond what it was before; 0 without a change, or where it is as it was at first."""
        return 0.0 if self.before is None or self.over else self.usual - self.before


FEWEST = 4  # rows on either side of a change
# Of the median, robust standard deviations, and of the highest row: what stands out above all three is a spike.
SPIKE, ROBUST, HEIGHT = 0.5, 8.0, 0.1
MANY = 0.4  # of the rows: more that stand out are another level
SHORT = 9  # rows from one turn to the next: rarer ones stand out by themselves
BETWEEN = 0.05  # of the rows between turns: so many may be as high as those
REGULAR = 0.8  # of the distances between spikes: so many must be the usual one, or a multiple of it
SURE = 0.99997  # two levels differ: so sure by Student's law, four standard errors of many rows and more of few
BY = 0.1  # of the higher level: a change by less is no other level
FEWEST_AGAIN = 3  # rows that come at no distance and are no accident
LAWS = (1, 3, 2, 4)  # parameters of one level, two, a line, another level for a while
ANYWHERE = 1.5  # times as many errors of a level that may begin and end anywhere
PLACES = 400  # of a run, where another level may begin and end


def course_of(values: Floats, *, again: bool = False) -> PhaseCourse:
    """The course of (n,) numbers, NaN where nothing is said. A change must be seen in FEWEST rows on either side.
    again: whether rows far above the others, which come at no distance, are none of its level.

    Of the four simple laws (one level, two, another one for a while, a straight line) the one that explains most for
    its parameters counts (Schwarz 1978, "Estimating the dimension of a model": n log(residual) + parameters log(n)).
    """
    known = np.isfinite(values)
    if not known.any():
        return PhaseCourse("constant", 0.0, 0.0, 0.0)
    mean = float(values[known].mean())
    spikes, every = spikes_of(values, known)
    rows = np.flatnonzero(known & ~spikes)
    y = values[rows]
    far = _far_above(y)[1] & again & (every is None)
    few = len(runs_of(far)) < FEWEST_AGAIN  # one after the other they are another level for a while
    count = 0 if few or far.sum() > MANY * len(y) else int(far.sum())
    usual = y[~far] if count else y
    kind: Literal["constant", "periodic"] = "constant" if every is None else "periodic"
    level = PhaseCourse(kind, mean, float(usual.mean()), float(usual.std()), every=every, again=count)
    if len(y) < 2 * FEWEST:
        return level
    n, place, (start, end) = len(y), _split(y), _while(y)
    after, meanwhile = np.arange(n) >= place, (np.arange(n) >= start) & (np.arange(n) < end)
    fitted = np.polyval(np.polyfit(np.arange(n), y, 1), np.arange(n))
    line, least = float(((y - fitted) ** 2).sum()), 1e-9 * (1.0 + float((y**2).sum()))
    left = (n * float(y.var()), _left(y, after), line, _left(y, meanwhile) if end > start else math.inf)
    costs = [
        n * np.log(max(rest, least) / n) + parameters * np.log(n) for rest, parameters in zip(left, LAWS, strict=True)
    ]
    best, errors = int(np.argmin(costs)), student_quantile(n - 2, SURE)
    if best == 3 and not _differ(y[~meanwhile], y[meanwhile], ANYWHERE * errors):
        best = int(np.argmin(costs[:3]))
    if best == 3:
        rest = values.copy()
        rest[rows[start:end]] = np.nan
        found = replace(course_of(rest, again=again), mean=mean)
        if found.before is not None and (found.over is None or found.over[0] > rows[start]):
            return found  # it is not what it was at first, or was another one later, too
        while_s = float(y[meanwhile].mean())
        return replace(found, kind="over", before=while_s, over=(int(rows[start]), int(rows[end - 1])))
    if best == 1 and _differ(y[~after], y[after], errors):
        was, now = float(y[~after].mean()), float(y[after].mean())
        later = course_of(np.where(np.arange(len(values)) < rows[place], np.nan, values), again=again)
        if later.excess * (now - was) < 0.0:  # it is over
            return replace(later, mean=mean)
        return PhaseCourse("since", mean, now, float(y[after].std()), was, int(rows[place]), every)
    first, last, spread = float(fitted[0]), float(fitted[-1]), float(np.sqrt(line / n))
    error = float(np.sqrt(12.0 * line / (n - 2) / n))  # of what a line through so many rows rises by
    if best == 2 and abs(last - first) > max(errors * error, BY * max(abs(first), abs(last))):
        return PhaseCourse("rising", mean, last, spread, first, None, every)
    return level


def spikes_of(values: Floats, known: Mask) -> tuple[Mask, int | None]:
    """Rows far above the others that come again at one distance, and that distance; none where they do not. Of every
    other row it is no spike: so a trainer waits whose two batches are made together."""
    turn, every = _turns(values, known)
    if every is not None:
        return turn, every
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


def _turns(values: Floats, known: Mask) -> tuple[Mask, int | None]:
    """The same of every few rows, which are so many that they do not stand out above a scatter that they make."""
    rows = np.arange(len(values))
    for every in range(3, SHORT + 1):
        for first in range(every):
            turn = rows % every == first
            high, rest = values[turn & known], values[~turn & known]
            if len(high) < FEWEST_TURNS:
                continue
            low, up = float(np.median(rest)), float(np.median(high))
            middle = (low + up) / 2.0
            if up > (1.0 + SPIKE) * low and (high > middle).all() and (rest > middle).mean() <= BETWEEN:
                return turn, every
    return np.zeros(len(values), dtype=bool), None


def _far_above(y: Floats) -> tuple[float, Mask]:
    """The median, and which rows (n,) stand out above it."""
    middle = float(np.median(y))
    scatter = 1.4826 * float(np.median(np.abs(y - middle)))
    return middle, np.asarray(y > middle + max(SPIKE * middle, ROBUST * scatter))


def _left(y: Floats, some: Mask) -> float:
    """The squares that two levels leave, one of some rows and one of the others."""
    return float(sum(len(part) * part.var() for part in (y[some], y[~some])))


def _differ(left: Floats, right: Floats, errors: float) -> bool:
    """Whether two levels are two. Few rows may be close to each other by chance: they scatter as all do, too."""
    was, now = float(left.mean()), float(right.mean())
    pooled = (len(left) * left.var() + len(right) * right.var()) / (len(left) + len(right))
    squares = ((len(y) * y.var() + FEWEST * pooled) / (len(y) + FEWEST) / len(y) for y in (left, right))
    error = math.sqrt(sum(squares))
    return abs(now - was) > max(errors * error, BY * max(abs(was), abs(now)))


def _split(y: Floats) -> int:
    """Where two levels explain most."""
    size = np.arange(FEWEST, len(y) - FEWEST + 1)
    gain = (np.cumsum(y - y.mean())[size - 1]) ** 2 / (size * (len(y) - size))
    return int(size[np.argmax(gain)])


def _while(y: Floats) -> tuple[int, int]:
    """First row and the one after the last of a level that explains most beside that of all others, FEWEST rows at
    least on every side; (0, 0) of too few rows. Of many rows only PLACES are tried."""
    n = len(y)
    places = np.unique(np.linspace(FEWEST, n - FEWEST, min(n, PLACES)).astype(int))
    beyond = np.r_[0.0, np.cumsum(y - y.mean())][places]
    rows = places[None] - places[:, None]
    enough = (rows >= FEWEST) & (rows <= n - 2 * FEWEST)
    if not enough.any():
        return 0, 0
    gain = np.where(enough, (beyond[None] - beyond[:, None]) ** 2 / np.where(enough, rows * (n - rows), 1), -1.0)
    start, end = np.unravel_index(int(np.argmax(gain)), gain.shape)
    return int(places[start]), int(places[end])
