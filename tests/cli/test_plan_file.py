"""One PLAN.json through every command that takes it: written by replay, read by alerts, dashboard, watch and verify."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from fleetsim.alerts import rehearsal
from fleetsim.alerts.planned_fleet import SIZE_VERSIONS, planned_of
from fleetsim.cli.main import app
from fleetsim.errors import InputError
from fleetsim.job.job import StatedJob, job_from_flags
from fleetsim.replay.change.plan import implied_of, load_plan
from fleetsim.tell.data import SCHEMA_VERSION
from fleetsim.watch.ask import decided
from fleetsim.watch.evaluation import Looker
from fleetsim.watch.watch import Look
from tests.once import rehearse_once

END = 1_790_000_000
JOB = """
name: capped
workload: {output_tokens: {mean: 400, cv: 0.8, max: 2000}, prompt_tokens: 128, group_size: 4}
fleet: {instances: 3, max_in_flight_samples: 48}
trainer: {batch_samples: 96, fixed_s: 4.0}
admission: {law: version_window, max_staleness: 3}
sync: {pause_s: 0.5, trainer_block_s: 0.5}
run: {steps: 120, replications: 1}
"""


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated window, and the plan that a replay makes of it."""
    folder = tmp_path_factory.mktemp("plan")
    (folder / "job.yaml").write_text(JOB)
    window = ("--openmetrics", folder / "job.om", "--openmetrics-end", str(END), "--scrape-interval", "5")
    assert run("simulate", folder / "job.yaml", *window).exit_code == 0
    facts = ("--given", "targets.trainer_idle_fraction=0.1", "--given", "cost.trainer_price_usd_per_gpu_h=7")
    wider = ("--set", "fleet.max_in_flight_samples=192")  # a fleet is not sized beside a cap that binds
    made = run("replay", "--from", folder / "job.om", *facts, *wider, "--recommend", "--plan-out", folder / "plan.json")
    assert made.exit_code == 0, made.output
    return folder


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "MULTIPLES", (1,))
    monkeypatch.setattr(rehearsal, "rehearse", rehearse_once)


