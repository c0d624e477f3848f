"""B against A: difference and ratio of two means with their intervals, paired or not, and Holm's correction.

Ratio of means by Fieller's theorem: the 95 % set of ratios rho for which the mean of b - rho a is not told from 0. It
contains 1 exactly when the t-interval of the difference contains 0, swapping A and B inverts it, and it is bounded
only where the mean of A is told from 0: elsewhere a ratio makes no sense.

Sources: E. C. Fieller, "Some problems in interval estimation", JRSS B 16 (1954); B. L. Welch, "The generalization of
Student's problem", Biometrika 34 (1947), and F. E. Satterthwaite, Biometrics Bulletin 2 (1946), for the degrees of
freedom; S. Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6 (1979).
Assumption: means over runs (or blocks of a window) are about normal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from fleetsim.distributions import student_below, student_quantile
from fleetsim.estimates import Estimate

LEVEL = 0.95
# Two runs that do the same differ in the last bits of some sums: such a difference is none.
LAST_BITS = 1e-9
# Welch's degrees of freedom depend on the ratio that they are used for: so often until they stand still.
_ROUNDS = 12


class Mean(Struct, frozen=True):
    """A mean, its standard error, and the degrees of freedom behind that; freedom 0: nothing is known of the error."""

    value: float
    error: float
    freedom: float

    def estimate(self) -> Estimate:
        """With its 95 % interval; both ends the mean where there is none."""
        half = quantile(self.freedom) * self.error if self.freedom > 0 and self.error > 0 else 0.0
        return Estimate(self.value, self.value - half, self.value + half)


class Contrast(Struct, frozen=True):
    """Two means. covariance: of the two, 0 unless paired. paired: of the same runs, both with the same freedom.

    residual_error, residual_covariance: of b - (B / A) a with itself (its standard error) and with a, None where A is
    0; from the runs themselves, because differences of variances would lose what pairs have in common.
    """

    a: Mean
    b: Mean
    paired: bool
    difference_error: float
    residual_error: float | None
    residual_covariance: float

    def freedom(self, rho: float = 1.0) -> float:
        """Of the error of b - rho a: the pairs' own, else by Welch and Satterthwaite."""
        if self.paired:
            return self.a.freedom
        va, vb = (rho * self.a.error) ** 2, self.b.error**2
        below = va**2 / self.a.freedom + vb**2 / self.b.freedom
        return (va + vb) ** 2 / below if below > 0 else self.a.freedom + self.b.freedom

    def difference(self) -> Estimate:
        """b - a with its 95 % interval."""
        return Mean(self.b.value - self.a.value, self.difference_error, self.freedom()).estimate()

    def ratio(self) -> Estimate | None:
        """b / a with Fieller's 95 % interval; None where the mean of a is not told from 0."""
        if self.a.value == 0.0 or self.residual_error is None:
            return None
        middle = self.b.value / self.a.value
        if self.residual_error <= LAST_BITS * abs(self.b.value):  # b is a, times so much, in every run
            return Estimate(middle, middle, middle)
        ends = []
        for side in (-1.0, 1.0):
            rho = middle
            for _ in range(1 if self.paired else _ROUNDS):
                away = self._away(quantile(self.freedom(rho)), side)
                if away is None:
                    return None
                rho = middle + away
            ends.append(rho)
        return Estimate(middle, min(ends), max(ends))

    def _away(self, t: float, side: float) -> float | None:
        """From the ratio to an end of Fieller's interval: a root of (a^2 - t^2 va) x^2 + 2 t^2 c x = t^2 ve."""
        assert self.residual_error is not None
        open_ = self.a.value**2 - (t * self.a.error) ** 2
        if open_ <= 0.0:
            return None
        half = t * t * self.residual_covariance
        root = math.sqrt(half * half + open_ * (t * self.residual_error) ** 2)
        return (side * root - half) / open_

    def beyond(self, rho: float, shift: float, above: bool) -> float:
        """One-sided p-value: how likely luck puts b so far above (below) rho a + shift, were it not."""
        distance = self.b.value - rho * self.a.value - shift
        error = self._error(rho)
        if error <= 0.0:
            return 0.5 if distance == 0.0 else float((distance > 0.0) != above)
        t = distance / error
        return student_below(self.freedom(rho), -t if above else t)

    def _error(self, rho: float) -> float:
        """Standard error of b - rho a."""
        if not self.paired:
            return math.hypot(self.b.error, rho * self.a.error)
        if self.residual_error is None:
            return self.b.error
        away = rho - self.b.value / self.a.value
        square = self.residual_error**2 - 2.0 * away * self.residual_covariance + (away * self.a.error) ** 2
        return math.sqrt(max(square, 0.0))


def quantile(freedom: float) -> float:
    """97.5 % quantile of Student's t for any degrees of freedom above 0."""
    return student_quantile(freedom, (1.0 + LEVEL) / 2.0)


def mean_of(values: Sequence[float]) -> Mean:
    """Of independent values, at least one."""
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return Mean(mean, 0.0, 0.0)
    return Mean(mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n), n - 1.0)


def paired(a: Sequence[float], b: Sequence[float]) -> Contrast:
    """Value r of both is from the same draws. At least two pairs."""
    n = len(a)
    b = [x if abs(y - x) <= LAST_BITS * max(abs(x), abs(y)) else y for x, y in zip(a, b, strict=True)]
    mean_a, mean_b = mean_of(a), mean_of(b)
    difference = mean_of([y - x for x, y in zip(a, b, strict=True)]).error
    if mean_a.value == 0.0:
        return Contrast(mean_a, mean_b, True, difference, None, 0.0)
    ratio = mean_b.value / mean_a.value
    rest = [y - ratio * x for x, y in zip(a, b, strict=True)]
    covariance = math.fsum((x - mean_a.value) * e for x, e in zip(a, rest, strict=True)) / (n - 1) / n
    return Contrast(mean_a, mean_b, True, difference, mean_of(rest).error, covariance)


def unpaired(a: Mean, b: Mean) -> Contrast:
    """Nothing in common. Both with freedom above 0."""
    if abs(b.value - a.value) <= LAST_BITS * max(abs(a.value), abs(b.value)):
        b = Mean(a.value, b.error, b.freedom)
    difference = math.hypot(a.error, b.error)
    if a.value == 0.0:
        return Contrast(a, b, False, difference, None, 0.0)
    ratio = b.value / a.value
    return Contrast(a, b, False, difference, math.hypot(b.error, ratio * a.error), -ratio * a.error**2)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values, adjusted for their number: below 0.05 with 5 % chance for any, were all hypotheses true."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, highest = [1.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted
