"""When a run without a length ends: what its interval holds, and that it ends as a longer one begins."""

from __future__ import annotations

import numpy as np
import pytest

from fleetsim.config import load_scenario
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import most_steps, settles
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import PRECISION, Steady, off_by, simulate
from fleetsim.sim.window import warmup_steps


def test_the_interval_holds_the_mean_in_nineteen_of_twenty_runs() -> None:
    """Of steps that do not depend on each other, as theory has it: t over eight batch means."""
    random = np.random.default_rng(7)
    runs = random.normal(30.0, 3.0, (2000, 40))
    held = [abs(run.mean() / 30.0 - 1.0) <= off_by(run) for run in runs]
    assert 0.93 <= np.mean(held) <= 0.97


def test_steps_that_depend_on_each_other_have_a_wider_one() -> None:
    random = np.random.default_rng(3)
    alone = random.normal(0.0, 1.0, (400, 400))
    alike = np.zeros_like(alone)
    for i in range(1, alone.shape[1]):
        alike[:, i] = 0.8 * alike[:, i - 1] + 0.6 * alone[:, i]  # the same variance
    wide, narrow = (np.mean([off_by(30.0 + run[40:]) for run in runs]) for runs in (alike, alone))
    assert wide > 2.0 * narrow
    held = [abs(run[40:].mean()) / 30.0 <= off_by(30.0 + run[40:]) for run in alike]
    assert np.mean(held) >= 0.9


@pytest.mark.parametrize("growth", [0.1, 0.04])
def test_a_run_whose_steps_grow_goes_on(growth: float) -> None:
    """Where it looks first, eight steps differ little; but they follow each other upwards, which is no chance."""
    watch, now_s = Steady(load_scenario("async-one-step")), 0.0
    for step in range(400):
        now_s += 10.0 + growth * step
        assert not watch(step + 1, now_s)


def test_a_calm_end_of_a_run_is_not_believed_while_its_beginning_is_longer_than_a_third() -> None:
    """Eighteen uneven steps, then even ones: 23 of these would do, had the run not been uneven for nearly as long."""
    uneven = np.where(np.arange(60) < 18, 34.0 + 8.0 * np.sin(np.arange(60.0) ** 2), 26.0)
    scenario, ends = load_scenario("async-one-step"), np.cumsum(uneven)
    watch = Steady(scenario)
    assert next(n for n in range(1, 61) if watch(n, float(ends[n - 1]))) > 3 * 15
    assert warmup_steps(scenario, uneven[:41]) == 18
    assert off_by(uneven[18:41]) <= PRECISION


@pytest.mark.parametrize("name", ["async-one-step", "presets/areal", "presets/trl-async-grpo"])
def test_it_is_the_beginning_of_a_longer_run_and_near_its_mean(name: str) -> None:
    scenario = load_scenario(name)
    assert settles(scenario)
    short = simulate(scenario)
    long = simulate(with_changes(scenario, {"run.steps": 300}))
    n = len(short.steps)
    assert 24 <= n <= most_steps(scenario)
    assert short.steps["end_s"] == pytest.approx(long.steps["end_s"][:n], rel=1e-12)
    assert metrics_of(short)["step_s"] == pytest.approx(metrics_of(long)["step_s"], rel=2 * PRECISION)


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({"run.steps": 7}, 7),
        ({"run.events": [{"step": 4, "trainer_slowdown": 1.5}]}, 30),
        ({"run.events": [{"step": 50, "trainer_slowdown": 1.5}]}, 60),
        ({"workload.length_drift_per_step": 0.001}, 30),
    ],
)
def test_what_somebody_said_or_what_changes_on_the_way_gives_it_a_length(
    changes: dict[str, object], steps: int
) -> None:
    scenario = with_changes(load_scenario("async-one-step"), changes)
    assert not settles(scenario)
    assert len(simulate(scenario).steps) == most_steps(scenario) == steps


def test_instances_that_fail_now_and_then_are_seen_to() -> None:
    """One instance is away for 4 % of the time, each time for longer than its buffer lasts: once in 230 steps."""
    changes = {
        "fleet.instances": 1,
        "fleet.failures.mtbf_s": 7200.0,
        "trainer.batch_samples": 32,
        "trainer.fixed_s": 30.0,
        "workload.group_size": 4,
    }
    scenario = with_changes(load_scenario("async-one-step"), {**changes, "admission.law": "version_window"})
    rare = with_changes(scenario, {"fleet.failures.mtbf_s": 1e6})
    assert len(simulate(rare).steps) < len(simulate(scenario).steps)
    waits = [metrics_of(simulate(scenario, replication=r))["trainer_idle_fraction"] for r in range(6)]
    long = [metrics_of(simulate(with_changes(scenario, {"run.steps": 2000}), replication=r)) for r in range(6, 8)]
    assert np.mean(waits) == pytest.approx(np.mean([m["trainer_idle_fraction"] for m in long]), abs=0.01)
    assert np.mean(waits) > 0.01
