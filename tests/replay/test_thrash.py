"""Engines that preempt all the time: the speed is that of what runs, and what more KV cache gives is what it gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fleetsim.config.load import load_scenario, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.export.openmetrics import write_openmetrics
from fleetsim.history.history import History
from fleetsim.history.openmetrics import read_openmetrics
from fleetsim.records import replace
from fleetsim.replay.change.what_if import what_if
from fleetsim.replay.implied.implied_scenario import Implied, implied
from fleetsim.replay.observe.observe import observe
from fleetsim.sim.engines import engine_of
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate
from tests.replay.independent import Job, run


def thrashing(**changes: object) -> Scenario:
    small = {"run.steps": 60, "run.warmup_steps": 10, "engine.kv_blocks": 2500, "trainer.fixed_s": 10.0}
    return with_changes(load_scenario("async-one-step"), {**small, **changes})


def gain_of(model: Implied, times: int = 2) -> float:
    """What KV caches of so many times the size take off a step, as the replay predicts it."""
    assert model.engine is not None
    effect = what_if(model, {"engine.kv_blocks": times * model.engine[1].kv_blocks}, replications=2).effect("step_s")
    return 1.0 - effect.ratio.mean


def of(history: History) -> Implied:
    return implied(observe(history), history)


def test_what_more_kv_cache_gives_is_predicted_from_a_window_that_thrashes(tmp_path: Path) -> None:
    scenario = thrashing()
    records = simulate(scenario, scrape_every_s=15.0)
    double = simulate(with_changes(scenario, {"engine.kv_blocks": 5000}))
    now = metrics_of(records)["step_s"]
    truth = 1.0 - metrics_of(double)["step_s"] / now
    assert truth > 0.2
    with (tmp_path / "run.om").open("w", encoding="utf-8") as file:
        write_openmetrics(records, file, end_s=1.79e9)
    model = of(read_openmetrics(tmp_path / "run.om", 15.0))
    assert gain_of(model) == pytest.approx(truth, abs=0.04)
    assert model.speed is not None
    running = np.array([4.0, 16.0, 40.0])
    own = engine_of(scenario)[0]
    for r in running:
        kv = r * 1200.0
        found = model.speed.step_time.seconds(int(r), kv_tokens=kv)
        assert found == pytest.approx(own.seconds(int(r), kv_tokens=kv), rel=0.25)


def test_so_it_is_for_a_fleet_that_fleetsim_did_not_simulate() -> None:
    job = Job(train_s=10.0, kv_tokens=15_000.0, batch=512, sync="none", caching=False)
    ran, double = run(job, 0.5), run(replace(job, kv_tokens=30_000.0), 0.5)
    truth = 1.0 - double.step_s / ran.step_s
    model = of(ran.history())
    assert gain_of(model) == pytest.approx(truth, abs=0.08)
    admission = model.scenario.admission
    assert (admission.law, admission.max_staleness) == ("version_window", job.staleness)
