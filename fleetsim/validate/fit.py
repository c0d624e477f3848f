"""The one scalar of a case, found on its baseline arm and on nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from fleetsim.validate.arms import figures_of
from fleetsim.validate.assumptions import REPLICATIONS
from fleetsim.validate.case import Case

# The simulated figure is a step function of the scalar (lengths are whole tokens): closer than this is luck.
_CLOSE = 0.002
# Simulated figures of a search at most; searches; and how far around what the first one found the next ones look.
_MOST, _ROUNDS, _AROUND = 14, 4, 1.15


@dataclass(frozen=True, slots=True)
class Fitted:
    """value: the scalar. figure: what the baseline comes to with it. met: within 0.2 % of the published one.

    runs: simulations that it took.
    """

    value: float
    figure: float
    met: bool
    runs: int


def fit(case: Case) -> Fitted | None:
    """The scalar at which the simulated baseline shows the published figure; None where nothing is fitted.

    One replication is searched; all of them together lie about its curve, higher or lower by what they are at the
    value found, and it is searched again for a figure that is off by as much. Where no value between `fit.low` and
    `fit.high` meets the figure, the end that is nearer, and `met` is false.
    """
    if case.fit is None:
        return None
    task, runs = case.fit, 0

    @cache
    def figure(value: float, replications: int) -> float:
        nonlocal runs
        runs += replications * (2 if task.against else 1)

        def of(arm: str) -> float:
            return float(getattr(figures_of(case, case.arm(arm), value, replications), task.figure))

        return of(task.arm) / (of(task.against) if task.against else 1.0)

    wanted, tried = task.value, []
    low, high = task.low, task.high
    for _ in range(_ROUNDS):
        value = search(lambda value: figure(value, 1), low, high, wanted)
        tried.append(value)
        if _is_close(figure(value, REPLICATIONS), task.value):
            break
        wanted = task.value - (figure(value, REPLICATIONS) - figure(value, 1))
        low, high = max(task.low, value / _AROUND), min(task.high, value * _AROUND)
    best = min(tried, key=lambda value: abs(figure(value, REPLICATIONS) - task.value))
    found = figure(best, REPLICATIONS)
    return Fitted(best, found, _is_close(found, task.value), runs)


def search(at: Callable[[float], float], low: float, high: float, wanted: float) -> float:
    """Where a monotone figure is the wanted one, by false position on the logarithm (Illinois).

    The nearer end where no value in between meets the figure.
    """
    tried: dict[float, float] = {}

    def miss(log: float) -> float:
        value = math.exp(log)
        tried[value] = at(value) - wanted
        return tried[value]

    def nearest() -> float:
        return min(tried, key=lambda value: abs(tried[value]))

    a, b = math.log(low), math.log(high)
    miss_a, miss_b = miss(a), miss(b)
    while miss_a * miss_b < 0 and len(tried) < _MOST and abs(tried[nearest()]) > _CLOSE * abs(wanted):
        # where the line between the ends meets zero, but never nearer to an end than a hundredth of the way
        share = min(0.99, max(0.01, miss_a / (miss_a - miss_b)))
        middle = a + share * (b - a)
        here = miss(middle)
        if here * miss_b < 0:
            a, miss_a, b, miss_b = b, miss_b, middle, here
        else:
            b, miss_b, miss_a = middle, here, miss_a / 2  # the end that stays counts half, so that both move
    return nearest()


def _is_close(simulated: float, published: float) -> bool:
    return abs(simulated / published - 1) <= _CLOSE
