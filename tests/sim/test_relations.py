"""What should hold whatever the job: more of a resource makes no step longer, and a version window bounds staleness.

Jobs with `sync.in_flight: drain` are no counter-examples but break the first relation for good, and are left out of it:
they wait at every publication for the last of what is in flight. The longest of more responses is longer
(`test_a_drain_waits_for_the_longest_of_what_is_in_flight`), so that more room for responses is a longer sync.
With `abort_discard` a shorter pause can mean longer steps: it moves when work is thrown away.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetsim.config import Scenario, default_scenario, with_changes
from fleetsim.engine import EngineLimits, LinearStepTime
from fleetsim.engine.kernel.tables import G_TRAINED
from fleetsim.errors import StuckError
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate

LAWS = [
    "barrier",
    "batches_ahead",
    "version_window",
    "fixed_pool",
    "unbounded",
    "cumulative_ratio",
    "target_step",
    "per_sync_window",
]
STOPS = ["abort_resume", "keep", "keep_recompute", "finish_on_old_weights", "abort_discard"]


@st.composite
def jobs(draw: st.DrawFn, laws: list[str], stops: list[str]) -> Scenario:
    """Small jobs without failures, stragglers or drops: what is changed is the only thing that changes."""

    def one(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    changes = {
        "workload.group_size": one(1, 4),
        "workload.prompt_tokens": 32,
        "workload.output_tokens": {"kind": "lognormal", "mean": 200, "cv": one(0.3, 1.0), "max": 1500},
        "engine.kv_blocks": one(300, 5000),
        "engine.max_num_seqs": one(8, 32),
        "fleet.instances": one(2, 4),
        "fleet.group_placement": one("together", "spread"),
        "fleet.routing": one("least_loaded", "round_robin"),
        "fleet.max_in_flight_samples": one(None, 16, 48),
        "fleet.in_flight_unit": one("samples", "groups"),
        "trainer.batch_samples": one(16, 32),
        "trainer.fixed_s": one(0.5, 3.0),
        "sync.pause_s": one(0.0, 0.3, 1.0),
        "sync.publish_s": one(0.0, 0.5),
        "sync.trainer_block_s": one(0.0, 0.5),
        "sync.in_flight": one(*stops),
        "admission.law": one(*laws),
        "admission.max_staleness": one(0.0, 0.5, 1.0, 3.0),
        "admission.staleness_threshold": one(0.0, 0.1, 0.5, 1.0),
        "admission.pool_samples": one(16, 48),
        "admission.async_ratio": one(0.0, 1.0),
        "buffer.batch_rule": one("fifo", "oldest_version_first"),
        "run.seed": draw(st.integers(0, 5)),
        "run.steps": 8,
        "run.warmup_steps": 0,
    }
    return with_changes(default_scenario(), changes)


def mean_step_s(scenario: Scenario, steps: int, replications: int = 1) -> float:
    """Seconds per step from the start of the run."""
    runs = [simulate(with_changes(scenario, {"run.steps": steps}), replication=r) for r in range(replications)]
    return float(np.mean([run.steps["end_s"][-1] / steps for run in runs]))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(jobs(LAWS, STOPS))
def test_more_makes_no_step_longer(scenario: Scenario) -> None:
    """More sequences, instances or room in flight, and no pause. Luck of eight steps is gone in a long run."""
    fleet = scenario.fleet
    better: list[dict[str, Any]] = [
        {"engine.max_num_seqs": 2 * (scenario.engine.max_num_seqs or 1)},
        {"fleet.instances": fleet.instances + 1},
        {"fleet.instances": 2 * fleet.instances},
    ]
    if scenario.sync.in_flight != "abort_discard":
        better += [{"sync.pause_s": 0.0}, {"sync.pause_s": 0.0, "sync.trainer_block_s": 0.0}]
    if fleet.max_in_flight_samples is not None:
        better.append({"fleet.max_in_flight_samples": 2 * fleet.max_in_flight_samples})
    try:
        before = mean_step_s(scenario, 8)
    except StuckError:
        return
    for changes in better:
        changed = with_changes(scenario, changes)
        if mean_step_s(changed, 8) > 1.03 * before:
            assert mean_step_s(changed, 60, 3) <= 1.02 * mean_step_s(scenario, 60, 3), changes


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    scenario=jobs(["version_window"], [*STOPS, "drain"]),
    steps=st.sampled_from([6, 12]),
    warmup=st.integers(0, 4),
    filtered=st.sampled_from([0.0, 0.3]),
)
def test_mean_staleness_of_a_whole_run_is_at_most_eta(
    scenario: Scenario, steps: int, warmup: int, filtered: float
) -> None:
    """The n-th group to start is sent under a version of at least n / B - eta - 1, and all batches are whole.

    So the mean over all steps from the first on is at most eta. Without the first w of n steps, which are younger, it
    is at most eta n / (n - w): an old group that was overtaken in the warm-up counts in the window, and less the longer
    that is.
    """
    eta = scenario.admission.max_staleness
    changes = {"run.steps": steps, "run.warmup_steps": warmup, "workload.filter.zero_variance_share": filtered}
    try:
        records = simulate(with_changes(scenario, changes))
    except StuckError:
        return
    trained = records.groups[records.groups["status"] == G_TRAINED]
    staleness = trained["trained_step"] - records.updates[trained["version"]]
    assert np.all(staleness >= 0)
    assert staleness.mean() <= eta + 1e-9
    window = metrics_of(records)["staleness_steps"]["mean"]
    assert window <= eta * steps / (steps - warmup) + 1e-9


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    scenario=jobs(["per_sync_window"], [stop for stop in [*STOPS, "drain"] if stop != "abort_discard"]),
    scope=st.sampled_from(["global", "rolling"]),
    every=st.integers(1, 2),
)
def test_a_sync_window_is_a_version_window_of_the_same_staleness(scenario: Scenario, scope: str, every: int) -> None:
    """Where nothing is thrown away: (1 + theta) W since the last publication are (theta + v + 1) W in all."""
    scenario = with_changes(scenario, {"sync.scope": scope, "sync.every_steps": every})
    theta = scenario.admission.staleness_threshold
    other = with_changes(scenario, {"admission.law": "version_window", "admission.max_staleness": theta})
    runs = []
    for law in (scenario, other):
        try:
            runs.append(simulate(law))
        except StuckError:
            runs.append(None)
    if runs[0] is None or runs[1] is None:
        assert runs == [None, None]
        return
    assert np.array_equal(runs[0].steps, runs[1].steps)
    assert np.array_equal(runs[0].groups, runs[1].groups)


@pytest.mark.parametrize("in_flight", [4, 32])
def test_a_drain_waits_for_the_longest_of_what_is_in_flight(in_flight: int) -> None:
    """Exponential lengths have no memory: what is left of K of them lasts as long as the longest of K, mean x H_K."""
    mean, iteration = 400.0, 0.02
    scenario = with_changes(
        default_scenario(),
        {
            "workload.output_tokens": {"kind": "gamma", "mean": mean, "cv": 1.0, "max": 100_000},
            "workload.prompt_tokens": 1,
            "workload.group_size": 1,
            "fleet.instances": 1,
            "fleet.max_in_flight_samples": in_flight,
            "trainer.batch_samples": in_flight,
            "trainer.fixed_s": 30.0,
            "sync.in_flight": "drain",
            "sync.publish_s": 0.0,
            "sync.pause_s": 0.0,
            "sync.trainer_block_s": 0.0,
            "admission.law": "unbounded",
            "buffer.batch_rule": "fifo",
            "run.steps": 400,
        },
    )
    engine = (LinearStepTime(iteration), EngineLimits(64, 65_536, 1 << 40))
    syncs = simulate(scenario, engine=engine).syncs
    drained = (syncs["pause_start_s"] - syncs["trigger_s"])[10:]
    expected = iteration * mean * sum(1 / k for k in range(1, in_flight + 1))
    error = float(drained.std()) / len(drained) ** 0.5
    assert abs(float(drained.mean()) - expected) < 4 * error
