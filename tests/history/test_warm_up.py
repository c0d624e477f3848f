"""The first steps of a run log that only warm up are left out; steps that differ for another reason stay."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.config.load import default_scenario, with_changes
from fleetsim.history.history import History
from fleetsim.history.run_log import read_run_log
from fleetsim.replay.run import replay


def log(warm: list[float], steps: int, growth: float = 0.0, seed: int = 0) -> History:
    """A verl log: steps of 50 s or so, of which the trainer computes 20 s. The first ones take `warm` times as long in
    all their parts; growth: of responses and generation, from the first step to the last, as a share."""
    rng = np.random.default_rng(seed)
    rows, clock = [], 1.79e9
    for k in range(len(warm) + steps):
        slow = warm[k] if k < len(warm) else 1.0
        tokens = 1500.0 * (1 + growth * k / steps) * (1 + 0.04 * rng.standard_normal())
        wait, train, sync = slow * tokens / 50.0, slow * 20.0, slow * 2.0
        clock += wait + train + sync
        rows.append(
            {
                "training/global_step": k + 1, "timing_s/step": wait + train + sync, "timing_s/gen": wait,
                "timing_s/update_actor": train, "timing_s/update_weights": sync, "timing_s/generate_async": wait,
                "response_length/mean": tokens, "prompt_length/mean": 512,
                "perf/total_num_tokens": 512 * (tokens + 512), "_timestamp": clock,
            }
        )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "verl.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        return read_run_log(path)


def step_s(history: History) -> np.ndarray:
    assert history.steps is not None
    return np.asarray(history.steps.columns["step_s"])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(2.0, 40.0), max_size=5), st.integers(24, 60), st.integers(0, 3))
def test_what_warms_up_is_left_out_and_nothing_else(warm: list[float], steps: int, seed: int) -> None:
    read = log(warm, steps, seed=seed)
    assert len(step_s(read)) == steps
    assert any("left out: warming up" in n.text for n in read.notes) == bool(warm)


@settings(max_examples=30, deadline=None)
@given(st.floats(-0.6, 2.0), st.integers(16, 80), st.integers(0, 3))
def test_a_trend_is_no_warm_up(growth: float, steps: int, seed: int) -> None:
    assert len(step_s(log([], steps, growth, seed))) == steps


def test_a_change_that_lasts_is_no_warm_up() -> None:
    assert len(step_s(log([3.0] * 20, 30))) == 50


def test_a_trainer_that_compiles_is_not_slower_than_its_scenario() -> None:
    scenario = with_changes(default_scenario(), {"trainer.fixed_s": 20.0, "trainer.per_token_s": 0.0})
    result = replay(log([9.0, 4.0], 40), scenario, given={"trainer.fixed_s"}, facts={"trainer.fixed_s"})
    (trainer,) = [f for f in result.verdict.findings if f.check == "trainer"]
    assert trainer.state == "ok", trainer.title
    assert result.observed.trainer.train_s is not None
    assert result.observed.trainer.train_s.value == pytest.approx(20.0, rel=0.01)
    assert not result.observed.trends
