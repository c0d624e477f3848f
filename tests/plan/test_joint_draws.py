"""Ranges hold what joint draws of the inputs in doubt make of a step, though each input is moved alone; doubt that two
sides share cancels out."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

import fleetsim as fs
from fleetsim.compare.compare import Comparison, MetricChange
from fleetsim.config import Scenario
from fleetsim.config.load import with_changes
from fleetsim.job.input_moves import in_doubt
from fleetsim.job.trials import flat, simulated

SMALL: dict[str, Any] = {"batch": 64, "len": 300, "model": "Qwen/Qwen2.5-1.5B", "replications": 2, "steps": 40}
CASES: dict[str, dict[str, Any]] = {
    "another fleet": {"fleet.instances": 1},
    "fewer syncs": {"sync.every_steps": 3},
    "less staleness": {"admission.max_staleness": 1.0},
}
DRAWS = 24


@cache
def sides(case: str) -> tuple[Any, Any]:
    job = fs.load(**SMALL, instances=2)
    return job, job.with_(CASES[case])


@cache
def compared(case: str) -> Comparison:
    found: Comparison = fs.compare(*sides(case)).comparison
    return found


def step(case: str) -> MetricChange:
    return next(c for c in compared(case).changes if c.metric == "step_s")


def off_together(job: Any, z: Any) -> float:
    """A step where all inputs are off by draws of their laws. z: standard normal deviates, one each."""
    scenario: Scenario = job.scenario
    for k, (uncertain, _ends) in enumerate(in_doubt(job.scenario, job.given)):
        law = uncertain.law(job.scenario, job.given)
        assert law is not None
        scenario = with_changes(scenario, uncertain.times(scenario, float(law.factors(z[k]))))
    return float(flat(simulated(scenario, 0))["step_s"])


def deviates() -> list[Any]:
    chance = np.random.default_rng(7)
    return [chance.normal(size=8) for _ in range(DRAWS)]


@pytest.mark.parametrize("case", CASES)
def test_most_joint_draws_lie_within_the_range(case: str) -> None:
    """Eight in ten; a binomial of 24 with 0.8 is below 15 in one of a hundred cases."""
    likely = step(case).likely
    assert likely is not None
    low, high = likely
    slack = 0.005  # of the one replication that is drawn
    a, b = sides(case)
    ratios = [off_together(b, z) / off_together(a, z) for z in deviates()]
    assert sum(low * (1 - slack) <= ratio <= high * (1 + slack) for ratio in ratios) >= 15


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("max_staleness", [1, 4])
def test_most_joint_draws_lie_within_the_range_of_a_run(instances: int, max_staleness: int) -> None:
    job = fs.load(**SMALL, instances=instances, max_staleness=max_staleness)
    low, high = job.simulate().to_dict()["ranges"]["metrics"]["step_s"]
    assert sum(low <= off_together(job, z) <= high for z in deviates()) >= 15


@pytest.mark.parametrize("case", CASES)
def test_doubt_that_both_sides_share_cancels_out_in_part(case: str) -> None:
    likely = step(case).likely
    assert likely is not None
    low, high = sides(case)[0].simulate().to_dict()["ranges"]["metrics"]["step_s"]
    assert math.log(likely[1] / likely[0]) < math.log(high / low)


def test_a_job_beside_itself_is_not_in_doubt() -> None:
    job, _ = sides("fewer syncs")
    for change in fs.compare(job, job.with_({"run.seed": job.scenario.run.seed})).comparison.changes:
        assert change.likely is None or change.likely == pytest.approx(
            (1.0, 1.0) if "step" in change.metric else (0, 0)
        )
