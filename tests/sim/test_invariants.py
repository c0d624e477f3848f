"""Invariants of every run, whatever the scenario: each named, with its reason.

- samples conserved: a group is trained, filtered, stale, pushed out, aborted, buffered or open, and exactly one of
  them; a lost group still prints a plausible step time.
- tokens conserved: what the engines generated is in a sample or in a counted waste; goodput is a share of it.
- clock monotonic: no event before its cause.
- staleness bound: nothing is trained beyond max_age where samples are dropped, and never more groups are accepted
  than the version window allows.
- the trainer's time: wait + train + sync + hand-over + checkpoint = the step, and a sync holds it for its own seconds
  alone; a drain that is told as a sync hides that the trainer has nothing to train.
- GPU time: busy + paused + idle + down = instances x wall; idle fractions are shares of it.
- caps: the client's in-flight cap, in samples or in groups, and the buffer's capacity are never exceeded.
- cache: an instance holds no more blocks than it has, and none when it is empty.
- no hang: limits that block each other end a run with an error that names them.
- no false deadlock: where a run ends as stuck, the trainer has nothing to take, and no drop would let more in.
- no oracle: no policy reads a length before the sample ends.
- determinism: same seed, same records, to the byte.
"""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetsim.config import Scenario, default_scenario, with_changes
from fleetsim.engine.kernel import tables as t
from fleetsim.engine.transport import sync_times
from fleetsim.errors import StuckError
from fleetsim.policies.law import Progress
from fleetsim.sim.buffer import pick
from fleetsim.sim.deadlock import stuck_error
from fleetsim.sim.fleet import Fleet
from fleetsim.sim.fleet_settings import most_groups, most_instances
from fleetsim.sim.metrics import numbers_of
from fleetsim.sim.records import NOT_TRAINING, Records
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of
from tests.sim.random_scenarios import STEPS, scenarios

DROPS = ["drop_on_dequeue", "drop_and_refill", "cancel_in_flight"]
# Times that the kernel is asked to move the fleet; eight steps need a thousand at most.
MOST_MOVES = 10_000


def run(scenario: Scenario) -> tuple[Records, Fleet]:
    """A run, and the fleet as it was at its end; one that goes round and round without an end is a failure."""
    fleets: list[Fleet] = []
    begin, advance, left = Fleet.__init__, Fleet.advance, [MOST_MOVES]
    most = most_groups(scenario, most_instances(scenario))

    def remembered(self: Fleet, *args: Any) -> None:
        begin(self, *args)
        fleets.append(self)

    def counted(self: Fleet, *args: Any) -> int:
        left[0] -= 1
        assert left[0] > 0, "the run hangs"
        code = advance(self, *args)
        assert self.open_groups() <= most, "more groups are unfinished than the client's caps allow"
        return code

    with mock.patch.multiple(Fleet, __init__=remembered, advance=counted, close=lambda self: None):
        return simulate(scenario), fleets[0]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_invariants(scenario: Scenario) -> None:
    try:
        records, fleet = run(scenario)
    except StuckError as stuck:
        assert stuck.limits, "a stuck run says which limits block each other"
        return
    check_samples(records)
    check_tokens(records)
    check_clock(records)
    check_seconds(records)
    check_staleness(records)
    check_engines(records, fleet)
    check_caps(records)


def check_samples(records: Records) -> None:
    """Every group is one thing, and every step trained a batch of whole groups."""
    scenario, groups = records.scenario, records.groups
    size, batch = scenario.workload.group_size, scenario.groups_per_step
    counts = np.bincount(groups["status"], minlength=9)
    assert counts.sum() == len(groups)
    trained = groups["status"] == t.G_TRAINED
    assert counts[t.G_TRAINED] == STEPS * batch
    assert np.bincount(groups["trained_step"][trained]).tolist() == [batch] * STEPS
    assert records.steps["samples"].tolist() == [batch * size] * STEPS
    done = records.samples["status"] == t.DONE
    of_group = np.bincount(records.samples["group"], weights=done, minlength=len(groups))
    assert np.all(of_group[trained] == size), "a trained group has its samples, those beyond them were aborted"


def check_tokens(records: Records) -> None:
    """Aborted and lost tokens are counted, every other one is in a sample."""
    steps, groups, samples = records.steps, records.groups, records.samples
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


