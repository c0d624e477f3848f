"""Lengths that grow from step to step: by how much over a run, and the law that they have then."""

from __future__ import annotations

import numpy as np

from fleetsim.config.base import MAX_SECONDS, MAX_TOKENS
from fleetsim.config.lengths import ConstantTokens, Empirical, Gamma, Histogram, LengthSpec, Lognormal
from fleetsim.config.scenario import Scenario
from fleetsim.workload.lengths import values_at
from fleetsim.workload.normal import quantile

# A law of measured values that is scaled becomes one of so many equally likely buckets.
_BUCKETS = 400
MOST_GROWTH = 1e9
# Half of what a scenario may hold: a product of the largest value is rounded.
_MOST = MAX_SECONDS / 2


def growth_by_the_end(scenario: Scenario) -> float:
    """What the last step's lengths are multiplied by, before the cap: (1 + drift)^(steps - 1)."""
    steps = scenario.run.steps - 1
    drift = scenario.workload.length_drift_per_step
    with np.errstate(over="ignore"):
        return float(min(np.power(1.0 + drift, float(steps)), MOST_GROWTH))


def scaled_law(law: LengthSpec, factor: float) -> LengthSpec:
    """The law of values `factor` times as long before the cap; none grows beyond what a scenario may hold."""
    if isinstance(law, ConstantTokens):
        return ConstantTokens(value=min(round(law.value * factor), MAX_TOKENS))
    if isinstance(law, Lognormal):
        largest = max(x for x in (law.mean, law.p99) if x is not None)
        by = min(factor, _MOST / largest)
        grown = {n: by * x for n in ("mean", "median", "p99") if (x := getattr(law, n)) is not None}
        return law.model_copy(update=grown)
    if isinstance(law, Gamma):
        return law.model_copy(update={"mean": min(law.mean * factor, _MOST)})
    if isinstance(law, Histogram):
        by = min(factor, _MOST / law.le[-1])
        return law.model_copy(update={"le": tuple(by * bound for bound in law.le)})
    return _of_measured(law, factor)


def _of_measured(law: Empirical, factor: float) -> Histogram:
    """Buckets between the quantiles of measured values; equal ones are told apart by a millionth."""
    middles = np.array([quantile((i + 0.5) / _BUCKETS) for i in range(_BUCKETS)])
    values = np.minimum(values_at(law, middles) * factor, _MOST)
    bounds, counts = np.unique(np.maximum(values, 1e-6), return_counts=True)
    le: list[float] = []
    count: list[float] = []
    for bound, held in zip(bounds.tolist(), counts.tolist(), strict=True):
        below = bound * (1.0 - 1e-6)
        if not le or below > le[-1]:
            le.append(below)
            count.append(0.0)
        le.append(bound)
        count.append(float(held))
    return Histogram(le=tuple(le), count=tuple(count), max=law.max)
