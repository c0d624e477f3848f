"""A simulated run, back-tested on its own history: the model must come out where it went in."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from fleetsim.config.load import load_scenario, with_changes
from fleetsim.history.history import History, StepLog
from fleetsim.records import replace
from fleetsim.replay.backtest import backtest
from fleetsim.replay.compared_quantities import RECHECK_PAUSES, REMEASURE
from fleetsim.replay.implied.implied_scenario import Implied, implied
from fleetsim.replay.observe.observe import observe
from fleetsim.replay.observe.observed import Observed, Reading
from fleetsim.sim.window import window_of as window_of_steps
from tests.replay.from_records import history_of, observed_of, run_of

SCENARIOS = ("sync-colocated", "async-one-step", "presets/verl-fully-async")


@lru_cache(maxsize=8)
def window_of(name: str) -> tuple[History, Observed]:
    """A run of another seed than the back-test's, as history."""
    records = run_of(with_changes(load_scenario(name), {"run.steps": 100, "run.seed": 77}))
    history = history_of(records)
    return history, observed_of(records, history)


def implied_of(name: str, known: bool) -> tuple[Observed, Implied]:
    history, observed = window_of(name)
    return observed, implied(observed, history, load_scenario(name) if known else None)


@pytest.mark.parametrize("name", SCENARIOS)
def test_comes_out_where_it_went_in(name: str) -> None:
    observed, model = implied_of(name, known=True)
    back = backtest(observed, model)
    assert back.verdict == "ok"
    assert not back.where
    assert {row.quantity for row in back.overall} == {"tok_s", "instance_tok_s", "step_s", "trainer_idle", "queue"}
    for row in back.overall:
        assert abs(row.error) <= 0.03, row


@pytest.mark.parametrize("name", ["sync-colocated", "async-one-step"])
def test_throughput_and_step_without_a_scenario(name: str) -> None:
    observed, model = implied_of(name, known=False)
    back = backtest(observed, model)
    for quantity in ("tok_s", "step_s"):
        row = back.row(quantity)
        assert row is not None
        assert abs(row.error) <= 0.03, row
    assert any(line.startswith("admission") for line in model.assumed)
    assert model.base is None


@pytest.mark.parametrize("drain_is", ["wait", "sync"])
def test_a_log_may_call_a_drain_a_wait_or_a_sync(drain_is: str) -> None:
    """Trainers that wait until all in flight has ended log that time as either; the simulated split follows the log."""
    drains = {
        "admission.batches_ahead": 2,
        "sync.in_flight": "drain",
        "sync.pause_s": 5.0,
        "sync.trainer_block_s": 0.5,
        "run.seed": 77,
    }
    scenario = with_changes(load_scenario("async-one-step"), {**drains, "run.steps": 60})
    records = run_of(scenario)
    history = history_of(records)
    observed, steps = observed_of(records, history), window_of_steps(records).steps
    t = observed.trainer
    assert t.wait_s is not None
    assert t.sync_s is not None
    assert t.step_s is not None
    drain_s = t.wait_s.value - float((steps["ready_s"] - steps["start_s"]).mean())
    assert drain_s > 0.5 * t.step_s.value
    if drain_is == "sync":
        wait, sync = (Reading(r.value + by, r.source) for r, by in ((t.wait_s, -drain_s), (t.sync_s, drain_s)))
        idle = Reading(wait.value / t.step_s.value, wait.source)
        observed = replace(observed, trainer=replace(t, wait_s=wait, sync_s=sync, idle_fraction=idle))
    model = implied(observed, history, with_changes(scenario, {"run.seed": 0}))
    back = backtest(observed, model, replications=2)
    for quantity in ("step_s", "trainer_idle"):
        row = back.row(quantity)
        assert row is not None
        assert abs(row.error) <= 0.03, row


def test_a_wrong_engine_is_told() -> None:
    observed, model = implied_of("async-one-step", known=True)
    assert model.engine is not None
    slow = replace(model, engine=(model.engine[0].slower(2.0), model.engine[1]), speed=None)
    back = backtest(observed, slow)
    assert back.verdict == "wrong"
    assert back.where[0].startswith("engine speed: the model's instances are slower")
    assert back.where[-2:] == (REMEASURE, RECHECK_PAUSES)
    row = back.row("tok_s")
    assert row is not None
    assert row.error < -0.3


