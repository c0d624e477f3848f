"""Jobs whose rollout and trainer take turns on the same GPUs: another count is another number of GPUs, the trainer's
seconds, the price and the memory go with it."""

from __future__ import annotations

from typing import Any

import pytest

import fleetsim as fs
from fleetsim.config.load import load_scenario, scenario_from_mapping, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.yaml_text import from_yaml
from fleetsim.job.nameplate import mean_step_s
from fleetsim.job.trainer_scaling import can_be, lays_out, next_count, trainer_gpus, with_all_gpus
from fleetsim.job.trials import Trials, planned, remembered, simulated, with_instances
from fleetsim.search.arrangements import colocated_async, colocated_sync
from fleetsim.search.best import best_of
from fleetsim.search.objective import price_per_s, targets_of, usd_per_h
from fleetsim.search.rate_matching import matched

LENGTHS = {"kind": "lognormal", "mean": 400.0, "cv": 0.8, "max": 2000.0}


def in_turn(**changes: Any) -> Scenario:
    """A small job on shared GPUs: 8 of them, 64 samples a step."""
    raw = {
        "engine": {"kind": "constant", "instance_tok_s": 2000.0, "max_num_seqs": 64},
        "fleet": {"placement": "colocated", "instances": 8, "switch_s": 1.0},
        "trainer": {"gpus": 8, "batch_samples": 64, "fixed_s": 12.0},
        "workload": {"output_tokens": LENGTHS, "prompt_tokens": 1, "group_size": 4},
        "sync": {"pause_s": 0.0, "publish_s": 0.0, "trainer_block_s": 0.5},
        "admission": {"law": "barrier"},
        "run": {"replications": 1},
    }
    return with_changes(scenario_from_mapping(raw), {path.replace("__", "."): v for path, v in changes.items()})


ASYNC = {"admission.law": "version_window", "admission.max_staleness": 1.0, "sync.in_flight": "abort_resume"}
JOBS: dict[str, dict[str, Any]] = {
    "batch by batch": {},
    "carried over": ASYNC,
    "a slow trainer that no GPU speeds up": {"trainer.fixed_s": 60.0, "trainer.scaling.parallel_share": 0.0},
    "a trainer that all GPUs divide": {"trainer.fixed_s": 60.0, "trainer.scaling.parallel_share": 1.0},
    "dear time": {"targets.worth": 3.0},
    "measured trainers": {"trainer.scaling.points": ((4, 20.0), (16, 8.0), (64, 6.0))},
}


def placed(changes: dict[str, Any]) -> Scenario:
    return with_all_gpus(planned(with_changes(in_turn(), changes), ()))


@pytest.mark.parts
@pytest.mark.parametrize("job", JOBS)
def test_the_count_is_that_of_brute_force_over_long_runs(job: str) -> None:
    """At most 3 % of step x cost are lost against the best of all counts that the job can have."""
    scenario = placed(JOBS[job])
    trials = Trials(scenario, remembered(simulated))
    found = best_of(trials, matched(scenario)[1], (), 1).instances

    def objective(n: int) -> float:
        found = trials.at(n, 4)  # one run's luck, to the power of what time is worth, is as large as what is lost
        return found.mean("step_s") ** scenario.targets.worth * found.mean("cost_per_step")

    every = [n for n in (*range(1, 65), *range(96, 513, 32)) if can_be(scenario, n)]
    assert {1, 2, 4, 8, 16, 24, 128} <= set(every)
    assert not {3, 5, 9, 12} & set(every)
    assert can_be(scenario, found)
    assert objective(found) <= 1.03 * min(map(objective, every))


@pytest.mark.parametrize("limit", [0.2, 0.3, 0.4])
def test_an_idle_target_that_some_count_holds_is_held_by_the_fewest(limit: float) -> None:
    scenario = placed({"trainer.fixed_s": 40.0, "targets.trainer_idle_fraction": limit})
    trials = Trials(scenario, remembered(simulated))
    best = best_of(trials, matched(scenario)[1], targets_of(scenario), 1)
    every = [n for n in range(1, 65) if can_be(scenario, n)]
    held = [n for n in every if trials.at(n, 1).mean("trainer_idle_fraction") <= limit]
    assert (best.knee is None) == bool(held)
    if held:
        assert best.instances == held[0]


