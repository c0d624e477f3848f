"""A synchronous job whose trainer has GPUs of its own: its engines stand empty while it trains, as shared ones do."""

from __future__ import annotations

from pathlib import Path

import pytest

import fleetsim as fs

_TRAINER = 32
_JOB = {
    "workload.output_tokens": {"mean": 1560, "cv": 1.0, "max": 8192},
    "engine.gpu": "H200", "engine.model": "Qwen/Qwen2.5-32B", "engine.tp": 2, "engine.slowdown": 1.0,
    "fleet.instances": 4, "trainer.gpus": _TRAINER, "trainer.batch_samples": 512, "trainer.fixed_s": 45.0,
    "sync.pause_s": 1.0, "admission.max_staleness": 0, "run.steps": 40,
}  # fmt: skip


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a Prometheus would have seen of it."""
    path = tmp_path_factory.mktemp("own") / "history.om"
    fs.load(None, _JOB).simulate(replications=1, scrape_interval_s=15).to_openmetrics(path)
    return path


def test_pools_of_unlike_size_are_not_the_same_gpus(window: Path) -> None:
    """The trainer's wait is told as one, and what would give it back comes true."""
    job = fs.load(None, _JOB)
    found = fs.replay(window, job=job).document()
    first = found["diagnosis"][0]
    assert found["verdict"]["starves"] == "trainer"
    assert any("admission.max_staleness=1" in line for line in first["do"])
    ahead = job.with_({"admission.max_staleness": 1})
    saved = job.simulate(replications=2).mean["step_s"] - ahead.simulate(replications=2).mean["step_s"]
    promised = first["seconds_per_step"]
    assert 0.95 * promised["low"] <= saved <= 1.05 * promised["high"]


def test_pools_of_one_size_may_be(window: Path) -> None:
    """Eight GPUs each: nobody can tell from the engines, and whoever says so is believed."""
    of_one_size = fs.load(None, _JOB | {"trainer.gpus": 8})
    assert fs.replay(window, job=of_one_size).document()["verdict"]["starves"] == "neither"
    apart = fs.load(None, _JOB | {"trainer.gpus": 8, "fleet.placement": "disaggregated"})
    assert fs.replay(window, job=apart).document()["verdict"]["starves"] == "trainer"
