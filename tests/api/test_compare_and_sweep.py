"""Comparing and sweeping from Python: the commands' own numbers, and refusals in Python's names."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import fleetsim as fs
from fleetsim.cli.main import app

STEPS = {"steps": 8, "replications": 3}
FLAGS = ["--steps", "8", "--replications", "3"]


@pytest.fixture(scope="module")
def job() -> fs.Job:
    return fs.load("async-one-step", **STEPS)


def test_compare_is_the_commands(job: fs.Job) -> None:
    found = fs.compare(job, job.with_({"admission.batches_ahead": 2}), replications=5)
    words = ["compare", "async-one-step", "--set-b", "admission.batches_ahead=2", "--steps", "8", "--replications", "5"]
    command = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    ours = found.to_dict()
    for key in ("changes", "inputs", "paired", "min_change", "kind"):
        assert ours[key] == command[key], key
    table = found.to_pandas()
    assert table.loc["step_s", "ratio"] == found["step_s"].ratio.mean
    assert found["step_s"].verdict == "better"
    assert found["step_s"] in found.significant


def test_results_are_compared_run_by_run(job: fs.Job) -> None:
    a, b = job.simulate(), job.simulate(sync_pause_s=4)
    found = fs.compare(a, b)
    expected = (b.to_pandas()["step_s"] / a.to_pandas()["step_s"]).mean()
    assert found["step_s"].ratio is not None
    assert found["step_s"].ratio.mean == pytest.approx(expected, rel=1e-3)
    assert found.comparison.paired
    same = fs.compare(a, a)
    assert same.significant == ()


def test_compare_refuses(job: fs.Job) -> None:
    with pytest.raises(fs.InputError) as caught:
        fs.compare(job, job, metrics=["steps_s"], min_change=20, replications=1)
    assert {p.path for p in caught.value.problems} == {"metrics", "min_change", "replications"}
    with pytest.raises(KeyError, match="was not compared"):
        fs.compare(job, job, metrics=["step_s"], replications=2)["goodput"]


def test_sweep_is_the_commands(job: fs.Job) -> None:
    found = fs.sweep(job, {"fleet.instances": np.arange(2, 7, 2), "admission.batches_ahead": [1, 2]}, workers=1)
    words = ["sweep", "async-one-step", "--grid", "fleet.instances=2:6:2", "--grid", "admission.batches_ahead=1,2"]
    done = CliRunner().invoke(app, [*words, *FLAGS, "--workers", "1", "--json"])
    assert found.to_json() == done.stdout.rstrip("\n")
    table = found.to_pandas()
    assert list(table["fleet.instances"]) == [2, 2, 4, 4, 6, 6]
    cell = job.with_({"fleet.instances": 4, "admission.batches_ahead": 2}).simulate()
    assert table.loc[3, "step_s"] == cell.mean["step_s"]
    assert found.best.simulate().mean["cost_per_step"] == table["cost_per_step"].min()


def test_sweep_refuses(job: fs.Job) -> None:
    with pytest.raises(fs.InputError) as caught:
        fs.sweep(job, {"fleet.instnces": [1], "fleet.routing": "least_loaded", "trainer.gpus": []})
    assert len(caught.value.problems) == 3
    with pytest.raises(fs.InputError, match="no such option"):
        fs.sweep(job, {"fleet.instances": [4]}, step=3)  # type: ignore[call-arg]
    with pytest.raises(fs.InputError) as caught:
        fs.sweep(job, {"fleet.instances": [4, 4]}, objectives=["step"])
    assert "--" not in str(caught.value).partition(";")[0]


def test_a_sweep_that_is_interrupted_hands_over_its_cells(job: fs.Job) -> None:
    heard: list[str] = []

    def tell(text: str) -> None:
        heard.append(text)
        if text == "sweeping: 1 of 3 cells":
            raise KeyboardInterrupt

    with pytest.raises(fs.Interrupted) as cut:
        fs.sweep(job, {"fleet.instances": [2, 4, 6]}, workers=1, tell=tell)
    assert heard == ["sweeping: 0 of 3 cells", "sweeping: 1 of 3 cells"]
    assert cut.value.missing == "1 of 3 cells are finished; nothing else is kept"
    assert list(cut.value.known.to_pandas()["fleet.instances"]) == [2]
    assert cut.value.known.to_dict()["warnings"][-1].startswith("interrupted: 1 of 3 cells")


def test_cells_with_and_without_stations_are_compared() -> None:
    """A cell without a limit has a station as well; one without tools has none, and no metrics of it."""
    job = fs.load(batch=32, len=200, trainer_step_s=5, instances=1)
    found = job.sweep({"workload.turns.count": [1, 3], "stations.tools.workers": [8, 64]}, steps=6, replications=2)
    frame = found.to_pandas()
    assert len(frame) == 4
    waits = frame["stations.tools.wait_p99_s"]
    assert waits.isna().sum() == 2
    assert any(frame["pareto"] == "front")