@pytest.mark.parametrize("changes", [{}, ASYNC], ids=["batch by batch", "carried over"])
@pytest.mark.parametrize("instances", [1, 4, 16, 40])
def test_another_count_is_the_arrangement_of_split(changes: dict[str, Any], instances: int) -> None:
    """`split` on as many GPUs arranges the same job: the same trainer, the same fleet, and so the same run."""
    job = placed(changes)
    sized = with_instances(job, instances)
    arranged = (colocated_async if changes else colocated_sync)(job, instances).scenario
    assert sized.fleet == arranged.fleet
    assert sized.trainer == arranged.trainer
    assert simulated(sized, 0)["step_s"] == simulated(arranged, 0)["step_s"]
    assert usd_per_h(job, instances) == pytest.approx(instances * usd_per_h(job, 1))
    assert usd_per_h(job, instances) == usd_per_h(sized, instances)
    assert price_per_s(job, 8) == 8 * price_per_s(job, 1)


def test_seconds_of_a_known_model_are_worked_out_anew_and_others_scale() -> None:
    known = fs.load("presets/verl-v1-colocate-async").scenario
    anew = fs.load("presets/verl-v1-colocate-async", trainer_gpus=32, instances=32).scenario
    assert with_instances(known, 32).trainer == anew.trainer
    assert mean_step_s(anew) < mean_step_s(known)
    given = in_turn()
    assert mean_step_s(with_instances(given, 16)) < mean_step_s(given) < mean_step_s(with_instances(given, 4))
    assert mean_step_s(with_instances(with_instances(given, 32), 8)) == pytest.approx(mean_step_s(given))


def test_the_trainers_states_need_their_gpus_and_trainers_their_servers() -> None:
    """Weights, gradients and Adam states of a 7B model are 16 bytes a weight: more than one GPU of 80 GB holds."""
    job = fs.load("presets/verl-v1-colocate-async").scenario
    assert not can_be(job, 1)
    assert next_count(job, 2, -1) == 0
    assert [n for n in range(1, 34) if lays_out(n, job)] == [1, 2, 4, 8, 16, 32]  # verl: 512 samples by ranks
    assert next_count(job, 16) == 32
    assert next_count(in_turn(), 8) == 16
    assert next_count(in_turn(), 8, -1) == 4


def test_a_job_that_leaves_trainer_gpus_without_an_engine_has_room_for_more() -> None:
    half = in_turn(fleet__instances=4)
    assert [trainer_gpus(half, n) for n in (2, 4, 8, 16)] == [8, 8, 8, 16]
    assert with_instances(half, 4) == half
    assert with_all_gpus(half).fleet.instances == 8
    assert with_all_gpus(half).trainer == half.trainer


def test_apart_nothing_of_the_trainer_moves() -> None:
    apart = in_turn(fleet__placement="disaggregated")
    assert with_instances(apart, 3).trainer == apart.trainer
    assert with_all_gpus(apart) is apart
    assert can_be(apart, 3)


def test_the_answer_is_in_gpus_and_what_is_assumed_of_the_trainer_is_said() -> None:
    result = fs.load(in_turn()).size()
    n = result.instances
    assert result.job.scenario.trainer.gpus == n
    first = result.in_brief().facts.answer
    assert first.startswith(f"{n} GPUs ({n} instances of TP 1")
    assert ", trainer and rollout take turns: the least step time x cost." in first
    assert not any("split" in warning for warning in result.warnings)
    said = [a.text for a in result.plan.assumptions if a.path == "trainer.scaling.parallel_share"]
    assert len(said) == 1
    assert said[0].startswith("the trainer's 12.0 s on 8 GPUs scale with them: ")
    assert "trainer.gpus" not in {a.path for a in result.plan.assumptions}
    saved = scenario_from_mapping(from_yaml(result.saved(), "saved"))
    assert saved.trainer == result.job.scenario.trainer
    assert (saved.fleet.instances, saved.trainer.gpus) == (n, n)


def test_an_idle_target_that_no_count_holds_is_refused_first() -> None:
    result = fs.load(load_scenario("sync-colocated")).size(target_idle=0.05)
    assert not result.feasible
    assert result.in_brief().facts.answer.startswith(
        "No fleet holds trainer idle at most 5.0 %, for a colocated trainer waits while its GPUs generate. The best: "
    )
