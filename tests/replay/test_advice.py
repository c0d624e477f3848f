"""What `replay` advises as commands: they run from the job's file, and their promises come true in long runs."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

import fleetsim as fs
from fleetsim.cli.main import app
from fleetsim.config.load import load_scenario, with_changes
from tests.golden.inputs import CAPPED, INPUTS, TINY
from tests.once import once
from tests.printed.shell import works

# Engines that stand empty while their trainer computes look colocated: whose GPUs they are has to be said.
APART = TINY.replace("{instances: 2}", "{instances: 2, placement: disaggregated}")
LONG = ("--steps", "150", "--replications", "2", "--seed", "90210")
_END = "1790000000"


def _ran(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def _said(*words: str) -> dict[str, Any]:
    result = _ran(*words)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two jobs, a window of each, and a space in its name."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("capped.yaml").write_text(CAPPED, encoding="utf-8")
    Path("tiny.yaml").write_text(APART, encoding="utf-8")
    for name in ("capped", "tiny"):
        Path(f"{name}.om").write_bytes(once(("advice of a window", name), lambda name=name: _window(name)))
    return folder


def _window(name: str) -> bytes:
    words = ("--steps", "80", "--replications", "1", "--openmetrics", "made.om", "--openmetrics-end", _END)
    made = _ran("simulate", f"{name}.yaml", *words, "--scrape-interval", "10")
    assert made.exit_code == 0, made.output
    text = Path("made.om").read_bytes()
    Path("made.om").unlink()
    return text


@pytest.mark.parts
@pytest.mark.parametrize(
    ("window", "asked", "first"),
    [
        (("--from", "tiny.om", "--scenario", "tiny.yaml"), ("--recommend",), "instance"),
        (("--from", "capped.om", "--scenario", "capped.yaml"), ("--set", "fleet.max_in_flight_samples=192"), "= 192"),
        (("--from", "capped.om"), ("--set", "fleet.instances=6"), "= 6"),
        (("--from", "capped.om", "--scenario", "capped.yaml"), ("--set", "sync.transport=rdma_p2p"), "rdma_p2p"),
        (("--from", "capped.om", "--scenario", "capped.yaml"), ("--set", "engine.gpu=H200"), "H200"),
        (("--from", "tiny.om", "--scenario", "tiny.yaml"), ("--set", "trainer.gpus=16"), "= 16"),
    ],
    ids=lambda words: words if isinstance(words, str) else " ".join(words),
)
def test_every_promise_is_kept(here: Path, window: tuple[str, ...], asked: tuple[str, ...], first: str) -> None:
    advice = _said("replay", *window, *asked, "--job-out", "my job.yaml", "--json")["advice"]
    assert first in advice[0]["what"]
    assert advice[-1]["command"] == ["fleetsim", "simulate", "my job.yaml"]
    assert len(advice) == 2
    for entry in advice:
        assert entry["permission"] is None
        assert set(entry["promise"]) == {"step_s", "cost_per_step", "trainer_idle_fraction"}
        means = works((*entry["command"], *LONG)).mean
        for name, promise in entry["promise"].items():
            value = means[name]
            assert promise["low"] <= value <= promise["high"] or value == pytest.approx(promise["mean"], abs=0.005)


def test_the_job_s_file_is_the_job_of_the_window(here: Path) -> None:
    """To the last value that is simulated: nothing of it is worked out anew when it is read."""
    found = fs.replay("capped.om", "capped.yaml").with_job_file("job.yaml")
    read, loaded = load_scenario("job.yaml"), fs.load("job.yaml").scenario
    assert read == loaded
    same = {"engine": read.engine.model_dump(), "sync": read.sync.model_dump(), "run.steps": None}
    assert with_changes(found.scenario, same) == read
    assert Path(read.engine.profile or "").name == "job.profile.json"
    assert read.sync.pause_s == found.scenario.sync.pause_s


def test_without_the_file_there_is_no_command_and_the_text_says_how_to_get_one(here: Path) -> None:
    call = ("replay", "--from", "tiny.om", "--scenario", "tiny.yaml", "--set", "fleet.instances=4")
    assert _said(*call, "--json")["advice"] == []
    assert "--job-out FILE writes the job of this window" in " ".join(_ran(*call).stdout.split())
    plain = _ran(*call[:-2], "--explain").stdout
    assert "--job-out" not in plain  # nothing was asked that could be simulated
    told = _ran(*call, "--job-out", "my job.yaml")
    lines = [line.strip() for line in told.stdout.splitlines()]
    assert "fleetsim simulate 'my job.yaml' --instances 4" in lines
    assert "--job-out FILE" not in told.stdout
    assert told.stderr.splitlines()[-1] == "wrote my job.yaml; next: fleetsim simulate 'my job.yaml'"
    assert _ran(*shlex.split(told.stderr.splitlines()[-1].partition("next: ")[2])[1:]).exit_code == 0


@pytest.mark.parametrize("there", ["job.yaml", "job.profile.json"])
def test_no_file_is_replaced(here: Path, there: str) -> None:
    Path(there).write_text("mine", encoding="utf-8")
    refused = _ran("replay", "--from", "tiny.om", "--job-out", "job.yaml")
    assert refused.exit_code == 2
    assert "--job-out" in refused.stderr
    assert there in refused.stderr
    assert Path(there).read_text(encoding="utf-8") == "mine"


def test_a_window_that_cannot_be_simulated_is_judged_and_has_no_job(here: Path) -> None:
    Path("plain.csv").write_text(str(INPUTS["plain.csv"]), encoding="utf-8")
    refused = _ran("replay", "--from", "plain.csv", "--job-out", "job.yaml")
    assert refused.exit_code == 2
    assert "error: --job-out" in refused.stderr
    assert "cannot be simulated" in refused.stderr
    assert "--given KEY=VALUE" in refused.stderr
    assert refused.stdout
    assert not Path("job.yaml").exists()


def test_a_what_if_runs_until_it_is_steady_unless_somebody_gave_its_steps(here: Path) -> None:
    job = ("replay", "--from", "tiny.om", "--scenario", "tiny.yaml", "--set", "fleet.instances=4", "--no-backtest")
    free, given = (_said(*job, *more, "--json") for more in ((), ("--given", "run.steps=12")))
    assert given["implied"]["scenario"]["run"]["steps"] == 12
    step = [
        next(e for e in d["what_if"]["effects"] if e["metric"] == "step_s")["before"]["mean"] for d in (free, given)
    ]
    assert step[0] != step[1]
    (as_it_is,) = [a for a in _said(*job, "--job-out", "job.yaml", "--json")["advice"] if "as it is" in a["what"]]
    assert as_it_is["promise"]["step_s"]["mean"] == pytest.approx(step[0], rel=1e-9)
