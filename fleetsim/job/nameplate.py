"""What the arithmetic needs to know of a scenario: tokens per batch, trainer seconds, and an instance's own rate.

An instance's rate is no constant: it depends on how many samples it holds. The nameplate rate is the decode rate of
the step-time model at the concurrency that the plan implies:

    samples in flight / instances, at most max_num_seqs and what the KV cache holds,
    each with the context of a sample met in flight: prompt + E[L^2] / (2 E[L]) output tokens

(L = output length; samples in flight are length-biased, and on average half written). Prompts are free in it, nothing
pauses and no instance runs out of work: what it loses to those is the headroom that the simulation computes.

Beside it stands what a scenario leaves to its engine and its laws, worked out: a configuration for another program must
state that, because that program has other defaults.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fleetsim.config.law_numbers import law_of, sizes_of
from fleetsim.config.scenario import Scenario
from fleetsim.engine.defaults import MEMORY_SHARE, default_limits
from fleetsim.engine.gpus import gpu_of
from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag, setting, text
from fleetsim.workload.lengths import mean_length, typical_lengths
from fleetsim.workload.turns import mean_turns, response_law

_QUANTILES = 400


def mean_output_tokens(scenario: Scenario) -> float:
    """Mean generated tokens per sample, of the capped law. Rounded to a millionth of a token, far below its error."""
    return round(mean_length(response_law(scenario.workload), at_least=1.0), 6)


def mean_prompt_tokens(scenario: Scenario) -> float:
    """Mean tokens of a prompt, of the capped law."""
    return mean_length(scenario.workload.prompt_tokens, at_least=1.0)


def mean_batch_tokens(scenario: Scenario) -> float:
    """Tokens that a mean batch is trained on: prompts, outputs, and what tools answer, which stands in the context."""
    turns = scenario.workload.turns
    tools = (mean_turns(scenario.workload) - 1.0) * mean_length(turns.tool_tokens, at_least=0.0)
    sample = mean_prompt_tokens(scenario) + mean_output_tokens(scenario) + tools
    return scenario.trainer.batch_samples * sample


def mean_step_s(scenario: Scenario) -> float:
    """Compute seconds of a step on a mean batch: fixed, per token, and the phases before the update."""
    t, tokens = scenario.trainer, mean_batch_tokens(scenario)
    return t.fixed_s + t.per_token_s * tokens + sum(p.fixed_s + p.per_token_s * tokens for p in t.phases)


def trainer_step_s(scenario: Scenario) -> float:
    """Compute seconds of one optimizer step on a mean batch.

    A trainer without compute time waits for samples only; then the step time that is aimed at takes its place.
    Raises InputError when there is neither.
    """
    total = mean_step_s(scenario)
    if total > 0:
        return total
    if scenario.targets.step_s is not None:
        return scenario.targets.step_s
    raise InputError(
        [
            Problem(
                "trainer.fixed_s",
                scenario.trainer.fixed_s,
                "a fleet is sized against the trainer's seconds per step, and there are none",
                text("give {}, or the step time to aim at: {}", flag("trainer_step_s"), setting("targets.step_s", 20)),
            )
        ]
    )


def samples_in_flight(scenario: Scenario) -> float:
    """Samples that the plan keeps generating: what the admission law leaves beside the batch in training, and caps."""
    by_law = law_of(scenario).in_flight(scenario.admission, sizes_of(scenario))
    cap = scenario.fleet.max_in_flight_samples
    return by_law if cap is None else min(by_law, cap)


def context_in_flight(scenario: Scenario) -> float:
    """Mean KV tokens of a sample met in flight: prompt + E[L^2] / (2 E[L]) + half of the tools' answers."""
    w = scenario.workload
    lengths = typical_lengths(response_law(w), _QUANTILES)
    written = float(np.mean(lengths**2) / (2.0 * np.mean(lengths)))
    answers = (mean_turns(w) - 1.0) * mean_length(w.turns.tool_tokens) / 2.0
    return mean_prompt_tokens(scenario) + written + answers


def nameplate_rate(scenario: Scenario) -> Callable[[int], float]:
    """Output tokens per second of one instance as a function of the instance count. Raises InputError as engines do."""
    from fleetsim.sim.engines import engine_of

    step_time, limits = engine_of(scenario)
    if step_time.kind == "constant":
        rate = step_time.decode_tok_s(1, 0.0)
        return lambda instances: rate
    in_flight, context = samples_in_flight(scenario), context_in_flight(scenario)
    held = limits.held_tokens(context)
    most = min(limits.max_num_seqs, max(1, int(limits.kv_tokens // held)))
    per_instance = scenario.fleet.max_in_flight_samples_per_instance
    if per_instance is not None:
        most = min(most, per_instance)

    def rate_at(instances: int) -> float:
        held = min(float(most), in_flight / instances)
        if held >= 1.0:
            # Between two whole concurrencies the rate is interpolated, so that supply never falls with the count.
            low = math.floor(held)
            below, above = step_time.decode_tok_s(low, context), step_time.decode_tok_s(low + 1, context)
            return below + (held - low) * (above - below)
        return held * step_time.decode_tok_s(1, context)

    return rate_at


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
    return mean_length(response_law(scenario.workload), at_least=1.0)
