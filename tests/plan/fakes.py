"""A simulator with a closed form: what the planner is tested on to the digit, without a clock or a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fleetsim.config import default_scenario, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.job.trials import Measure


def one_ahead() -> Scenario:
    """The default job with samples that lag a version at most: what there is to be gained by more of them."""
    return with_changes(default_scenario(), {"admission.max_staleness": 1.0})


def metrics(step_s: float, idle: float, **others: Any) -> dict[str, Any]:
    """All metrics of a run, most of them plain."""
    return {
        "step_s": step_s,
        "trainer_idle_fraction": idle,
        "rollout_idle_fraction": 0.1,
        "rollout_utilization": 0.8,
        "sync_fraction": 0.02,
        "not_training_fraction": idle + 0.02,
        "switch_fraction": 0.0,
        "checkpoint_fraction": 0.0,
        "evaluation_fraction": 0.0,
        "lent_fraction": 0.0,
        "queue_depth": 600.0,
        "queue_growth": 0.0,
        "oldest_sample_age_steps": 1.0,
        "staleness_steps": {"mean": 0.5, "p50": 0.0, "p99": others.pop("staleness_p99", 1.0), "max": 2.0},
        "tokens_per_trained_token": 1.05,
        "waste": {"stale": 0.0, "filtered": 0.0, "aborted": 0.0, "recomputed": 0.05, "lost": 0.0},
        "generated_tok_s": 30_000.0,
        "completions_per_s": 512 / step_s,
        "iterations_per_day": 86_400 / step_s,
        "goodput": 1000.0,
        "cost_per_step": 0.5,
        "preemptions": 0.0,
        "binding": "trainer" if idle < 0.03 else "rollout",
        "trained_length_bias": 1.0,
        "samples_lost": {"all": 0.0, "longest_tenth": 0.0},
        "kv_use": 0.3,
        "instance_tok_s": 3000.0,
    } | others


def fluid(
    rate: float = 4000.0,
    floor_s: float = 0.0,
    noise: Callable[[int], float] = lambda replication: 0.0,
    staleness: Callable[[Scenario], float] = lambda s: 1.0,
    calls: list[tuple[int, int]] | None = None,
) -> Measure:
    """A fleet of exact rates: a batch takes B * len / (n * rate), at least `floor_s`; the trainer takes fixed_s."""

    def measure(scenario: Scenario, replication: int) -> Mapping[str, Any]:
        from fleetsim.job.nameplate import mean_output_tokens

        n, train = scenario.fleet.instances, scenario.trainer.fixed_s
        if calls is not None:
            calls.append((n, replication))
        produce = scenario.trainer.batch_samples * mean_output_tokens(scenario) / (n * rate)
        step = max(train, produce, floor_s) * (1.0 + noise(replication))
        gpus = n * scenario.engine.tp + scenario.trainer.gpus
        return metrics(
            step, max(0.0, 1.0 - train / step), cost_per_step=step / 3600 * 3 * gpus, staleness_p99=staleness(scenario)
        )

    return measure
