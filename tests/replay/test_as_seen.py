"""A trial is held against a window by the same moments: a fleet that is paused a third of the time is found again."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetsim.config.load import load_scenario, with_changes
from fleetsim.export.openmetrics import write_openmetrics
from fleetsim.history.openmetrics import read_openmetrics
from fleetsim.replay.backtest import backtest
from fleetsim.replay.implied.implied_scenario import implied
from fleetsim.replay.observe.observe import observe
from fleetsim.replay.window_view import GroupQueue, in_flight
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of

SCRAPE_S = 15.0


@pytest.fixture(scope="module")
def paused() -> Records:
    """Three hours, with a pause of 20 s in every minute. At its end nearly all that was in flight has ended."""
    changes = {"admission.law": "version_window", "admission.max_staleness": 2, "fleet.instances": 3}
    changes |= {"sync.pause_s": 20, "trainer.fixed_s": 60, "run.steps": 180, "run.warmup_steps": 10}
    return simulate(with_changes(load_scenario("async-one-step"), changes), scrape_every_s=SCRAPE_S)


def test_time_in_pauses_is_no_time_in_which_work_could_have_been_done() -> None:
    """Far too many instances: outside pauses they are idle as long as the run's own account of their seconds says."""
    changes = {"fleet.instances": 40, "sync.pause_s": 20, "trainer.fixed_s": 40, "run.steps": 20, "run.warmup_steps": 5}
    records = simulate(with_changes(load_scenario("async-one-step"), changes), scrape_every_s=1.0)
    steps = records.steps
    busy, idle, held = (float(steps[f"{n}_s"][-1] - steps[f"{n}_s"][4]) for n in ("busy", "idle", "paused"))
    assert held > 0.2 * (busy + idle)
    assert in_flight(records, in_pauses=False).idle_share == pytest.approx(idle / (busy + idle), rel=0.01)


def test_the_law_and_the_queue_of_a_fleet_with_pauses_are_found(paused: Records, tmp_path: Path) -> None:
    """Held against means over all the time, aborting and resuming at every sync came nearer than what was so."""
    with (tmp_path / "run.om").open("w", encoding="utf-8") as file:
        write_openmetrics(paused, file, end_s=1.79e9)
    history = read_openmetrics(tmp_path / "run.om", SCRAPE_S)
    seen = observe(history)
    model = implied(seen, history)
    found = model.scenario
    assert found.sync.in_flight == "keep"
    # Where every step trains one batch and publishes, both let in two batches beyond the one in training; they differ
    # in what they start before the first step, which no later window shows.
    law = found.admission
    assert (law.max_staleness if law.law == "version_window" else law.batches_ahead) == 2
    assert law.law in ("version_window", "batches_ahead")
    errors = {row.quantity: row.error for row in backtest(seen, model).overall}
    assert all(abs(error) <= 0.03 for error in errors.values()), errors


def test_a_full_queue_is_counted_as_its_export_counts_it() -> None:
    """What stands before it is finished, too, and in no gauge: `queue_depth` of the metrics counts both."""
    records = simulate(with_changes(load_scenario("presets/trl-async-grpo"), {"run.steps": 20}), scrape_every_s=1.0)
    window, read = window_of(records), records.queue_scrapes
    inside = read["samples"][(read["time_s"] >= window.start_s) & (read["time_s"] <= window.end_s)]
    assert inside.max() == records.scenario.buffer.capacity_samples
    depth = GroupQueue.of(records, window.start_s).mean(0.0, window.span_s)
    assert depth == pytest.approx(inside.mean(), rel=0.01)
    assert metrics_of(records)["queue_depth"] > 1.05 * depth
