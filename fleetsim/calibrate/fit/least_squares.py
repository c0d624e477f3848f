"""Weighted non-negative least squares from sums of products, one set per load.

Once the rows are summed up per load, folds, subsets of knots and resampled loads cost nothing more than small matrices.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import nnls

from fleetsim.dataclass import dataclass

Array = NDArray[np.float64]
RIDGE = 1e-12  # of a column's own square: separates columns that are the same but for rounding


@dataclass(frozen=True, slots=True)
class Grams:
    """Sums over the rows of each unit (a load's iterations of one kind), each row's weights adding up to 1 in its unit.

    xx: shape (units, columns, columns). xy: (units, columns). yy: (units,). load: which load each unit belongs to,
    shape (units,), 0, 1, 2... in this order, none left out. weight: how much a unit counts in a fit, shape (units,).
    """

    xx: Array
    xy: Array
    yy: Array
    load: NDArray[np.int64]
    weight: Array

    @property
    def loads(self) -> int:
        """Number of loads."""
        return int(self.load.max(initial=-1)) + 1

    def merged(self, matrix: Array) -> Grams:
        """The sums of the columns multiplied by a matrix."""
        xx = matrix.T @ self.xx @ matrix
        return Grams(xx, self.xy @ matrix, self.yy, self.load, self.weight)

    def total(self, weight: Array | None = None) -> tuple[Array, Array]:
        """X'WX and X'Wy over all units, by weight or the units' own."""
        w = self.weight if weight is None else weight
        return np.tensordot(w, self.xx, 1), w @ self.xy

    def errors(self, c: Array) -> Array:
        """Mean squared error of each unit under coefficients c, shape (units,). Never below 0."""
        quadratic = np.einsum("i,uij,j->u", c, self.xx, c, optimize=True)
        return np.asarray(np.maximum(quadratic - 2.0 * (self.xy @ c) + self.yy, 0.0))


def sum_up(
    rows: Array, y: Array, unit: NDArray[np.int64], row_weight: Array, load: NDArray[np.int64], weight: Array
) -> Grams:
    """Sums of products per unit. unit: per row, 0, 1, 2...; rows of weight 0 do not count."""
    n, width = len(load), rows.shape[1]
    order = np.argsort(unit, kind="stable")
    ends = np.searchsorted(unit[order], np.arange(n + 1))
    out = Grams(np.zeros((n, width, width)), np.zeros((n, width)), np.zeros(n), load, weight)
    share = row_weight / np.maximum(np.bincount(unit, row_weight, minlength=n)[unit], 1e-300)
    root = np.sqrt(share)
    x, z = (rows * root[:, None])[order], (y * root)[order]
    for u in range(n):
        part, target = x[ends[u] : ends[u + 1]], z[ends[u] : ends[u + 1]]
        out.xx[u] = part.T @ part
        out.xy[u] = part.T @ target
        out.yy[u] = target @ target
    return out


def factor(xx: Array) -> tuple[Array, Array]:
    """The Cholesky factor R (R'R = X'X with columns scaled to length 1) and the lengths (0 columns have length inf)."""
    length = np.sqrt(np.diag(xx))
    length = np.where(length > 0, length, np.inf)
    scaled = xx / length[:, None] / length
    n = len(xx)
    scaled[np.arange(n), np.arange(n)] = 1.0 + RIDGE
    ridge = RIDGE
    while True:
        try:
            return np.asarray(np.linalg.cholesky(scaled).T, np.float64), length
        except np.linalg.LinAlgError:  # columns that differ by rounding only
            ridge *= 10.0
            scaled[np.arange(n), np.arange(n)] = 1.0 + ridge


def solve(xx: Array, xy: Array, free: NDArray[np.bool_] | None = None) -> Array:
    """The non-negative c that minimises c'xx c - 2 xy c; columns that are not free stay 0."""
    use = np.arange(len(xy)) if free is None else np.flatnonzero(free)
    root, length = factor(xx[np.ix_(use, use)])
    return _back(use, root, length, xy, len(xy))


def solve_many(xx: Array, xys: Array, free: NDArray[np.bool_]) -> Array:
    """Solves for many right sides, shape (draws, columns), and one matrix."""
    use = np.flatnonzero(free)
    root, length = factor(xx[np.ix_(use, use)])
    return np.array([_back(use, root, length, xy, xys.shape[1]) for xy in xys])


def _back(use: NDArray[np.intp], root: Array, length: Array, xy: Array, width: int) -> Array:
    target = solve_triangular(root, xy[use] / length, trans="T")
    found, _ = nnls(root, target, maxiter=100 * len(use))
    out = np.zeros(width)
    out[use] = found / length
    return out
