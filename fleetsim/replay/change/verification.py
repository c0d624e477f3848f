"""The runbook's verification list, held against the window after a change.

Where the plan's own prediction misses a target of time, the window is held against the prediction: that it came true is
what there is to verify, and that the plan misses its target is said beside it. A staleness that the user tolerates
(targets.staleness_p99_steps) is no such target: older samples are too old whoever predicted them. Neither is the cost
of a step: what is above the baseline bought the wrong thing, and a plan that said so is rolled back all the same. What
an admission law is set to is no tolerance, and is not called a budget.

What a plan promises beyond its own targets: a window is then held against the prediction, not the target.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from fleetsim import units
from fleetsim.quantities import quantity
from fleetsim.replay.change.plan import SavedPlan, cost_of
from fleetsim.replay.compared_quantities import RECHECK_PAUSES, REMEASURE
from fleetsim.replay.diagnose.checks.load import slow_instances
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.paces import PEERS

State = Literal["ok", "failed", "unknown"]
Name = Literal[
    "instances", "trainer_idle", "queue", "oldest_age", "cost_per_step", "waiting", "prefix_hit", "stragglers"
]

# Optimizer steps of a representative window ("several hundred" in the runbook); fewer are warned of.
STEPS = 300
# Requests waiting are bounded while they are at most this many per instance, or this many times the baseline.
WAITING_PER_INSTANCE, WAITING_TIMES = 1.0, 1.5
# Hit ratio may fall by so many points.
HIT_SLACK = 0.05
# A queue that grows by more than this share of a batch per hour over the window's end is not bounded.
GROWTH = 0.25


class VerifyItem(Struct, frozen=True):
    """One item of the list. value: seen, limit: it was held against; None where there is none. text: a sentence."""

    name: Name
    state: State
    value: float | None
    limit: float | None
    text: str


class Verification(Struct, frozen=True):
    """checks: in the runbook's order. warnings: what weakens the answer. next: what to do, None while all hold.
    missed: targets that the plan itself misses, whatever the window shows: no failures of the change."""

    checks: tuple[VerifyItem, ...]
    warnings: tuple[str, ...]
    next: str | None
    missed: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[VerifyItem, ...]:
        """The items that do not hold; the command exits with 10 when there is one."""
        return tuple(c for c in self.checks if c.state == "failed")

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failed


def verify(plan: SavedPlan, observed: Observed) -> Verification:
    """Holds a window after the change against its plan."""
    missed: list[str] = []
    checks = tuple(_items(plan, observed, missed))
    failed = {c.name for c in checks if c.state == "failed"}
    return Verification(checks, _warnings(plan, observed), _next(plan, failed), tuple(missed))


def _item(name: Name, value: float | None, limit: float | None, held: bool | None, text: str) -> VerifyItem:
    state: State = "unknown" if held is None else "ok" if held else "failed"
    return VerifyItem(name, state, value, limit, text)


def _items(plan: SavedPlan, observed: Observed, missed: list[str]) -> Iterator[VerifyItem]:
    """In the runbook's order. missed: gets the targets that the plan's own prediction misses."""
    fleet, planned, before = observed.fleet, plan.planned, plan.baseline
    if fleet is None:
        yield _item("instances", None, planned, None, f"no engine was read; {planned} are planned")
    else:
        now, low = fleet.instances_now, fleet.instances_min
        text = f"{units.plural(now, 'instance')}, {planned} planned" + (f"; {low} at times" if low < now else "")
        yield _item("instances", now, planned, now == planned, text)
    yield _idle(plan, observed, missed)
    yield _queue(plan, observed, missed)
    yield _age(plan, observed, missed)
    yield _cost(plan, observed, missed)
    if fleet is None or fleet.waiting is None:
        yield _item("waiting", None, None, None, "requests waiting are not exported")
    else:
        limit = max(WAITING_PER_INSTANCE * fleet.instances, WAITING_TIMES * (before.waiting or 0.0))
        was = "" if before.waiting is None else f", {before.waiting:,.1f} before the change"
        text = f"{fleet.waiting:,.1f} requests waiting in the engines{was}"
        yield _item("waiting", fleet.waiting, limit, fleet.waiting <= limit, text)
    hit, was_hit = None if fleet is None else fleet.prefix_hit, before.prefix_hit
    if was_hit is None or hit is None:
        text = "the prefix-cache hit ratio is not exported in both windows"
        yield _item("prefix_hit", hit, was_hit, None, text)
    else:
        text = f"{quantity('prefix_hit').title} {units.share(hit)}, {units.share(was_hit)} before the change"
        limit = max(0.0, was_hit - HIT_SLACK)
        yield _item("prefix_hit", hit, limit, hit >= limit, text)
    yield _stragglers(plan, observed)


# How far a window may lie above a prediction: points of the step, of the larger of predicted queue and a batch (as the
# back-test measures it), optimizer steps, of the predicted cost. Two windows of one fleet differ by as much.
IDLE_SLACK, QUEUE_SLACK, AGE_SLACK, COST_SLACK = 0.02, 0.10, 1.0, 0.02


def _idle(plan: SavedPlan, observed: Observed, missed: list[str]) -> VerifyItem:
    limit = target = plan.targets.trainer_idle_fraction
    promised, seen = plan.recommended.predicted.get("trainer_idle_fraction"), observed.trainer.idle_fraction
    if promised is not None and promised.mean > target:
        limit = promised.ci_high + IDLE_SLACK
        missed.append(f"trainer idle at most {units.share(target)}, {units.share(promised.mean)} predicted")
    if seen is None:
        return _item("trainer_idle", None, limit, None, "the trainer's sample-wait is not exported")
    text = f"trainer idle {units.share(seen.value)} of a step ({seen.source}), at most {units.share(target)}"
    if promised is not None:
        text += f"; {units.share(promised.mean)} was predicted"
    return _item("trainer_idle", seen.value, limit, seen.value <= limit, text)


def _queue(plan: SavedPlan, observed: Observed, missed: list[str]) -> VerifyItem:
    queue, cap, batch = observed.queue, plan.targets.queue_samples, plan.scenario.trainer.batch_samples
    promised = plan.recommended.predicted.get("queue_depth")
    more = promised if promised is not None and cap is not None and promised.mean > cap else None
    if more is not None:
        missed.append(f"queue at most {cap:,} samples, {more.mean:,.0f} predicted without that cap")
    high = queue.depth_p95 if queue.depth_p95 is not None else queue.depth
    if high is None:
        return _item("queue", None, cap, None, "the queue's depth is not exported")
    growth = queue.growth_per_h
    growing = growth is not None and growth > GROWTH * batch
    within = cap is None or high <= cap
    text = f"queue at {high:,.0f} samples (95th percentile)"
    text += f", cap {cap:,}" if cap is not None else ", no cap"
    if more is not None and not within:  # the prediction is of the mean
        mean = queue.depth if queue.depth is not None else high
        within = mean <= more.ci_high + QUEUE_SLACK * max(more.mean, float(batch))
        text += f"; {mean:,.0f} on average, {more.mean:,.0f} was predicted"
    if growing and growth is not None:
        text += f"; it grows by {growth:,.0f} samples an hour"
    return _item("queue", high, cap, within and not growing, text)


def _age(plan: SavedPlan, observed: Observed, missed: list[str]) -> VerifyItem:
    """A staleness that the user tolerates is moved by no prediction. Else it is what the admission law is set to, which
    bounds what is started: a long response that others overtake is trained older than that."""
    queue, budget = observed.queue, plan.targets.staleness_steps
    tolerated, predicted = plan.scenario.targets.staleness_p99_steps is not None, plan.recommended.predicted
    ages = [a for name in ("oldest_sample_age_steps", "staleness_steps.p99") if (a := predicted.get(name))]
    age = max(ages, key=lambda a: a.ci_high, default=None)
    older = age if age is not None and budget is not None and age.mean > budget else None
    if older is not None and tolerated:
        missed.append(f"oldest sample at most {budget:g} steps, {older.mean:.3g} predicted")
    oldest = queue.oldest_age_max_steps if queue.oldest_age_max_steps is not None else queue.oldest_age_steps
    if oldest is None:
        return _item("oldest_age", None, budget, None, "the oldest queued sample's age is not exported")
    if budget is None:
        text = f"oldest queued sample {oldest:g} steps; no staleness budget is known"
        return _item("oldest_age", oldest, None, None, text)
    if tolerated:
        text = f"oldest queued sample {oldest:g} steps, budget {budget:g}"
        text += "" if older is None else f"; {older.mean:.3g} was predicted"
        return _item("oldest_age", oldest, budget, oldest <= budget, text)
    law = plan.scenario.admission.law
    limit, text = budget, f"oldest queued sample {oldest:g} steps; {law} is set to {budget:g}"
    if older is not None:
        limit = max(budget, older.ci_high + AGE_SLACK)
        text += f", which bounds what is started: {older.mean:.3g} was predicted of the oldest"
    return _item("oldest_age", oldest, limit, oldest <= limit, text)


def _cost(plan: SavedPlan, observed: Observed, missed: list[str]) -> VerifyItem:
    limit, step, more = plan.targets.cost_per_step, observed.trainer.step_s, None
    promised = plan.recommended.predicted.get("cost_per_step")
    if promised is not None and limit is not None and promised.mean > limit * (1 + COST_SLACK):
        more = promised
        missed.append(f"cost per step at most {units.money(limit)}, {units.money(more.mean)} predicted")
    if limit is None or step is None or observed.fleet is None:
        what = "no baseline" if limit is None else "no step time" if step is None else "no engines"
        return _item("cost_per_step", None, limit, None, f"cost per step: {what}")
    cost = cost_of(plan.scenario, observed.fleet.instances, step.value)
    text = f"{units.money(cost)} per optimizer step, {units.money(limit)} before the change"
    if more is not None:
        text += f"; {units.money(more.mean)} was predicted"
    return _item("cost_per_step", cost, limit, cost <= limit * (1.0 + COST_SLACK), text)


def _stragglers(plan: SavedPlan, observed: Observed) -> VerifyItem:
    if len(observed.instances) < PEERS:
        return _item("stragglers", None, None, None, f"a straggler shows beside {PEERS - 1} or more other instances")
    slow = {str(i.id): i.pace for i in slow_instances(observed)}
    new = sorted(slow.keys() - set(plan.baseline.stragglers))
    known = sorted(slow.keys() - set(new))
    text = ", ".join(f"{name} makes {units.share(slow[name])} of the median instance's rate" for name in new)
    text = text and f"new: {text} at its load"
    if known:
        text += f"{'; ' if text else ''}slow before the change too: {', '.join(known)}"
    return _item("stragglers", len(new), 0, not new, text or "no instance is slower than the others")


def _warnings(plan: SavedPlan, observed: Observed) -> tuple[str, ...]:
    found = []
    steps = observed.trainer.steps
    if steps is None:
        found.append("the window's optimizer steps are not counted: it may be too short to be representative")
    elif steps.value < STEPS:
        found.append(f"the window holds {steps.value:,.0f} optimizer steps; several hundred make it representative")
    if observed.start_s < plan.window.end_s:
        found.append("the window begins before the plan's own ended: it is not one after the change alone")
    if observed.gap_share > 0.05:
        found.append(f"{units.share(observed.gap_share, 0)} of the instances' time was not read")
    fleet = observed.fleet
    if fleet is not None and fleet.instances_min != fleet.instances_max:
        found.append(f"the fleet changed inside the window: {fleet.instances_min} to {fleet.instances_max} instances")
    return tuple(found)


def _next(plan: SavedPlan, failed: set[Name]) -> str | None:
    if not failed:
        return None
    back = plan.rollback.command or f"go back to {units.plural(plan.rollback.instances, 'instance')}"
    if "instances" in failed:
        return f"the fleet is not the planned one: apply the change, or wait for it; the way back: {back}"
    if "trainer_idle" in failed:
        return (
            "trainer idle persists at the matched count, so the model is wrong somewhere: "
            f"{REMEASURE}; {RECHECK_PAUSES}; before adding instances"
        )
    if failed == {"stragglers"}:
        return "drain the new stragglers and start them elsewhere; the size of the fleet is not at fault"
    if failed == {"oldest_age"}:
        batch = plan.scenario.trainer.batch_samples
        cap = max(1, int(plan.targets.staleness_steps or 0)) * batch
        return (
            f"let fewer samples wait (a queue of at most {cap:,} is {cap // batch} steps of batches), or lower the "
            f"staleness bound of the admission law; or roll back ({back})"
        )
    return f"roll back ({back}); keep the prefix-caching and deduplication fixes"