def test_alerts_are_those_of_the_fleet_after_the_change(folder: Path, quick: None) -> None:
    planned = load_plan(folder / "plan.json").planned
    assert planned != 3
    result = run("alerts", "--plan", folder / "plan.json", "--hours", "1", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["plan"] == "plan"
    assert document["scenario"]["fleet"]["instances"] == planned
    lost = next(alert for alert in document["alerts"] if alert["signal"] == "instances")
    assert lost["threshold"] == planned


def test_the_fleet_is_simulated_at_the_speed_of_its_window(folder: Path) -> None:
    plan = load_plan(folder / "plan.json")
    found = planned_of(str(folder / "plan.json"))
    assert plan.engine is not None
    assert found.engine == implied_of(plan).engine
    assert found.scenario.fleet.instances == plan.planned
    assert plan.back_test is not None
    assert found.held == (plan.back_test.verdict == "ok")
    changed = planned_of(str(folder / "plan.json"), ["engine.max_num_seqs=17", "fleet.instances=9"])
    assert changed.engine is not None
    assert changed.engine[0] == found.engine[0]
    assert changed.engine[1].max_num_seqs == 17
    assert changed.scenario.fleet.instances == 9
    other = planned_of(str(folder / "plan.json"), ["engine.gpu=A100-SXM-80GB"])
    assert other.engine is None
    assert any("another engine" in note for note in other.notes)


def test_a_dashboard_of_the_plan(folder: Path, quick: None) -> None:
    result = run("dashboard", "--plan", folder / "plan.json", "--hours", "1")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["title"] == "fleetsim: plan"
    panel = next(p for p in document["panels"] if p["title"] == "Instances scraped")
    planned = load_plan(folder / "plan.json").planned
    assert f"vector({float(planned)})" in [target["expr"] for target in panel["targets"]]


def test_a_watch_begins_with_the_plan(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def look(self: Looker, now_s: float) -> Look:
        seen.append(self)
        return Look(data_s=now_s, current=3, wanted=4)

    monkeypatch.setattr(Looker, "__call__", look)
    command = ("watch", "--prometheus", "http://127.0.0.1:9", "--once", "--json", "--plan", folder / "plan.json")
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["wanted_instances"] == 4
    assert seen[0].base.targets.trainer_idle_fraction == 0.1
    assert seen[0].base.cost.trainer_price_usd_per_gpu_h == 7.0
    assert not seen[0].from_file
    run(*command, "--set", "targets.trainer_idle_fraction=0.2")
    assert seen[1].base.targets.trainer_idle_fraction == 0.2
    assert seen[1].base.cost.trainer_price_usd_per_gpu_h == 7.0
    run(*command, "--scenario", folder / "job.yaml")
    assert seen[2].base.targets.trainer_idle_fraction is None
    assert seen[2].base.targets.idle_limit == 0.05


def test_what_is_decided_is_targets_and_prices_alone(folder: Path) -> None:
    job: StatedJob = job_from_flags(None, (), {})
    found = decided(load_plan(folder / "plan.json"), job)
    assert found.model_copy(update={"targets": job.scenario.targets, "cost": job.scenario.cost}) == job.scenario


def test_its_own_window_is_not_yet_after_the_change(folder: Path) -> None:
    result = run("replay", "--from", folder / "job.om", "--verify", folder / "plan.json")
    assert result.exit_code == 10
    assert "--verify: instances failed" in result.stderr


def commands(plan: Path, folder: Path) -> list[tuple[str | Path, ...]]:
    return [
        ("alerts", "--plan", plan),
        ("dashboard", "--plan", plan),
        ("watch", "--prometheus", "http://127.0.0.1:9", "--once", "--plan", plan),
        ("replay", "--from", folder / "job.om", "--verify", plan),
    ]


def later(text: str) -> str:
    return json.dumps({**json.loads(text), "schema_version": 2})


def without_scenario(text: str) -> str:
    return json.dumps({name: value for name, value in json.loads(text).items() if name != "scenario"})


WRONG: dict[str, tuple[Callable[[str], str], str]] = {
    "truncated": (lambda text: text[: len(text) // 2], "is not valid JSON"),
    "empty": (lambda text: "", "is empty"),
    "another document": (lambda text: '{"schema_version": 1, "command": "replay"}', "is no plan of fleetsim"),
    "a list": (lambda text: "[1, 2]", "is no plan of fleetsim"),
    "no number of JSON": (lambda text: '{"kind": "fleetsim-plan", "date": NaN}', "NaN is not a finite number"),
    "a later version": (later, "upgrade fleetsim"),
    "incomplete": (without_scenario, "scenario"),
}


@pytest.mark.parametrize("which", WRONG)
def test_a_wrong_file_is_bad_input_before_any_work(which: str, folder: Path, tmp_path: Path) -> None:
    spoil, told = WRONG[which]
    wrong = tmp_path / "wrong.json"
    wrong.write_text(spoil((folder / "plan.json").read_text()))
    for command in commands(wrong, folder):
        result = run(*command)
        assert result.exit_code == 2, (command, result.output)
        assert told in result.stderr, command
        assert "/wro" in result.stderr, command  # long paths are cut in the middle
        assert result.stdout == ""
    for command in commands(tmp_path / "none.json", folder):
        assert run(*command).exit_code == 2


def test_what_size_printed_is_a_plan_too(tmp_path: Path) -> None:
    file = tmp_path / "sized.json"
    document = {
        "schema_version": 1,
        "command": "size",
        "scenario": {**yaml.safe_load(JOB), "published": None},
        "recommendation": {"instances": 5},
    }
    file.write_text(json.dumps(document))
    found = planned_of(str(file))
    assert (found.scenario.name, found.scenario.fleet.instances, found.engine) == ("capped", 5, None)
    for change, told in (
        ({"schema_version": 3}, "upgrade fleetsim"),
        ({"recommendation": {"instances": None}}, "no scenario with a recommended count"),
        ({"scenario": None}, "no scenario with a recommended count"),
        ({"command": "split"}, "is no plan of fleetsim"),
    ):
        file.write_text(json.dumps({**document, **change}))
        with pytest.raises(InputError, match=told):
            planned_of(str(file))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
HEADS = ({}, {"kind": "fleetsim-plan"}, {"command": "size", "recommendation": {"instances": 2}})


@settings(suppress_health_check=list(HealthCheck), max_examples=100, deadline=None)
@given(head=st.sampled_from(HEADS), junk=st.dictionaries(st.text(max_size=8) | st.just("scenario"), JUNK, max_size=4))
def test_any_other_json_is_refused(head: dict[str, Any], junk: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "junk.json"
    file.write_text(json.dumps({**junk, **head}))
    try:
        planned_of(str(file))
    except InputError as error:
        assert all(p.rule and p.remedy for p in error.problems)


def test_what_size_writes_now_is_read() -> None:
    assert SIZE_VERSIONS[-1] == SCHEMA_VERSION
