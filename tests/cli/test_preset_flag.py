"""`--preset`: a framework by name, in `simulate` and `size`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fleetsim.cli.main import app
from fleetsim.config import load_scenario

pytestmark = pytest.mark.usefixtures("quick")

SMALL = ("--set", "run.steps=6", "--replications", "1")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_simulate_takes_a_preset_and_changes_its_values() -> None:
    result = run("simulate", "--preset", "openrlhf_async", "--set", "fleet.instances=5", *SMALL, "--json")
    assert result.exit_code == 0, result.output
    scenario = json.loads(result.stdout)["scenario"]
    assert scenario["fleet"]["instances"] == 5
    assert scenario["admission"]["law"] == load_scenario("openrlhf-async").admission.law
    assert scenario["name"] == "openrlhf-async"


def test_size_takes_a_preset_and_its_flags_go_on_top() -> None:
    result = run("size", "--preset", "skyrl-fully-async", "--batch", "128", "--len", "300", *SMALL, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    scenario = document["scenario"]
    assert scenario["trainer"]["batch_samples"] == 128
    assert scenario["workload"]["output_tokens"]["mean"] == pytest.approx(300, rel=1e-3)
    assert scenario["admission"]["max_staleness"] == 4


def test_size_of_a_colocated_preset_answers_in_gpus_that_take_turns() -> None:
    result = run("size", "--explain", "--preset", "verl-sync", *SMALL)
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "trainer and rollout take turns: the least step time x cost" in text
    assert "there are no two rates to match" in text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("simulate",), "nothing to simulate"),
        (("simulate", "--preset", "arael"), "did you mean areal"),
        (("simulate", "--preset", "trl"), "short for several presets"),
        (("simulate", "job.yaml", "--preset", "areal"), "SCENARIO job.yaml is given as well; give one"),
        (("size", "--preset", "areal", "--scenario", "job.yaml"), "--scenario job.yaml is given as well; give one"),
        (("size", "--preset", "nothing-like-it"), "no preset of this name"),
    ],
)
def test_what_is_refused(arguments: tuple[str, ...], told: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert told in result.stderr
    assert "Traceback" not in result.output


def test_a_preset_written_out_is_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    assert run("scenario", "init", "areal", "-o", str(file)).exit_code == 0
    by_file = run("simulate", str(file), *SMALL, "--json")
    by_name = run("simulate", "--preset", "areal", *SMALL, "--json")
    assert json.loads(by_file.stdout)["metrics"] == json.loads(by_name.stdout)["metrics"]
