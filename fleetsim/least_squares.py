"""Least squares without negative coefficients (C. L. Lawson, R. J. Hanson, Solving Least Squares Problems, ch. 23)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def non_negative(a: Array, y: Array) -> Array:
    """The x >= 0, shape (columns,), that minimises |a x - y|; a: (rows, columns), y: (rows,)."""
    columns = a.shape[1]
    if len(a) > columns + 1:  # |a x - y| and |R x - Q'y| differ by what no x changes
        small = np.linalg.qr(np.column_stack((a, y)), mode="r")
        a, y = small[:, :-1], small[:, -1]
    x = np.zeros(columns)
    free = np.zeros(columns, np.bool_)
    tolerance = 10.0 * max(a.shape) * np.finfo(np.float64).eps * float(np.abs(a).sum(axis=0).max(initial=0.0))
    for _ in range(100 * columns):
        gain = a.T @ (y - a @ x)
        gain[free] = -np.inf
        best = int(gain.argmax()) if columns else 0
        if free.all() or gain[best] <= tolerance:
            break
        free[best] = True
        while True:
            found = np.zeros(columns)
            found[free] = np.linalg.lstsq(a[:, free], y, rcond=None)[0]
            below = free & (found <= 0.0)
            if not below.any():
                break
            step = float((x[below] / (x[below] - found[below])).min())
            x += step * (found - x)
            free &= x > tolerance * 1e-3
            x[~free] = 0.0
        x = found
    return x
