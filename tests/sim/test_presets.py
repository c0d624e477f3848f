"""Presets run, and none lets a group into training that is older than it promises, whatever goes wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fleetsim.config import Scenario, load_scenario
from fleetsim.config.data_files import find_preset, presets
from fleetsim.config.scenario import age_bound, most_steps
from fleetsim.engine.kernel.tables import G_TRAINED
from fleetsim.sim import buffer
from fleetsim.sim.admission import creation_version
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate

NAMES = sorted(presets())
BOUNDS = {name: age_bound(load_scenario(find_preset(name))) for name in NAMES}
PROMISING = [name for name in NAMES if BOUNDS[name] is not None]
# Heavy tail, few instances, half of them three times slower, a failure every ten minutes, filtered groups.
STRESS = (
    "fleet.straggler_share=0.5",
    "fleet.straggler_slowdown=3",
    "fleet.failures={mtbf_s: 600, restart_s: 60}",
    "workload.output_tokens={kind: lognormal, mean: 1536, cv: 2.5, max: 16384}",
    "workload.filter.zero_variance_share=0.2",
    "run.steps=14",
)


def stressed(name: str, *overrides: str) -> Scenario:
    instances = 8 if load_scenario(find_preset(name)).fleet.placement == "colocated" else 4
    return load_scenario(find_preset(name), [*STRESS, f"fleet.instances={instances}", *overrides])


def submission_ages(records: Records) -> np.ndarray[Any, Any]:
    """Versions triggered when each trained group was taken, less the version that it was sent under: records only."""
    trained = records.groups[records.groups["status"] == G_TRAINED]
    triggered = np.searchsorted(np.sort(records.syncs["trigger_s"]), trained["left_s"], side="right")
    ages: np.ndarray[Any, Any] = triggered - trained["version"]
    return ages


@pytest.mark.parts
@pytest.mark.parametrize("name", NAMES)
def test_it_runs_as_it_is(name: str) -> None:
    scenario = load_scenario(find_preset(name))
    records = simulate(scenario)
    metrics = metrics_of(records)
    assert 24 <= len(records.steps) <= most_steps(scenario)
    compute = np.mean(records.steps["train_s"])
    assert compute <= metrics["step_s"] < 10 * compute  # a balanced job: no preset starves, none trains for nothing
    bound = BOUNDS[name]
    if bound is not None:
        assert submission_ages(records).max() <= bound


@pytest.mark.parametrize("name", PROMISING)
@pytest.mark.parametrize("seed", [1, 2])
def test_no_trained_group_is_older_than_promised(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By submission from the records, and by creation as admission saw it, where the preset counts from there."""
    created: list[int] = []
    pick = buffer.pick

    def watched(scenario: Scenario, fleet: Any, progress: Any, *rest: Any) -> Any:
        batch, old = pick(scenario, fleet, progress, *rest)
        if len(batch):
            versions = np.minimum(creation_version(progress, batch), fleet.world.groups["version"][batch])
            created.append(int((progress.triggered - versions).max()))
        return batch, old

    monkeypatch.setattr(buffer, "pick", watched)
    scenario, bound = stressed(name, f"run.seed={seed}"), BOUNDS[name]
    assert bound is not None
    records = simulate(scenario)
    ages = submission_ages(records)
    assert len(ages) == scenario.run.steps * scenario.groups_per_step
    assert ages.max() <= bound
    assert len(created) >= scenario.run.steps
    if scenario.admission.age_reference == "creation":
        assert max(created) <= bound


@pytest.mark.parametrize(
    "name",
    ["nemo-rl-sc-windowed", "open-instruct", "prime-rl", "roll-agentic", "trl-async-grpo", "verl-v1-colocate-async"],
)
def test_it_is_the_age_action_that_keeps_the_promise(name: str) -> None:
    """The stress is one: with the same law, even slower stragglers and no action, older groups are trained."""
    bound = BOUNDS[name]
    assert bound is not None
    without = stressed(name, "admission.age_action=train_anyway", "fleet.straggler_slowdown=10")
    assert submission_ages(simulate(without)).max() > bound


@pytest.mark.parametrize("name", ["areal", "skyrl-fully-async", "nemo-rl-sc-ready-first", "pipelinerl-max-lag"])
def test_a_window_alone_bounds_no_age(name: str) -> None:
    """Why these promise none: under stress their own window lets groups through that are older than eta."""
    assert BOUNDS[name] is None
    scenario = stressed(name)
    assert submission_ages(simulate(scenario)).max() > scenario.admission.max_staleness


def test_modes_of_one_system_stand_in_the_order_that_one_expects() -> None:
    """The same job on the same 16 GPUs: the further generation may run ahead, the less the trainer waits."""
    step = {
        name: metrics_of(simulate(load_scenario(find_preset(name))))["step_s"]
        for name in ("verl-sync", "verl-one-step-off", "verl-v1-separate-async", "skyrl-fully-async", "rollpacker")
    }
    assert step["verl-sync"] > step["verl-one-step-off"] > step["verl-v1-separate-async"] > step["skyrl-fully-async"]
    assert step["rollpacker"] < step["verl-sync"]