def check_clock(records: Records) -> None:
    """Nothing happens before its cause."""
    steps, groups, samples, syncs = records.steps, records.groups, records.samples, records.syncs
    assert np.all(np.diff(steps["end_s"]) >= 0)
    for early, late in (("start_s", "train_start_s"), ("train_start_s", "train_end_s"), ("train_end_s", "end_s")):
        assert np.all(steps[early] <= steps[late])
    assert np.all(steps["wait_s"] >= -1e-9)
    whole = records.scenario.trainer.minibatches == 1
    assert not whole or np.all((steps["start_s"] <= steps["ready_s"]) & (steps["ready_s"] <= steps["train_start_s"]))
    done = samples[(samples["status"] == t.DONE) | (samples["status"] == t.SCORING)]
    assert np.all(done["start_s"] <= done["first_token_s"])
    assert np.all(done["first_token_s"] <= done["finish_s"])
    ready = groups["ready_s"] >= 0
    assert np.all(groups["submit_s"][ready] <= groups["ready_s"][ready])
    assert np.all(np.diff(groups["submit_s"]) >= 0)
    trained = groups[groups["status"] == t.G_TRAINED]
    assert np.all(trained["ready_s"] <= trained["left_s"] + 1e-9)
    assert np.all(np.diff(syncs["version"]) == 1), "versions are published one after the other"
    assert np.all((syncs["trigger_s"] <= syncs["pause_start_s"]) & (syncs["pause_start_s"] <= syncs["end_s"]))
    assert np.all(np.diff(records.updates) > 0)


def check_seconds(records: Records) -> None:
    """A step's seconds are those of its parts, and no part holds another's: of a sync's, none of a drain's."""
    steps, scenario = records.steps, records.scenario
    lasted = steps["end_s"] - steps["start_s"]
    rest = np.sum([steps[name] for name in NOT_TRAINING], axis=0)
    assert rest + steps["train_s"] == pytest.approx(lasted, rel=1e-9, abs=1e-9)
    assert all(np.all(steps[name] >= -1e-9) for name in NOT_TRAINING)
    window = window_of(records)
    trains = float(window.steps["train_s"].sum()) / window.span_s
    assert numbers_of(records, window)["not_training_fraction"] == pytest.approx(1.0 - trains, abs=1e-9)
    slower = max((event.sync_slowdown or 1.0 for event in scenario.run.events), default=1.0)
    times = sync_times(scenario).slower(slower)
    # An earlier sync that had to be over, then the trainer's own.
    one = times.trainer_block_s + 2 * (times.publish_s + times.pause_s)
    each_part = scenario.trainer.minibatches if scenario.sync.trigger == "pulls" else 1
    assert np.all(steps["sync_block_s"] <= each_part * one + 1e-9)
    hands = scenario.fleet.placement != "disaggregated"
    assert np.all(steps["switch_s"] <= 2 * hands * scenario.fleet.switch_s + 1e-9)


def check_staleness(records: Records) -> None:
    """Nothing is trained before its weights exist, nor beyond max_age where old groups are dropped."""
    scenario, groups = records.scenario, records.groups
    admission = scenario.admission
    trained = groups[groups["status"] == t.G_TRAINED]
    # a run ends while its last publications are under way: those are not in the table, and made nobody older
    made = np.searchsorted(records.syncs["trigger_s"], trained["left_s"] + 1e-9, side="right")
    assert np.all(records.updates[trained["version"]] <= trained["trained_step"] + 1)
    if admission.age_action in DROPS and admission.max_age is not None:
        if admission.age_reference == "submission":
            assert np.all(made - trained["version"] <= admission.max_age)
        if admission.age_reference == "oldest_token" and scenario.sync.in_flight != "finish_on_old_weights":
            done = records.samples[records.samples["status"] == t.DONE]
            oldest = np.full(len(groups), 1 << 30)
            np.minimum.at(oldest, done["group"], done["first_version"])
            assert np.all(made - oldest[groups["status"] == t.G_TRAINED] <= admission.max_age)
    if admission.law in ("version_window", "target_step"):
        rejected = np.isin(groups["status"], [t.G_FILTERED, t.G_STALE, t.G_OVERFLOW, t.G_ABORTED])
        published = np.searchsorted(records.syncs["end_s"], groups["submit_s"] + 1e-9, side="right")
        window = (admission.max_staleness + published + 1) * groups_per_version(scenario)
        assert np.all(np.cumsum(~rejected) <= np.floor(window + 1e-9))
    if scenario.buffer.batch_rule == "exact_target_step":
        assert np.all(trained["target"] == trained["trained_step"])


