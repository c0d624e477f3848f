"""When no fleet is large enough: the smallest staleness budget with which one would be.

A trainer that waits although instances stand ready waits for the window to open or for the longest response. Both give
way when samples may be older, which is the algorithm's to decide; what it would buy is the planner's to say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.plan.targets import Target
from fleetsim.plan.trials import Measure, Tell, trial_of, with_instances

_MOST_EXTRA_STEPS = 3


@dataclass(frozen=True, slots=True)
class WayOut:
    """A staleness budget in steps with which `instances` hold the targets, and what one run of it came to."""

    max_staleness: float
    instances: int
    trainer_idle_fraction: float
    step_s: float
    staleness_p99_steps: float


def way_out_of(
    scenario: Scenario, instances: int, targets: tuple[Target, ...], measure: Measure, tell: Tell | None = None
) -> WayOut | None:
    """The first of a few larger budgets that holds the targets at `instances`, from single runs; None without one.

    Only a version window has such a budget.
    """
    if scenario.admission.law != "version_window":
        return None
    base = with_instances(scenario, instances)
    wanted = [t for t in targets if t.helped_by_instances]
    for extra in range(1, _MOST_EXTRA_STEPS + 1):
        budget = float(math.floor(scenario.admission.max_staleness) + extra)
        if tell is not None:
            tell(f"trying a staleness budget of {budget:g} steps")
        limit = scenario.admission.max_age
        changes = {"admission.max_staleness": budget}
        if limit is not None:  # what starts earlier is older when it is trained
            changes["admission.max_age"] = limit + budget - scenario.admission.max_staleness
        changed = with_changes(base, changes)
        trial = trial_of(instances, [measure(changed, 0)])
        if all(t.held_by(trial.estimates[t.metric]) for t in wanted):
            return WayOut(
                budget,
                instances,
                trial.mean("trainer_idle_fraction"),
                trial.mean("step_s"),
                trial.mean("staleness_steps.p99"),
            )
    return None
