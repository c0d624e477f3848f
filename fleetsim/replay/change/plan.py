"""PLAN.json: what a replay recommended, on which window it rests, and how to go back. Written once, read by verify."""

from __future__ import annotations

import datetime
import json
import math
import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from fleetsim.config.base import MAX_COUNT, ConfigSection, Count, Fraction
from fleetsim.config.data_files import read_json
from fleetsim.config.engine_profile import Profile, Value
from fleetsim.config.pools import Instances
from fleetsim.config.problems import problems_of
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import tree_of
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.prices import prices_of
from fleetsim.errors import InputError, Problem
from fleetsim.estimates import Estimate
from fleetsim.records import replace
from fleetsim.replay.backtest import Backtest
from fleetsim.replay.change.patch import Deployment, patch_of, rollback_command
from fleetsim.replay.change.recommendation import AdvisedFleet
from fleetsim.replay.diagnose.checks.load import slow_instances
from fleetsim.replay.implied.implied_scenario import Implied, profile_of_window
from fleetsim.replay.observe.observed import Observed, value_of
from fleetsim.sim.engines import Engine, step_time_of
from fleetsim.size.headroom import staleness_budget

SCHEMA_VERSION: Literal[1] = 1
MAX_BYTES = 16 * 2**20
COMPLETE = "is it complete, and the right file?"

Text = Annotated[str, Field(max_length=100_000)]
# A window may lie anywhere in unix time; costs and rates have no bound of their own.
Number = Annotated[float, Field(ge=-1e18, le=1e18)]
Metric = Annotated[str, Field(min_length=1, max_length=200)]


class PlanWindow(ConfigSection):
    """The window that the plan rests on."""

    start_s: Number = Field(description="unix seconds")
    end_s: Number = Field(description="unix seconds")
    source: Text = Field(description="what was read, without secrets")


class BaselineFields(ConfigSection):
    """What was observed before the change; null where it was not exported."""

    instances: Annotated[int, Field(ge=0, le=MAX_COUNT)] = Field(description="at the end of the window")
    gpus: Annotated[int, Field(ge=0, le=MAX_COUNT)] = Field(description="of both pools, colocated ones once")
    trainer_idle_fraction: Fraction | None = Field(default=None, description="sample-wait / step")
    step_s: Value | None = Field(default=None, description="seconds per optimizer step")
    cost_per_step: Value | None = Field(default=None, description="US dollars")
    generated_tok_s: Value | None = Field(default=None, description="output tokens per second, whole fleet")
    prefix_hit: Fraction | None = Field(default=None, description="prompt tokens found in the cache, share")
    waiting: Value | None = Field(default=None, description="requests waiting in all engines, mean")
    queue_samples: Value | None = Field(default=None, description="samples queued for the trainer, mean")
    pause_share: Fraction | None = Field(default=None, description="of the window, the fleet stood still")
    stragglers: tuple[Text, ...] = Field(
        default=(), strict=False, max_length=MAX_COUNT, description="instances that were slow already"
    )


class IntervalFields(ConfigSection):
    """A predicted mean with its 95 % interval over replications."""

    mean: Number
    ci_low: Number
    ci_high: Number


class RecommendedFields(ConfigSection):
    """The change, and what the simulation promises of it."""

    instances: Instances = Field(description="rollout instances")
    changes: dict[Metric, Any] = Field(default_factory=dict, max_length=1000, description="dotted paths of a scenario")
    predicted: dict[Metric, IntervalFields] = Field(
        default_factory=dict, max_length=1000, description="metrics of docs/reference/metrics.md, dotted"
    )


class PlanTargets(ConfigSection):
    """What verify holds the window after the change against."""

    trainer_idle_fraction: Fraction = Field(description="at most")
    staleness_steps: Annotated[float, Field(ge=0, le=1e6)] | None = Field(
        default=None, description="oldest queued sample, optimizer steps at most; null = no budget is known"
    )
    queue_samples: Count | None = Field(default=None, description="cap of the queue")
    cost_per_step: Value | None = Field(default=None, description="US dollars at most: the baseline's")


class RollbackFields(ConfigSection):
    """The recorded allocation."""

    instances: Annotated[int, Field(ge=0, le=MAX_COUNT)]
    command: Text = Field(default="", description="restores it")


