"""The one scalar of a case, found on its baseline arm and on nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fleetsim.validate.arms import figures_of
from fleetsim.validate.case import Case

# The simulated figure is a step function of the scalar (lengths are whole tokens): closer than this is luck.
_CLOSE = 0.002
_MOST_RUNS = 14


@dataclass(frozen=True, slots=True)
class Fitted:
    """value: the scalar. figure: what the baseline comes to with it. met: within 0.2 % of the published one."""

    value: float
    figure: float
    met: bool
    runs: int


def fit(case: Case) -> Fitted | None:
    """The scalar at which the simulated baseline shows the published figure; None where nothing is fitted.

    Bisection on the logarithm between `fit.low` and `fit.high`: every scalar makes its figure grow or shrink all the
    way. Where no value in between meets the figure, the end that is nearer, and `met` is false.
    """
    if case.fit is None:
        return None
    task = case.fit

    def figure(arm: str, value: float) -> float:
        return float(getattr(figures_of(case, case.arm(arm), value), task.figure))

    def at(value: float) -> float:
        return figure(task.arm, value) / (figure(task.against, value) if task.against else 1.0)

    ends = [task.low, task.high]
    values = [at(end) for end in ends]
    runs = 2
    if not min(values) <= task.value <= max(values):
        near = min((0, 1), key=lambda i: abs(values[i] - task.value))
        return Fitted(ends[near], values[near], _is_close(values[near], task.value), runs)
    grows = values[1] >= values[0]
    low, high = (math.log(end) for end in ends)
    best = min(zip(ends, values, strict=True), key=lambda pair: abs(pair[1] - task.value))
    while runs < _MOST_RUNS and not _is_close(best[1], task.value):
        middle = (low + high) / 2
        value = at(math.exp(middle))
        runs += 1
        if abs(value - task.value) < abs(best[1] - task.value):
            best = (math.exp(middle), value)
        if (value < task.value) == grows:
            low = middle
        else:
            high = middle
    return Fitted(best[0], best[1], _is_close(best[1], task.value), runs)


def _is_close(simulated: float, published: float) -> bool:
    return abs(simulated / published - 1) <= _CLOSE
