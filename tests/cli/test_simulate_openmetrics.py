"""`fleetsim simulate --openmetrics`: checked before the run, written whole, and as long as it was asked to be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fleetsim.cli.main import app
from fleetsim.config import load_scenario, with_changes
from fleetsim.sim.run import PILOT_STEPS, simulate, steps_for

JOB = """
name: small
workload: {output_tokens: {mean: 200, cv: 0.8, max: 800}, prompt_tokens: 64, group_size: 4}
fleet: {instances: 2}
trainer: {batch_samples: 32, fixed_s: 2.0}
run: {steps: 40, replications: 1}
"""
END = "1700000000"


@pytest.fixture
def job(tmp_path: Path) -> str:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    return str(file)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *arguments])


def stamps(file: Path, name: str) -> list[float]:
    lines = [line for line in file.read_text().splitlines() if line.startswith(name)]
    return [float(line.rpartition(" ")[2]) for line in lines]


def test_the_result_stays_and_the_file_is_told_of(job: str, tmp_path: Path) -> None:
    file = tmp_path / "history.om"
    plain = run(job, "--json")
    result = run(job, "--json", "--openmetrics", str(file), "--openmetrics-end", END)
    assert result.exit_code == 0, result.output
    assert result.stdout == plain.stdout
    json.loads(result.stdout)
    samples = sum(not line.startswith("#") for line in file.read_text().splitlines())
    assert f"{file}: {samples:,} samples" in result.stderr
    assert "2023-11-14 22:13:20 UTC" in result.stderr
    assert file.read_text().endswith("# EOF\n")
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_the_same_end_gives_the_same_file(job: str, tmp_path: Path) -> None:
    files = [tmp_path / "a.om", tmp_path / "b.om"]
    for file in files:
        assert run(job, "--openmetrics", str(file), "--openmetrics-end", "2023-11-14T22:13:20").exit_code == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    assert stamps(files[0], "rl_trainer_steps_total")[-1] == float(END)


def test_without_an_end_it_ends_with_the_last_full_hour(job: str, tmp_path: Path) -> None:
    file = tmp_path / "history.om"
    assert run(job, "--openmetrics", str(file)).exit_code == 0
    assert stamps(file, "rl_trainer_steps_total")[-1] % 3600 == 0


def test_the_interval_and_the_hours(job: str, tmp_path: Path) -> None:
    file = tmp_path / "history.om"
    arguments = ("--hours", "0.1", "--scrape-interval", "5", "--openmetrics", str(file), "--openmetrics-end", END)
    result = run(job, *arguments)
    assert result.exit_code == 0, result.output
    assert stamps(file, "rl_trainer_steps_total") == [float(END) - 360 + 5 * k for k in range(73)]
    steps = steps_for(load_scenario(job), 360.0)
    ends = simulate(with_changes(load_scenario(job), {"run.steps": steps})).steps["end_s"]
    assert ends[-2] < 360.0 <= ends[-1], "as many steps as fill the time, and not one more"


def test_a_warm_up_longer_than_the_pilot(job: str) -> None:
    scenario = with_changes(load_scenario(job), {"run.warmup_steps": PILOT_STEPS + 3})
    assert steps_for(scenario, 1.0) == 1
    assert steps_for(scenario, 600.0) == steps_for(load_scenario(job), 600.0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--openmetrics", "nowhere/history.om"), "folder does not exist"),
        (("--openmetrics", "."), "is a directory"),
        (("--openmetrics", "job.yaml"), "exists already"),
        (("--openmetrics", "a.om", "--scrape-interval", "0"), "1 to 3600"),
        (("--openmetrics", "a.om", "--scrape-interval", "nan"), "1 to 3600"),
        (("--openmetrics", "a.om", "--openmetrics-end", "yesterday"), "--openmetrics-end"),
        (("--scrape-interval", "5"), "--openmetrics FILE"),
        (("--openmetrics-end", "now"), "--openmetrics FILE"),
        (("--hours", "0"), "above 0"),
        (("--hours", "nan"), "above 0"),
        (("--hours", "2", "--steps", "9"), "--steps 9 is given as well"),
    ],
)
def test_what_cannot_be_is_said_before_the_run(
    arguments: tuple[str, ...], told: str, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("job.yaml", *arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert told in " ".join(result.stderr.split())
    assert [p.name for p in tmp_path.iterdir()] == ["job.yaml"]


def test_a_disk_that_cannot_take_it_ends_with_exit_3(job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **keywords: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fleetsim.export.openmetrics.write_openmetrics", full)
    result = run(job, "--openmetrics", str(tmp_path / "history.om"))
    assert result.exit_code == 3, result.output
    assert "No space left on device" in result.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["job.yaml"], "nothing half-written stays"
