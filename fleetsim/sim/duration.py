"""How many optimizer steps fill a span of time: by running them."""

from __future__ import annotations

import math

import numpy as np

from fleetsim.config import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.sim.run import simulate

PILOT_STEPS = 8
MOST_STEPS = 10_000_000  # that a scenario may have


def steps_for(scenario: Scenario, seconds: float) -> int:
    """The fewest steps whose first replication lasts `seconds`. Raises what `simulate` raises.

    A pilot's pace says how many steps to run; what they do not fill is run again with more.
    """
    steps = PILOT_STEPS
    while True:
        run = simulate(with_changes(scenario, {"run.steps": steps, "run.warmup_steps": None}))
        ends = run.steps["end_s"]
        if ends[-1] >= seconds or steps >= MOST_STEPS:
            return min(steps, int(np.searchsorted(ends, seconds)) + 1)
        pace = max(float(ends[-1]), 1e-9) / steps
        steps = min(MOST_STEPS, max(steps + 1, math.ceil(1.03 * seconds / pace)))
