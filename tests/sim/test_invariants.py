"""Invariants of every run, whatever the scenario: each named, with its reason.

- samples conserved: a group is trained, filtered, stale, pushed out, aborted, buffered or open, and exactly one of
  them; a lost group still prints a plausible step time.
- tokens conserved: what the engines generated is in a sample or in a counted waste; goodput is a share of it.
- clock monotonic: no event before its cause.
- staleness bound: nothing is trained beyond max_age where samples are dropped, and never more groups are accepted
  than the version window allows.
- GPU time: busy + paused + idle + down = instances x wall; idle fractions are shares of it.
- caps: the client's in-flight cap and the buffer's capacity are never exceeded.
- no oracle: no policy reads a length before the sample ends.
- determinism: same seed, same records, to the byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetsim.config import Scenario, default_scenario, with_changes
from fleetsim.engine.kernel import tables as t
from fleetsim.errors import StuckError
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    group = draw(st.sampled_from([1, 4]))
    law = draw(st.sampled_from(["barrier", "batches_ahead", "version_window", "fixed_pool", "unbounded"]))
    first_finished = law in ("barrier", "batches_ahead") and draw(st.booleans())
    drop = draw(st.booleans())
    instances = draw(st.integers(1, 4))
    changes: dict[str, Any] = {
        "workload.group_size": group,
        "workload.prompt_tokens": {"kind": "lognormal", "mean": 60, "cv": 0.5, "max": 150},
        "workload.output_tokens": {
            "kind": "lognormal",
            "mean": 80,
            "cv": draw(st.sampled_from([0.3, 1.2])),
            "max": 400,
        },
        "workload.group_correlation": draw(st.sampled_from([0.0, 0.6])),
        "workload.turns": {"count": draw(st.sampled_from([1, 2])), "tool_latency_s": 0.3, "tool_tokens": 9},
        "workload.reward": {
            "latency_s": draw(st.sampled_from([0.0, 0.2])),
            "workers": draw(st.sampled_from([None, 3])),
        },
        "workload.filter.zero_variance_share": draw(st.sampled_from([0.0, 0.3])),
        "workload.shared_prefix_tokens": draw(st.sampled_from([0, 32])),
        "engine.max_num_seqs": 12,
        "engine.max_num_batched_tokens": 256,
        "engine.kv_blocks": draw(st.sampled_from([60, 400])),
        "engine.prefix_caching": draw(st.booleans()),
        "fleet.instances": instances,
        "fleet.placement": draw(st.sampled_from(["disaggregated", "colocated"])),
        "fleet.group_placement": draw(st.sampled_from(["together", "spread"])),
        "fleet.routing": draw(st.sampled_from(["round_robin", "least_loaded", "prefix_affinity"])),
        "fleet.max_in_flight_samples": draw(st.sampled_from([None, 20])),
        "fleet.max_in_flight_samples_per_instance": draw(st.sampled_from([None, 8])),
        "fleet.failures.mtbf_s": draw(st.sampled_from([None, 15.0])),
        "fleet.failures.restart_s": 2.0,
        "fleet.straggler_share": 0.5,
        "fleet.straggler_slowdown": 1.5,
        "trainer.batch_samples": 16,
        "trainer.fixed_s": draw(st.sampled_from([0.2, 3.0])),
        "sync.every_steps": draw(st.sampled_from([1, 2])),
        "sync.publish_s": draw(st.sampled_from([0.0, 0.7])),
        "sync.pause_s": draw(st.sampled_from([0.0, 0.5])),
        "sync.trainer_block_s": draw(st.sampled_from([0.0, 0.4])),
        "sync.in_flight": draw(
            st.sampled_from(
                ["drain", "abort_discard", "abort_resume", "keep", "keep_recompute", "finish_on_old_weights"]
            )
        ),
        "admission.law": law,
        "admission.max_staleness": draw(st.sampled_from([0.0, 0.5, 2.0])),
        "admission.pool_samples": 24,
        "admission.age_action": "drop_on_dequeue" if drop else "train_anyway",
        "admission.max_age": 1.0 if drop else None,
        "buffer.capacity_samples": draw(st.sampled_from([None, 16, 40])),
        "buffer.on_full": draw(st.sampled_from(["block", "drop_oldest"])),
        "buffer.batch_rule": "first_finished"
        if first_finished
        else draw(st.sampled_from(["fifo", "oldest_version_first"])),
        "buffer.oversampling": 1.5 if first_finished else 1.0,
        "buffer.leftover": draw(st.sampled_from(["abort", "carry_over"])),
        "run.steps": 8,
        "run.warmup_steps": 0,
        "run.seed": draw(st.integers(0, 3)),
    }
    if draw(st.booleans()):
        changes["run.events"] = [{"step": 3, "instances": draw(st.integers(1, 5))}]
    return with_changes(default_scenario(), changes)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_invariants(scenario: Scenario) -> None:
    try:
        records = simulate(scenario)
    except StuckError as stuck:
        assert stuck.limits, "a stuck run says which limits block each other"
        return
    steps, groups, samples = records.steps, records.groups, records.samples
    size, batch = scenario.workload.group_size, scenario.groups_per_step
    end = float(steps["end_s"][-1])

    # samples conserved
    counts = np.bincount(groups["status"], minlength=9)
    assert counts.sum() == len(groups)
    assert counts[t.G_TRAINED] == 8 * batch
    assert np.bincount(groups["trained_step"][groups["status"] == t.G_TRAINED]).tolist() == [batch] * 8
    assert steps["samples"].tolist() == [batch * size] * 8

    # tokens conserved: aborted and lost samples are counted, everything else still has its tokens
    status = samples["status"]
    gone = status == t.GONE
    made = samples["made"].astype(np.int64)
    running = (status == t.RUNNING) | (status == t.WAITING)
    complete = (status == t.DONE) | (status == t.SCORING)
    assert np.all(made[complete] == samples["target"][complete])
    known = int(made[complete].sum()) + int(steps["aborted_tokens"][-1]) + int(steps["lost_tokens"][-1])
    known += int(made[(status == t.AWAY) | (status == t.UNSENT)].sum())
    late = groups["status"][samples["group"]] == t.G_ABORTED
    known -= int(made[complete & late].sum())  # finished, then aborted: already in the counter
    generated = int(steps["generated_tokens"][-1])
    assert known <= generated <= known + int(samples["target"][running | gone].sum())

    # clock monotonic
    assert np.all(np.diff(steps["end_s"]) >= 0)
    for early, late_column in (("start_s", "ready_s"), ("ready_s", "train_start_s"), ("train_end_s", "end_s")):
        assert np.all(steps[early] <= steps[late_column])
    done = samples[complete]
    assert np.all(done["start_s"] <= done["first_token_s"])
    assert np.all(done["first_token_s"] <= done["finish_s"])
    ready = groups["ready_s"] >= 0
    assert np.all(groups["submit_s"][ready] <= groups["ready_s"][ready])
    assert np.all(np.diff(groups["submit_s"]) >= 0)

    # staleness bound
    trained = groups[groups["status"] == t.G_TRAINED]
    age = trained["trained_step"] // scenario.sync.every_steps - trained["version"]
    assert age.min() >= 0, "nothing is trained before its weights exist"
    if scenario.admission.age_action == "drop_on_dequeue":
        assert age.max() <= 1
    if scenario.admission.law == "version_window":
        rejected = np.isin(groups["status"], [t.G_FILTERED, t.G_STALE, t.G_OVERFLOW, t.G_ABORTED])
        accepted = np.cumsum(~rejected)
        per_version = batch * scenario.sync.every_steps
        window = (scenario.admission.max_staleness + groups["version"] + 1) * per_version
        assert np.all(accepted <= np.floor(window + 1e-9))

    # GPU time
    if not scenario.run.events:
        total = sum(float(steps[f"{name}_s"][-1]) for name in ("busy", "paused", "idle", "down"))
        assert total == pytest.approx(scenario.fleet.instances * end, rel=1e-6)

    # caps
    if scenario.fleet.max_in_flight_samples:
        assert steps["in_flight"].max() <= 20
    if scenario.buffer.capacity_samples:
        assert steps["queue_depth"].max() <= scenario.buffer.capacity_samples


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_same_seed_same_bytes(scenario: Scenario) -> None:
    try:
        first, second = simulate(scenario), simulate(scenario)
    except StuckError:
        return
    for name, table in first.tables().items():
        for column in table.dtype.names:  # padding between columns is nobody's
            assert table[column].tobytes() == second.tables()[name][column].tobytes(), (name, column)


def test_no_policy_reads_a_length_before_it_ends() -> None:
    """Two worlds that differ only in how long one sample is are the same until the shorter of the two ends."""
    import fleetsim.sim.fleet as module

    scenario = with_changes(
        default_scenario(), {"run.steps": 6, "trainer.batch_samples": 64, "fleet.instances": 3, "run.warmup_steps": 0}
    )
    short = simulate(scenario)
    victim = int(np.argmax(short.samples["target"][:64]))
    original = module.Fleet._draw

    def longer(self: Any) -> None:
        before = int(self.world.fleet["n_samples"][0])
        original(self)
        if before == 0:
            self.world.samples["target"][victim] += 5_000

    module.Fleet._draw = longer  # type: ignore[method-assign]
    try:
        long = simulate(scenario)
    finally:
        module.Fleet._draw = original  # type: ignore[method-assign]
    until = float(short.samples["finish_s"][victim])
    assert until > 0
    for column in ("start_s", "first_token_s", "finish_s"):
        a, b = short.samples[column], long.samples[column]
        n = min(len(a), len(b))
        early = (a[:n] >= 0) & (a[:n] < until)
        np.testing.assert_array_equal(a[:n][early], b[:n][early])
    assert long.samples["finish_s"][victim] > until


def test_common_random_numbers_do_not_depend_on_the_fleet() -> None:
    lengths: list[Records] = [
        simulate(with_changes(default_scenario(), {"fleet.instances": n, "run.steps": 3, "run.warmup_steps": 0}))
        for n in (2, 9)
    ]
    n = min(len(r.samples) for r in lengths)
    assert lengths[0].samples["target"][:n].tolist() == lengths[1].samples["target"][:n].tolist()
