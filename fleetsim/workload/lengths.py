"""Drawing token lengths and latencies from the laws of a scenario, and what the laws promise on average.

Every law is used through its value at a standard-normal z (a Gaussian copula): a lognormal is exp(mu + sigma z), any
other law is its quantile function at P(Z <= z). So one path serves correlated and independent siblings, and the share
rho of the variance of z (for a lognormal: of the log-length) is what siblings have in common.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fleetsim.config.base import MAX_SECONDS, MAX_TOKENS
from fleetsim.config.scenario import Scenario, most_steps
from fleetsim.config.workload import (
    ConstantSeconds,
    ConstantTokens,
    Empirical,
    Gamma,
    Histogram,
    LatencySpec,
    LengthSpec,
    Lognormal,
)
from fleetsim.workload import normal
from fleetsim.workload.empirical import measured_values
from fleetsim.workload.normal import gamma_table, quantile

Spec = LengthSpec | LatencySpec
Floats = NDArray[np.float64]

_Z99 = normal.quantile(0.99)


# A law of measured values that is scaled becomes one of so many equally likely buckets.
_BUCKETS = 400
MOST_GROWTH = 1e9
# Half of what a scenario may hold: a product of the largest value is rounded.
_MOST = MAX_SECONDS / 2


def sample_lengths(
    spec: LengthSpec,
    rng: np.random.Generator,
    n: int,
    *,
    common: Floats | None = None,
    rho: float = 0.0,
    scale: float | Floats = 1.0,
    at_least: int | NDArray[np.int64] = 1,
) -> NDArray[np.int32]:
    """`n` lengths in tokens, int32, shape (n,): scaled, cut to the law's `max`, rounded, never below `at_least`.

    common: the group's standard-normal factor for each of the n samples (repeated for siblings), shape (n,).
    rho: share of the variance of z that `common` carries, 0 to 1. scale: multiplies the law before the cap, one number
    or shape (n,); so at_least. Takes exactly n normals from `rng` in order (none for a constant), so chunks of any size
    give the same draws. Raises InputError for an empirical file that cannot be read.
    """
    if isinstance(spec, ConstantTokens):
        values = np.broadcast_to(np.asarray(spec.value * scale, dtype=np.float64), (n,))
        cap = float(MAX_TOKENS)
    else:
        z = rng.standard_normal(n)
        if common is not None:
            z *= math.sqrt(1.0 - rho)
            z += math.sqrt(rho) * common
        values = values_at(spec, z)
        values *= scale
        cap = float(MAX_TOKENS) if spec.max is None else min(math.floor(spec.max), float(MAX_TOKENS))
    return np.clip(np.rint(values), at_least, np.maximum(cap, at_least)).astype(np.int32)


def sample_latencies(spec: LatencySpec, rng: np.random.Generator, n: int) -> Floats:
    """`n` latencies in seconds, float64 >= 0, shape (n,), cut to the law's `max`. Draws as `sample_lengths` does."""
    if isinstance(spec, ConstantSeconds):
        return np.full(n, spec.value)
    values = values_at(spec, rng.standard_normal(n))
    return values if spec.max is None else np.minimum(values, spec.max)


def values_at(spec: Spec, z: Floats) -> Floats:
    """The uncapped law's value at each standard-normal z, a new float64 array: its quantile at P(Z <= z)."""
    if isinstance(spec, (ConstantTokens, ConstantSeconds)):
        return np.full(z.shape, float(spec.value))
    if isinstance(spec, Lognormal):
        mu, sigma = lognormal_parameters(spec)
        x = sigma * z
        x += mu
        return np.exp(x, out=x)
    if isinstance(spec, Gamma):
        return gamma_table(1.0 / spec.cv**2).values_at(z) * (spec.mean * spec.cv**2)
    u = normal.cdf_array(z)
    if isinstance(spec, Empirical):
        measured = measured_values(spec)
        return measured[(u * len(measured)).astype(np.int64)]
    lower, width, before, probability = _buckets(spec)
    bucket = np.searchsorted(before, u, side="right") - 1
    return np.asarray(lower[bucket] + np.minimum((u - before[bucket]) / probability[bucket], 1.0) * width[bucket])


def lognormal_parameters(spec: Lognormal) -> tuple[float, float]:
    """mu and sigma of the logarithm: from mean and cv, sigma^2 = ln(1 + cv^2); from median and p99, by quantiles."""
    if spec.mean is not None and spec.cv is not None:
        variance = math.log1p(spec.cv**2)
        return math.log(spec.mean) - variance / 2.0, math.sqrt(variance)
    assert spec.median is not None  # the model holds exactly one of the two pairs
    assert spec.p99 is not None
    return math.log(spec.median), math.log(spec.p99 / spec.median) / _Z99


