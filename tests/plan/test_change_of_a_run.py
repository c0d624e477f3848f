"""What `simulate` advises, against every count of instances simulated, and against itself when it is typed."""

from __future__ import annotations

from typing import Any

import pytest

import fleetsim as fs
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.job.trials import remembered, simulated, with_instances
from fleetsim.search.alternative import COUNT, Alternatives
from fleetsim.search.levers import levers_of
from fleetsim.simulate.ask import alternatives_here
from tests.plan.typed import typed

JOB: dict[str, Any] = {"model": "Qwen/Qwen2.5-1.5B", "batch": 64, "len": 300, "max_staleness": 1}


def job(**changes: Any) -> Scenario:
    scenario = fs.load(None, {"run.replications": 1}, **JOB).scenario
    return with_changes(scenario, {key.replace("__", "."): value for key, value in changes.items()})


def objective(scenario: Scenario) -> float:
    """Step time x cost per step, in a long run."""
    run = simulated(scenario, 0)
    return float(run["step_s"]) * float(run["cost_per_step"])


def moves(scenario: Scenario) -> Alternatives:
    found = alternatives_here(scenario, remembered(simulated), frozenset(("engine.model", "trainer.batch_samples")))
    assert found is not None
    return found


def test_a_fleet_that_is_too_large_gets_the_count_that_brute_force_finds() -> None:
    large = job(fleet__instances=24, trainer__fixed_s=20.0, trainer__phases=[])
    every = {n: objective(with_instances(large, n)) for n in range(1, 25)}
    found = moves(large).named(COUNT)
    assert found is not None
    assert found.anew is not None
    assert every[found.anew.instances] <= 1.03 * min(every.values())
    assert found.flag == f"--set fleet.instances={found.anew.instances}"
    assert found.anew.gain == pytest.approx(1.0 - every[found.anew.instances] / every[24], abs=0.02)


@pytest.mark.parts
@pytest.mark.parametrize("instances", [1, 6, 12])
def test_no_lever_at_any_count_saves_notably_more_than_what_is_told(instances: int) -> None:
    scenario = job(fleet__instances=instances)
    now = objective(scenario)
    saved = {}
    for lever in levers_of(scenario, scenario, "one more"):
        if lever.truncated < 0.06:
            least = min(objective(with_instances(lever.scenario, n)) for n in (1, 2, 3, 4, 6, 8, 12, 16))
            saved[lever.name] = 1.0 - least / now
    told = max((a.gain for a in moves(scenario).tried), default=0.0)
    assert told >= max(saved.values()) - 0.04, saved


def test_what_a_change_says_is_what_a_run_with_it_comes_to() -> None:
    found = moves(job(fleet__instances=6)).change()
    assert found is not None
    changes, options = typed(found.flag)
    asked = fs.load(None, {"fleet.instances": 6, "run.replications": 1}, **JOB).with_(changes, **options).scenario
    run = simulated(with_instances(asked, found.instances), 0)
    assert float(run["step_s"]) == pytest.approx(found.step_s)
    now = simulated(job(fleet__instances=6), 0)
    assert float(now["cost_per_step"]) - float(run["cost_per_step"]) == pytest.approx(found.saves_usd)
