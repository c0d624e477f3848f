"""From a simulated run through its exported text to the back-test: nothing of the run but what it exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetsim.config.load import load_scenario, with_changes
from fleetsim.export.openmetrics import write_openmetrics
from fleetsim.history.history import History
from fleetsim.history.openmetrics import read_openmetrics
from fleetsim.history.window import window
from fleetsim.replay.backtest import backtest
from fleetsim.replay.implied.implied_scenario import implied
from fleetsim.replay.observe.observe import observe
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of
from tests.replay.preset_trainer import PRESET_TRAINER

END_S = 1.7e9


def exported(
    name: str, folder: Path, steps: int = 120, seed: int = 77, warmup: int | None = None, **trainer: Any
) -> History:
    """The window after warm-up of a run, as its OpenMetrics text says it. warmup: its steps, None = found."""
    changes = {"run.steps": steps, "run.seed": seed, "run.warmup_steps": warmup, **trainer}
    records = simulate(with_changes(load_scenario(name), changes), scrape_every_s=15.0)
    path = folder / "run.om"
    with path.open("w", encoding="utf-8") as file:
        write_openmetrics(records, file, end_s=END_S)
    history = read_openmetrics(path, 15.0)
    begin = history.end_s - float(records.steps["end_s"][-1]) + window_of(records).start_s
    return window(history, begin, history.end_s)


@pytest.mark.parametrize("name", ["sync-colocated", "async-one-step", "presets/verl-fully-async"])
def test_its_own_export_back_tests_within_3_percent(name: str, tmp_path: Path) -> None:
    history, base = exported(name, tmp_path), load_scenario(name)
    observed = observe(history, base)
    model = implied(observed, history, base)
    back = backtest(observed, model)
    assert len(back.overall) == 5
    for row in back.overall:
        assert abs(row.error) <= 0.03, row
    assert back.verdict == "ok"
    assert model.speed is not None
    assert model.speed.counted
    assert model.speed.factor == pytest.approx(1.0, abs=0.03)


@pytest.mark.parts
@pytest.mark.parametrize(
    ("name", "seeds"),
    # A window of a few dozen steps whose batches wait for long groups is itself 4 % off its own mean.
    # roll-agentic: a sample is five requests, which only the tokens that are trained of one tell.
    [
        ("sync-colocated", (77,)),
        ("async-one-step", (77,)),
        ("presets/verl-fully-async", (1, 2, 3)),
        ("presets/roll-agentic", (77, 78)),
    ],
)
def test_without_a_scenario_throughput_and_step_hold(name: str, seeds: tuple[int, ...], tmp_path: Path) -> None:
    errors: dict[str, list[float]] = {"tok_s": [], "step_s": []}
    for seed in seeds:
        history = exported(name, tmp_path, seed=seed)
        observed = observe(history)
        back = backtest(observed, implied(observed, history))
        for quantity, found in errors.items():
            row = back.row(quantity)
            assert row is not None
            found.append(row.error)
    for quantity, found in errors.items():
        assert abs(sum(found) / len(found)) <= 0.03, (quantity, found)
        assert max(map(abs, found)) <= 0.06, (quantity, found)


@pytest.mark.parts
@pytest.mark.parametrize("seed", [1, 2, 78])
def test_a_queue_that_ages_slowly_is_told_from_aborted_work(seed: int, tmp_path: Path) -> None:
    """A client that drops what is too old: its queue needs dozens of steps to become what it stays, and a law tried
    over fewer of them looks like one that aborts its requests, which would cost a quarter of the throughput.

    By its seed, the run itself makes a sixth fewer tokens over its first 40 to 160 steps, while its queue stands full:
    the window begins after them.
    """
    history = exported("presets/trl-async-grpo", tmp_path, steps=400, seed=seed, warmup=200, **PRESET_TRAINER)
    observed = observe(history)
    model = implied(observed, history)
    assert model.scenario.sync.in_flight == "keep"
    assert model.scenario.admission.age_action == "drop_on_dequeue"
    for quantity in ("tok_s", "step_s"):
        row = backtest(observed, model).row(quantity)
        assert row is not None
        assert abs(row.error) <= 0.03, row