class BackTestFields(ConfigSection):
    """How well the model reproduced the window that the plan rests on."""

    verdict: Literal["ok", "wrong", "unknown"]
    limit: Fraction
    errors: dict[Metric, Number] = Field(default_factory=dict, max_length=100, description="as the back-test measures")


class SavedPlan(ConfigSection):
    """The file."""

    schema_version: Literal[1] = Field(default=SCHEMA_VERSION, description="version of this file format")
    kind: Literal["fleetsim-plan"] = "fleetsim-plan"
    date: Text = Field(description="ISO date and time of writing")
    window: PlanWindow
    baseline: BaselineFields
    recommended: RecommendedFields
    targets: PlanTargets
    rollback: RollbackFields
    patch: Text = Field(default="", description="deployment patch, YAML; empty where none was asked for")
    scenario: Scenario = Field(description="that the window implies, with the fleet as it was")
    engine: Profile | None = Field(default=None, description="engine speed of the window; null = the scenario's own")
    back_test: BackTestFields | None = None
    taken: tuple[Text, ...] = Field(default=(), strict=False, max_length=1000, description="read off the window")
    assumed: tuple[Text, ...] = Field(default=(), strict=False, max_length=1000, description="shown by nothing")

    @property
    def planned(self) -> int:
        """The fleet after the change."""
        return self.recommended.instances


def plan_from_mapping(mapping: object, where: str = "plan") -> SavedPlan:
    """The plan in a plain mapping. `where` names it in errors. Raises InputError with all problems."""
    if not isinstance(mapping, dict) or mapping.get("kind") != "fleetsim-plan":
        rule = "is no plan of fleetsim"
        raise InputError([Problem(where, None, rule, "give the file that --plan-out wrote")])
    version = mapping.get("schema_version", SCHEMA_VERSION)
    if isinstance(version, int) and not isinstance(version, bool) and version > SCHEMA_VERSION:
        rule = f"this fleetsim reads plans up to schema_version {SCHEMA_VERSION}"
        raise InputError([Problem(f"{where}: schema_version", version, rule, "upgrade fleetsim")])
    try:
        return SavedPlan.model_validate(mapping)
    except ValidationError as error:
        problems = problems_of(error, tree_of(SavedPlan))
        raise InputError([replace(p, path=f"{where}: {p.path}") for p in problems]) from None


def load_plan(path: str | os.PathLike[str]) -> SavedPlan:
    """The plan in a JSON file. Raises InputError: no such file, no JSON, unknown keys, wrong values."""
    return plan_from_mapping(read_json(path, "PLAN.json", MAX_BYTES, COMPLETE), os.fspath(path))


def plan_text(plan: SavedPlan) -> str:
    """The plan as the text of its file. The same plan gives the same bytes."""
    content = plan.model_dump(mode="json", exclude_none=True)
    return json.dumps(content, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


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
    # what the recipe tolerates is not known where only a guessed admission law would say so
    guessed = any(line.startswith("admission:") for line in implied.assumed)
    tolerated = scenario.targets.staleness_p99_steps
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
            staleness_steps=None if guessed and tolerated is None else staleness_budget(scenario),
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
        back_test=None
        if backtest is None
        else BackTestFields(
            verdict=backtest.verdict,
            limit=min(1.0, backtest.limit),
            errors={row.quantity: row.error for row in backtest.overall},
        ),
        taken=implied.taken,
        assumed=(*implied.assumed, *([] if beyond is None else [f"the prediction is {beyond.text}"])),
    )


def baseline_of(observed: Observed, scenario: Scenario) -> BaselineFields:
    """What a window shows, with the prices and GPU counts of a scenario."""
    fleet, trainer = observed.fleet, observed.trainer
    instances = fleet.instances_now if fleet is not None else 0
    mean = fleet.instances if fleet is not None else 0.0
    step = value_of(trainer.step_s)
    return BaselineFields(
        instances=instances,
        gpus=round(sum(gpus_of(scenario, instances))),
        trainer_idle_fraction=_share(value_of(trainer.idle_fraction)),
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
    engine: Engine | None = None
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


def _intervals(estimates: Mapping[str, Estimate]) -> dict[str, IntervalFields]:
    return {
        name: IntervalFields(mean=e.mean, ci_low=e.ci_low, ci_high=e.ci_high)
        for name, e in estimates.items()
        if all(map(math.isfinite, (e.mean, e.ci_low, e.ci_high)))
    }


def _share(value: float | None) -> float | None:
    return None if value is None else min(1.0, max(0.0, value))