def test_an_engine_that_the_window_confirms_is_not_sent_to_be_measured_again() -> None:
    observed, model = implied_of("async-one-step", known=True)
    assert model.engine is not None
    assert model.speed is not None
    off = replace(model, engine=(model.engine[0].slower(2.0), model.engine[1]))
    guesses = ("engine.tp: 1", "trainer.fixed_s: 0, no trainer was read", "admission: so many in flight")
    where = backtest(observed, replace(off, assumed=guesses), replications=1).where
    assert [place.rpartition(": ")[0] for place in where[:2]] == [
        "assumed, not read: admission",
        "assumed, not read: trainer.fixed_s",
    ]
    assert where[3].startswith("the load: at the loads of the window the engine's speed is right")
    assert REMEASURE not in where
    assert where[-1] == RECHECK_PAUSES
    unsure = replace(off, speed=replace(model.speed, held_out=0.4), assumed=guesses)
    where = backtest(observed, unsure, replications=1).where
    assert where[3].startswith("engine speed: the model's instances are slower")
    assert where[-2:] == (REMEASURE, RECHECK_PAUSES)


def test_a_wrong_trainer_is_told() -> None:
    observed, model = implied_of("sync-colocated", known=True)
    other = replace(model, scenario=with_changes(model.scenario, {"trainer.fixed_s": 60.0}))
    back = backtest(observed, other)
    assert back.verdict == "wrong"
    step = back.row("step_s")
    assert step is not None
    assert step.error == pytest.approx(40.0 / observed.trainer.step_s.value, abs=0.03)  # type: ignore[union-attr]


def without_trainer(observed: Observed) -> Observed:
    nothing = replace(
        observed.trainer, **dict.fromkeys(("step_s", "wait_s", "train_s", "sync_s", "idle_fraction", "steps"))
    )
    hours = tuple(replace(h, step_s=None, idle_fraction=None, queue=None) for h in observed.hours)
    return replace(observed, trainer=nothing, queue=replace(observed.queue, depth=None), hours=hours)


def test_only_what_was_observed_is_compared() -> None:
    observed, model = implied_of("async-one-step", known=True)
    back = backtest(without_trainer(observed), model)
    assert [row.quantity for row in back.overall] == ["tok_s", "instance_tok_s"]
    assert all({row.quantity for row in part.rows} == {"tok_s", "instance_tok_s"} for part in back.hours)


def test_slices_say_whether_the_speed_was_fitted_on_them() -> None:
    observed, model = implied_of("async-one-step", known=True)
    back = backtest(observed, model, replications=1)
    assert [part.held_out for part in back.hours] == [False, False, True, True]
    assert [part.start_s for part in back.hours] == [h.start_s for h in observed.hours]


def test_a_resize_is_played_again() -> None:
    scenario = with_changes(
        load_scenario("async-one-step"),
        {"run.steps": 80, "run.seed": 77, "run.warmup_steps": 8, "run.events": [{"step": 44, "instances": 8}]},
    )
    records = run_of(scenario)
    history = history_of(records)
    observed = observed_of(records, history)
    model = implied(observed, history, load_scenario("async-one-step"))
    assert [count for _, count in model.resizes] == [4, 8]
    assert model.scenario.fleet.instances == 8
    back = backtest(observed, model)
    rates = [{row.quantity: row for row in part.rows}["instance_tok_s"] for part in back.hours]
    for row in (rates[0], rates[-1]):
        assert abs(row.error) <= 0.05, row
    assert rates[0].predicted > 1.5 * rates[-1].predicted
    # Nobody counts steps: how many of them a time holds is simulated.
    back = backtest(without_trainer(observed), model, replications=1)
    assert back.verdict == "ok"
    for part in back.hours:
        for found in part.rows:
            assert abs(found.error) <= 0.1, found


def test_a_run_log_alone_is_back_tested_on_its_steps() -> None:
    n = 100
    end = 1.7e9 + 60.0 * np.arange(1, n + 1)
    columns = {
        "step": np.arange(n, dtype=float),
        "time_s": end,
        "step_s": np.full(n, 60.0),
        "wait_s": np.full(n, 38.0),
        "train_s": np.full(n, 20.0),
        "sync_s": np.full(n, 1.0),
        "samples": np.full(n, 512.0),
        "output_tokens": np.full(n, 512 * 1500.0),
    }
    log = StepLog("verl", columns)
    history = History(np.arange(1.7e9, end[-1] + 1.0, 15.0), 15.0, (), {}, {}, {}, (), log, (), "log")
    observed = observe(history)
    model = implied(observed, history)
    assert model.engine is None
    assert any("no engine was read" in line for line in model.assumed)
    back = backtest(observed, model, replications=1)
    assert [row.quantity for row in back.overall] == ["step_s", "trainer_idle"]
    assert back.verdict == "wrong"
    assert back.where[0].startswith("assumed, not read: admission: one batch ahead")
    assert any(place.startswith("engine speed: no throughput was read") for place in back.where)
