"""Least squares without negative coefficients (C. L. Lawson, R. J. Hanson, Solving Least Squares Problems, ch. 23)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def non_negative(a: Array, y: Array, likely: NDArray[np.bool_] | None = None) -> Array:
    """The x >= 0, shape (columns,), that minimises |a x - y|; a: (rows, columns), y: (rows,).

    likely: columns that probably have coefficients above 0. Where they do, it is a tenth of the
    work; the answer is the same.
    """
    columns = a.shape[1]
    if len(a) > columns + 1:  # |a x - y| and |R x - Q'y| differ by what no x changes
        small = np.asarray(np.linalg.qr(np.column_stack((a, y)), mode="r"))
        a, y = small[:, :-1], small[:, -1]
    x, free = np.zeros(columns), np.zeros(columns, np.bool_)
    if likely is not None and (found := _free_solution(a, y, likely))[likely].min(initial=1.0) > 0.0:
        x, free = found, likely.copy()
    tolerance = 10.0 * max(a.shape) * np.finfo(np.float64).eps * float(np.abs(a).sum(axis=0).max(initial=0.0))
    for _ in range(100 * columns):
        gain = np.where(free, -np.inf, a.T @ (y - a @ x))
        if gain.max() <= tolerance:
            break
        free[gain.argmax()] = True
        while (below := free & ((found := _free_solution(a, y, free)) <= 0.0)).any():
            x += float((x[below] / (x[below] - found[below])).min()) * (found - x)
            free &= x > tolerance * 1e-3
            x[~free] = 0.0
        x = found
    return x


def _free_solution(a: Array, y: Array, free: NDArray[np.bool_]) -> Array:
    """The coefficients of some columns, whatever their sign; those of the others are 0."""
    found = np.zeros(a.shape[1])
    found[free] = np.linalg.lstsq(a[:, free], y, rcond=None)[0]
    return found
