"""Each arrangement is the scenario that it says, whatever law the job came with."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.config import default_scenario, load_scenario, with_changes
from fleetsim.config.law_numbers import steps_per_version
from fleetsim.engine.transport import sync_times
from fleetsim.errors import InputError
from fleetsim.job.trainer_scaling import least_trainer_gpus
from fleetsim.search.arrangements import Rules, colocated_async, colocated_sync, split, split_counts
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate

LAWS: tuple[dict[str, Any], ...] = (
    {},
    {"admission.law": "barrier"},
    {"admission.law": "batches_ahead", "buffer.batch_rule": "first_finished", "buffer.oversampling": 1.25},
    {"admission.law": "barrier", "buffer.batch_rule": "first_finished", "buffer.leftover": "defer"},
    {"admission.law": "target_step", "buffer.batch_rule": "exact_target_step"},
    {"admission.law": "cumulative_ratio", "admission.async_ratio": 1.0, "buffer.wait_for_oldest": True},
    {"admission.law": "per_sync_window", "trainer.minibatches": 4, "sync.trigger": "pulls", "sync.every_pulls": 4},
    {"sync.trigger": "samples", "sync.every_samples": 100},
    {"sync.scope": "rolling", "admission.age_action": "drop_and_refill", "admission.max_age": 2.0},
    {"fleet.placement": "colocated_lending", "admission.law": "fixed_pool", "admission.pool_samples": 64},
    {"admission.law": "adaptive", "sync.in_flight": "drain"},
)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: " ".join(map(str, law.values())) or "default")
def test_every_law_makes_three_scenarios_that_run(law: dict[str, Any]) -> None:
    small = {"trainer.batch_samples": 32, "workload.output_tokens": {"mean": 200, "cv": 1.0, "max": 800}}
    job = with_changes(default_scenario(), small | {"run.steps": 6} | law)
    for way in (colocated_sync(job, 4), colocated_async(job, 4), split(job, 2, 4)):
        records = simulate(way.scenario)
        assert len(records.steps) == 6
        stale = records.groups["trained_step"] - records.updates[records.groups["version"]]
        if way.kind == "colocated_sync":
            assert stale[records.groups["trained_step"] >= 0].max() == 0, "on-policy"
            assert way.scenario.admission.law == "barrier"
        if way.kind == "split":
            assert way.scenario.fleet.placement == "disaggregated"
            assert way.scenario.admission.law != "barrier"
            assert (way.rollout_gpus, way.trainer_gpus, way.label) == (2, 2, "2 + 2")
        else:
            assert way.scenario.fleet.placement == "colocated"
            assert (way.instances, way.scenario.trainer.gpus) == (4, 4)


def test_all_gpus_are_used_in_every_way() -> None:
    job = with_changes(default_scenario(), {"engine.tp": 2})
    assert split_counts(job, 8, Rules(1, 1)) == [1, 2, 3]
    assert split_counts(job, 8, Rules(3, 1)) == [1, 2]
    assert split_counts(job, 8, Rules(1, 4)) == [2]
    for k in split_counts(job, 8, Rules(1, 1)):
        way = split(job, k, 8).scenario
        assert way.fleet.instances * way.engine.tp + way.trainer.gpus == 8
    assert colocated_sync(job, 8).instances == 4


def test_weights_cross_a_network_only_between_pools() -> None:
    job = load_scenario("sync-colocated")
    assert job.sync.pause_s == 0.0
    assert sync_times(split(job, 4, 8).scenario).pause_s == 1.0, "the default of engines that do not stand still anyway"
    assert sync_times(colocated_sync(job, 8).scenario).pause_s == 0.0
    own = with_changes(job, {"fleet.placement": "disaggregated", "sync.publish_s": 7.0})
    assert split(own, 4, 8).scenario.sync == own.sync
    assert sync_times(colocated_async(own, 8).scenario).publish_s == 0.0


def test_a_transport_gives_each_way_its_times() -> None:
    job = with_changes(default_scenario(), {"sync.transport": "collective_broadcast"})
    times = {way.kind: sync_times(way.scenario) for way in (split(job, 4, 8), colocated_async(job, 8))}
    assert "collective_broadcast" in times["split"].text
    assert "cuda_ipc" in times["colocated_async"].text
    assert times["colocated_async"].complete_s < times["split"].complete_s
    shared = with_changes(job, {"fleet.placement": "colocated", "sync.transport": "cuda_ipc"})
    assert split(shared, 4, 8).scenario.sync.transport == "collective_broadcast"
    assert colocated_sync(shared, 8).scenario.sync.transport == "cuda_ipc"


def test_one_batch_ahead_on_shared_gpus_is_no_barrier() -> None:
    """The batch in training has nothing beside it, so two batches are in flight when the next is generated."""
    job = with_changes(default_scenario(), {"admission.law": "batches_ahead"})
    assert colocated_async(job, 8).scenario.admission.batches_ahead == 2
    assert split(job, 4, 8).scenario.admission.batches_ahead == 1
    means = {
        way.kind: metrics_of(simulate(way.scenario))["step_s"]
        for way in (colocated_sync(job, 8), colocated_async(job, 8))
    }
    assert means["colocated_async"] < 0.8 * means["colocated_sync"]


def test_the_trainer_s_seconds_go_with_its_gpus() -> None:
    job = with_changes(default_scenario(), {"trainer.scaling.parallel_share": 1.0})
    assert split(job, 12, 16).scenario.trainer.fixed_s == pytest.approx(40.0)
    assert colocated_sync(job, 16).scenario.trainer.fixed_s == pytest.approx(10.0)


def test_adam_s_states_set_the_fewest_trainer_gpus() -> None:
    """7.6 billion weights x 18 bytes (2 of the weight, 4 of its gradient, 12 of Adam) are 137 GB: two H100 of 85 GB."""
    assert least_trainer_gpus(default_scenario()) == 2
    assert least_trainer_gpus(with_changes(default_scenario(), {"engine.model": "Qwen/Qwen3-32B"})) == 8
    assert least_trainer_gpus(with_changes(default_scenario(), {"engine.model": "Qwen/Qwen2.5-0.5B"})) == 1
    unknown = with_changes(default_scenario(), {"engine.kind": "constant", "engine.instance_tok_s": 1000.0})
    assert least_trainer_gpus(unknown) == 1


def test_publications_in_whole_steps() -> None:
    def steps(**changes: Any) -> int:
        return steps_per_version(
            with_changes(default_scenario(), {k.replace("__", "."): v for k, v in changes.items()})
        )

    assert steps() == 1
    assert steps(sync__every_steps=3) == 3
    assert steps(sync__trigger="samples", sync__every_samples=1000) == 2
    assert steps(sync__trigger="pulls", sync__every_pulls=6, trainer__minibatches=4) == 2


def test_speed_factors_of_instances_that_are_no_more_are_dropped() -> None:
    job = with_changes(default_scenario(), {"fleet.speed_factors": [1.0, 1.2, 1.4, 1.6]})
    assert split(job, 2, 4).scenario.fleet.speed_factors == (1.0, 1.2)
    assert colocated_sync(job, 4).scenario.fleet.speed_factors == (1.0, 1.2, 1.4, 1.6)


@given(dp=st.sampled_from([2, 4, 8]), engines=st.integers(2, 12), trainer=st.integers(1, 8))
def test_ranks_that_share_their_experts_go_to_one_pool(dp: int, engines: int, trainer: int) -> None:
    """Whole engines on every side; nothing that a scenario of so many ranks would refuse."""
    s = with_changes(default_scenario(), {"engine.dp": dp, "fleet.instances": dp})
    gpus = engines * dp
    counts = split_counts(s, gpus, Rules(min(trainer, gpus - dp), 1))
    assert counts
    assert all(n % dp == 0 and n + min(trainer, gpus - dp) <= gpus for n in counts)
    assert split(s, counts[-1], gpus).scenario.fleet.instances == counts[-1]
    assert colocated_sync(s, gpus).scenario.fleet.instances == gpus
    with pytest.raises(InputError, match=f"the {dp} GPUs of an engine of {dp} instances"):
        split_counts(s, gpus + 1, Rules())


@pytest.mark.parametrize("gpu", ["H100", "A100", "GB200"])
def test_trainers_that_divide_a_batch_in_servers(gpu: str) -> None:
    """Ranks that fill servers of eight or four, or divide one, divide a batch that is a power of two; 11 do not."""
    job = with_changes(default_scenario(), {"engine.gpu": gpu})
    for gpus in (2, 7, 16, 24, 72):
        trainers = [gpus - n for n in split_counts(job, gpus, Rules(1))]
        assert trainers
        assert all(8 % t == 0 or t % 4 == 0 for t in trainers), trainers
        assert {t for t in (1, 2, 4) if t < gpus} <= set(trainers)
    own = with_changes(job, {"trainer.gpus": 12})
    assert 12 in [16 - n for n in split_counts(own, 16, Rules(1))]  # what the job has is laid out already
    assert len(split_counts(job, 16, Rules(1, 1))) == 15
    assert split_counts(job, 12, Rules(9)) == [1, 2, 3]  # nothing else holds it
