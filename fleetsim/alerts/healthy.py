"""How often a healthy fleet is beyond a level, whichever fleet the plan turns out to be.

Two things make a healthy signal cross a level: it scatters, and the fleet is not quite the planned one. The first is
counted in healthy runs, and beyond what they show follows their highest values (`Tail`). The second is a draw of all
inputs that are in doubt: how far each moves the signal is known from runs at its ends (`Levels`). A rate is the mean
over these draws of how often the alert begins to fire in a month; a fleet that fires from its first evaluation on does
so once, and what fires again within a day is the same alarm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleetsim.alerts.rate import Floats
from fleetsim.distributions import poisson_most

MONTH_H, DAY_H = 730.0, 24.0
EULER = 0.5772156649015329
RESAMPLES, SEED, LEVEL = 200, 20, 0.95
# Fleets that the plan may turn out to be, each a draw of all that is in doubt.
DRAWS = 2048
# So many times as far off as the doubt has them.
WIDER = 1.5
# Halvings of an interval between a level that is too low and one that is high enough.
HALVINGS = 24

# Inputs and how far they are off: -1 is the low end of the doubt, 1 the high one.
Corner = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Tail:
    """The highest values in blocks of time, and a Gumbel law fitted to them by L-moments (Hosking 1990).

    Assumption: beyond what was seen the tail falls off exponentially. For bounded signals (shares) that overstates it.
    maxima: (B,) in blocks of block_h hours. wider: the scale is so many times the fitted one.
    """

    maxima: Floats
    block_h: float
    place: float
    scale: float
    wider: float = 1.0

    def per_month(self, levels: Floats | float) -> Floats:
        """Blocks a month that exceed the levels."""
        if self.scale <= 0:
            return np.where(np.asarray(levels) >= self.place, 0.0, MONTH_H / self.block_h)
        exponent = np.minimum(50.0, (self.place - np.asarray(levels)) / self.scale)
        rates: Floats = MONTH_H / self.block_h * -np.expm1(-np.exp(exponent))
        return rates

    def level(self, per_month: float) -> float:
        """The level that is exceeded so often."""
        if self.scale <= 0:
            return self.place
        share = min(per_month * self.block_h / MONTH_H, 0.999)
        return self.place - self.scale * math.log(-math.log1p(-share))

    def again(self) -> list[Tail]:
        """Tails that the same runs could have shown: fits to resampled blocks."""
        random = np.random.default_rng(SEED)
        draws = random.choice(self.maxima, (RESAMPLES, len(self.maxima)))
        fits = zip(*gumbel(draws), strict=True)
        return [replace(self, place=float(place), scale=self.wider * float(scale)) for place, scale in fits]


def tail_of(runs: Sequence[Floats], block: int, block_h: float) -> Tail:
    """The tail of values (E,) of several runs, cut into blocks of so many values; a run's rest is left out.

    Runs shorter than a block make shorter blocks.
    """
    shortest = min(len(values) for values in runs)
    if 0 < shortest < block:
        block, block_h = shortest, block_h * shortest / block
    maxima = []
    for values in runs:
        whole = len(values) // block * block
        if whole == 0:
            continue
        blocks = np.where(np.isnan(values[:whole]), -np.inf, values[:whole]).reshape(-1, block).max(axis=1)
        maxima.append(blocks[np.isfinite(blocks)])
    found = np.concatenate(maxima) if maxima else np.zeros(0)
    if len(found) == 0:
        return Tail(found, block_h, math.nan, math.nan)
    place, scale = gumbel(found[None, :])
    return Tail(found, block_h, float(place[0]), float(scale[0]))


def gumbel(maxima: Floats) -> tuple[Floats, Floats]:
    """Location and scale of Gumbel laws (N,) for rows of maxima (N, B), by the first two L-moments."""
    ordered = np.sort(maxima, axis=1)
    n = ordered.shape[1]
    mean = ordered.mean(axis=1)
    if n < 2:
        return mean, np.zeros(len(ordered))
    second = 2.0 * (ordered * np.arange(n)).sum(axis=1) / (n * (n - 1)) - mean
    scale = np.maximum(second, 0.0) / math.log(2.0)
    scale = np.where(scale < 1e-12 * np.abs(mean), 0.0, scale)
    return mean - EULER * scale, scale


def most_per_month(seen: int, hours: float) -> float:
    """Upper end of the one-sided 95 % Poisson interval: events a month, when so many were seen in so many hours.

    None seen gives the rule of three: 3 / hours.
    """
    return poisson_most(seen, LEVEL) / hours * MONTH_H


@dataclass(frozen=True, slots=True)
class Levels:
    """How high a signal goes, and how high in the fleets that the plan may turn out to be: (N,) each.

    center: the plan's own usual highest value in a block. by: added to it. wider: factor on the distance from it.
    weights: of the fleets.
    """

    center: float
    by: Floats
    wider: Floats
    weights: Floats


def levels_of(center: float, corners: Sequence[tuple[Corner, float, float]], far: float) -> Levels:
    """Levels at draws of all inputs, from runs at known distances; an end is `far` standard deviations away.

    corners: what is off, what that adds to the level, and its factor on the scatter. Between the distances of one input
    a move is interpolated, beyond them it is proportional; two inputs together do what each does, and what both do at
    once is more than that. The scatter is that of the input that makes it the widest. More draws lie far off than the
    law has, and weigh as much less (importance sampling).
    """
    names = sorted({name for corner, *_ in corners for name in corner})
    drawn = WIDER * np.random.default_rng(SEED).normal(size=(len(names), DRAWS))
    weights = np.exp(-0.5 * (1.0 - WIDER**-2) * (drawn**2).sum(axis=0))
    off = dict(zip(names, drawn / far, strict=True))
    by, wider = np.zeros(DRAWS), np.zeros(DRAWS)
    for name in names:
        alone = {c[name]: (moved, math.log(factor)) for c, moved, factor in corners if [*c] == [name]}
        at = sorted({0.0, *alone})
        moved, factor = (np.interp(off[name], at, [alone.get(place, (0.0, 0.0))[k] for place in at]) for k in (0, 1))
        by += np.maximum(1.0, np.abs(off[name])) * moved
        wider = np.maximum(wider, factor)
    ends = {tuple(c.items()): moved for c, moved, _ in corners}
    for corner, moved in ends.items():
        if len(corner) > 1:
            share = np.prod([np.maximum(0.0, side * off[name]) for name, side in corner], axis=0)
            by += share * (moved - sum(ends.get((end,), 0.0) for end in corner))
    return Levels(center, by, np.exp(wider), weights / weights.sum())


@dataclass(frozen=True, slots=True)
class Healthy:
    """A signal's values that an alert would have to exceed, in healthy hours; they grow toward the alert.

    levels: how high they go, and in the fleets that the plan may turn out to be. values: all of them, sorted. rising:
    (R,) the lower and (R,) the upper ends of all steps upward, each sorted. tail: of the highest ones. mean: of the
    signal itself.
    """

    levels: Levels
    values: Floats
    rising: tuple[Floats, Floats]
    hours: float
    tail: Tail
    mean: float

    def per_month(self, level: float, tail: Tail | None = None) -> float:
        """How often a month the alert begins to fire. tail: another one than its own."""
        tail, of = tail or self.tail, self.levels
        # what the plan's own fleet would have to show
        levels = of.center + (level - of.center - of.by) / of.wider
        from_first = 1.0 - np.searchsorted(self.values, levels, "right") / max(len(self.values), 1)
        low, high = self.rising
        begun = np.searchsorted(low, levels, "right") - np.searchsorted(high, levels, "right")
        begun = np.where(levels < tail.place, begun / self.hours * MONTH_H, tail.per_month(levels))
        return float(np.dot(of.weights, from_first + np.minimum(begun, MONTH_H / DAY_H)))

    def upper(self, level: float) -> float:
        """The upper end of a 95 % interval of `per_month`."""
        return float(np.quantile([self.per_month(level, tail) for tail in self.tail.again()], LEVEL))

    def level(self, per_month: float, least: float) -> float:
        """The lowest level from `least` on that is exceeded so often at most."""
        if self.per_month(least) <= per_month:
            return least
        of = self.levels
        highest = max(float(self.values[-1]), self.tail.level(per_month / 2.0))
        low, high = least, float(np.max(of.center + of.by + of.wider * (highest - of.center)))
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self.per_month(middle) <= per_month else (middle, high)
        return high


def healthy_of(lows: Sequence[Floats], tail: Tail, interval_s: float, levels: Levels, mean: float) -> Healthy:
    """lows: of healthy runs (E,), what an alert that needs several evaluations in a row would have to exceed. mean: of
    the signal itself."""
    known = [np.where(np.isnan(values), -np.inf, values) for values in lows]
    before, after = (np.concatenate([v[part] for v in known]) for part in (slice(None, -1), slice(1, None)))
    up = before < after
    every = np.concatenate(known)
    hours = len(every) * interval_s / 3600.0
    return Healthy(
        levels, np.sort(every[np.isfinite(every)]), (np.sort(before[up]), np.sort(after[up])), hours, tail, mean
    )
