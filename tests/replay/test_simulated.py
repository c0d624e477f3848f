"""A simulated fleet, written as Prometheus would have it, read back and observed: what went in comes out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from fleetsim.config.load import load_scenario
from fleetsim.export.openmetrics import write_openmetrics
from fleetsim.history.openmetrics import read_openmetrics
from fleetsim.replay.observe.observe import observe
from fleetsim.replay.observe.observed import Observed
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate

STEP = 15.0


@dataclass(frozen=True)
class Seen:
    records: Records
    observed: Observed
    start_s: float


def seen(tmp_path: Path, scenario: str, *overrides: str) -> Seen:
    settings = load_scenario(scenario, overrides)
    records = simulate(settings, scrape_every_s=STEP)
    path = tmp_path / "history.txt"
    with path.open("w") as file:
        written = write_openmetrics(records, file, end_s=1_790_000_000.0)
    return Seen(records, observe(read_openmetrics(path), settings), written.start_s)


def assert_rates_steps_and_lengths(run: Seen) -> None:
    observed, records = run.observed, run.records
    span = observed.end_s - observed.start_s
    steps = records.steps
    done = steps[steps["end_s"] <= span]
    assert observed.fleet is not None
    assert observed.fleet.tok_s == pytest.approx(
        float(done["generated_tokens"][-1]) / float(done["end_s"][-1]), rel=0.02
    )
    trainer = observed.trainer
    assert trainer.step_s is not None
    assert trainer.idle_fraction is not None
    later = done[1:]
    whole = float(later["end_s"][-1] - later["start_s"][0])
    assert trainer.step_s.value == pytest.approx(whole / len(later), rel=0.02)
    assert trainer.idle_fraction.value == pytest.approx(float(later["wait_s"].sum()) / whole, abs=0.02)
    assert observed.lengths is not None
    made = records.samples["made"][np.isfinite(records.samples["finish_s"]) & (records.samples["finish_s"] > 0)]
    assert observed.lengths.mean == pytest.approx(float(made.mean()), rel=0.05)
    for q, found in ((50, observed.lengths.p50), (90, observed.lengths.p90)):
        exact = float(np.percentile(made, q))
        at = int(np.searchsorted(observed.lengths.le, exact))
        assert (0.0, *observed.lengths.le)[at] <= found <= observed.lengths.le[at]


def test_an_asynchronous_fleet(tmp_path: Path) -> None:
    run = seen(tmp_path, "scenarios/async-one-step.yaml", "run.steps=80")
    assert_rates_steps_and_lengths(run)
    assert run.observed.placement == "disaggregated"
    assert run.observed.queue.depth == pytest.approx(metrics_of(run.records)["queue_depth"], rel=0.1)
    assert not any(i.straggler for i in run.observed.instances)


def test_pauses_lie_where_they_were(tmp_path: Path) -> None:
    run = seen(tmp_path, "scenarios/async-one-step.yaml", "run.steps=40", "sync.pause_s=50")
    assert run.observed.pauses is not None
    end = run.observed.end_s - run.start_s
    truth = [(s["pause_start_s"], s["end_s"]) for s in run.records.syncs if s["end_s"] < end - 2 * STEP]
    found = [(p.start_s - run.start_s, p.end_s - run.start_s) for p in run.observed.pauses.each]
    for a, b in truth:
        assert any(abs(c - a) <= STEP and abs(d - b) <= STEP for c, d in found), (a, b)
    assert len(found) <= len(truth) + 1
    assert run.observed.pauses.period_s == pytest.approx(float(np.median(np.diff([a for a, _ in truth]))), rel=0.05)


@pytest.mark.parametrize("alike", [0.0, 0.25])
def test_slow_instances(tmp_path: Path, alike: float) -> None:
    """Load never stands still here; siblings that are alike in length make it move more."""
    run = seen(
        tmp_path, "scenarios/async-one-step.yaml", "run.steps=80", "fleet.instances=8",
        "fleet.speed_factors=[1,1,1.4,1,1,1,1,1]", f"workload.group_correlation={alike}",
    )  # fmt: skip
    assert [i.straggler for i in run.observed.instances] == [n == 2 for n in range(8)]


def test_a_colocated_fleet(tmp_path: Path) -> None:
    run = seen(tmp_path, "scenarios/sync-colocated.yaml", "run.steps=50")
    assert_rates_steps_and_lengths(run)
    assert run.observed.placement == "colocated"
    assert run.observed.pauses is not None
    assert {p.empty for p in run.observed.pauses.each} == {True}
    steps = run.records.steps
    truth = steps["start_s"] + steps["wait_s"]  # the batch is complete: the engines stand empty
    found = [p.start_s - run.start_s for p in run.observed.pauses.each]
    near = [float(np.abs(truth - start).min()) for start in found]
    assert max(near) <= STEP
    assert run.observed.pauses.period_s == pytest.approx(float(np.median(np.diff(truth))), rel=0.05)
