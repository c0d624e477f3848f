"""The same question gives the same bytes from Python and on the command line, as JSON and as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fleetsim as fs
from fleetsim.alerts.rehearsal import rehearse
from fleetsim.cli.main import app

pytestmark = pytest.mark.usefixtures("quick")

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


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace(name: str, tmp_path: Path) -> None:
    run = fs.load("async-one-step").simulate(steps=8, replications=1)
    ours, theirs = run.to_perfetto(tmp_path / f"ours-{name}", "2:5"), tmp_path / name
    words = ["simulate", "async-one-step", "--steps", "8", "--replications", "1"]
    command(*words, "--perfetto", str(theirs), "--perfetto-steps", "2:5")
    assert ours.read_bytes() == theirs.read_bytes()
    for wrong in ("9:12", "x"):
        with pytest.raises(fs.InputError, match=r"^steps: "):
            run.to_perfetto(tmp_path / "x.json", wrong)


def test_pages(tmp_path: Path) -> None:
    job = fs.load(batch=64, len=400, replications=2)
    results = {
        "simulate async-one-step --steps 8 --replications 2": fs.load("async-one-step").simulate(
            steps=8, replications=2
        ),
        "size --batch 64 --len 400 --replications 2": job.size(),
        "split --gpus 6 --batch 64 --len 400 --replications 2": job.split(6),
    }
    for k, (words, result) in enumerate(results.items()):
        theirs = tmp_path / f"{k}.html"
        command(*words.split(), "--html", str(theirs))
        assert result.to_html(tmp_path / "ours.html").read_text() == theirs.read_text()
    with pytest.raises(fs.OutsideError, match="cannot be written"):
        job.simulate(steps=2, replications=1).to_html(tmp_path)


@pytest.mark.usefixtures("wide")
def test_size() -> None:
    result = fs.load(**SMALL).size(target_idle=0.5)
    assert result.to_json() == command("size", *FLAGS, "--target-idle", "0.5", "--json")
    assert str(result) == command("size", *FLAGS, "--target-idle", "0.5")
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
    assert result.scenario.fleet.instances == run.scenario.fleet.instances


def test_an_environment_variable_is_heard_as_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETSIM_FLEET__INSTANCES", "7")
    assert fs.load("async-one-step")["fleet.instances"] == 7
    assert fs.load("async-one-step", {"fleet.instances": 3})["fleet.instances"] == 3


def test_rules_and_a_dashboard(monkeypatch: pytest.MonkeyPatch) -> None:
    rehearsed: dict[str, Any] = {}

    def once(*asked: Any, tell: Any, **more: Any) -> Any:
        key = repr((asked, sorted(more.items())))
        rehearsed[key] = rehearsed.get(key) or rehearse(*asked, tell=tell, **more)
        return rehearsed[key]

    monkeypatch.setattr("fleetsim.alerts.rehearsal.rehearse", once)
    job = fs.load("async-one-step", {"workload.output_tokens.mean": 200})
    words = ("async-one-step", "--set", "workload.output_tokens.mean=200", "--hours", "1")
    rules = job.alerts(hours=1.0, engines_only=True).rule_file()
    assert rules.rstrip("\n") == command("alerts", *words, "--engines-only")
    assert len(rehearsed) == 1, "one question, asked twice"
    made = job.dashboard(hours=1.0, metrics={"selector": 'job="r"'}).text()
    assert made.rstrip("\n") == command("dashboard", *words, "--selector", 'job="r"')
    assert len(rehearsed) == 1, "a dashboard asks what the rules ask"
    with pytest.raises(fs.InputError, match=r"^budget: "):
        job.alerts(budget=-1.0)


def test_a_configuration_of_a_framework(tmp_path: Path) -> None:
    words = ["data.train_batch_size=64", "actor_rollout_ref.rollout.n=16", "actor_rollout_ref.model.path=Qwen/Qwen3-8B"]
    found = fs.read_config("verl", *words, changes={"engine.gpu": "H200"})
    theirs = tmp_path / "job.yaml"
    command("scenario", "from", "verl", "--set", "engine.gpu=H200", "-o", str(theirs), "--", *words)
    assert found.text == theirs.read_text()
    assert fs.load(found.raw)["engine.gpu"] == "H200"
    with pytest.raises(fs.InputError, match='did you mean "verl"'):
        fs.read_config("verll", *words)


def test_an_estimated_engine() -> None:
    found = fs.estimate_profile("H100", "Qwen/Qwen3-8B", tp=2)
    theirs = json.loads(
        command("profile", "estimate", "--gpu", "H100", "--model", "Qwen/Qwen3-8B", "--tp", "2", "--json")
    )
    assert found.name == theirs["profile"]["name"]
    with pytest.raises(fs.InputError, match=r"^gpu: "):
        fs.estimate_profile("H1000", "Qwen/Qwen3-8B")


def test_an_engine_that_others_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{b},{c},{5 + 0.02 * b + 2e-6 * b * c}" for b in (1, 8, 64, 256) for c in (128, 1024, 4096)]
    Path("table.csv").write_text("\n".join(["batch,context,step_ms", *rows]))
    words = ["table.csv", "--gpu", "H100", "--model", "Qwen/Qwen2.5-7B", "-o", "mine.profile.json", "--force"]
    theirs = json.loads(command("calibrate", *words, "--json"))
    heard: list[str] = []
    engine = {"gpu": "H100", "model": "Qwen/Qwen2.5-7B", "output": "mine.profile.json", "force": True}
    ours = fs.calibrate("table.csv", tell=heard.append, **engine)
    assert json.loads(json.dumps(ours.document())) == theirs
    assert heard == ["fitting what the files hold"]
    assert fs.profile("mine.profile.json").model_copy(update={"seal": None}) == ours.profile
    with pytest.raises(fs.InputError, match=r"^output: "):
        fs.calibrate("table.csv", **{**engine, "force": False})


def test_a_measurement_that_is_only_planned() -> None:
    ours = fs.calibrate(model="Qwen/Qwen2.5-7B", gpu="H100", quick=True, dry_run=True)
    words = ("--model", "Qwen/Qwen2.5-7B", "--gpu", "H100", "--quick", "--dry-run", "--json")
    assert ours.document() == json.loads(command("calibrate", *words))


@pytest.mark.usefixtures("wide")
def test_published_runs() -> None:
    ours = fs.validate("C01")
    assert ours.to_json() == command("validate", "--case", "C01", "--json")
    assert str(ours) == command("validate", "--case", "C01")
    with pytest.raises(fs.InputError, match=r"^case: .*C99"):
        fs.validate("C99")
