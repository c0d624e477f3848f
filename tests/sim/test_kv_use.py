"""KV use while computing, and what a rolling sync that takes too long is called."""

from __future__ import annotations

import numpy as np
import pytest

from fleetsim.config import default_scenario, with_changes
from fleetsim.engine import EngineLimits, LinearStepTime
from fleetsim.errors import StuckError
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate

STEP = LinearStepTime(0.1)


def test_mean_use_over_the_iterations_of_one_request() -> None:
    """Prompt 64, output 161, blocks of 16: 0.1 s each, 4 blocks in the first iteration, ceil((64 + j) / 16) in the
    j-th of the 160 that follow; the trainer's 50 s in between do not count."""
    scenario = with_changes(
        default_scenario(),
        {
            "workload.prompt_tokens": 64,
            "workload.output_tokens": 161,
            "workload.group_size": 1,
            "fleet.instances": 1,
            "trainer.batch_samples": 1,
            "trainer.fixed_s": 50.0,
            "admission.law": "barrier",
            "run.steps": 4,
            "run.warmup_steps": 1,
        },
    )
    kv_blocks = 40
    metrics = metrics_of(simulate(scenario, engine=(STEP, EngineLimits(8, 512, kv_blocks))))
    held = [4, *(-(-(64 + j) // 16) for j in range(1, 161))]
    # a jump's blocks are counted as if they came evenly: within one block
    assert metrics["kv_use"] == pytest.approx(np.mean(held) / kv_blocks, abs=1 / kv_blocks)
    assert 0.2 < metrics["kv_use"] < 0.3


@pytest.mark.parametrize(("at_once", "binds"), [(1, True), (8, False)])
def test_a_rolling_sync_slower_than_the_steps_binds(at_once: int, binds: bool) -> None:
    scenario = with_changes(
        default_scenario(),
        {
            "workload.output_tokens": 100,
            "workload.group_size": 1,
            "fleet.instances": 8,
            "trainer.batch_samples": 8,
            "trainer.fixed_s": 4.0,
            "sync.scope": "rolling",
            "sync.at_once": at_once,
            "sync.pause_s": 3.0,
            "admission.max_staleness": 1.0,
            "run.steps": 12,
        },
    )
    metrics = metrics_of(simulate(scenario, engine=(STEP, EngineLimits(64, 65536, 1 << 30))))
    assert (metrics["binding"] == "sync") == binds


def test_a_window_that_a_small_buffer_wastes_names_the_buffer() -> None:
    scenario = with_changes(
        default_scenario(),
        {
            "workload.output_tokens": 100,
            "workload.group_size": 1,
            "fleet.instances": 2,
            "trainer.batch_samples": 4,
            "trainer.fixed_s": 40.0,
            "admission.law": "per_sync_window",
            "admission.staleness_threshold": 1.0,
            "buffer.capacity_samples": 4,
            "buffer.on_full": "drop_oldest",
            "buffer.batch_rule": "fifo",
            "sync.every_steps": 2,
            "sync.publish_s": 500.0,
        },
    )
    with pytest.raises(StuckError) as stuck:
        simulate(scenario, engine=(STEP, EngineLimits(64, 65536, 1 << 30)))
    assert stuck.value.limits[0].path == "buffer.capacity_samples"
