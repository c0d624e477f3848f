"""How many finished samples may wait for the trainer: enough that it rarely waits, few enough that they do not get
stale.

The runbook's bound needs no simulation. A sample that waits behind `cap` others is trained cap / batch steps later, so

    cap <= staleness budget * batch

and never below one batch, because a batch could not fill. Within the bound the simulation looks for the smallest cap
with which a step takes next to no longer than without any. Where groups are reserved for their steps, a queue within
the bound may fill with those of later steps and stop the job: then the answer is the smallest cap that does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fleetsim.config.law_numbers import law_of, sizes_of
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import StuckError
from fleetsim.job.trials import Measure, Tell, flat, with_instances
from fleetsim.policies.samples import AGE_ACTIONS
from fleetsim.search.bisection import smallest

EPSILON = 0.01
# The cap is looked for in this many parts of a batch; a finer one would be precision that one run does not have.
_PARTS_OF_BATCH = 4
# Where every cap within the bound stops the job, larger ones are tried up to this one.
_MOST_BATCHES = 64


@dataclass(frozen=True, slots=True)
class QueueCap:
    """The recommended cap. step_cost: relative step time it costs; bound_samples: the arithmetic's upper bound.

    staleness_p99_steps: with this cap. within_budget: whether that is inside the staleness budget, if there is one.
    """

    samples: int
    steps: float
    step_cost: float
    staleness_p99_steps: float
    budget_steps: float | None
    bound_samples: int | None
    within_budget: bool


def staleness_budget(scenario: Scenario) -> float | None:
    """Steps of staleness that the recipe tolerates: the target if given, else what the admission law promises."""
    a = scenario.admission
    if scenario.targets.staleness_p99_steps is not None:
        return scenario.targets.staleness_p99_steps
    sizes = sizes_of(scenario)
    if AGE_ACTIONS[a.age_action].limits_age and a.max_age is not None:
        return a.max_age * sizes.steps_per_version
    return law_of(scenario).promised_steps(a, sizes)


def queue_cap_of(scenario: Scenario, instances: int, measure: Measure, tell: Tell | None = None) -> QueueCap:
    """The smallest buffer capacity at `instances` that costs at most EPSILON of step time, from single runs.

    All runs share replication 0's draws. A cap with which the run gets stuck does not hold.
    """
    base = with_instances(scenario, instances)
    batch, group = scenario.trainer.batch_samples, scenario.workload.group_size
    budget = staleness_budget(scenario)
    bound = None if budget is None else max(batch, math.floor(budget * batch))
    if tell is not None:
        tell("looking for the smallest queue")
    runs: dict[int | None, tuple[float, float]] = {}

    def run(cap: int | None) -> tuple[float, float]:
        """Step time and 99th percentile of staleness with a cap; infinite where it stops the job."""
        if cap not in runs:
            changes = {"buffer.capacity_samples": cap, "buffer.on_full": "block"}
            runs[cap] = _run(with_changes(base, changes), measure)
        return runs[cap]

    without = run(None)[0]
    if without == math.inf:  # all would be too old that waits in a queue without an end: against the scenario's own
        without = _run(base, measure)[0]
    part = max(group, batch // _PARTS_OF_BATCH // group * group)

    def samples(parts: int) -> int:
        return batch + (parts - 1) * part

    def holds(parts: int) -> bool:
        return run(samples(parts))[0] <= (1.0 + EPSILON) * without

    most = math.ceil(((bound or 2 * batch) - batch) / part) + 1
    found = smallest(holds, 1, most)
    cap = samples(most if found is None else found)
    if bound is not None:
        cap = min(cap, bound)
    if run(cap)[0] == math.inf:  # so small a queue stops the job, whatever the arithmetic says
        able = smallest(lambda parts: run(samples(parts))[0] < math.inf, most, _MOST_BATCHES * batch // part)
        cap = samples(able) if able is not None else scenario.buffer.capacity_samples or cap
    step_s, staleness = run(cap)
    if step_s == math.inf:  # the scenario's own way to fill a queue is the only one that runs
        step_s, staleness = _run(base, measure)
    return QueueCap(
        samples=cap,
        steps=cap / batch,
        step_cost=step_s / without - 1.0,
        staleness_p99_steps=staleness,
        budget_steps=budget,
        bound_samples=bound,
        within_budget=budget is None or staleness <= budget,
    )


def _run(scenario: Scenario, measure: Measure) -> tuple[float, float]:
    try:
        metrics = flat(measure(scenario, 0))
    except StuckError:
        return math.inf, math.inf
    return float(metrics["step_s"]), float(metrics["staleness_steps.p99"])
