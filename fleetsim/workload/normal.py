"""The standard normal distribution, and the gamma law as a table over it: quantiles and means.

Without scipy, whose import alone costs half a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from statistics import NormalDist

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

_REACH = 9.0
_POINTS = 2**14 + 1


def cdf(z: float) -> float:
    """P(Z <= z)."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def quantile(q: float) -> float:
    """z with P(Z <= z) = q; q = 0 and 1 give the ends of what double precision can tell from 0 and 1 (about 8.3)."""
    return NormalDist().inv_cdf(min(max(q, 5e-17), 1.0 - 1.2e-16))


@cache
def _table() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    z = np.linspace(-_REACH, _REACH, _POINTS)
    return z, np.array([cdf(float(x)) for x in z])


def cdf_array(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(Z <= z) elementwise, in [0, 1), by linear interpolation.

    The error is at most h^2/8 * max|phi'| = 4e-8 (h = 18/16384), far below what a sample of lengths can show.
    """
    return np.minimum(np.interp(z, *_table()), np.nextafter(1.0, 0.0))


_CELLS = 4096
_TINY = math.log(1e-18)
# Values below e^-40 of the scale are zero for any purpose here; above it the lower tail is a power law.
_LOWEST = -40.0


class GammaTable(Struct, frozen=True):
    """Gamma with shape k and scale 1.

    z, log_x: the log-quantile at standard-normal z, increasing. nodes, weights: Gauss-Legendre points of the law and
    their probabilities, for expectations.
    """

    z: NDArray[np.float64]
    log_x: NDArray[np.float64]
    nodes: NDArray[np.float64]
    weights: NDArray[np.float64]

    def values_at(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        """x with P(X <= x) = P(Z <= z), elementwise."""
        x: NDArray[np.float64] = np.exp(np.interp(z, self.z, self.log_x))
        return x

    def limited_mean(self, cap: float) -> float:
        """E[min(X, cap)]."""
        return float(np.sum(self.weights * np.minimum(self.nodes, cap)))


@lru_cache(maxsize=64)
def gamma_table(shape: float) -> GammaTable:
    """The table of shape k = 1 / cv^2, by Gauss-Legendre integration of the density of t = ln x, cell by cell.

    density(t) = exp(k t - e^t) / Gamma(k). Tails are summed from their own end, so that neither loses digits.
    """
    log_gamma = math.lgamma(shape)

    def log_density(t: float) -> float:
        return shape * t - math.exp(t) - log_gamma

    # F(x) <= x^k / Gamma(k + 1), and the density falls off double-exponentially above ln k: both bracket the search.
    middle = math.log(shape)
    lowest = min(middle, (_TINY + math.lgamma(shape + 1)) / shape) - 1.0
    low = max(_LOWEST, _root(log_density, lowest, middle))
    high = _root(log_density, max(middle, 0.0) + 10.0, middle)
    edges = np.linspace(low, high, _CELLS + 1)
    points, point_weights = np.polynomial.legendre.leggauss(5)
    half = (edges[1] - edges[0]) / 2.0
    t = (edges[:-1, None] + half) + half * points[None, :]
    mass = np.exp(shape * t - np.exp(t) - log_gamma) * (point_weights * half)[None, :]
    # F(x) <= x^k e^-x / Gamma(k + 1) / (1 - x / (k + 1)), exact as x -> 0: all that lies below the first edge.
    x_low = math.exp(low)
    below = math.exp(shape * low - x_low - math.lgamma(shape + 1)) / (1.0 - x_low / (shape + 1.0))
    cells = mass.sum(axis=1)
    lower = below + np.concatenate(([0.0], np.cumsum(cells)))
    upper = np.concatenate((np.cumsum(cells[::-1])[::-1], [0.0]))
    normal = NormalDist()
    z = np.array(
        [
            normal.inv_cdf(p) if p < 0.5 else -normal.inv_cdf(q) if q > 0.0 else math.inf
            for p, q in zip(lower.tolist(), upper.tolist(), strict=True)
        ]
    )
    keep = np.isfinite(z)
    keep[1:] &= np.diff(z) > 0
    nodes = np.append(np.exp(t).ravel(), 0.0)
    return GammaTable(z[keep], edges[keep], nodes, np.append(mass.ravel(), below))


def _root(f: Callable[[float], float], outside: float, inside: float) -> float:
    """Where f crosses _TINY between `outside` (below it) and `inside` (above it), by bisection."""
    for _ in range(80):
        between = 0.5 * (outside + inside)
        if f(between) < _TINY:
            outside = between
        else:
            inside = between
    return outside
