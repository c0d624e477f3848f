"""The one change that `simulate` tells, against every count of instances simulated."""

from __future__ import annotations

from typing import Any

import pytest

import fleetsim as fs
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.job.input_moves import shortened
from fleetsim.job.levers import levers_of
from fleetsim.job.trials import remembered, simulated, with_instances
from fleetsim.simulate.change import change_of
from tests.plan.typed import typed

JOB: dict[str, Any] = {"model": "Qwen/Qwen2.5-1.5B", "batch": 64, "len": 300, "max_staleness": 1}


def job(**changes: Any) -> Scenario:
    scenario = fs.load(None, {}, **JOB).scenario
    return shortened(with_changes(scenario, {key.replace("__", "."): value for key, value in changes.items()}))


def numbers(scenario: Scenario) -> tuple[float, float]:
    run = simulated(scenario, 0)
    return float(run["step_s"]), float(run["cost_per_step"])


def test_a_fleet_that_is_too_large_gets_the_fewest_instances_that_keep_its_step() -> None:
    large = job(fleet__instances=24, trainer__fixed_s=20.0, trainer__phases=[])
    now_s, now_usd = numbers(large)
    every = {n: numbers(with_instances(large, n)) for n in range(1, 25)}
    enough = min(n for n, (step_s, _) in every.items() if step_s <= 1.01 * now_s)
    found = change_of(large, remembered(simulated))
    assert found is not None
    assert found.flag == f"--set fleet.instances={enough}"
    assert found.saves_usd == pytest.approx(now_usd - every[enough][1])


@pytest.mark.parametrize("instances", [1, 6, 12])
def test_no_lever_at_any_smaller_count_that_keeps_the_step_saves_notably_more(instances: int) -> None:
    scenario = job(fleet__instances=instances)
    now_s, now_usd = numbers(scenario)
    grown = with_instances(scenario, instances + 1)
    saved = [0.0]
    for lever in levers_of(scenario, grown, "one more"):
        for n in range(1, lever.scenario.fleet.instances + 1):
            step_s, usd = numbers(with_instances(lever.scenario, n))
            if step_s <= 1.01 * now_s:
                saved.append(now_usd - usd)
    found = change_of(scenario, remembered(simulated))
    told = 0.0 if found is None else found.saves_usd
    assert told >= max(saved) - 0.02 * now_usd


def test_what_a_change_says_is_what_a_run_with_it_comes_to() -> None:
    scenario = job(fleet__instances=6)
    found = change_of(scenario, remembered(simulated))
    assert found is not None
    changes, options = typed(found.flag)
    asked = fs.load(None, {"fleet.instances": 6}, **JOB).with_(changes, **options).scenario
    after = with_instances(shortened(asked), found.instances)
    step_s, usd = numbers(after)
    assert step_s == pytest.approx(found.step_s)
    assert numbers(scenario)[1] - usd == pytest.approx(found.saves_usd)
