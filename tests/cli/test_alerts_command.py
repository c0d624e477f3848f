"""`fleetsim alerts` and `fleetsim dashboard`: files written, documents printed, bad input told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from fleetsim.alerts import rehearsal
from fleetsim.alerts.ask import Alerts, MetricFields, alerts
from fleetsim.alerts.planned_fleet import PlanFields
from fleetsim.cli.main import app
from fleetsim.errors import InputError
from tests.once import rehearse_once
from tests.standing.plans import promtool

JOB = """
name: small
workload: {output_tokens: {mean: 200, cv: 0.8, max: 800}, prompt_tokens: 64, group_size: 4}
fleet: {instances: 3}
trainer: {batch_samples: 32, fixed_s: 30.0}
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(rehearsal, "MULTIPLES", (1,))
    monkeypatch.setattr(rehearsal, "rehearse", rehearse_once)
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    return str(file)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_rules_and_tests_that_promtool_accepts(job: str, tmp_path: Path) -> None:
    rules, tests = str(tmp_path / "rules.yaml"), str(tmp_path / "tests.yaml")
    result = run("alerts", job, "-o", rules, "--tests", tests, "--hours", "1", "--selector", 'job="rollout"')
    assert result.exit_code == 0, result.output
    assert "false alarms a" in " ".join(result.stdout.split())
    assert "InstanceLost" in result.stdout
    promtool("check", "rules", rules)
    promtool("test", "rules", tests)
    again = run("alerts", job, "-o", rules)
    assert again.exit_code == 2
    assert "exists already" in again.stderr


def test_the_json_document_holds_the_rules_too(job: str) -> None:
    result = run("alerts", job, "--hours", "1", "--json", "--engines-only", "--name", "mine")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["plan"] == "mine"
    alerts = {alert["alert"]: alert for alert in document["alerts"]}
    assert "RolloutTrainerIdle" not in alerts
    assert "RolloutTrainerIdle" in document["left_out"]
    lost = alerts["RolloutInstanceLost"]
    assert lost["threshold"] == 3.0
    assert lost["false_alarms"]["compatible_with_per_month"] > 0
    assert lost["fault"]["delay_s"] > 0
    assert any(rule.get("alert") == "RolloutInstanceLost" for rule in document["rules"]["groups"][0]["rules"])


def test_python_is_answered_as_the_command_is(job: str) -> None:
    asked = Alerts(of=PlanFields(scenario=job), hours=1, metrics=MetricFields(selector='job="rollout"'))
    command = run("alerts", job, "--hours", "1", "--selector", 'job="rollout"')
    assert alerts(asked).rule_file() == command.stdout
    with pytest.raises(InputError, match="must be from 1 to 8784"):
        alerts(Alerts(of=PlanFields(scenario=job), hours=0))


def test_a_plan_that_size_has_written_will_do(job: str, tmp_path: Path) -> None:
    """Its fleet is the one that was recommended, whatever stands in its scenario."""
    document = {
        "command": "size",
        "scenario": {**yaml.safe_load(JOB), "published": None, "fleet": {"instances": 2}},
        "recommendation": {"instances": 3},
    }
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(document))
    result = run("alerts", "--plan", str(plan), "--hours", "1")
    assert result.exit_code == 0, result.output
    rules = yaml.safe_load(result.stdout)["groups"][0]["rules"]
    assert any("job:rollout_instances:count1m" in r["expr"] and "< 3.0" in r["expr"] for r in rules if "alert" in r)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "no plan to make alerts for"),
        (("async-one-step", "--budget", "0"), "--budget"),
        (("async-one-step", "--tests", "t.yaml"), "tests name their rule file"),
        (("async-one-step", "--selector", "job=rollout"), "in quotes"),
        (("async-one-step", "--map", "nonsense"), "SIGNAL=METRIC"),
        (("async-one-step", "--engine", "tgi"), "must be one of"),
        (("async-one-step", "--plan", "p.json"), "is given as well"),
    ],
)
def test_bad_input_is_told(arguments: tuple[str, ...], told: str) -> None:
    result = run("alerts", *arguments)
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_dashboard_and_what_a_page_lacks(job: str, tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_text("vllm:num_requests_running 1\n")
    file = tmp_path / "dashboard.json"
    result = run("dashboard", job, "-o", str(file), "--hours", "1", "--check-against", str(page))
    assert result.exit_code == 10
    assert f"wrote {file}: " in result.stderr
    assert "not there: rl_trainer_steps_total" in result.stderr
    assert "vllm:num_requests_running" not in result.stderr
    assert json.loads(file.read_text())["schemaVersion"] >= 36
