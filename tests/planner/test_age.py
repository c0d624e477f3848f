"""The age that a plan is told with is that of its samples when they are trained, not how far its fleet runs ahead."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import fleetsim as fs
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.job.trials import flat, simulated
from fleetsim.plan.plan import plan
from fleetsim.search.front import Budget
from fleetsim.search.permissions import allowed
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of

LONG = {"run.steps": 1_000}
OTHERS = range(11, 14)


def ages_of(scenario: Scenario, replication: int) -> NDArray[np.float64]:
    """Steps that the groups of a long run are old when they are trained."""
    records = simulate(with_changes(scenario, LONG), replication=replication)
    trained = records.groups["trained_step"] >= window_of(records).first
    return records.groups["trained_step"][trained] - records.updates[records.groups["version"][trained]]


@settings(max_examples=2, deadline=None)
@example(batch=32, mean=400, cv=0.5, budget=4.0, replications=2, gpus=8, seed=31)  # runs of 16 steps show 3 steps for 4
@example(batch=64, mean=400, cv=1.3, budget=8.0, replications=5, gpus=4, seed=12)
@given(
    batch=st.sampled_from([32, 64, 128]),
    mean=st.sampled_from([150, 400, 1000]),
    cv=st.sampled_from([0.5, 1.0, 1.3]),
    budget=st.sampled_from([0.5, 1.0, 2.0, 4.0, 8.0]),
    replications=st.sampled_from([2, 5]),
    gpus=st.sampled_from([2, 4, 8]),
    seed=st.integers(0, 100),
)
def test_no_plan_of_a_front_is_told_younger_than_a_long_run_shows(
    batch: int, mean: int, cv: float, budget: float, replications: int, gpus: int, seed: int
) -> None:
    changes = {"engine.pp": 1, "engine.dp": 1, "run.seed": seed}
    options = {"batch": batch, "len": mean, "len_cv": cv, "max_staleness": budget, "replications": replications}
    job = fs.load(None, changes, model="Qwen/Qwen2.5-1.5B", tp=1, **options)
    for row in plan(job.scenario, Budget(gpus), given=job.given).rows:
        assert row.age <= math.ceil(budget)
        long = flat(simulated(with_changes(row.scenario, LONG), 0))
        assert long["staleness_steps.p99"] <= row.age
        # Of independent runs 1 % may be older; groups share an age, so that few of them say it with an error.
        ages = np.concatenate([ages_of(row.scenario, r) for r in OTHERS])
        noise = 4 * math.sqrt(0.01 * 0.99 / len(ages))
        assert float((ages > row.age).mean()) <= 0.01 + noise


def test_a_permission_holds_the_age_and_not_the_window() -> None:
    """With one step allowed, a window of one version is too old: its longest responses are trained two steps later."""
    job = fs.load(
        None, {"run.steps": 16}, model="Qwen/Qwen2.5-1.5B", batch=128, len=1000, max_staleness=0, tp=1, replications=2
    )
    found = plan(job.scenario, Budget(4), given=job.given, allowed=allowed("staleness<=1"))
    assert {row.age for row in found.rows} == {1.0}
    assert found.best.scenario.admission.max_staleness < 1
    on_policy = plan(job.scenario, Budget(4), given=job.given)
    assert {row.age for row in on_policy.rows} == {0.0}
    assert "staleness<=1" in [name for name, _ in on_policy.better]
