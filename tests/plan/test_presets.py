"""Every preset answers, whatever the batch, the lengths and the group size: its own caps follow."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fleetsim.config.data_files import presets
from fleetsim.job.job import StatedJob, job_from_flags
from fleetsim.sim.run import simulate
from fleetsim.size.size import size
from fleetsim.split.split import split

JOBS: dict[str, dict[str, Any]] = {
    "small": {"batch": 64, "len": 300},
    "large": {"batch": 2048, "len": 500},
    "other groups": {"batch": 96, "group_size": 4, "len": 900},
}
FEW = ["run.steps=3", "run.warmup_steps=1"]
# slime keeps 512 groups an engine in flight: seconds of simulation that show nothing more than an eighth of them does.
FEWER = {"slime-fully-async": ["admission.pool_samples=4096", "buffer.capacity_samples=4096"]}


def job_of(name: str, kind: str) -> StatedJob:
    return job_from_flags(name, [*FEW, *FEWER.get(name, ())], {**JOBS[kind], "replications": 1})


@pytest.mark.parts
@pytest.mark.parametrize("name", sorted(presets()))
def test_every_preset_answers(name: str) -> None:
    for kind in JOBS:
        assert len(simulate(job_of(name, kind).scenario).steps) == 3
    job = job_of(name, "small")
    assert size(job.scenario, given=job.given).instances >= 1
    job = job_of(name, "other groups")
    ways = split(job.scenario, 4, given=job.given)
    assert not ways.stuck
    assert math.isfinite(ways.chosen.mean("step_s"))


@pytest.mark.parametrize("name", ["nemo-rl-async-grpo", "nemo-rl-sc-in-order"])
def test_a_queue_that_fills_with_later_steps_is_no_answer(name: str) -> None:
    """Groups are reserved for their steps: within the arithmetic's bound, a batch, the job gets stuck."""
    job = job_from_flags(name, FEW, {"batch": 1024, "len": 500, "replications": 1})
    found = size(job.scenario, given=job.given)
    assert found.queue_cap.bound_samples == 1024
    assert found.queue_cap.samples > 1024
    assert math.isfinite(found.queue_cap.step_cost)
