"""The rest of a run from its first fifth: a log of verl whose responses grow, and which trends are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fleetsim as fs
from fleetsim.errors import InputError
from fleetsim.forecast.totals import trend_of
from fleetsim.history.history import StepLog
from tests.history.verl_log import VerlJob, console
from tests.replay.test_shown import _printed

STEPS = 60


def log(path: Path, mean: Callable[[int], float]) -> Path:
    """A run whose engines are as much slower per group, and whose trainer computes as much longer, as its responses
    are longer. mean: tokens of a step."""
    lines = []
    for k in range(STEPS):
        by = mean(k) / 800.0
        job = VerlJob(rate=2.0 / by, window=128, train_s=12.0 * by, mean=mean(k))
        lines.append(console(job, 1, seed=k, first=k + 1))
    path.write_text(_printed("".join(lines)))
    return path


@pytest.mark.slow
def test_responses_that_grow(tmp_path: Path) -> None:
    path = log(tmp_path / "grows.log", lambda k: 800.0 + 20.0 * k)
    found = fs.load(run=path, gpu="H100", replications=1).forecast(steps=STEPS, backtest=0.2)
    back = found.backtest
    assert back is not None
    assert (back.seen, back.steps) == (12, STEPS)
    assert abs(back.error) < 0.1
    assert back.held_error < -0.3
    assert "from 12 of 60 steps of the log (the trend: mean generated tokens" in str(found)
    assert "Your run: " in str(found)  # what its own steps take, beside the simulated ones
    assert set(found.schedule.columns) == {"len"}  # of all its steps, as nobody said another


def test_a_trend_goes_on_and_stands_out() -> None:
    random = np.random.default_rng(2)
    grows = 1000.0 + 10.0 * np.arange(50) + random.normal(0.0, 20.0, 50)
    scatters = 1000.0 + 0.5 * np.arange(50) + random.normal(0.0, 60.0, 50)
    gap = np.where(np.arange(50) % 7 == 3, np.nan, grows)
    for lengths in (grows, gap):
        points = trend_of(StepLog("verl", {"length_mean": lengths}), 100).columns["len"]
        assert points[0][1] == pytest.approx(1000.0, rel=0.02)
        assert points[1] == (99, pytest.approx(1990.0, rel=0.02))
    assert trend_of(StepLog("verl", {"length_mean": scatters}), 100).columns == {}
    wanders = random.normal(0.0, 20.0, (60, 100))  # lengths that are 0.9 times as far from their mean as a step before
    for k in range(1, 100):
        wanders[:, k] += 0.9 * wanders[:, k - 1]
    trends = [trend_of(StepLog("verl", {"length_mean": 1000.0 + each}), 500).columns for each in wanders]
    assert sum(map(bool, trends)) <= 6  # a standard error of independent steps sees one in 24 of them
    assert trend_of(StepLog("verl", {"length_mean": grows[:5]}), 100).columns == {}
    # it ends at three times what was last seen
    (_, _), (until, end) = trend_of(StepLog("verl", {"length_mean": grows}), 10_000).columns["len"]
    assert end == pytest.approx(3.0 * 1490.0, rel=0.02)
    assert until == pytest.approx((end - 1000.0) / 10.0, rel=0.05)


def test_a_back_test_needs_a_log() -> None:
    with pytest.raises(InputError, match="needs the log of a run"):
        fs.load("async-one-step", replications=1).forecast(steps=10, backtest=0.2)
    with pytest.raises(InputError, match="a share of the log's steps"):
        fs.load("async-one-step", replications=1).forecast(steps=10, backtest=1.2)
