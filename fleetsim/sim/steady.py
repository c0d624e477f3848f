"""When a run may end: its beginning is over, and the mean of its steps is known.

The steps after warm-up are cut into equal batches. Their means are nearly independent once a batch is as long as the
pipeline is deep, so the t interval over them holds the long run's mean (batch means: Law & Kelton, "Simulation Modeling
and Analysis", chapter 9). A run whose steps still grow has batches that differ, and goes on.

What happens every N steps (`evaluation`, `trainer.checkpoint`) is in a mean as often as in the long run only if the
mean is over whole periods: batches are whole periods, and a run ends with one. Where eight periods are more than a run
may have, there are fewer batches, and t is larger. Where instances are on spot machines, a run sees several reclaims
and absences of each kind of luck, if need be it is as long as it may be.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from fleetsim.config.scenario import Scenario, most_steps, reclaims_s
from fleetsim.sim.window import least_warmup_steps, pipeline_steps, warmup_steps

# Batches, and the t value of a 95 % interval over the means of so many.
_BATCHES = 8
_T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}
# The mean is known when its interval reaches so little to either side.
PRECISION = 0.015
# A run is so many times as long as all that is in flight at least: batches of half a filling show bursts.
_FILLINGS = 4
# The first look, and by how much later ones are apart.
_FIRST, _APART = 24, 1.25


class Steady:
    """A watch of one run: after each step it is told how many are done and the simulated seconds."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario, self._period = scenario, scenario.period_steps
        depth, filled = max(2, least_warmup_steps(scenario) - 1), math.ceil(_FILLINGS * pipeline_steps(scenario))
        long = max(_FIRST, _BATCHES * depth, filled)
        if self._period > 1:  # a whole number of periods in each batch, as far as a run may be so long
            long = max(long, min(_BATCHES * self._period, most_steps(scenario) - least_warmup_steps(scenario) - 1))
        self._look = least_warmup_steps(scenario) + long
        self._ends, self._least_s = [0.0], reclaims_s(scenario)

    def __call__(self, steps: int, now_s: float) -> bool:
        """Whether the run may end here."""
        self._ends.append(now_s)
        if steps < self._look or steps % self._period or now_s < self._least_s:
            return False
        self._look = int(_APART * steps)
        step_s = np.array([b - a for a, b in pairwise(self._ends)])
        return off_by(step_s[warmup_steps(self._scenario, step_s) :], self._period) <= PRECISION


def off_by(step_s: np.typing.NDArray[np.float64], period: int = 1) -> float:
    """How far the mean of the steps of a run may be from that of a long one, as a share of it, in 95 % of all cases.

    period: steps after which what happens every N steps comes round again.
    """
    batches = min(_BATCHES, len(step_s) // period)
    if batches < (2 if period > 1 else _BATCHES):
        return float("inf")
    each = len(step_s) // (batches * period) * period
    means = step_s[-each * batches :].reshape(batches, each).mean(axis=1)
    mean = float(means.mean())
    return _T[batches] * float(means.std(ddof=1)) / (batches**0.5 * mean) if mean > 0 else 0.0