@lru_cache(maxsize=64)
def _buckets(spec: Histogram) -> tuple[Floats, Floats, Floats, Floats]:
    """Of the buckets that hold something: lower bound, width, probability below, probability. Each shape (buckets,)."""
    upper, count = np.array(spec.le), np.array(spec.count)
    lower = np.concatenate(([0.0], upper[:-1]))
    held = count > 0
    probability = count[held] / count.sum()
    before = np.concatenate(([0.0], np.cumsum(probability)[:-1]))
    return lower[held], (upper - lower)[held], before, probability


def limited_mean(spec: Spec, cap: float) -> float:
    """E[min(X, cap)] of the uncapped law X; cap may be infinite.

    Lognormal: e^(mu + s^2/2) P(Z <= d - s) + cap P(Z > d) with d = (ln cap - mu) / s. Histogram and empirical: exact
    sums. Gamma: Gauss-Legendre, about 1e-6 relative.
    """
    if cap <= 0:
        return cap
    if isinstance(spec, (ConstantTokens, ConstantSeconds)):
        return min(float(spec.value), cap)
    if isinstance(spec, Lognormal):
        mu, sigma = lognormal_parameters(spec)
        mean = math.exp(mu + sigma**2 / 2.0)
        if math.isinf(cap):
            return mean
        d = (math.log(cap) - mu) / sigma
        return mean * normal.cdf(d - sigma) + cap * normal.cdf(-d)
    if isinstance(spec, Gamma):
        scale = spec.mean * spec.cv**2
        return scale * gamma_table(1.0 / spec.cv**2).limited_mean(cap / scale)
    if isinstance(spec, Empirical):
        return float(np.minimum(measured_values(spec), cap).mean())
    lower, width, _, probability = _buckets(spec)
    inside = np.clip(cap - lower, 0.0, width)  # how far the cap reaches into each bucket
    mean_of_bucket = np.where(cap <= lower, cap, lower + inside - inside**2 / (2.0 * width))
    return float(np.sum(probability * mean_of_bucket))


def mean_length(spec: Spec, *, scale: float = 1.0, at_least: float = 0.0) -> float:
    """Mean of the law times `scale`, cut to its `max` and raised to `at_least`, in tokens or seconds.

    Rounding to whole tokens is left out: it moves the mean by well under a token.
    """
    cap = math.inf if isinstance(spec, (ConstantTokens, ConstantSeconds)) or spec.max is None else spec.max
    if scale == 0.0:
        return at_least
    capped = scale * limited_mean(spec, cap / scale)
    if at_least <= 0.0:
        return capped
    return at_least + max(0.0, capped - scale * limited_mean(spec, at_least / scale))


def quantile_length(spec: Spec, q: float) -> float:
    """The q-quantile (0 to 1) of the capped law, in tokens or seconds; q = 1 is the cap, or a one-in-10^16 value."""
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"q must be between 0 and 1, got {q}")
    value = float(values_at(spec, np.array([normal.quantile(q)]))[0])
    cap = None if isinstance(spec, (ConstantTokens, ConstantSeconds)) else spec.max
    return value if cap is None else min(value, cap)


def typical_lengths(spec: Spec, n: int) -> Floats:
    """n equally likely lengths of the capped law, ascending: its quantiles at the middles of n equal shares."""
    values = values_at(spec, _middles(n))
    cap = None if isinstance(spec, (ConstantTokens, ConstantSeconds)) else spec.max
    return values if cap is None else np.minimum(values, cap)


@lru_cache(maxsize=8)
def _middles(n: int) -> Floats:
    """Standard-normal z at the middles of n equal shares."""
    return np.array([normal.quantile((i + 0.5) / n) for i in range(n)])


def growth_by_the_end(scenario: Scenario) -> float:
    """What the last step's lengths are multiplied by, before the cap: (1 + drift)^(steps - 1)."""
    steps = most_steps(scenario) - 1
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
    """Buckets between the quantiles of measured values."""
    middles = np.array([quantile((i + 0.5) / _BUCKETS) for i in range(_BUCKETS)])
    return _buckets_of(np.minimum(values_at(law, middles) * factor, _MOST), law.max)


def law_of_values(values: Floats) -> Histogram:
    """The law of values of which each is as likely as any other."""
    return _buckets_of(np.quantile(values, (np.arange(_BUCKETS) + 0.5) / _BUCKETS), None)


def _buckets_of(values: Floats, cap: float | None) -> Histogram:
    """A law of equally likely values; equal ones are told apart by a millionth."""
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
    return Histogram(le=tuple(le), count=tuple(count), max=cap)
