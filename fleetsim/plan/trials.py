"""Simulated fleets, remembered: every (instance count, replication) is run at most once.

All counts see the same draws (common random numbers: seed + replication, one stream per cause), so the difference
between two counts is the difference of the fleets, not of their luck.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetsim.analysis.intervals import Estimate
from fleetsim.analysis.threads import side_by_side
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario

# One run of a scenario: its metrics. The planner sees the simulator through this alone.
Measure = Callable[[Scenario, int], Mapping[str, Any]]
Tell = Callable[[str], None]

# Optimizer steps of every run unless the user said how many; fewer of them where one holds many samples, because the
# mean over a large batch hardly varies.
MOST_STEPS, FEWEST_STEPS, SAMPLES_PER_RUN = 16, 8, 250_000


def simulated(scenario: Scenario, replication: int) -> Mapping[str, Any]:
    """The metrics of one simulated run."""
    from fleetsim.analysis.metrics import metrics_of
    from fleetsim.sim.run import simulate

    return metrics_of(simulate(scenario, replication=replication))


def remembered(measure: Measure) -> Measure:
    """The same, but a scenario that was run before is not run again."""
    known: dict[tuple[Scenario, int], Mapping[str, Any]] = {}

    def recall(scenario: Scenario, replication: int) -> Mapping[str, Any]:
        key = (scenario, replication)
        if key not in known:
            known[key] = measure(scenario, replication)
        return known[key]

    return recall


def flat(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested metrics with dotted names: {"waste": {"stale": x}} -> {"waste.stale": x}."""
    result: dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            result |= flat(value, f"{prefix}{name}.")
        else:
            result[f"{prefix}{name}"] = value
    return result


def planned(scenario: Scenario, given: Collection[str]) -> Scenario:
    """The scenario as a plan runs it: no resize events, and no more steps than its samples make worth while.

    given: dotted paths that the user wrote; steps that are among them stay.
    """
    # A resize event would undo the count that is being tried, and a lost instance names one of another fleet; what
    # becomes slower or longer stays.
    without = {"instances": None, "lose_instance": None}
    stay = ("trainer_slowdown", "sync_slowdown", "length_factor")
    events = [
        e.model_copy(update=without) for e in scenario.run.events if any(getattr(e, name) is not None for name in stay)
    ]
    changes: dict[str, Any] = {}
    if any(getattr(e, name) is not None for e in scenario.run.events for name in without):
        changes["run.events"] = [e.model_dump() for e in events]
    if "run.steps" not in given and not events and scenario.run.warmup_steps is None:
        affordable = SAMPLES_PER_RUN // scenario.trainer.batch_samples
        changes["run.steps"] = min(scenario.run.steps, max(FEWEST_STEPS, min(MOST_STEPS, affordable)))
    return with_changes(scenario, changes) if changes else scenario


def with_instances(scenario: Scenario, instances: int) -> Scenario:
    """The scenario with another fleet size, chosen and not assumed; speed factors of instances that are no more go."""
    changes: dict[str, Any] = {"fleet.instances": instances}
    if "fleet.instances" in scenario.assumed:
        changes["assumed"] = [path for path in scenario.assumed if path != "fleet.instances"]
    if len(scenario.fleet.speed_factors) > instances:
        changes["fleet.speed_factors"] = scenario.fleet.speed_factors[:instances]
    return with_changes(scenario, changes)


@dataclass(frozen=True, slots=True)
class Trial:
    """What a number of replications of one fleet came to. `estimates` by dotted metric name; `binding` the majority."""

    instances: int
    replications: int
    estimates: Mapping[str, Estimate]
    binding: str

    def mean(self, metric: str) -> float:
        """The mean of one metric over the replications."""
        return self.estimates[metric].mean


class Trials:
    """Runs of one scenario at any instance count."""

    def __init__(self, scenario: Scenario, measure: Measure = simulated, tell: Tell | None = None) -> None:
        self.scenario, self._measure, self._tell = scenario, measure, tell
        self._runs: dict[tuple[int, int], Mapping[str, Any]] = {}

    @property
    def runs(self) -> int:
        """Simulations so far."""
        return len(self._runs)

    def at(self, instances: int, replications: int) -> Trial:
        """The fleet of `instances` over the first `replications` replications; new ones are simulated."""
        missing = [r for r in range(replications) if (instances, r) not in self._runs]
        if missing:
            scenario = with_instances(self.scenario, instances)
            found = {}
            self._said(instances, 0, len(missing))
            for r, run in zip(missing, side_by_side(lambda r: self._measure(scenario, r), missing), strict=True):
                found[instances, r] = run
                self._said(instances, len(found), len(missing))
            self._runs |= found
        return trial_of(instances, [self._runs[instances, r] for r in range(replications)])

    def _said(self, instances: int, done: int, of: int) -> None:
        if self._tell is not None:
            self._tell(f"simulating {instances:,} instances: {done} of {of} runs")


def trial_of(instances: int, runs: Sequence[Mapping[str, Any]]) -> Trial:
    """The estimates of some runs of the same fleet, nested metrics each."""
    from fleetsim.analysis.replicate import combine

    estimates = flat(combine(tuple(dict(run) for run in runs)))
    binding = str(estimates.pop("binding"))
    return Trial(instances, len(runs), estimates, binding)
