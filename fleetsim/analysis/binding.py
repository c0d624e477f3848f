"""What binds: the one thing to change if the step should be shorter."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim.config.scenario import Scenario
from fleetsim.engine.step_time import StepTime

# Below this share of the cycle the trainer's waiting is not worth a GPU.
SMALL_WAIT = 0.03
# Halving what every instance holds must shorten an iteration by this share, or more instances buy nothing.
WORTH_SPLITTING = 0.10


def binding_of(
    scenario: Scenario, step_time: StepTime, steps: NDArray[Any], span_s: float, publication_s: float = 0.0
) -> str:
    """trainer | sync | in_flight_cap | rollout | staleness_window | longest_response.

    The trainer hardly waits: `sync` if it is held by sync for longer than it waits and for over a tenth of the cycle,
    else `trainer`. It waits: in this order `sync` if sync holds it longer than the samples do, or if a rolling
    publication takes longer than a step (publication_s, until the last instance has it) while admission waits for it,
    `in_flight_cap` if the client's cap was reached when batches completed, `rollout` if requests wait inside the
    engines or halving an instance's load would make its iterations over a tenth shorter, else `staleness_window` if
    admission had no credit left, else `longest_response`: the engines are as fast as they get, and the last sample
    takes so long.

    A full buffer is not among them: it stops generation while the trainer has samples. That costs the smoothing of
    unequal batches, but it is never what the trainer waits for.
    """
    wait = float(steps["wait_s"].sum()) / span_s
    sync = float(steps["sync_block_s"].sum()) / span_s
    if wait < SMALL_WAIT:
        return "sync" if sync > max(wait, 0.1) else "trainer"
    if sync > wait or (_waits_for_versions(scenario) and publication_s > span_s / len(steps)):
        return "sync"
    # what the fleet looked like at the batches that were waited for, weighted by the wait
    weight = steps["wait_s"] / steps["wait_s"].sum()
    if _capped(scenario, steps, weight):
        return "in_flight_cap"
    if float((weight * (steps["waiting"] > 0)).sum()) > 0.5 or _splitting_pays(step_time, steps):
        return "rollout"
    if scenario.admission.law not in ("barrier", "unbounded", "adaptive") and not _on_policy(scenario):
        starved = float((weight * (steps["credits"] <= 0)).sum())
        return "staleness_window" if starved > 0.5 else "longest_response"
    return "longest_response"


def _waits_for_versions(scenario: Scenario) -> bool:
    """Rolling publications, and a law that lets groups in by published versions."""
    law = scenario.admission.law
    return scenario.sync.scope == "rolling" and law in ("version_window", "target_step", "per_sync_window")


def _on_policy(scenario: Scenario) -> bool:
    """A cumulative ratio of 0 starts a batch with every step: a barrier by another name."""
    return scenario.admission.law == "cumulative_ratio" and scenario.admission.async_ratio == 0.0


def _capped(scenario: Scenario, steps: NDArray[Any], weight: NDArray[np.float64]) -> bool:
    fleet, group = scenario.fleet, scenario.workload.group_size
    caps = [fleet.max_in_flight_samples or 0]
    if fleet.max_in_flight_samples_per_instance:
        caps.append(fleet.max_in_flight_samples_per_instance * fleet.instances)
    return any(float((weight * (steps["in_flight"] > cap - group)).sum()) > 0.5 for cap in caps if cap)


def _splitting_pays(step_time: StepTime, steps: NDArray[Any]) -> bool:
    """Whether an iteration at half the mean load would be a tenth shorter; mean load by Little's law."""
    if len(steps) < 2 or steps["busy_s"][-1] <= steps["busy_s"][0]:
        return False
    span = steps["busy_s"][-1] - steps["busy_s"][0]
    tokens = steps["generated_tokens"][-1] - steps["generated_tokens"][0]
    rate = tokens / span  # tokens per busy instance-second
    load, context = load_at(step_time, rate, float(mean_context(steps)))
    full = step_time.seconds(max(1, round(load)), kv_tokens=load * context)
    half = step_time.seconds(max(1, round(load / 2)), kv_tokens=load / 2 * context)
    return half < (1 - WORTH_SPLITTING) * full


def mean_context(steps: NDArray[Any]) -> float:
    """Prompt plus half the output of a trained sample: the mean number of cached tokens of a decode."""
    samples = steps["samples"].sum()
    prompt = (steps["tokens"] - steps["output_tokens"]).sum() / samples
    return float(prompt + steps["output_tokens"].sum() / samples / 2)


def load_at(step_time: StepTime, rate: float, context: float) -> tuple[float, float]:
    """Decodes per iteration b at which an instance makes `rate` tokens/s: b = rate * t(b), by bisection."""
    low, high = 1.0, 8192.0
    for _ in range(30):
        middle = (low + high) / 2
        b = max(1, round(middle))
        if b / step_time.seconds(b, kv_tokens=b * context) < rate:
            low = middle
        else:
            high = middle
    return high, context
