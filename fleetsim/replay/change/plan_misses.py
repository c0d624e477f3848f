"""What a plan promises beyond its own targets: a window is then held against the prediction, not the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fleetsim import units
from fleetsim.replay.change.plan_fields import IntervalFields, SavedPlan

Promised = Literal["trainer_idle", "queue", "oldest_age", "cost_per_step"]

# How far a window may lie above a prediction: points of the step, of the larger of predicted queue and a batch (as the
# back-test measures it), optimizer steps, of the predicted cost. Two windows of one fleet differ by as much.
IDLE_SLACK, QUEUE_SLACK, AGE_SLACK, COST_SLACK = 0.02, 0.10, 1.0, 0.02


@dataclass(frozen=True, slots=True)
class Miss:
    """A target that the plan's own prediction misses. bound: what a window that fulfils the prediction stays below; of
    a staleness that the user tolerates that itself, which no prediction moves."""

    name: Promised
    predicted: float
    bound: float
    text: str


def misses_of(plan: SavedPlan) -> dict[Promised, Miss]:
    """The targets that the plan itself misses, by the item of the verification list that they are of."""
    targets, batch = plan.targets, plan.scenario.trainer.batch_samples
    found: list[Miss] = []
    idle = _predicted(plan, "trainer_idle_fraction")
    if idle is not None and idle.mean > targets.trainer_idle_fraction:
        text = f"trainer idle at most {units.share(targets.trainer_idle_fraction)}, {units.share(idle.mean)} predicted"
        found.append(Miss("trainer_idle", idle.mean, idle.ci_high + IDLE_SLACK, text))
    queue = _predicted(plan, "queue_depth")
    if queue is not None and targets.queue_samples is not None and queue.mean > targets.queue_samples:
        text = f"queue at most {targets.queue_samples:,} samples, {queue.mean:,.0f} predicted without that cap"
        bound = queue.ci_high + QUEUE_SLACK * max(queue.mean, float(batch))
        found.append(Miss("queue", queue.mean, bound, text))
    ages = [a for name in ("oldest_sample_age_steps", "staleness_steps.p99") if (a := _predicted(plan, name))]
    if ages and targets.staleness_steps is not None:
        age = max(ages, key=lambda a: a.ci_high)
        if age.mean > targets.staleness_steps:
            text = f"oldest sample at most {targets.staleness_steps:g} steps, {age.mean:.3g} predicted"
            bound = targets.staleness_steps if is_tolerance(plan) else age.ci_high + AGE_SLACK
            found.append(Miss("oldest_age", age.mean, bound, text))
    cost = _predicted(plan, "cost_per_step")
    if cost is not None and targets.cost_per_step is not None and cost.mean > targets.cost_per_step * (1 + COST_SLACK):
        most, mean = (units.money(x) for x in (targets.cost_per_step, cost.mean))
        text = f"cost per step at most {most}, {mean} predicted"
        bound = cost.ci_high * (1.0 + COST_SLACK)
        found.append(Miss("cost_per_step", cost.mean, bound, text))
    return {miss.name: miss for miss in found}


def is_tolerance(plan: SavedPlan) -> bool:
    """Whether the plan's staleness is what the user tolerates. Else it is what the admission law is set to, which
    bounds what is started: a long response that others overtake is trained older than that."""
    return plan.scenario.targets.staleness_p99_steps is not None


def _predicted(plan: SavedPlan, metric: str) -> IntervalFields | None:
    return plan.recommended.predicted.get(metric)