def groups_per_version(scenario: Scenario) -> int:
    """Groups trained between two publications."""
    sync, batch = scenario.sync, scenario.groups_per_step
    if sync.every_pulls is not None:
        return sync.every_pulls * batch // scenario.trainer.minibatches
    if sync.every_samples is not None:
        return -(-sync.every_samples // scenario.trainer.batch_samples) * batch
    return sync.every_steps * batch


def check_engines(records: Records, fleet: Fleet) -> None:
    """GPU time is accounted for, and the cache of an instance is within its capacity, and free when it is empty."""
    steps, scenario = records.steps, records.scenario
    end = float(steps["end_s"][-1])
    total = sum(float(steps[f"{name}_s"][-1]) for name in ("busy", "paused", "idle", "down"))
    rows = fleet.world.instances
    fleet.add_up(end)
    off = fleet.world.get("off_s")
    assert total + off == pytest.approx(len(rows) * end, rel=1e-6)
    if not scenario.run.events:
        lent = float(steps["lent_s"][-1])
        assert total == pytest.approx(scenario.fleet.instances * end + lent, rel=1e-6)
        assert (lent > 0) <= (scenario.fleet.placement == "colocated_lending")
    assert np.all((rows["free"] >= 0) & (rows["free"] <= fleet.limits.kv_blocks))
    empty = (rows["running"] == 0) & (rows["waiting"] == 0)
    assert np.all(rows["free"][empty] == fleet.limits.kv_blocks)
    assert np.all(rows["kv_sum"][rows["decodes"] == 0] == 0)
    assert np.all((steps["kv_use"] >= 0) & (steps["kv_use"] <= 1))
    status = fleet.world.samples["status"][: fleet.get("n_samples")]
    at = fleet.world.samples["instance"][: fleet.get("n_samples")]
    in_flight = np.isin(status, [t.WAITING, t.RUNNING]) | ((status == t.AWAY) & (at >= 0))
    assert fleet.get("in_flight") == np.count_nonzero(in_flight)
    assert rows["load"].tolist() == np.bincount(at[in_flight], minlength=len(rows)).tolist()


def check_caps(records: Records) -> None:
    """The client's cap and the buffer's capacity hold."""
    scenario, steps = records.scenario, records.steps
    if scenario.fleet.max_in_flight_samples and scenario.fleet.in_flight_unit == "samples":
        assert steps["in_flight"].max() <= 20
    if scenario.buffer.capacity_samples:
        assert steps["queue_depth"].max() <= scenario.buffer.capacity_samples


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios(), st.sampled_from(DROPS), st.sampled_from(["unbounded", "cumulative_ratio"]))
def test_a_stuck_trainer_has_nothing_to_take_and_no_drop_that_lets_more_in(
    scenario: Scenario, action: str, law: str
) -> None:
    """A full buffer of stale groups with more at its door: each drop lets some in, which are looked at as well."""
    changes = {
        "admission.law": law,
        "admission.age_action": action,
        "admission.max_age": 0.0,
        "buffer.on_full": "block",
        "buffer.batch_rule": "fifo",
        "buffer.wait_for_oldest": False,
        "buffer.oversampling": 1.0,
        "buffer.leftover": "abort",
        "buffer.capacity_samples": 16,
        "engine.max_num_seqs": 48,
        "run.steps": 4,
        "run.events": [],
        "fleet.max_in_flight_samples": None,
        "fleet.max_in_flight_samples_per_instance": None,
    }
    scenario = with_changes(scenario, changes)
    looks: list[tuple[int, int]] = []

    def looked(s: Scenario, fleet: Fleet, progress: Progress) -> StuckError:
        step = progress.taken_groups // s.groups_per_step
        want = s.groups_per_step if s.fleet.placement == "colocated_lending" else part
        batch, old = pick(s, fleet, progress, want, step)
        looks.append((len(batch), len(old) * fleet.get("n_blocked")))
        return stuck_error(s, fleet, progress)

    part = scenario.groups_per_step // scenario.trainer.minibatches
    with mock.patch("fleetsim.sim.run_state.stuck_error", looked), contextlib.suppress(StuckError):
        simulate(scenario)
    assert looks in ([], [(0, 0)])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_same_seed_same_bytes(scenario: Scenario) -> None:
    try:
        first, second = run(scenario)[0], run(scenario)[0]
    except StuckError:
        return
    for name, table in first.tables().items():
        for column in table.dtype.names:  # padding between columns is nobody's
            assert table[column].tobytes() == second.tables()[name][column].tobytes(), (name, column)


def test_no_policy_reads_a_length_before_it_ends() -> None:
    """Two worlds that differ only in how long one sample is are the same until the shorter of the two ends."""
    import fleetsim.sim.draws as module

    scenario = with_changes(
        default_scenario(), {"run.steps": 6, "trainer.batch_samples": 64, "fleet.instances": 3, "run.warmup_steps": 0}
    )
    short = simulate(scenario)
    victim = int(np.argmax(short.samples["target"][:64]))
    original = module.Draws.more

    def longer(self: Any) -> None:
        before = int(self._world.fleet["n_samples"][0])
        original(self)
        if before == 0:
            self._world.samples["target"][victim] += 5_000

    module.Draws.more = longer  # type: ignore[method-assign]
    try:
        long = simulate(scenario)
    finally:
        module.Draws.more = original  # type: ignore[method-assign]
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
