"""Short runs of a job whose inputs are off: what a step took, and what the trainer did in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import StuckError
from fleetsim.job.trials import Measure, looked, with_instances
from fleetsim.job.uncertainty import UNCERTAIN, Axis
from fleetsim.sim.threads import side_by_side

# What a factor on each axis changes; inputs of one axis change it alike.
_TIMES = {u.axis: u.times for u in UNCERTAIN}


@dataclass(frozen=True, slots=True)
class ShortRun:
    """Seconds of a step, those of it in which the trainer does not wait for samples, those of these in which a sync
    holds it; and the 99th percentile of staleness."""

    step_s: float
    busy_s: float
    held_s: float
    staleness: float


class ShortRuns:
    """Runs of one job with factors on its inputs. runs: how many. measure should remember runs."""

    def __init__(self, scenario: Scenario, measure: Measure) -> None:
        self.runs, self._job, self._measure = 0, scenario, measure

    def job(self, instances: int, moved: Mapping[Axis, float]) -> Scenario:
        """The job with so many instances and its inputs off by these factors."""
        scenario = looked(with_instances(self._job, instances))
        changes: dict[str, Any] = {}
        for axis, factor in moved.items():
            changes |= _TIMES[axis](scenario, factor)
        return with_changes(scenario, changes) if changes else scenario

    def of(self, wanted: Iterable[tuple[int, Mapping[Axis, float]]]) -> list[ShortRun | None]:
        """One run each, side by side; None where it gets stuck."""
        jobs = [self.job(n, moved) for n, moved in wanted]
        self.runs += len(jobs)
        return side_by_side(self._run, jobs)

    def _run(self, scenario: Scenario) -> ShortRun | None:
        try:
            run = self._measure(scenario, 0)
        except StuckError:
            return None
        step, idle, held = (float(run[name]) for name in ("step_s", "trainer_idle_fraction", "sync_fraction"))
        return ShortRun(step, step * (1.0 - idle), step * held, float(run["staleness_steps"]["p99"]))
