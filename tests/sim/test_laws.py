"""Every admission law, in-flight policy, buffer rule and cap against a timeline computed by hand.

One token takes 0.1 s whatever an engine holds, every sample has 100 tokens (10 s), a batch is 4 samples of one, the
trainer computes 4 s. Each expectation would be wrong under the neighbouring rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fleetsim.config import Scenario, default_scenario, with_changes
from fleetsim.engine import EngineLimits, LinearStepTime
from fleetsim.engine.kernel import tables as t
from fleetsim.errors import StuckError
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from fleetsim.sim.run_state import MOST_WASTED_BATCHES
from tests.sim.timelines import batches, play

ENGINE = (LinearStepTime(0.1), EngineLimits(64, 65536, 1 << 30))
BASE: dict[str, Any] = {
    "workload.output_tokens": 100,
    "workload.prompt_tokens": 32,
    "workload.group_size": 1,
    "fleet.instances": 1,
    "trainer.batch_samples": 4,
    "trainer.fixed_s": 4.0,
    "sync.pause_s": 0.0,
    "sync.trainer_block_s": 0.0,
    "run.steps": 12,
    "run.warmup_steps": 4,
}


def scenario(**changes: Any) -> Scenario:
    return with_changes(default_scenario(), BASE | {k.replace("__", "."): v for k, v in changes.items()})


def run(engine: Any = ENGINE, **changes: Any) -> Records:
    return simulate(scenario(**changes), engine=engine)


def step_s(records: Records) -> float:
    return float(metrics_of(records)["step_s"])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # generation 10, training 4, nothing overlaps
        ({"admission__law": "barrier"}, 14.0),
        # the next batch is generated from the moment this one is taken: max(10, 4)
        ({"admission__law": "batches_ahead"}, 10.0),
        # two batches ahead: started two takes earlier: 10 s over two steps, but the trainer needs 4
        ({"admission__law": "batches_ahead", "admission__batches_ahead": 2}, 5.0),
        # eta 0: a batch may start only when the last one is published: as slow as the barrier
        ({"admission__law": "version_window", "admission__max_staleness": 0.0}, 14.0),
        # eta 1: one more batch in the window: 14 s for two
        ({"admission__law": "version_window", "admission__max_staleness": 1.0}, 7.0),
        # eta 3: the trainer is the limit
        ({"admission__law": "version_window", "admission__max_staleness": 3.0}, 4.0),
        # four in generation at all times: four per 10 s, whatever the trainer does
        ({"admission__law": "fixed_pool", "admission__pool_samples": 4}, 10.0),
        ({"admission__law": "fixed_pool", "admission__pool_samples": 8}, 5.0),
        # as many as the engine holds (64): the trainer is the limit
        ({"admission__law": "unbounded"}, 4.0),
        # client caps: two in flight make two samples per 10 s
        ({"admission__law": "unbounded", "fleet__max_in_flight_samples": 2}, 20.0),
        ({"admission__law": "unbounded", "fleet__max_in_flight_samples_per_instance": 2}, 20.0),
        ({"admission__law": "unbounded", "fleet__max_in_flight_samples_per_instance": 2, "fleet__instances": 2}, 10.0),
        # sync: the pause stops generation (10 + 3), the block stops the trainer (4 + 3), the barrier waits for both
        ({"admission__law": "batches_ahead", "sync__pause_s": 3.0}, 13.0),
        ({"admission__law": "batches_ahead", "sync__trainer_block_s": 3.0}, 10.0),
        ({"admission__law": "unbounded", "sync__trainer_block_s": 3.0}, 7.0),
        ({"admission__law": "barrier", "sync__pause_s": 3.0, "sync__trainer_block_s": 1.0}, 17.0),
        ({"admission__law": "barrier", "sync__publish_s": 2.0, "sync__pause_s": 3.0}, 19.0),
        ({"admission__law": "barrier", "sync__pause_s": 3.0, "sync__every_steps": 2}, 15.5),
        # colocated: the engines stand still while the trainer trains, and each hand-over costs
        ({"admission__law": "batches_ahead", "fleet__placement": "colocated"}, 14.0),
        ({"admission__law": "barrier", "fleet__placement": "colocated", "fleet__switch_s": 1.0}, 16.0),
        # trainer: phases, per-token cost (100 + 32 tokens x 4), checkpoints
        ({"admission__law": "unbounded", "trainer__phases": [{"name": "logprob", "fixed_s": 2.0}]}, 6.0),
        ({"admission__law": "unbounded", "trainer__per_token_s": 0.01}, 4.0 + 528 * 0.01),
        ({"admission__law": "unbounded", "trainer__checkpoint": {"every_steps": 2, "stall_s": 3.0}}, 5.5),
        # reward: latency is in the barrier's path, bounded workers serve one after the other
        ({"admission__law": "barrier", "workload__reward": {"latency_s": 2.0}}, 16.0),
        ({"admission__law": "barrier", "workload__reward": {"latency_s": 2.0, "workers": 1}}, 22.0),
        ({"admission__law": "barrier", "workload__reward": {"latency_s": 2.0, "workers": 2}}, 18.0),
        # turns: two tool calls of 3 s in between
        ({"admission__law": "barrier", "workload__turns": {"count": 3, "tool_latency_s": 3.0}}, 20.0),
        # stragglers: the slow instance holds the barrier
        ({"admission__law": "barrier", "fleet__instances": 2, "fleet__speed_factors": [1.0, 1.5]}, 19.0),
        (
            {
                "admission__law": "barrier",
                "fleet__instances": 4,
                "fleet__straggler_share": 0.25,
                "fleet__straggler_slowdown": 2.0,
            },
            24.0,
        ),
    ],
    ids=lambda value: (
        None if isinstance(value, float) else ",".join(f"{k.split('__')[-1]}={v}" for k, v in value.items())
    ),
)
def test_step_time_by_hand(changes: dict[str, Any], expected: float) -> None:
    # several samples may end in one iteration; an arrival in the middle of one waits for its end: 0.1 s per step
    assert step_s(run(**changes)) == pytest.approx(expected, abs=0.15)


POLICIES = {
    # one sample of 20 s per step, one batch ahead: sample 2 starts at 20 s, the first sync is at 24 s for 3 s
    "keep": 43.0,
    "finish_on_old_weights": 40.0,
    "drain": 40.0,
    "abort_discard": 47.0,  # thrown away at 24, a new one from 27 on
    "abort_resume": 43.0 + 0.5 * (32 + 40) / 100,  # 72 tokens of context prefilled again at 5 ms
    "keep_recompute": 43.0 + 0.5 * (32 + 40) / 100,
}


@pytest.mark.parametrize("policy", POLICIES)
def test_in_flight_policy_by_hand(policy: str) -> None:
    engine = (LinearStepTime(0.1, 0.0, 0.005), ENGINE[1])
    records = run(
        engine,
        workload__output_tokens=200,
        trainer__batch_samples=1,
        admission__law="batches_ahead",
        sync__in_flight=policy,
        sync__pause_s=3.0,
        run__steps=2,
        run__warmup_steps=0,
    )
    first_prefill = 2 * 32 * 0.005 if policy != "abort_discard" else 3 * 32 * 0.005
    assert records.steps["ready_s"][1] == pytest.approx(POLICIES[policy] + first_prefill, abs=0.2)
    versions = records.groups["version"][records.groups["status"] == t.G_TRAINED].tolist()
    assert versions == ([0, 1] if policy == "abort_discard" else [0, 0])
    recomputed = metrics_of(records)["waste"]["recomputed"] * 400
    assert recomputed == pytest.approx(72 if policy in ("abort_resume", "keep_recompute") else 0, abs=2)
    aborted = metrics_of(records)["waste"]["aborted"]
    assert (aborted > 0) == (policy == "abort_discard")


def test_drain_pauses_after_the_last_sample() -> None:
    records = run(
        workload__output_tokens=200,
        trainer__batch_samples=1,
        admission__law="batches_ahead",
        sync__in_flight="drain",
        sync__pause_s=3.0,
        run__steps=3,
        run__warmup_steps=0,
    )
    assert records.syncs["in_flight"].tolist()[:2] == [0, 0]
    assert records.syncs["pause_start_s"][0] == pytest.approx(40.0, abs=0.2)


LENGTHS = {"kind": "lognormal", "mean": 60, "cv": 0.8, "max": 300}


@pytest.mark.parametrize("leftover", ["abort", "carry_over"])
def test_first_finished_takes_the_shortest(leftover: str) -> None:
    """6 are started, the 4 that end first are trained; the rest is thrown away or waits for the next batch."""
    records = run(
        workload__output_tokens=LENGTHS,
        admission__law="barrier",
        buffer__batch_rule="first_finished",
        buffer__oversampling=1.5,
        buffer__leftover=leftover,
        run__steps=30,
    )
    first = records.samples[records.groups["trained_step"][records.samples["group"]] == 0]["target"]
    drawn = np.sort(records.samples["target"][:6])
    assert sorted(first.tolist()) == drawn[:4].tolist()
    assert records.steps["ready_s"][0] == pytest.approx(0.1 * drawn[3], abs=0.11)
    m = metrics_of(records)
    if leftover == "abort":
        assert m["waste"]["aborted"] > 0.1
        assert m["trained_length_bias"] < 0.95, "throwing the slow ones away biases training toward short responses"
        assert len(records.groups) == 30 * 6
    else:
        assert m["waste"]["aborted"] == 0
        assert len(records.groups) < 30 * 6


def test_batch_rules_differ_in_which_version_goes_first() -> None:
    """Oldest version first never trains a younger group while an older one is ready; FIFO does."""
    young = {}
    for rule in ("fifo", "oldest_version_first"):
        records = run(
            workload__output_tokens=LENGTHS,
            admission__max_staleness=4.0,
            buffer__batch_rule=rule,
            trainer__fixed_s=12.0,
            run__steps=40,
        )
        overtaken = 0
        for s in range(1, 40):
            now = records.steps["ready_s"][s]
            groups = records.groups
            there = (groups["ready_s"] <= now) & ((groups["trained_step"] >= s) | (groups["trained_step"] < 0))
            there &= groups["ready_s"] >= 0
            taken = groups["trained_step"] == s
            left = there & ~taken
            if left.any():
                overtaken += int(groups["version"][taken].max() > groups["version"][left].min())
        young[rule] = overtaken
    assert young["oldest_version_first"] == 0
    assert young["fifo"] > 0


def test_age_limit_holds_when_old_samples_are_dropped() -> None:
    records = run(
        workload__output_tokens={"kind": "lognormal", "mean": 100, "cv": 1.5, "max": 900},
        admission__max_staleness=3.0,
        admission__age_action="drop_on_dequeue",
        admission__max_age=1.0,
        run__steps=60,
    )
    trained = records.groups[records.groups["status"] == t.G_TRAINED]
    assert (trained["trained_step"] - trained["version"]).max() <= 1
    m = metrics_of(records)
    assert m["waste"]["stale"] > 0
    assert m["trained_length_bias"] < 1.0


@pytest.mark.parametrize("on_full", ["block", "drop_oldest"])
def test_full_buffer(on_full: str) -> None:
    """A fleet twice too fast fills 8 places: it stands still, or the oldest are pushed out."""
    records = run(
        admission__law="unbounded",
        fleet__max_in_flight_samples=4,
        buffer__capacity_samples=8,
        buffer__on_full=on_full,
        trainer__fixed_s=20.0,
    )
    assert records.steps["queue_depth"].max() <= 8
    m = metrics_of(records)
    assert m["step_s"] == pytest.approx(20.0)
    if on_full == "block":
        assert m["waste"]["stale"] == 0
        assert m["tokens_per_trained_token"] == pytest.approx(1.0, abs=0.02)
        assert m["rollout_idle_fraction"] > 0.3
    else:
        assert m["waste"]["stale"] == pytest.approx(1.0, abs=0.1)
        assert m["rollout_idle_fraction"] == pytest.approx(0.0, abs=0.02)


def test_filtered_groups_are_refilled() -> None:
    """Half the groups are filtered: two are generated for every one that is trained."""
    m = metrics_of(
        run(workload__filter={"zero_variance_share": 0.5}, admission__law="unbounded",
            fleet__max_in_flight_samples=4, run__steps=200)
    )  # fmt: skip
    assert m["tokens_per_trained_token"] == pytest.approx(2.0, rel=0.1)
    assert m["waste"]["filtered"] == pytest.approx(1.0, rel=0.2)
    assert m["step_s"] == pytest.approx(20.0, rel=0.1)


def test_failures_lose_work_and_account_for_downtime() -> None:
    records = run(
        fleet__instances=4, fleet__failures={"mtbf_s": 60.0, "restart_s": 20.0}, admission__law="barrier", run__steps=60
    )
    m = metrics_of(records)
    assert len(records.failures) > 5
    assert m["waste"]["lost"] > 0
    assert m["step_s"] > 14.0
    assert records.steps["down_s"][-1] > 0


def test_resize_event_is_the_rebalance() -> None:
    """Two in flight per instance: one instance makes 4 samples in 20 s, four make them in 5."""
    records = run(
        admission__law="unbounded",
        fleet__max_in_flight_samples_per_instance=2,
        run__steps=24,
        run__events=[{"step": 8, "instances": 4}, {"step": 16, "instances": 1}],
    )
    cycle = np.diff(records.steps["end_s"])
    assert cycle[4:6] == pytest.approx([20.0] * 2, abs=0.2)
    assert cycle[10:14].mean() == pytest.approx(5.0, abs=0.2)
    assert cycle[20:22] == pytest.approx([20.0] * 2, abs=0.2)
    assert records.steps["instances"][[7, 12, 22]].tolist() == [1, 4, 1]


def test_trainer_regression_and_length_drift() -> None:
    slow = run(admission__law="unbounded", run__events=[{"step": 6, "trainer_slowdown": 2.0}])
    assert np.diff(slow.steps["end_s"])[[3, 8]].tolist() == pytest.approx([4.0, 8.0])
    drift = run(admission__law="barrier", workload__length_drift_per_step=0.05, run__steps=20)
    cycle = np.diff(drift.steps["end_s"])
    assert cycle[-1] - 4.0 == pytest.approx(10.0 * 1.05**19, rel=0.02)


def test_prefix_caching_within_a_group_saves_the_siblings_prompts() -> None:
    engine = (LinearStepTime(0.1), ENGINE[1])
    prefilled = {}
    for caching in (True, False):
        records = run(
            engine,
            workload__group_size=4,
            workload__prompt_tokens=320,
            engine__prefix_caching=caching,
            admission__law="barrier",
        )
        prefilled[caching] = records.steps["prefilled_tokens"][0]
    assert prefilled[False] == 4 * 320
    assert prefilled[True] == 320 + 3 * (320 - 19 * 16)


def test_shared_system_prompt_is_computed_once_per_version() -> None:
    records = run(
        workload__prompt_tokens=320,
        workload__shared_prefix_tokens=160,
        admission__law="barrier",
        run__steps=3,
        run__warmup_steps=0,
    )
    per_step = np.diff(np.concatenate([[0], records.steps["prefilled_tokens"]]))
    # four groups of one: 320 for the first, 160 for each of the others; the sync forgets the cache
    assert per_step.tolist() == [320 + 3 * 160] * 3


STUCK = [
    ({"buffer__capacity_samples": 3}, "buffer.capacity_samples"),
    ({"buffer__capacity_samples": 3, "buffer__on_full": "drop_oldest"}, "buffer.capacity_samples"),
    ({"workload__filter": {"zero_variance_share": 0.9, "retry_limit": 0}}, "workload.filter.zero_variance_share"),
    ({"workload__filter": {"zero_variance_share": 0.9999}}, "workload.filter.zero_variance_share"),
]


@pytest.mark.parametrize(("changes", "path"), STUCK)
def test_a_run_in_which_nothing_can_happen_says_which_limits_block_each_other(
    changes: dict[str, Any], path: str
) -> None:
    with pytest.raises(StuckError) as error:
        run(**changes)
    assert path in [p.path for p in error.value.limits]
    assert error.value.exit_code == 2


def test_a_full_prefix_table_stops_sharing_and_nothing_else() -> None:
    """Every sync begins a new system prompt while the old one is read; the table must not be overrun."""
    records = run(
        (LinearStepTime(0.01), EngineLimits(64, 65536, 1 << 20)),
        workload__prompt_tokens=64,
        workload__shared_prefix_tokens=32,
        workload__output_tokens={"kind": "lognormal", "mean": 100, "cv": 1.5, "max": 4000},
        fleet__instances=6,
        fleet__group_placement="spread",
        fleet__routing="round_robin",
        admission__law="unbounded",
        fleet__max_in_flight_samples=24,
        trainer__batch_samples=1,
        trainer__fixed_s=0.01,
        sync__in_flight="keep",
        run__steps=1500,
    )
    assert len(records.steps) == 1500
    done = records.samples["status"] == t.DONE
    assert np.all(records.samples["made"][done] == records.samples["target"][done])


def test_a_queue_of_rewards_that_only_grows_ends_with_its_name() -> None:
    """Generated five times as fast as scored, and thrown away when too old: every batch takes longer than the last."""
    changes = {
        "workload.output_tokens": {"kind": "constant", "value": 40},
        "workload.group_size": 1,
        "workload.reward": {"latency_s": 2.0, "workers": 2},
        "trainer.batch_samples": 16,
        "fleet.max_in_flight_samples_per_instance": 8,
        "admission.law": "unbounded",
        "admission.max_age": 1.0,
        "admission.age_reference": "creation",
        "admission.age_action": "cancel_in_flight",
        "sync.publish_s": 0.0,
        "run.steps": 50,
    }
    with pytest.raises(StuckError, match=r"stations\.reward\.workers: 2: \d+ groups are generated and wait"):
        simulate(with_changes(default_scenario(), changes))


def test_groups_of_which_a_sample_still_runs_are_not_counted_as_generated() -> None:
    """Three of four siblings end at once: 640 groups wait for their last one, none of them for a reward."""
    records = play(
        [(1, 1, 1, 30)],
        workload__group_size=4,
        trainer__batch_samples=4,
        fleet__instances=10,
        fleet__group_placement="spread",
        admission__law="unbounded",
        run__steps=2,
    )
    assert batches(records)[0] == 30
    assert len(records.groups) > MOST_WASTED_BATCHES
