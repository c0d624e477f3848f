"""How full a fleet is, what a sync costs the trainer, and whether a backlog grows: by theory and by brute force."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from fleetsim.config import Scenario, default_scenario, with_changes
from fleetsim.errors import StuckError
from fleetsim.job.grounds import backlog_warnings
from fleetsim.job.trials import flat
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.replications import replicate
from fleetsim.sim.run import simulate
from tests.sim.random_scenarios import scenarios
from tests.sim.test_theory import RUNBOOK


def runbook(**changes: Any) -> Scenario:
    return with_changes(default_scenario(), RUNBOOK | {k.replace("__", "."): v for k, v in changes.items()})


@pytest.mark.parametrize("instances", [8, 13, 20, 40])
def test_utilization_is_what_the_trainer_takes_of_what_the_fleet_could_make(instances: int) -> None:
    """Constant rates: 4,000 tok/s an instance full, 512 x 1,535 tokens in 20 s taken."""
    m = metrics_of(simulate(runbook(fleet__instances=instances, admission__max_staleness=4.0)))
    assert m["rollout_utilization"] == pytest.approx(min(1.0, 512 * 1535 / 20.0 / (4000.0 * instances)), rel=0.01)


def job(**changes: Any) -> Scenario:
    base = {
        "workload.output_tokens": {"kind": "lognormal", "mean": 600, "cv": 0.6, "max": 2400},
        "engine.max_num_seqs": 64,
        "trainer.batch_samples": 128,
        "trainer.fixed_s": 8.0,
        "run.steps": 16,
        "run.warmup_steps": 4,
        "run.replications": 2,
    }
    return with_changes(default_scenario(), base | {k.replace("__", "."): v for k, v in changes.items()})


@pytest.mark.parametrize("placement", ["together", "spread"])
@pytest.mark.parametrize("prompt", [64, 4096])
def test_a_fleet_that_is_never_short_of_work_is_full(placement: str, prompt: int) -> None:
    """Unbounded work keeps every instance at its limits: the saturated rate is the rate that it then has."""
    full = job(
        fleet__instances=2,
        fleet__group_placement=placement,
        workload__prompt_tokens=prompt,
        admission__law="unbounded",
        trainer__fixed_s=0.1,
        sync__pause_s=0.0,
        sync__publish_s=0.0,
        sync__reset_prefix_cache=False,
    )
    assert metrics_of(simulate(full))["rollout_utilization"] == pytest.approx(1.0, abs=0.1)


def test_a_fleet_of_more_than_enough_is_not_idle_and_not_full() -> None:
    """An instance that computes for a few samples is busy all the time: idle says nothing, utilization does."""
    small, large = (
        metrics_of(simulate(job(fleet__instances=n, fleet__group_placement="spread", admission__max_staleness=3.0)))
        for n in (4, 8)
    )
    assert small["trainer_idle_fraction"] < 0.01
    assert large["rollout_idle_fraction"] < 0.05
    assert large["rollout_utilization"] < 0.35
    assert large["rollout_utilization"] == pytest.approx(small["rollout_utilization"] / 2, rel=0.15)


@settings(max_examples=25, deadline=None)
@given(scenarios())
def test_utilization_is_a_share(scenario: Scenario) -> None:
    try:
        m = metrics_of(simulate(scenario))
    except StuckError:
        return
    assert 0.0 <= m["rollout_utilization"] <= 1.0
    parts = [m[f"{name}_fraction"] for name in ("trainer_idle", "sync", "switch")]
    assert sum(parts) - 1e-9 <= m["not_training_fraction"] < 1.0


def test_a_slower_sync_never_reads_as_an_improvement() -> None:
    """What the trainer waits for samples may shrink while a sync holds it; what it does not train may not."""
    runs = [
        metrics_of(simulate(job(fleet__instances=2, sync__pause_s=0.0, sync__trainer_block_s=s)))
        for s in (0.0, 2.0, 6.0)
    ]
    waits = [m["trainer_idle_fraction"] for m in runs]
    both = [m["not_training_fraction"] for m in runs]
    assert waits == sorted(waits, reverse=True)
    assert both == sorted(both)
    assert [m["step_s"] for m in runs] == sorted(m["step_s"] for m in runs)


def test_a_backlog_without_bound_is_named_and_a_bounded_one_is_not() -> None:
    """The runbook's fleet of 15: 20,678 tok/s more than the trainer takes, 269 samples a step."""
    changes: dict[str, Any] = {"fleet.instances": 15, "buffer.batch_rule": "fifo", "run.steps": 60}
    changes["fleet.max_in_flight_samples_per_instance"] = 16
    for law, grows in (("unbounded", True), ("version_window", False)):
        s = with_changes(runbook(), {**changes, "admission.law": law})
        found = flat(replicate(s).metrics)
        assert found.pop("binding") == "trainer"
        assert (found["queue_growth"].mean == pytest.approx((15 * 4000 * 20 / 1535) - 512, rel=0.02)) == grows
        warnings = backlog_warnings(s, found)
        assert [w.startswith("the backlog grows without bound: 2") for w in warnings] == [True] * grows
    capped = with_changes(runbook(), {**changes, "admission.law": "unbounded", "buffer.capacity_samples": 1024})
    full = flat(replicate(capped).metrics)
    assert backlog_warnings(capped, full) == ()
    assert full["binding"] == "trainer"
    assert full["rollout_idle_fraction"].mean > 0.2
