"""Student's t, the binomial law and Poisson's, as far as intervals and tests of significance need them.

By the regularized incomplete beta function's continued fraction (W. H. Press et al., Numerical Recipes, section 6.4)
and by sums; exact to 1e-10 of the value. scipy has them, too, and takes more disk than all else of fleetsim.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

_TINY = 1e-300


def halved(low: float, high: float, below: Callable[[float], bool], times: int = 60) -> tuple[float, float]:
    """The ends of a range that was halved so often about the place at which `below` ends."""
    for _ in range(times):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if below(middle) else (low, middle)
    return low, high


def _stirling(x: float) -> float:
    """What log(gamma(x)) has beyond (x - 1/2) log x - x + log(2 pi) / 2, for x of 30 at least."""
    square = 1.0 / (x * x)
    return (1.0 / 12 - square * (1.0 / 360 - square * (1.0 / 1260 - square / 1680))) / x


def _log_beta(a: float, b: float) -> float:
    """log B(a, b); of large ones without the difference of large logarithms."""
    a, b = max(a, b), min(a, b)
    if a < 30.0:
        return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    rest = _stirling(a) - _stirling(a + b) - (a - 0.5) * math.log1p(b / a)
    return rest + math.lgamma(b) - b * math.log(a + b) + b


def incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b), the regularized incomplete beta function, for a, b > 0 and x in [0, 1]."""
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - incomplete_beta(b, a, 1.0 - x)
    front = math.exp(a * math.log(x) + b * math.log1p(-x) - _log_beta(a, b)) / a
    d = 1.0 / (1.0 - (a + b) * x / (a + 1.0) or _TINY)
    c, value = 1.0, d
    for m in range(1, 20_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / (1.0 + term * d or _TINY)
            c = 1.0 + term / c or _TINY
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return front * value


def student_below(freedom: float, t: float) -> float:
    """P(T <= t) of Student's t; freedom above 0."""
    if t == 0.0:
        return 0.5
    square = t * t
    if square < 1.0:  # what is inside is known better than what is beyond
        inside = incomplete_beta(0.5, freedom / 2, square / (freedom + square))
        return 0.5 + math.copysign(inside / 2, t)
    beyond = incomplete_beta(freedom / 2, 0.5, freedom / (freedom + square)) / 2
    return beyond if t < 0.0 else 1.0 - beyond


@cache
def student_quantile(freedom: float, share: float) -> float:
    """t with P(T <= t) = share, for a share above 1/2 and freedom above 0; inf beyond 1e150."""
    return math.exp(_root(lambda u: 1.0 - share - student_below(freedom, -math.exp(u)), -20.0, 350.0))


def binomial_above(k: int, n: int, p: float) -> float:
    """P(X > k) of n trials that succeed with probability p; 0 <= k < n."""
    return incomplete_beta(k + 1.0, float(n - k), p)


def poisson_below(k: int, mean: float) -> float:
    """P(X <= k) of a Poisson law, for k of 0 at least and a mean above 0: by the sum of the smaller side."""
    up = mean <= k
    n = k + 1 if up else k
    term = total = math.exp(n * math.log(mean) - mean - math.lgamma(n + 1.0))
    while n > 0 and term > 1e-17 * total:
        term *= mean / (n + 1) if up else n / mean
        n += 1 if up else -1
        total += term
    return 1.0 - total if up else total


def poisson_most(seen: int, share: float) -> float:
    """The mean of a Poisson law of which `seen` or fewer come with probability 1 - share."""
    high = seen + 10.0 + 10.0 * math.sqrt(seen + 1.0)
    return _root(lambda mean: (1.0 - share) - poisson_below(seen, mean), 1e-9, high)


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that rises passes 0, to the last bits: by bisection."""
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if rising(middle) > 0.0 else (middle, high)
    return middle
