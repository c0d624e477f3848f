"""Whole runs against closed forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fleetsim.config import Scenario, default_scenario, with_changes
from fleetsim.engine import EngineLimits, LinearStepTime
from fleetsim.estimates import estimate
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.replications import replicate
from fleetsim.sim.run import simulate

# The runbook's world: constant lengths, a constant rate per instance, prompts free, no sync cost.
RUNBOOK: dict[str, Any] = {
    "workload.output_tokens": 1536,
    "workload.group_size": 1,
    "engine.kind": "constant",
    "engine.instance_tok_s": 4000.0,
    "trainer.batch_samples": 512,
    "trainer.fixed_s": 20.0,
    "sync.pause_s": 0.0,
    "sync.trainer_block_s": 0.0,
    "run.steps": 40,
    "run.warmup_steps": 10,
    "run.replications": 1,
}


def scenario(**changes: Any) -> Scenario:
    return with_changes(default_scenario(), RUNBOOK | {k.replace("__", "."): v for k, v in changes.items()})


def test_undersized_fleet_is_a_d_d_1_queue() -> None:
    """8 instances make a batch in 24.576 s: the trainer idles 1 - 20 / 24.576 = 18.6 % (the runbook's figure).

    The first token of a response comes with its free prefill, so a response costs 1,535 decodes: 0.065 % less.
    """
    m = metrics_of(simulate(scenario(fleet__instances=8, admission__max_staleness=4.0)))
    produce = 512 * 1535 / (8 * 4000.0)
    assert m["step_s"] == pytest.approx(produce, rel=2e-3)
    assert m["trainer_idle_fraction"] == pytest.approx(1 - 20 / 24.576, abs=2e-3)
    assert m["binding"] == "rollout"


def test_matched_fleet_keeps_the_trainer_busy() -> None:
    """13 instances with slack in the window: the trainer never waits, a step is its compute."""
    m = metrics_of(simulate(scenario(fleet__instances=13, admission__max_staleness=4.0)))
    assert m["step_s"] == pytest.approx(20.0, rel=1e-9)
    assert m["trainer_idle_fraction"] == pytest.approx(0.0, abs=1e-12)
    assert m["binding"] == "trainer"


def test_producer_consumer_inequality() -> None:
    """Generation slower than training needs idles the trainer, faster idles the engines (open-instruct's principle).

    Required tok/s = prompts x samples x mean length / training step time.
    """
    required = 512 * 1535 / 20.0
    for instances in range(6, 15):
        m = metrics_of(simulate(scenario(fleet__instances=instances, admission__max_staleness=4.0)))
        generation = instances * 4000.0
        if generation < required:
            assert m["trainer_idle_fraction"] > 0.01
            assert m["rollout_idle_fraction"] < 0.01
        else:
            assert m["trainer_idle_fraction"] < 1e-9
            assert m["rollout_idle_fraction"] == pytest.approx(1 - required / generation, abs=0.01)


def test_oversized_fleet_without_a_cap_grows_the_runbooks_backlog() -> None:
    """15 instances, nothing holds them back: +20,678.4 tok/s. In samples of 1,535 decodes, over the whole run."""
    s = scenario(
        fleet__instances=15,
        fleet__max_in_flight_samples_per_instance=16,
        admission__law="unbounded",
        buffer__batch_rule="fifo",
        run__steps=400,
    )
    run = simulate(s)
    steps = run.steps
    surplus = np.diff(steps["queue_depth"])[10:].mean() * 1535 / 20.0
    assert surplus == pytest.approx(15 * 4000.0 - 512 * 1535 / 20.0, rel=0.01)
    assert surplus == pytest.approx(20_678.4, rel=0.02)


def test_barrier_step_is_generation_plus_training_plus_sync() -> None:
    """A synchronous step waits for the longest of B samples: mean x H_B for exponential lengths."""
    batch, mean, iteration = 128, 400.0, 1.0 / 50.0
    s = scenario(
        trainer__batch_samples=batch,
        workload__output_tokens={"kind": "gamma", "mean": mean, "cv": 1.0, "max": 100_000},
        engine__kind="constant",
        engine__instance_tok_s=1.0,
        fleet__instances=1,
        admission__law="barrier",
        buffer__batch_rule="fifo",
        sync__pause_s=2.0,
        sync__trainer_block_s=1.0,
        trainer__fixed_s=10.0,
        run__steps=200,
    )
    # an engine whose iterations take the same time whatever they hold: every sample at its own pace
    engine = (LinearStepTime(iteration), EngineLimits(4096, 65536, 1 << 40))
    step_s = []
    for r in range(8):
        run = simulate(s, replication=r, engine=engine)
        step_s.append(metrics_of(run)["step_s"])
        assert metrics_of(run)["binding"] == "longest_response"
    harmonic = sum(1 / k for k in range(1, batch + 1))
    # lengths are rounded to whole tokens (half a token up or down cancels), the first comes with the prefill
    expected = iteration * mean * harmonic + 10.0 + 2.0  # the trainer's block lies inside the pause
    got = estimate(step_s)
    assert got.ci_low - 0.05 <= expected <= got.ci_high + 0.05


def test_one_step_off_hides_the_shorter_of_the_two() -> None:
    """One batch ahead: a step is max(generation, training) + sync, D/D/1 with overlap."""
    for instances, expected in ((16, 20.0), (8, 512 * 1535 / 32_000.0)):
        s = scenario(fleet__instances=instances, admission__law="batches_ahead", buffer__batch_rule="fifo")
        assert metrics_of(simulate(s))["step_s"] == pytest.approx(expected, rel=1e-6)


def test_more_instances_never_beat_the_longest_response() -> None:
    """With one batch ahead a step cannot be shorter than the longest response of a batch takes alone."""
    s = scenario(
        engine__kind="roofline",
        workload__output_tokens={"kind": "lognormal", "mean": 1536, "cv": 1.0, "max": 8192},
        workload__group_size=8,
        admission__law="batches_ahead",
        fleet__instances=256,
        run__steps=20,
    )
    run = simulate(s)
    alone = 8191 * 0.004  # no engine of today decodes a 7B token in less than 4 ms on one H100
    assert metrics_of(run)["step_s"] > alone
    assert metrics_of(run)["binding"] in ("longest_response", "staleness_window")


def test_mean_staleness_of_a_version_window_is_at_most_eta() -> None:
    """(eta + v + 1) B - accepted bounds the *mean* staleness by eta, whatever the order of completion.

    The n-th group to start has v >= ceil(n / B) - eta - 1, the n-th to be trained is trained at step floor(n / B),
    and both run over the same groups.
    """
    for eta in (0.0, 0.5, 1.0, 3.0):
        s = with_changes(default_scenario(), {"admission.max_staleness": eta, "run.steps": 40, "run.replications": 2})
        assert replicate(s).metrics["staleness_steps"]["mean"].mean <= eta + 0.02


def test_intervals_cover_the_truth() -> None:
    """95 % intervals from 5 replications cover a known mean about 95 times in 100."""
    rng = np.random.default_rng(0)
    hits = sum(1 for _ in range(2000) if (e := estimate(rng.normal(3.0, 1.0, 5).tolist())).ci_low <= 3.0 <= e.ci_high)
    assert abs(hits / 2000 - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 2000)
