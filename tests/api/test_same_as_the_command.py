"""The same question gives the same bytes from Python and on the command line, as JSON and as text."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import fleetsim as fs
from fleetsim.cli.main import app

SMALL = {"batch": 64, "len": 400, "replications": 5}
FLAGS = ["--batch", "64", "--len", "400", "--replications", "5"]


def command(*words: str) -> str:
    done = CliRunner().invoke(app, list(words), env={"COLUMNS": "100"})
    assert done.exit_code == 0, done.stderr
    return done.stdout.rstrip("\n")


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.usefixtures("wide")
def test_simulate() -> None:
    words = ["simulate", "async-one-step", "--steps", "8", "--replications", "2", "--set", "fleet.instances=6"]
    result = fs.load("async-one-step", {"fleet.instances": 6}).simulate(steps=8, replications=2)
    assert result.to_json() == command(*words, "--json")
    assert str(result) == command(*words)


@pytest.mark.usefixtures("wide")
def test_size() -> None:
    result = fs.load(**SMALL).size(target_idle=0.1)
    assert result.to_json() == command("size", *FLAGS, "--target-idle", "0.1", "--json")
    assert str(result) == command("size", *FLAGS, "--target-idle", "0.1")
    assert result.to_dict()["recommendation"]["instances"] == result.instances == result.job["fleet.instances"]


@pytest.mark.usefixtures("wide")
def test_split() -> None:
    points = [(4, 40.0), (8, 22.0)]
    result = fs.load(**SMALL).split(10, by="cost_per_step", trainer_unit=2, trainer_point=points)
    words = ["split", "--gpus", "10", *FLAGS, "--by", "cost_per_step", "--trainer-unit", "2"]
    words += ["--trainer-point", "4:40.0", "--trainer-point", "8:22.0"]
    assert result.to_json() == command(*words, "--json")
    assert str(result) == command(*words)


@pytest.mark.usefixtures("wide")
def test_replay(tmp_path: Path) -> None:
    run = fs.load("async-one-step", replications=1).simulate(hours=0.5, scrape_interval_s=15)
    history = run.to_openmetrics(tmp_path / "history.om", end_s=1_700_000_000)
    words = ["replay", "--from", str(history), "--scenario", "async-one-step"]
    words += ["--given", "cost.instance_price_usd_per_gpu_h=2.5", "--set", "fleet.instances=6"]
    result = fs.replay(
        history,
        "async-one-step",
        given={"cost.instance_price_usd_per_gpu_h": 2.5},
        changes={"fleet.instances": 6},
        backtest=False,
    )
    assert result.to_json() == command(*words, "--no-backtest", "--json")
    assert str(result) == command(*words, "--no-backtest")
    assert result.to_pandas()["check"].is_unique
    assert result.scenario is not None
    assert result.scenario.fleet.instances == run.scenario.fleet.instances


def test_an_environment_variable_is_heard_as_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETSIM_FLEET__INSTANCES", "7")
    assert fs.load("async-one-step")["fleet.instances"] == 7
    assert fs.load("async-one-step", {"fleet.instances": 3})["fleet.instances"] == 3
