"""One segmentation of time: whether a row of numbers is constant, rises, has spikes that come again, or changed."""

from __future__ import annotations

import numpy as np

from fleetsim.history.history import Floats
from fleetsim.replay.observe.intervals import Mask
from fleetsim.replay.observe.phases import Kind, PhaseCourse

FEWEST = 4  # rows on either side of a change
# Of the median, robust standard deviations, and of the highest row: what stands out above all three is a spike.
SPIKE, ROBUST, HEIGHT = 0.5, 8.0, 0.1
REGULAR = 0.8  # of the distances between spikes: so many must be the usual one, or a multiple of it
SURE = 4.0  # standard errors by which two levels differ
BY = 0.1  # of the higher level: a change by less is no other level


def course_of(values: Floats) -> PhaseCourse:
    """The course of (n,) numbers, NaN where nothing is said. A change must be seen in FEWEST rows on either side.

    Of the three simple laws (one level, two levels, a straight line) the one that explains most for its parameters
    counts (Schwarz 1978, "Estimating the dimension of a model": n log(residual) + parameters log(n)).
    """
    known = np.isfinite(values)
    if not known.any():
        return PhaseCourse("constant", 0.0, 0.0, 0.0)
    mean = float(values[known].mean())
    spikes, every = _spikes(values, known)
    rows = np.flatnonzero(known & ~spikes)
    y = values[rows]
    kind: Kind = "constant" if every is None else "periodic"
    level = PhaseCourse(kind, mean, float(y.mean()), float(y.std()), every=every)
    if len(y) < 2 * FEWEST:
        return level
    place, two = _split(y)
    before, after = y[:place], y[place:]
    slope = np.polyfit(np.arange(len(y)), y, 1)
    line = float(((y - np.polyval(slope, np.arange(len(y)))) ** 2).sum())
    one, least = float(((y - y.mean()) ** 2).sum()), 1e-9 * (1.0 + float((y**2).sum()))
    costs = [
        len(y) * np.log(max(rest, least) / len(y)) + parameters * np.log(len(y))
        for rest, parameters in ((one, 1), (two, 3), (line, 2))
    ]
    best = int(np.argmin(costs))
    if best == 1 and _differ(before, after):
        return PhaseCourse(
            "since", mean, float(after.mean()), float(after.std()), float(before.mean()), int(rows[place]), every
        )
    if best == 2:
        first, last = np.polyval(slope, 0), np.polyval(slope, len(y) - 1)
        spread = float(np.sqrt(line / len(y)))
        if abs(last - first) > max(BY * max(abs(first), abs(last)), SURE * spread / np.sqrt(len(y))):
            return PhaseCourse("rising", mean, float(last), spread, float(first), None, every)
    return level


def _spikes(values: Floats, known: Mask) -> tuple[Mask, int | None]:
    """Rows far above the others that come again at one distance, and that distance; none where they do not."""
    y = values[known]
    middle = float(np.median(y))
    scatter = 1.4826 * float(np.median(np.abs(y - middle)))
    out = max(SPIKE * middle, ROBUST * scatter, HEIGHT * (float(y.max()) - middle))
    high = known & (np.nan_to_num(values) > middle + out)
    at = np.flatnonzero(high)
    nothing = np.zeros(len(values), dtype=bool)
    if not at.size or at.size > 0.4 * len(y):
        return nothing, None
    if at.size == 1:
        return high, None
    apart = np.diff(at)
    every = int(np.median(apart))
    regular = every > 1 and np.mean(apart % every == 0) >= REGULAR
    return (high, every) if regular else (nothing, None)


def _split(y: Floats) -> tuple[int, float]:
    """Where two levels explain most, and the squares that they leave."""
    size = np.arange(1, len(y))
    sums, squares = np.cumsum(y), np.cumsum(y**2)
    left = squares[:-1] - sums[:-1] ** 2 / size
    right = squares[-1] - squares[:-1] - (sums[-1] - sums[:-1]) ** 2 / (len(y) - size)
    rest = (left + right)[FEWEST - 1 : len(y) - FEWEST]
    best = int(np.argmin(rest))
    return best + FEWEST, float(max(rest[best], 0.0))


def _differ(before: Floats, after: Floats) -> bool:
    away = abs(float(after.mean() - before.mean()))
    error = float(np.sqrt(before.var() / len(before) + after.var() / len(after)))
    return away > max(SURE * error, BY * max(abs(float(before.mean())), abs(float(after.mean()))))
