"""How often a healthy fleet is beyond a level, whichever fleet the plan turns out to be.

Two things make a healthy signal cross a level: it scatters, and the fleet is not quite the planned one. The first is
counted in healthy runs, and beyond what they show follows their highest values (`Tail`). The second is a draw of all
inputs that are in doubt: how far that moves the signal is known from runs of such draws (`Levels`). A rate is the mean
over them of how often the alert begins to fire in a month; a fleet that fires from its first evaluation on does
so once, and what fires again within a day is the same alarm.

Four things broke such rates before, and each is mended where it arose. A signal that scatters by the length of a step,
which is in doubt, has no one tail: the straggler's no longer does (`signal_values.straggler_pace`). Few hours know a
tail badly, and rates grow faster by that error than they fall: each draw has another of the tails that the same runs
could have shown. The plan's own fleet may be the calmest: the highest values of all fleets, each on its own scale, are
one sample. And a short run's own requests move its mean, whatever is off: a move is the difference to a run of the plan
with the same requests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from fleetsim.alerts.signal_values import Floats
from fleetsim.distributions import halved, poisson_most
from fleetsim.records import replace

MONTH_H, DAY_H = 730.0, 24.0
EULER = 0.5772156649015329
RESAMPLES, SEED, LEVEL = 200, 20, 0.95
# Fleets that the plan may turn out to be.
DRAWS = 4096
# Halvings of an interval between a level that is too low and one that is high enough.
HALVINGS = 24


class Tail(Struct, frozen=True):
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
        return exceeded(np.asarray(levels), self.place, self.scale) * MONTH_H / self.block_h

    def level(self, per_month: float) -> float:
        """The level that is exceeded so often."""
        share = min(per_month * self.block_h / MONTH_H, 0.999)
        return self.place - self.scale * math.log(-math.log1p(-share))

    def again(self) -> tuple[Floats, Floats]:
        """Places and scales (RESAMPLES,) that the same runs could have shown: fits to resampled blocks."""
        random = np.random.default_rng(SEED)
        place, scale = gumbel(random.choice(self.maxima, (RESAMPLES, len(self.maxima))))
        return place, self.wider * scale


def exceeded(levels: Floats, place: Floats | float, scale: Floats | float) -> Floats:
    """Share of blocks whose highest value is above the levels, by Gumbel laws; a scale of 0 is a value always had."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = np.where(np.asarray(scale) > 0, (place - levels) / scale, np.where(levels >= place, -np.inf, np.inf))
    share: Floats = -np.expm1(-np.exp(np.minimum(50.0, exponent)))
    return share


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


class Levels(Struct, frozen=True):
    """The mean of a signal, and of the fleets that the plan may turn out to be: (N,) each.

    center: the plan's own. by: added to it. wider: factor on the distance from it.
    """

    center: float
    by: Floats
    wider: Floats


def levels_of(center: float, fleets: Sequence[tuple[float, float]], off: float = 0.0) -> Levels:
    """Levels of many fleets, from those that were simulated: what each adds to the level, and its factor on the
    scatter. off: standard error of the center.

    Fleets between the simulated ones, and beyond: to each is added a normal draw, as wide as n of them know their law
    (Silverman 1986, 3.31). All inputs are drawn together, for what two do at once is not the sum of what each does: a
    fleet that is slow in both pools waits no longer than the plan.
    """
    by, wider = (np.array(each) for each in zip(*(fleets or [(0.0, 1.0)]), strict=True))
    spread = math.hypot(off, 1.06 * float(by.std()) * len(by) ** -0.2)
    drawn = np.random.default_rng(SEED).normal(size=DRAWS)
    return Levels(center, np.resize(by, DRAWS) + spread * drawn, np.resize(wider, DRAWS))


class Healthy(Struct, frozen=True):
    """A signal's values that an alert would have to exceed, in healthy hours; they grow toward the alert.

    levels: how high they go, and in the fleets that the plan may turn out to be. values: all of them, sorted. rising:
    (R,) the lower and (R,) the upper ends of all steps upward, each sorted. tail: of the highest ones; again: what else
    it could have been. mean: of the signal itself.
    """

    levels: Levels
    values: Floats
    rising: tuple[Floats, Floats]
    hours: float
    tail: Tail
    again: tuple[Floats, Floats]
    mean: float

    def per_month(self, level: float) -> float:
        """How often a month the alert begins to fire: the mean over the fleets."""
        return _often(*self.each(level))

    def each(self, level: float) -> tuple[Floats, Floats]:
        """Of each fleet the share of its time beyond a level, and how often a month it crosses it; each has another of
        the tails that its rehearsal could have shown."""
        place, scale = (np.resize(each, len(self.levels.by)) for each in self.again)
        return self._with(level, place, scale)

    def _with(self, level: float, place: Floats | float, scale: Floats | float) -> tuple[Floats, Floats]:
        of = self.levels
        # what the plan's own fleet would have to show
        levels = of.center + (level - of.center - of.by) / of.wider
        beyond = 1.0 - np.searchsorted(self.values, levels, "right") / max(len(self.values), 1)
        low, high = self.rising
        begun = np.searchsorted(low, levels, "right") - np.searchsorted(high, levels, "right")
        rare = exceeded(levels, place, scale) * MONTH_H / self.tail.block_h
        return beyond, np.where(levels < place, begun / self.hours * MONTH_H, rare)

    def upper(self, level: float) -> float:
        """The upper end of a 95 % interval of `per_month`."""
        return float(np.quantile([_often(*self._with(level, *tail)) for tail in zip(*self.again, strict=True)], LEVEL))

    def level(self, per_month: float, least: float) -> float:
        """The lowest level from `least` on that is exceeded so often at most."""
        if self.per_month(least) <= per_month:
            return least
        of = self.levels
        place, scale = (float(each.max()) for each in self.again)
        highest = max(float(self.values[-1]), replace(self.tail, place=place, scale=scale).level(per_month / 2.0))
        low, high = least, float(np.max(of.center + of.by + of.wider * (highest - of.center)))
        return halved(low, high, lambda x: self.per_month(x) > per_month, HALVINGS)[1]


def _often(beyond: Floats, begun: Floats) -> float:
    """Alarms a month: what fires from the beginning does so once, and within a day it is the same alarm."""
    return float(np.mean(beyond + np.minimum(begun, MONTH_H / DAY_H)))


def healthy_of(lows: Sequence[Floats], tail: Tail, interval_s: float, levels: Levels, mean: float) -> Healthy:
    """lows: of healthy runs (E,), what an alert that needs several evaluations in a row would have to exceed. mean: of
    the signal itself."""
    known = [np.where(np.isnan(values), -np.inf, values) for values in lows]
    before, after = (np.concatenate([v[part] for v in known]) for part in (slice(None, -1), slice(1, None)))
    up = before < after
    every = np.concatenate(known)
    hours = len(every) * interval_s / 3600.0
    rising = np.sort(before[up]), np.sort(after[up])
    return Healthy(levels, np.sort(every[np.isfinite(every)]), rising, hours, tail, tail.again(), mean)
