"""When a run may end: its beginning is over, and the mean of its steps is known.

The steps after warm-up are cut into equal batches. Their means are nearly independent once a batch is as long as the
pipeline is deep, so the t interval over them holds the long run's mean (batch means: Law & Kelton, "Simulation Modeling
and Analysis", chapter 9). A run whose steps still grow has batches that differ, and goes on.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from fleetsim.config.scenario import Scenario
from fleetsim.sim.window import least_warmup_steps, pipeline_steps, warmup_steps

# Batches, and the t value of a 95 % interval over their means.
_BATCHES, _T = 8, 2.365
# The mean is known when its interval reaches so little to either side.
PRECISION = 0.015
# A run is so many times as long as all that is in flight at least: batches of half a filling show bursts.
_FILLINGS = 4
# The first look, and by how much later ones are apart.
_FIRST, _APART = 24, 1.25


class Steady:
    """A watch of one run: after each step it is told how many are done and the simulated seconds."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        depth, filled = max(2, least_warmup_steps(scenario) - 1), math.ceil(_FILLINGS * pipeline_steps(scenario))
        self._look = least_warmup_steps(scenario) + max(_FIRST, _BATCHES * depth, filled)
        self._ends = [0.0]

    def __call__(self, steps: int, now_s: float) -> bool:
        """Whether the run may end here."""
        self._ends.append(now_s)
        if steps < self._look:
            return False
        self._look = int(_APART * steps)
        step_s = np.array([b - a for a, b in pairwise(self._ends)])
        return off_by(step_s[warmup_steps(self._scenario, step_s) :]) <= PRECISION


def off_by(step_s: np.typing.NDArray[np.float64]) -> float:
    """How far the mean of the steps of a run may be from that of a long one, as a share of it, in 95 % of all cases."""
    each = len(step_s) // _BATCHES
    if each < 1:
        return float("inf")
    means = step_s[-each * _BATCHES :].reshape(_BATCHES, each).mean(axis=1)
    mean = float(means.mean())
    return _T * float(means.std(ddof=1)) / (_BATCHES**0.5 * mean) if mean > 0 else 0.0
