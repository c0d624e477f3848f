"""The one scalar of a case, found on its baseline arm and on nothing else.

Where a source publishes its phases, those of the trainer, of syncs and of hand-overs are inputs, and the scalar is
found on what is left, the waiting. Where it publishes a step alone, engines and trainer share the scalar (`both`): put
on one of them, the same step makes other arms come out up to twice as far off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from msgspec import Struct

from fleetsim.engine.slowdown import slowdown_of
from fleetsim.validate.arms import figures_of, scenario_of
from fleetsim.validate.case import REPLICATIONS, PublishedCase

# The simulated figure is a step function of the scalar (lengths are whole tokens): closer than this is luck.
_CLOSE = 0.002
# Values of a search at most, and the least part of the way to an end of its bracket that a step leaves.
_MOST, _MARGIN = 20, 0.01
# No figure is 0 as a logarithm.
_LEAST = 1e-9


class Fitted(Struct, frozen=True):
    """value: the scalar. figure: what the baseline comes to with it. met: within 0.2 % of the published one.

    tried: values that were simulated to find it.
    """

    value: float
    figure: float
    met: bool
    tried: int


def fit(case: PublishedCase) -> Fitted | None:
    """The scalar at which the simulated baseline shows the published figure; None where nothing is fitted.

    One replication is searched first; all together lie about its curve, so their search starts where it ended. Where no
    value between `fit.low` and `fit.high` meets the figure, the end that is nearer, and `met` is false.
    """
    if case.fit is None:
        return None
    task = case.fit

    def figure(value: float, most: int) -> float:
        def of(arm: str) -> float:
            own = case.arm(arm)
            return float(getattr(figures_of(case, own, scenario_of(case, own, value), most), task.figure))

        return of(task.arm) / (of(task.against) if task.against else 1.0)

    start = {
        "decode_slowdown": slowdown_of(case.framework),
        "mean_tokens": case.lengths.mean,
        "trainer_seconds": 1.0,
        "both": 1.0,
    }[task.scalar]
    first = search(lambda value: figure(value, 1), task.low, task.high, task.value, start)
    near = min(first, key=lambda value: abs(first[value] - task.value))
    tried = search(lambda value: figure(value, REPLICATIONS), task.low, task.high, task.value, near, _slope(first))
    best = min(tried, key=lambda value: abs(tried[value] - task.value))
    return Fitted(best, tried[best], _is_close(tried[best], task.value), len({*first, *tried}))


def _slope(tried: Mapping[float, float]) -> float:
    """Of the last two values, both as logarithms; 1 where that is no slope."""
    (a, at_a), (b, at_b) = (*tried.items(),)[-2:] if len(tried) > 1 else ((1.0, 1.0), (1.0, 1.0))
    steep = math.log(b / a) and math.log(max(at_b, _LEAST) / max(at_a, _LEAST)) / math.log(b / a)
    return steep or 1.0


def search(
    at: Callable[[float], float], low: float, high: float, wanted: float, start: float, slope: float = 1.0
) -> Mapping[float, float]:
    """Values between `low` and `high` and a monotone figure at each, until one is the wanted one.

    Secants of logarithms, from `start` and a first `slope`, each at least twice as long as the last; once two values
    have the wanted figure between them, no step leaves these, and one that took less than half off is followed by their
    middle. Where no value meets the figure, the end that is nearer is among them.
    """
    tried: dict[float, float] = {}
    sides: dict[bool, tuple[float, float]] = {}  # of figures too small and too large: the least miss, and where
    ends = math.log(low), math.log(high)
    here, last, wide = min(ends[1], max(ends[0], math.log(start))), None, math.inf
    while len(tried) < _MOST:
        tried[math.exp(here)] = found = at(math.exp(here))
        if _is_close(found, wanted):
            break
        miss = math.log(max(found, _LEAST) / wanted)
        if abs(miss) <= sides.get(miss > 0, (math.inf,))[0]:
            sides[miss > 0] = abs(miss), here
        if last is not None and miss != last[1]:
            slope = (miss - last[1]) / (here - last[0])
        step = -miss / slope
        if len(sides) == 1 and last is not None:  # along a flat figure a secant creeps
            step = math.copysign(max(abs(step), 2 * abs(here - last[0])), step)
        last = here, miss
        there = here + step
        if len(sides) == 2:
            one, other = sides[True][1], sides[False][1]
            ends = min(one, other), max(one, other)
            now = ends[1] - ends[0]
            inside = ends[0] + _MARGIN * now <= there <= ends[1] - _MARGIN * now
            # A secant that has just taken less than half off creeps along a flat figure.
            there = there if inside and now <= wide / 2 else sum(ends) / 2
            wide = now
        there = min(ends[1], max(ends[0], there))
        if math.exp(there) in tried:  # an end, and the figure lies beyond it, or the slope was of the wrong sign
            there = sum(ends) - there
        if math.exp(there) in tried:
            break
        here = there
    return tried


def _is_close(simulated: float, published: float) -> bool:
    return abs(simulated / published - 1) <= _CLOSE
