"""The values that a scenario leaves to its engine and its laws, worked out. A configuration for another program must
state them, because that program has other defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetsim.config.scenario import Scenario
from fleetsim.engine.defaults import MEMORY_SHARE, default_limits
from fleetsim.engine.gpus import gpu_of
from fleetsim.errors import InputError


def limits_of(scenario: Scenario) -> Mapping[str, Any]:
    """Dotted path -> value. Nothing for SGLang, which derives them from the memory it finds, nor for engines that are
    only a speed.

    Raises InputError for a GPU that nobody knows.
    """
    engine = scenario.engine
    if engine.kind != "roofline" or engine.name == "sglang":
        return {}
    seqs, tokens = default_limits(gpu_of(engine), engine.name, engine.entry_point)
    return {
        "engine.max_num_seqs": seqs,
        "engine.max_num_batched_tokens": tokens,
        "engine.gpu_memory_utilization": MEMORY_SHARE[engine.name],
    }


def generated_mean(scenario: Scenario) -> float:
    """Mean tokens of a sample, after the cap: what `--len` says. Raises InputError for a file that cannot be read."""
    from fleetsim.workload.lengths import mean_length

    return mean_length(scenario.workload.output_tokens, at_least=1.0)


def training_step_s(scenario: Scenario) -> float:
    """Seconds of a training step on a mean batch: those of the scenario, else of the trainer's model. Raises InputError
    for a file that cannot be read."""
    from fleetsim.config.paths import given_paths
    from fleetsim.job.derived_values import with_derived
    from fleetsim.job.nameplate import mean_step_s

    try:
        return mean_step_s(with_derived(scenario, given_paths(scenario)))
    except InputError:  # a trainer that is too small for its model: the file is told as it is
        return mean_step_s(scenario)
