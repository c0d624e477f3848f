"""Two windows of a real Prometheus, and two selections of one: the change is found, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from fleetsim.cli.main import app
from tests.real_prometheus.runs import Backfilled, backfilled

HOURS = 2.0
# From step 42, half way, the trainer computes for half as long again.
SLOWER = "run.events=[{step: 42, trainer_slowdown: 1.5}]"
JOB = ("admission.law=barrier", "trainer.batch_samples=128", "trainer.fixed_s=30", SLOWER)


@pytest.fixture(scope="module")
def job(prometheus: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backfilled]:
    was = backfilled(tmp_path_factory.mktemp("run"), "scenarios/async-one-step.yaml", JOB, HOURS)
    yield was
    was.server.stop()


def compared(job: Backfilled, *arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["compare", "--prometheus", job.server.url, *arguments, "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def at(job: Backfilled, second: float) -> str:
    return f"{job.start_unix + second:.0f}"


def test_a_trainer_that_slowed_down_between_two_windows(job: Backfilled) -> None:
    steps = job.records.steps
    changed_s = float(steps["start_s"][42])
    found = compared(
        job, "--a", f"{at(job, 300)}..{at(job, changed_s)}", "--b", f"{at(job, changed_s + 60)}..{at(job, job.span_s)}"
    )
    by_name = {c["metric"]: c for c in found["changes"]}
    assert by_name["train_s"]["verdict"] == "worse"
    assert by_name["train_s"]["ratio"]["ci_low"] <= 1.5 <= by_name["train_s"]["ratio"]["ci_high"]
    assert by_name["step_s"]["verdict"] == "worse"
    assert by_name["step_s"]["difference"]["ci_low"] <= 15.0 <= by_name["step_s"]["difference"]["ci_high"]
    assert by_name["response_tokens.mean"]["verdict"] == "no significant change"
    assert by_name["response_tokens.p99"]["verdict"] in ("no significant change", "not comparable")
    assert found["inputs"] == []


def test_two_halves_of_the_fleet_are_alike(job: Backfilled) -> None:
    window = f"{at(job, 300)}..{at(job, 3600)}"
    found = compared(
        job, "--a", window, "--selector-a", 'pod=~"rollout-[01]"', "--selector-b", 'pod=~"rollout-[23]"',
        "--metric", "instance_tok_s", "--metric", "running",
    )  # fmt: skip
    assert found["changed"] == []
    assert {c["verdict"] for c in found["changes"]} == {"no significant change"}
