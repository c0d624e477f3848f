"""Means with confidence intervals over independent replications, of a figure or of how two scenarios differ.

Under the same draws replication r of both saw the same groups, latencies and failures. The ratio of a metric is taken
for each r, so that luck cancels out: the interval of these ratios is far narrower than those of the two metrics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

from msgspec import Struct


class Estimate(Struct, frozen=True):
    """Mean over replications with its 95 % confidence interval (both ends the mean for one replication)."""

    mean: float
    ci_low: float
    ci_high: float


class Ranged(Struct, frozen=True):
    """A figure, and between what it lies in eight of ten cases."""

    value: float
    low: float
    high: float

    def holds(self, found: float) -> bool:
        """Whether what was found lies within."""
        return self.low <= found <= self.high


# Two-sided 95 % quantiles of Student's t, degrees of freedom 1..30 (any table); importing scipy for them costs more
# than the rest of a `size`.
_T95 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip


def t_quantile(freedom: int) -> float:
    """97.5 % quantile of Student's t; above 30 degrees of freedom by the Cornish-Fisher expansion (error < 1e-4)."""
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    z = NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and t-interval of independent values, at least one."""
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean, mean, mean)
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n)
    half = t_quantile(n - 1) * spread
    return Estimate(mean, mean - half, mean + half)


Runs = Sequence[Mapping[str, Any]]

# Differences as small as this come from rounding.
NEGLIGIBLE = 0.0005
# Without replications there is no interval: then a difference has to be this large to be called one.
WITHOUT_INTERVAL = 0.02


def ratio_of(these: Runs, those: Runs, metric: str) -> Estimate:
    """Mean and interval of metric(these, r) / metric(those, r) over the replications that both have; flat metrics.

    A metric that is zero on both sides has not changed.
    """
    pairs = [(float(a[metric]), float(b[metric])) for a, b in zip(these, those, strict=False)]
    return estimate([1.0 if a == b else a / b if b else float("inf") for a, b in pairs])


def differs(ratio: Estimate, replications: int) -> bool:
    """Whether a ratio of paired runs is another than 1: its 95 % interval leaves 1 out, and the change matters."""
    change = abs(ratio.mean - 1.0)
    if replications < 2:
        return change > WITHOUT_INTERVAL
    return change > NEGLIGIBLE and not ratio.ci_low <= 1.0 <= ratio.ci_high
