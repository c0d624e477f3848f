"""Rates in the words of the field: completions per second and optimizer steps per day."""

from __future__ import annotations

import numpy as np
import pytest

import fleetsim as fs
from fleetsim.config import default_scenario, with_changes
from fleetsim.engine.kernel.tables import G_STALE
from fleetsim.sim.metrics import numbers_of
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of

# 32 samples, 16 to an instance: the first tokens take no time, the other 200 of each 8 s at 400 tok/s; then 20 s of
# training.
BARRIER = {
    "workload.output_tokens": 201,
    "workload.group_size": 4,
    "workload.prompt_tokens": 64,
    "engine.kind": "constant",
    "engine.instance_tok_s": 400.0,
    "fleet.instances": 2,
    "admission.law": "barrier",
    "trainer.batch_samples": 32,
    "trainer.fixed_s": 20.0,
    "trainer.per_token_s": 0.0,
    "trainer.phases": [],
    "sync.pause_s": 0.0,
    "sync.publish_s": 0.0,
    "sync.trainer_block_s": 0.0,
    "run.steps": 12,
}


def test_a_barrier_completes_a_batch_a_step() -> None:
    found = numbers_of(simulate(with_changes(default_scenario(), BARRIER)))
    assert found["step_s"] == pytest.approx(28.0)
    assert found["completions_per_s"] == pytest.approx(32 / 28.0)
    assert found["iterations_per_day"] == pytest.approx(86_400 / 28.0)


def test_a_completion_counts_that_is_then_dropped_and_one_that_is_aborted_does_not() -> None:
    """TRL's asynchronous trainer drops most of what is made: its engines complete more than a batch a step."""
    scenario = fs.load("presets/trl-async-grpo", batch=128).scenario
    records = simulate(scenario)
    found, window = numbers_of(records), window_of(records)
    assert np.any(records.groups["status"] == G_STALE)
    assert found["completions_per_s"] * found["step_s"] > 1.2 * scenario.trainer.batch_samples
    samples = records.samples[records.samples["finish_s"] > window.start_s]
    assert found["completions_per_s"] == pytest.approx(len(samples) / window.span_s, rel=0.02)
    # every completed sample has made all of its tokens
    assert np.all(samples["made"] == samples["target"])
