"""Derived sync times in the simulated run: each of the three takes the place of the figure that it replaces."""

from __future__ import annotations

from typing import Any

import pytest

from fleetsim.config import default_scenario, with_changes
from fleetsim.engine import EngineLimits, LinearStepTime
from fleetsim.engine.transport import sync_times
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate

# One token takes 0.1 s, a sample 10 s, a batch is 4 samples of one, the trainer computes 4 s.
ENGINE = (LinearStepTime(0.1), EngineLimits(64, 65536, 1 << 30))
BASE: dict[str, Any] = {
    "workload.output_tokens": 100, "workload.prompt_tokens": 32, "workload.group_size": 1, "fleet.instances": 1,
    "trainer.batch_samples": 4, "trainer.fixed_s": 4.0, "run.steps": 12, "run.warmup_steps": 4,
    "admission.law": "barrier",
}  # fmt: skip
# 30 GB: 3 s through one rank that gathers 10 GB/s; 2 s written and 1.5 s read; nothing else takes time.
LINK = {
    "model_bytes": 30_000_000_000, "tensors": 1, "latency_s": 0.0, "tensor_s": 0.0, "gather_bytes_s": 1e10,
    "storage_write_bytes_s": 15e9, "storage_read_bytes_s": 20e9, "storage_latency_s": 0.0, "efficiency": 1.0,
}  # fmt: skip


def step_s(**changes: Any) -> float:
    changed = {k.replace("__", "."): v for k, v in changes.items()}
    return float(metrics_of(simulate(with_changes(default_scenario(), BASE | changed), engine=ENGINE))["step_s"])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # generation 10, training 4, all of the sync 3
        ({"sync__transport": "collective_broadcast"}, 17.0),
        # written in 2, then read in 1.5; the barrier waits for both
        ({"sync__transport": "checkpoint_shuttle"}, 17.5),
        # without a barrier the trainer is held while it writes: 4 + 2
        ({"sync__transport": "checkpoint_shuttle", "admission__law": "unbounded"}, 6.0),
        # a pinned time stands
        ({"sync__transport": "checkpoint_shuttle", "sync__pause_s": 0.0}, 16.0),
    ],
)
def test_step_time_by_hand(changes: dict[str, Any], expected: float) -> None:
    assert step_s(sync__link=LINK, **changes) == pytest.approx(expected, abs=0.15)


@pytest.mark.parametrize("scope", ["global", "rolling"])
def test_derived_and_given_seconds_are_the_same_run(scope: str) -> None:
    base = BASE | {"sync.scope": scope, "admission.law": "batches_ahead"}
    derived = with_changes(default_scenario(), base | {"sync.transport": "relay", "sync.link": LINK})
    times = sync_times(derived)
    given = {"publish_s": times.publish_s, "pause_s": times.pause_s, "trainer_block_s": times.trainer_block_s}
    by_hand = {f"sync.{name}": value for name, value in given.items()}
    assert min(given.values()) > 0.1
    alike = with_changes(default_scenario(), base | by_hand)
    assert metrics_of(simulate(derived, engine=ENGINE)) == metrics_of(simulate(alike, engine=ENGINE))
