"""What a request to a server takes beside the engine: one number for each engine, fitted to first tokens.

    python calibration/fit_engine.py --paths     fit these alone, with the committed curves (three minutes)

Of every run the seconds to the first token are predicted for each number on a grid. The best of the grid is the
engine's; with the runs of one model on one GPU left out it may be another, and these runs are predicted with that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from points import Run

from fleetsim.engine.operators.curves import Curves

GRID_S = np.geomspace(2e-3, 0.4, 24)
# Runs of one source, GPU, engine, model and precision count together as so many.
GROUP = 8
# What is off by more than e times counts as that far off: a kernel that was compiled in the first wave, for one.
FARTHEST = 1.0


def fit_paths(runs: Sequence[Run], curves: Curves) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds per request by engine; and predicted over measured first token of each run by a fit without its pair."""
    found: dict[str, float] = {}
    left_out: dict[str, float] = {}
    for engine in sorted({r.point.engine for r in runs}):
        served = [r for r in runs if r.has_first and r.served and r.point.engine == engine]
        ratios = np.array([[r.first(curves, float(s)) for s in GRID_S] for r in served])
        weights = _weights(served)
        found[engine] = float(f"{GRID_S[_best(ratios, weights)]:.2g}")
        pairs = [(r.shape.name, r.gpu.name) for r in served]
        for pair in set(pairs):
            out = np.array([p == pair for p in pairs])
            best = _best(ratios[~out], weights[~out]) if not out.all() else None
            left_out |= {
                r.point.id: round(float(ratios[i, best]), 4)
                for i, r in enumerate(served)
                if out[i] and best is not None
            }
        print(f"{engine}: {1e3 * found[engine]:.0f} ms per request, from {len(served)} runs")
    return found, dict(sorted(left_out.items()))


def _weights(runs: Sequence[Run]) -> NDArray[np.float64]:
    sizes: Mapping[tuple[str, ...], int] = Counter(r.group for r in runs)
    return np.array([min(1.0, GROUP / sizes[r.group]) for r in runs])


def _best(ratios: NDArray[np.float64], weights: NDArray[np.float64]) -> int:
    """The place on the grid with the least mean distance."""
    distance = np.minimum(np.abs(np.log(np.maximum(ratios, 1e-3))), FARTHEST)
    return int(np.argmin(weights @ distance))
