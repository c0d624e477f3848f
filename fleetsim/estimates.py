"""Means with confidence intervals over independent replications."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

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
