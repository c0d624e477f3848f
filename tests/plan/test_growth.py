"""Jobs whose responses grow: sized where they are longest, and told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fleetsim as fs
from fleetsim.config import default_scenario, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.workload import LengthSpec
from fleetsim.job.lengths import as_asked, where_longest
from fleetsim.job.trials import planned
from fleetsim.workload.groups import GroupSource
from fleetsim.workload.lengths import mean_length, sample_lengths, scaled_law

LAWS: list[dict[str, Any]] = [
    {"kind": "constant", "value": 700},
    {"mean": 900.0, "cv": 1.2, "max": 4096.0},
    {"median": 400.0, "p99": 3000.0},
    {"kind": "gamma", "mean": 600.0, "cv": 0.7, "max": 2000.0},
    {"kind": "histogram", "le": [128.0, 512.0, 2048.0], "count": [10.0, 70.0, 20.0]},
    {"kind": "empirical", "column": "tokens"},
]


def law_of(raw: dict[str, Any], folder: Path) -> LengthSpec:
    if raw.get("kind") == "empirical":
        file = folder / "lengths.csv"
        values = [*np.random.default_rng(1).lognormal(6, 1, 300).round().astype(int), *[2048] * 40]
        file.write_text("tokens\n" + "\n".join(map(str, values)))
        raw = {**raw, "file": str(file), "max": 3000.0}
    return with_changes(default_scenario(), {"workload.output_tokens": raw}).workload.output_tokens


@pytest.mark.parametrize("raw", LAWS, ids=lambda raw: raw.get("kind", "lognormal"))
@pytest.mark.parametrize("factor", [0.3, 1.0, 3.7, 40.0])
def test_a_scaled_law_draws_what_the_law_draws_scaled(raw: dict[str, Any], factor: float, tmp_path: Path) -> None:
    """The same normals give the same tokens, to a rounding, or to a bucket of measured ones."""
    law = law_of(raw, tmp_path)
    ours, theirs = (
        sample_lengths(one, np.random.default_rng(0), 4000, scale=by)
        for one, by in ((scaled_law(law, factor), 1.0), (law, factor))
    )
    if raw.get("kind") == "empirical":
        assert np.mean(ours) == pytest.approx(np.mean(theirs), rel=0.02)
        assert np.quantile(ours, [0.1, 0.5, 0.9]) == pytest.approx(np.quantile(theirs, [0.1, 0.5, 0.9]), rel=0.03)
    else:
        assert np.abs(ours - theirs).max() <= 1


@example(drift=0.25, steps=64, mean=859.5, most=4000.0)  # beyond what a scenario may hold
@settings(max_examples=40, deadline=None)
@given(
    drift=st.floats(-0.3, 0.3).filter(lambda d: abs(d) > 1e-6),
    steps=st.integers(2, 200),
    mean=st.floats(50, 3000),
    most=st.floats(4000, 30000),
)
def test_a_plan_is_made_for_the_longest_lengths_that_a_run_sends(
    drift: float, steps: int, mean: float, most: float
) -> None:
    changes = {
        "workload.length_drift_per_step": drift,
        "run.steps": steps,
        "workload.output_tokens": {"mean": mean, "cv": 0.8, "max": most},
    }
    job = with_changes(default_scenario(), changes)
    plan = planned(job, {"run.steps"})
    source = GroupSource(job.workload, np.random.SeedSequence(0), groups_per_step=1)
    factors = source.group_factor(np.arange(steps))
    longest = max(mean_length(job.workload.output_tokens, scale=float(f)) for f in (factors[0], factors[-1]))
    assert plan.workload.length_drift_per_step == 0
    assert mean_length(plan.workload.output_tokens) == pytest.approx(longest, rel=1e-6)
    assert as_asked(plan, job).workload == job.workload


def test_nothing_changes_without_a_drift() -> None:
    job = default_scenario()
    assert where_longest(job) == {}
    assert planned(job, {"run.steps"}) == job
    assert not [n for n in fs.load().notes if "responses" in n]


def growing(**more: Any) -> fs.Job:
    changes = {"workload.length_drift_per_step": 0.04, "run.steps": 30, "admission.max_staleness": 3, **more}
    return fs.load(None, changes, batch=64, len=400, trainer_step_s=30.0, replications=2, instance_tok_s=300.0)


def idle_at_the_end(job: Scenario, instances: int) -> float:
    """Trainer idle over the last six steps of the run as it was asked for."""
    found = fs.load(with_changes(job, {"fleet.instances": instances, "run.warmup_steps": 24})).simulate()
    return found.mean["trainer_idle_fraction"]


def test_the_fleet_holds_at_the_end_of_the_run_and_one_for_its_begin_does_not() -> None:
    job, flat = growing(), growing(**{"workload.length_drift_per_step": 0.0})
    plan, begin = job.size(), flat.size()
    assert plan.instances > 1.5 * begin.instances
    assert idle_at_the_end(job.scenario, plan.instances) <= 0.05 + 0.03
    assert idle_at_the_end(job.scenario, begin.instances) > 0.15


@pytest.mark.usefixtures("quick")
def test_every_door_tells_of_the_growth(tmp_path: Path) -> None:
    job = growing()
    for found in (job.size(), job.split(8), job.simulate()):
        told = [w for w in found.warnings if "responses grow" in w]
        assert len(told) == 1
        assert "to 1,1" in told[0] or "to 1,2" in told[0], told  # 400 x 1.04^29
        assert "--set run.steps=N" in told[0]
    assert "which nobody gave" not in told[0]
    assert "which nobody gave" in fs.load(None, {"workload.length_drift_per_step": -0.01}).notes[0]
    assert "responses shrink" in fs.load(None, {"workload.length_drift_per_step": -0.01}).notes[0]


def test_an_advised_split_keeps_the_jobs_own_lengths() -> None:
    job = growing()
    assert job.split(8).job.scenario.workload == job.scenario.workload
