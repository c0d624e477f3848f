"""A fleet that is sent whole groups, and has fewer of them than instances: some stand without work all the time."""

from __future__ import annotations

from pathlib import Path

import pytest

import fleetsim as fs
from tests.replay.test_end_to_end import exported

# One batch of 512, in so many groups that go to one of the four instances each.
JOB = "async-one-step"


@pytest.mark.parametrize("group_size", [512, 256])
def test_what_a_few_large_groups_cost_is_named_and_comes_true(group_size: int, tmp_path: Path) -> None:
    """Least loaded is no cure: a group stays together. What spreading its samples is foretold to save, it saves."""
    changes = {"workload.group_size": group_size, "run.seed": 77}
    told = fs.replay(exported(JOB, tmp_path, steps=60, **{"workload.group_size": group_size})).document()
    (found,) = (cause for cause in told["diagnosis"] if cause["cause"] == "straggler")
    assert "work is spread unevenly" in found["why"]
    assert "fleet.group_placement=spread" in " ".join(found["do"])
    job = fs.load(JOB, changes, steps=60, replications=1)
    was, even = (job.with_({"fleet.group_placement": p}).simulate().mean["step_s"] for p in ("together", "spread"))
    assert found["seconds_per_step"]["mean"] == pytest.approx(was - even, abs=0.05 * was)
