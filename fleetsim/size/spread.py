"""The range around an answer: what the draws of all that is uncertain say of its count, its step and its cost.

What an input does alone is looked at over the whole of its law, and told at the two ends of its interval. The surface
(`size/doubt.py`) says by how much a metric moves, the mean of all runs from where.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist

import numpy as np
from msgspec import Struct

from fleetsim.job.input_moves import METRICS, InputPart, IntervalEnd
from fleetsim.job.trials import Trial
from fleetsim.job.uncertainty import CONFIDENCE, Z80, step_off
from fleetsim.search.objective import usd_per_h
from fleetsim.size.doubt import DRAWS, CountDoubt, middle
from fleetsim.size.surface import Factors, Floats
from fleetsim.workload.streams import stream

# Cases of one input alone: the middles of as many equal shares of its law.
_ALONE = 99
# A range whose ends are this far apart is wide.
_WIDE = 2.0
_IDLE = "trainer_idle_fraction"


class CountEnd(IntervalEnd, frozen=True):
    """instances: what would be recommended at this end, and held: that this holds all targets."""

    instances: int
    held: bool


class CountSpread(Struct, frozen=True):
    """instances: the counts that are best in `confidence` of all cases, from, to. held: whether some count holds the
    targets in so many. metrics: name -> from, to of the recommended fleet, with the simulation's own noise. parts: the
    inputs, the dearest first. expected_loss: what staying with the recommended count costs on average, as a share.
    least_expected_loss_instances: the count for which that is least. widest: the input that alone moves the count most,
    None where the range is one count.
    """

    confidence: float
    instances: tuple[int, int]
    held: bool
    metrics: Mapping[str, tuple[float, float]]
    parts: tuple[InputPart[CountEnd], ...]
    expected_loss: float
    least_expected_loss_instances: int
    widest: str | None

    @property
    def wide(self) -> bool:
        """Whether the ends are so far apart that measuring comes before buying."""
        low, high = self.instances
        return high >= _WIDE * low and high - low > 1


def spread_of(doubt: CountDoubt | None, chosen: Trial) -> CountSpread | None:
    """The range around the answer; None where nothing is in doubt. chosen: the recommended fleet."""
    if doubt is None:
        return None
    found = [_part(doubt, i, chosen) for i in range(len(doubt.laws))]
    n, (low, high) = chosen.instances, doubt.counts()
    return CountSpread(
        confidence=CONFIDENCE,
        instances=(min(low, n), max(high, n)),
        held=doubt.held,
        metrics=_metrics(doubt, chosen),
        # where nothing is at stake in instances, what moves the step most comes first
        parts=tuple(sorted((p for _, p in found), key=lambda p: (-p.usd_per_h, p.step_s[0] - p.step_s[1]))),
        expected_loss=doubt.cases.loss(n),
        least_expected_loss_instances=doubt.least_expected_loss,
        widest=max(found, key=lambda one: (one[0], one[1].usd_per_h))[1].what if low != high else None,
    )


def _part(doubt: CountDoubt, i: int, chosen: Trial) -> tuple[float, InputPart[CountEnd]]:
    """How far an input alone moves the logarithm of the count, and what it does to the answer."""
    uncertain, law = doubt.laws[i]
    ends = _alone(doubt, i, [-Z80, Z80])
    cases, moved = doubt.judged(ends), {name: _moved(doubt, name, chosen, ends) for name in METRICS}
    low, high = (
        CountEnd(
            factor,
            {name: float(values[k]) for name, values in moved.items()},
            int(cases.best[k]),
            bool(cases.held[k]) or not doubt.targets,
        )
        for k, factor in enumerate((law.low, law.high))
    )
    middles = [NormalDist().inv_cdf((k + 0.5) / _ALONE) for k in range(_ALONE)]
    alone = doubt.judged(_alone(doubt, i, middles))
    stake = alone.loss(chosen.instances) * usd_per_h(doubt.scenario, chosen.instances)
    part = InputPart(
        uncertain.what, uncertain.path, law.source, uncertain.settled_by(doubt.scenario), low, high, stake, law.name
    )
    return float(np.log(alone.best).std()), part


def _alone(doubt: CountDoubt, i: int, z: list[float]) -> Factors:
    """Cases in which one input is off, all others as they are likeliest."""
    all_z = np.zeros((len(doubt.laws), len(z)))
    all_z[i] = z
    return doubt.factors(all_z)


def _moved(doubt: CountDoubt, name: str, chosen: Trial, f: Factors) -> Floats:
    """A metric of the recommended fleet in some cases."""
    n, mean, likeliest = chosen.instances, chosen.mean(name), doubt.factors(np.zeros((len(doubt.laws), 1)))
    if name == _IDLE:
        by = doubt.surface.idle(n, f) - doubt.surface.idle(n, likeliest)
        return np.clip(mean + by, 0.0, 1.0)
    return mean * doubt.surface.step_s(n, f) / doubt.surface.step_s(n, likeliest)


def _metrics(doubt: CountDoubt, chosen: Trial) -> dict[str, tuple[float, float]]:
    """name -> from, to of each metric in CONFIDENCE of the draws, with what a step is off by beside the
    inputs, and the simulation's own noise."""
    z = stream(0, 0, "rerun").normal(size=DRAWS)
    less, more = step_off(doubt.scenario)
    again = 1.0 + np.where(z > 0, more, less) * z / Z80
    found = {}
    for name in METRICS:
        e, values = chosen.estimates[name], _moved(doubt, name, chosen, doubt.draws)
        values = values if name == _IDLE else values * again
        low, high = middle(values, CONFIDENCE)
        down = math.hypot(max(0.0, e.mean - low), e.mean - e.ci_low)
        up = math.hypot(max(0.0, high - e.mean), e.ci_high - e.mean)
        found[name] = max(0.0, e.mean - down), e.mean + up
    return found
