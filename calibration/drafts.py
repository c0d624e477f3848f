"""What share of the tokens that multi-token prediction drafted was accepted, in the published runs that used it.

Nobody published it for these runs. One number for all of them is looked for, of each token whose predecessors were
accepted; and for the runs of one model under one engine, one from the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from points import Run

from fleetsim.engine.operators.curves import Curves

GRID = tuple(round(0.4 + 0.02 * i, 2) for i in range(21))


def fit_accepted(runs: Sequence[Run], curves: Curves) -> tuple[float, dict[str, float]]:
    """The share; and predicted over measured time of each run with the share that the other models and engines give."""
    drafted = [r for r in runs if r.point.mtp]
    ratios = np.array([[r.with_drafts(curves, share).time for share in GRID] for r in drafted])
    kinds = [(r.point.engine, r.shape.name) for r in drafted]
    left_out: dict[str, float] = {}
    for kind in set(kinds):
        out = np.array([k == kind for k in kinds])
        best = _best(ratios[~out])
        left_out |= {r.point.id: round(float(ratios[i, best]), 4) for i, r in enumerate(drafted) if out[i]}
    return GRID[_best(ratios)], dict(sorted(left_out.items()))


def _best(ratios: NDArray[np.float64]) -> int:
    """The place on the grid with the least mean distance."""
    return int(np.argmin(np.abs(np.log(ratios)).mean(axis=0)))
