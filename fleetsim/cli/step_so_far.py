"""What a long simulation tells while it goes on: steps done over all replications, the step time so far, time left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetsim.cli.progress import Progress


class StepSoFar:
    """Follows the replications of a run, told from the threads that they run on."""

    def __init__(self, steps: int, replications: int, tell: Progress) -> None:
        self._of, self._tell = steps * replications, tell

    def __call__(self, reached: Mapping[int, tuple[int, float]]) -> None:
        """Replication -> (steps done, simulated seconds)."""
        if self._tell.due():
            self._tell("simulating, steps")
            self._tell.at(sum(steps for steps, _ in reached.values()), self._of, lambda: _words(reached))


def _words(reached: Mapping[int, tuple[int, float]]) -> str:
    """The mean step so far, warm-up included, with its interval over the replications."""
    from fleetsim.analysis.intervals import estimate
    from fleetsim.report.blocks import with_interval

    means = [now_s / steps for steps, now_s in list(reached.values()) if steps]
    return f"step {with_interval(estimate(means), 'seconds').plain} so far" if means else ""
