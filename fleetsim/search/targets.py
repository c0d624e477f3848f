"""What a fleet must hold to be recommended, and the rule by which a simulated fleet holds it."""

from __future__ import annotations

from dataclasses import dataclass

from fleetsim.config.scenario import Scenario
from fleetsim.estimates import Estimate

RULE = "a target holds when the upper end of the 95 % interval of its mean over the replications is within it"

# Each field of the targets section and the metric that it limits. More instances always help the first two; the other
# two have a price of their own and are looked at once these hold.
_METRICS = {
    "trainer_idle_fraction": "trainer_idle_fraction",
    "step_s": "step_s",
    "staleness_p99_steps": "staleness_steps.p99",
    "cost_per_step": "cost_per_step",
}
_HELPED_BY_INSTANCES = ("trainer_idle_fraction", "step_s")


@dataclass(frozen=True, slots=True)
class Target:
    """A limit from above on one metric, that somebody asked for."""

    name: str
    metric: str
    limit: float

    @property
    def helped_by_instances(self) -> bool:
        """Whether more instances always bring it closer."""
        return self.name in _HELPED_BY_INSTANCES

    def held_by(self, estimate: Estimate) -> bool:
        """See RULE."""
        return self.decides(estimate) <= self.limit

    @staticmethod
    def decides(estimate: Estimate) -> float:
        """What is held against the limit: the mean lies below the upper end; without an interval it decides itself."""
        return max(estimate.mean, estimate.ci_high)


def targets_of(scenario: Scenario) -> tuple[Target, ...]:
    """The targets that the scenario sets."""
    return tuple(
        Target(name, metric, float(limit))
        for name, metric in _METRICS.items()
        if (limit := getattr(scenario.targets, name)) is not None
    )
