"""A plan from a replay: the baseline as it was observed, the change, what it promises, and the way back."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from fleetsim.config.scenario import Scenario
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.prices import prices_of
from fleetsim.engine.step_time import StepTime
from fleetsim.estimates import Estimate
from fleetsim.replay.backtest import Backtest
from fleetsim.replay.change.patch import Deployment, patch_of, rollback_command
from fleetsim.replay.change.plan_fields import (
    BackTestFields,
    BaselineFields,
    IntervalFields,
    PlanTargets,
    PlanWindow,
    RecommendedFields,
    RollbackFields,
    SavedPlan,
    finite,
)
from fleetsim.replay.change.recommendation import AdvisedFleet
from fleetsim.replay.diagnose.checks.stragglers import slow_instances
from fleetsim.replay.implied.implied_scenario import Implied, profile_of_window
from fleetsim.replay.observe.observed import Observed, Reading
from fleetsim.sim.engines import step_time_of
from fleetsim.size.headroom import staleness_budget


def plan_of(
    observed: Observed,
    implied: Implied,
    recommendation: AdvisedFleet,
    *,
    now_s: float,
    backtest: Backtest | None = None,
    deployment: Deployment | None = None,
) -> SavedPlan:
    """The plan that `--plan-out` writes. now_s: unix seconds of writing. deployment: what is patched, if known."""
    date = datetime.datetime.fromtimestamp(now_s, datetime.UTC).isoformat(timespec="seconds")
    scenario = implied.scenario
    baseline = baseline_of(observed, scenario)
    beyond = recommendation.extrapolated
    return SavedPlan(
        date=date,
        window=PlanWindow(start_s=observed.start_s, end_s=observed.end_s, source=observed.source),
        baseline=baseline,
        recommended=RecommendedFields(
            instances=recommendation.instances,
            changes=dict(recommendation.changes),
            predicted=_intervals(recommendation.predicted),
        ),
        targets=PlanTargets(
            trainer_idle_fraction=scenario.targets.idle_limit,
            staleness_steps=_budget(implied),
            queue_samples=recommendation.queue_cap_samples,
            cost_per_step=baseline.cost_per_step,
        ),
        rollback=RollbackFields(
            instances=baseline.instances,
            command=rollback_command(deployment, baseline.instances) if deployment is not None else "",
        ),
        patch=patch_of(deployment, recommendation.instances).yaml if deployment is not None else "",
        scenario=scenario,
        engine=profile_of_window(implied, "replayed window", observed.source, date),
        back_test=None if backtest is None else _back_test(backtest),
        taken=implied.taken,
        assumed=(*implied.assumed, *([] if beyond is None else [f"the prediction is {beyond.text}"])),
    )


def _budget(implied: Implied) -> float | None:
    """The staleness that the recipe tolerates; None where only a guessed admission law would say so."""
    s = implied.scenario
    guessed = any(line.startswith("admission:") for line in implied.assumed)
    return None if guessed and s.targets.staleness_p99_steps is None else staleness_budget(s)


def baseline_of(observed: Observed, scenario: Scenario) -> BaselineFields:
    """What a window shows, with the prices and GPU counts of a scenario."""
    fleet, trainer = observed.fleet, observed.trainer
    instances = fleet.instances_now if fleet is not None else 0
    mean = fleet.instances if fleet is not None else 0.0
    step = _value(trainer.step_s)
    return BaselineFields(
        instances=instances,
        gpus=round(sum(gpus_of(scenario, instances))),
        trainer_idle_fraction=_share(_value(trainer.idle_fraction)),
        step_s=step,
        cost_per_step=None if step is None else cost_of(scenario, mean, step),
        generated_tok_s=fleet.tok_s if fleet is not None else None,
        prefix_hit=_share(fleet.prefix_hit) if fleet is not None else None,
        waiting=fleet.waiting if fleet is not None else None,
        queue_samples=observed.queue.depth,
        pause_share=_share(observed.pauses.share) if observed.pauses is not None else None,
        stragglers=tuple(str(i.id) for i in slow_instances(observed)),
    )


def gpus_of(scenario: Scenario, instances: float) -> tuple[float, float]:
    """GPUs of the rollout and the trainer pool; colocated ones count as rollout, once (as in `sim/metrics.py`)."""
    rollout = instances * scenario.engine.gpus
    trainer = float(scenario.trainer.gpus)
    return rollout, max(0.0, trainer - rollout) if scenario.fleet.placement == "colocated" else trainer


def cost_of(scenario: Scenario, instances: float, step_s: float) -> float:
    """US dollars of one optimizer step of `step_s` seconds with so many instances."""
    rollout, trainer = gpus_of(scenario, instances)
    prices = prices_of(scenario)
    return step_s / 3600.0 * (rollout * prices.rollout + trainer * prices.trainer)


def implied_of(plan: SavedPlan) -> Implied:
    """The implied scenario that a plan holds, with the engine of its window: for alerts and watch."""
    engine: tuple[StepTime, EngineLimits] | None = None
    if plan.engine is not None:
        limits = plan.engine.limits
        cap = getattr(plan.scenario.workload.output_tokens, "max", None)
        engine = (
            step_time_of(plan.engine),
            EngineLimits(
                limits.max_num_seqs,
                limits.max_num_batched_tokens,
                limits.kv_blocks,
                limits.block_size,
                max_output_tokens=None if cap is None else max(1, round(cap)),
                scheduler=plan.scenario.engine.name,
            ),
        )
    resizes = ((plan.window.start_s, plan.scenario.fleet.instances),)
    return Implied(plan.scenario, engine, None, plan.taken, plan.assumed, None, resizes)


def _intervals(estimates: Mapping[str, Any]) -> dict[str, IntervalFields]:
    found = {}
    for name, e in estimates.items():
        if isinstance(e, Estimate) and all(finite(x) is not None for x in (e.mean, e.ci_low, e.ci_high)):
            found[name] = IntervalFields(mean=e.mean, ci_low=e.ci_low, ci_high=e.ci_high)
    return found


def _back_test(back: Backtest) -> BackTestFields:
    errors: dict[str, float] = {row.quantity: row.error for row in back.overall if finite(row.error) is not None}
    return BackTestFields(verdict=back.verdict, limit=min(1.0, back.limit), errors=errors)


def _value(quantity: Reading | None) -> float | None:
    return None if quantity is None else finite(quantity.value)


def _share(value: float | None) -> float | None:
    return None if value is None or finite(value) is None else min(1.0, max(0.0, value))
