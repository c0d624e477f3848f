"""How often something rare happens, from a run in which it never happened, and how far that can be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fleetsim.alerts.rate import Floats
from fleetsim.distributions import poisson_most

MONTH_H = 730.0
EULER = 0.5772156649015329
RESAMPLES, SEED, LEVEL = 200, 20, 0.95


@dataclass(frozen=True, slots=True)
class Tail:
    """The highest values in blocks of time, and a Gumbel law fitted to them by L-moments (Hosking 1990).

    Assumption: beyond what was seen the tail falls off exponentially. For bounded signals (shares) that overstates it.
    maxima: (B,) in blocks of block_h hours.
    """

    maxima: Floats
    block_h: float
    place: float
    scale: float

    def per_month(self, level: float) -> float:
        """Blocks a month that exceed the level."""
        if self.scale <= 0:
            return 0.0 if level >= self.place else MONTH_H / self.block_h
        exponent = min(50.0, (self.place - level) / self.scale)
        return float(MONTH_H / self.block_h * -math.expm1(-math.exp(exponent)))

    def level(self, per_month: float) -> float:
        """The level that is exceeded so often."""
        if self.scale <= 0:
            return self.place
        share = min(per_month * self.block_h / MONTH_H, 0.999)
        return self.place - self.scale * math.log(-math.log1p(-share))

    def per_month_upper(self, level: float) -> float:
        """Upper end of a 95 % interval of `per_month`, from fits to resampled blocks."""
        random = np.random.default_rng(SEED)
        draws = random.choice(self.maxima, (RESAMPLES, len(self.maxima)))
        place, scale = gumbel(draws)
        rates = [Tail(self.maxima, self.block_h, p, s).per_month(level) for p, s in zip(place, scale, strict=True)]
        return float(np.quantile(rates, LEVEL))


def tail_of(runs: list[Floats], block: int, block_h: float) -> Tail:
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
