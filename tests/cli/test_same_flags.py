"""Every command that takes a job takes the same flags for it, and means the same by them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner, Result

import fleetsim as fs
from fleetsim.cli.main import app
from fleetsim.config.load import scenario_from_mapping
from fleetsim.job.fields import CountedFlags, JobFlags
from fleetsim.records import field_names

pytestmark = pytest.mark.usefixtures("quick")

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
SMALL = ("--batch", "32", "--len", "200", "--model", "Qwen/Qwen2.5-1.5B")
SHORT = ("--steps", "8", "--replications", "2")


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def options_of(command: str) -> dict[str, Any]:
    return {p.name: p.opts for p in COMMANDS[command].params}


@pytest.mark.parametrize("command", ["size", "split", "plan", "simulate", "sweep", "compare"])
def test_a_command_has_every_flag_of_a_job(command: str) -> None:
    there, size = options_of(command), options_of("size")
    for name in field_names(JobFlags):
        assert there[name] == size[name]


def test_commands_that_run_a_fleet_are_told_how_large_it_is() -> None:
    assert set(field_names(CountedFlags)) - set(field_names(JobFlags)) == {"instances"}
    found = {command for command in COMMANDS if "instances" in options_of(command)}
    assert found == {"simulate", "forecast", "sweep", "compare"}  # the others choose it


def test_flags_alone_are_a_job() -> None:
    """It starts from the defaults, as that of `size` does."""
    result = run("simulate", *SMALL, "--instances", "3", "--max-staleness", "1", *SHORT, "--json")
    assert result.exit_code == 0, result.output
    wanted = fs.load(
        batch=32, len=200, model="Qwen/Qwen2.5-1.5B", instances=3, max_staleness=1, steps=8, replications=2
    )
    assert scenario_from_mapping(json.loads(result.stdout)["scenario"]) == wanted.scenario


@pytest.mark.parametrize("words", [(), ("--steps", "5"), ("--seed", "1", "--replications", "2")])
def test_how_long_a_run_is_makes_no_job(words: tuple[str, ...]) -> None:
    for command, grid in (("simulate", ()), ("sweep", ("--grid", "fleet.instances=1,2"))):
        result = run(command, *words, *grid)
        assert result.exit_code == 2
        assert f"nothing to {command}" in result.stderr


@pytest.mark.parametrize(
    ("words", "own"),
    [(("--instances", "8"), "--instances"), (("--instances", "2", "--max-staleness", "0"), "--instances")],
)
def test_what_simulate_advises_it_takes(words: tuple[str, ...], own: str) -> None:
    """The change that it prints is typed behind the command as it stands."""
    no_sync = ("--sync-pause-s", "0", "--set", "sync.publish_s=0", "--set", "sync.trainer_block_s=0")
    job = ("simulate", *SMALL, "--trainer-step-s", "6", *no_sync, *words, *SHORT, "--json")
    found = json.loads(run(*job).stdout)
    advice = found["change"]["flag"].split()
    assert advice[0] == own
    again = run(*job, *advice)
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["scenario"] != found["scenario"]


def test_a_sweep_without_a_scenario_names_the_same_job_in_its_commands() -> None:
    swept = run(
        "sweep", *SMALL, "--instances", "2", "--grid", "sync.every_steps=1,2", *SHORT, "--workers", "1", "--explain"
    )
    assert swept.exit_code == 0, swept.output
    text = " ".join(swept.stdout.replace("\\\n", " ").split())
    job = "--batch 32 --len 200 --model Qwen/Qwen2.5-1.5B"
    assert f"fleetsim simulate {job} --instances 2 --set sync.every_steps=" in text
    assert f"fleetsim size {job} --set sync.every_steps=" in text


@pytest.mark.parametrize(
    ("flag", "grid"),
    [
        (("--instances", "4"), "fleet.instances=1,2"),
        (("--len", "900"), "workload.output_tokens.cv=0.5,1"),
        (("--trainer-gpus", "4"), "trainer.gpus=4,8"),
        (("--set", "trainer.gpus=4"), "trainer.gpus=4,8"),
    ],
)
def test_a_key_of_the_grid_is_not_said_of_every_cell_as_well(flag: tuple[str, str], grid: str) -> None:
    result = run("sweep", "async-one-step", *flag, "--grid", grid)
    assert result.exit_code == 2
    assert f"error: {flag[0]}: " in result.stderr
    assert f"--grid {grid.partition('=')[0]} gives it in every cell" in result.stderr


def test_flags_of_compare_are_of_both_sides(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("fleet: {instances: 2}\nrun: {steps: 8, replications: 2}\n")
    words = ("compare", str(job), "--set-b", "fleet.instances=3", "--replications", "2", "--json")
    by_flag = run(*words, *SMALL, "--max-staleness", "1")
    assert by_flag.exit_code == 0, by_flag.output
    job.write_text(str(fs.load(str(job), batch=32, len=200, model="Qwen/Qwen2.5-1.5B", max_staleness=1)))
    by_file = run(*words)
    metrics = [json.loads(found.stdout)["changes"] for found in (by_flag, by_file)]
    assert [change | {"likely": None} for change in metrics[0]] == [change | {"likely": None} for change in metrics[1]]


def test_flags_beside_results_or_one_side_s_own_change_are_refused(tmp_path: Path) -> None:
    saved = tmp_path / "a.json"
    saved.write_text(run("simulate", *SMALL, *SHORT, "--json").stdout)
    refused = run("compare", str(saved), str(saved), "--max-staleness", "2")
    assert refused.exit_code == 2
    assert "--max-staleness: 2.0: changes what is simulated: there is no scenario among A and B" in refused.stderr
    twice = run("compare", "async-one-step", "--instances", "2", "--set-b", "fleet.instances=3")
    assert twice.exit_code == 2
    assert "--instances says the same thing" in twice.stderr


@pytest.mark.parametrize("command", [("size",), ("simulate",), ("sweep", "--grid", "fleet.instances=1,2")])
def test_a_measured_step_that_is_none_is_refused_everywhere(command: tuple[str, ...]) -> None:
    result = run(*command, "--trainer-point", "16x23", "--batch", "0")
    assert result.exit_code == 2
    assert "must read GPUS:SECONDS" in result.stderr
    assert "--batch" in result.stderr


ASKED = {
    "size": (),
    "split": ("--gpus", "8"),
    "plan": ("--gpus", "8"),
    "simulate": (),
    "sweep": ("--grid", "fleet.instances=1,2"),
    "compare": ("trl-grpo", "trl-async-grpo"),
}


@pytest.mark.parametrize("command", ASKED)
def test_what_time_is_worth_is_refused_by_its_own_name_everywhere(command: str) -> None:
    job = () if command == "compare" else ("--batch", "32")
    result = run(command, *ASKED[command], *job, "--worth", "20")
    assert result.exit_code == 2
    assert result.stderr.strip() == "error: --worth: 20.0: must be at most 10; give a number at most 10"
    both = run(command, *ASKED[command], *job, "--worth", "2", "--set", "targets.worth=1")
    assert both.exit_code == 2
    assert "--worth says the same thing" in both.stderr


def test_what_simulate_advises_follows_what_time_is_worth() -> None:
    """Where only cost counts a fleet of few is best, and where time counts ten times as much one of many."""
    job = ("simulate", *SMALL, "--instances", "3", "--trainer-step-s", "1", "--instance-tok-s", "400", *SHORT, "--json")

    def best(worth: str) -> int:
        document = json.loads(run(*job, "--worth", worth).stdout)
        assert document["scenario"]["targets"]["worth"] == float(worth)
        words = next(a["command"] for a in document["advice"] if "instance" in a["what"])
        return int(words[words.index("--instances") + 1])

    assert best("0") < best("10")
