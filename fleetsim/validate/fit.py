"""The one scalar of a case, found on its baseline arm and on nothing else.

Where a source publishes its phases, those of the trainer, of syncs and of hand-overs are inputs, and the scalar is
found on what is left, the waiting. Where it publishes a step alone, engines and trainer share the scalar (`both`): put
on one of them, the same step makes other arms come out up to twice as far off.
"""

from __future__ import annotations

from msgspec import Struct

from fleetsim.engine.slowdown import slowdown_of
from fleetsim.job.scalar import is_close, nearest, search, slope_of
from fleetsim.validate.arms import figures_of, scenario_of
from fleetsim.validate.case import REPLICATIONS, PublishedCase


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
    near = nearest(first, task.value)
    tried = search(lambda value: figure(value, REPLICATIONS), task.low, task.high, task.value, near, slope_of(first))
    best = nearest(tried, task.value)
    return Fitted(best, tried[best], is_close(tried[best], task.value), len({*first, *tried}))
