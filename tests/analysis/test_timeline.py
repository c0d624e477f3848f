"""Timelines of runs that can be written down by hand, and what their sums are as metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.engine.kernel import tables as t
from fleetsim.errors import StuckError
from fleetsim.sim import timeline
from fleetsim.sim.metrics import metrics_of, numbers_of
from fleetsim.sim.records import TRAINER_DOES, Records
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of
from tests.sim.random_scenarios import scenarios
from tests.sim.timelines import play, whole

Spans = list[tuple[str, float, float]]


def of_instance(records: Records, i: int, *window: float) -> Spans:
    spans = timeline.instance_spans(records, *window)
    return [
        (timeline.ACCOUNTS[s["account"]], *whole([s["start_s"], s["end_s"]]))  # type: ignore[misc]
        for s in spans[spans["instance"] == i]
    ]


def of_trainer(records: Records, *window: float) -> list[tuple[int, str, float, float]]:
    return [
        (int(s["step"]), TRAINER_DOES[s["does"]], *whole([s["start_s"], s["end_s"]]))  # type: ignore[misc]
        for s in timeline.trainer_spans(records, *window)
    ]


def depths(records: Records, *window: float) -> list[tuple[float, int]]:
    return [(whole(row["time_s"])[0], int(row["samples"])) for row in timeline.queue_depth(records, *window)]


# One instance, responses of 2, 3, 1, 1, ... s, a batch of two, one batch ahead; 4 s of training, a checkpoint of 3 s
# after the second step, a pause of 1 s that nobody but the engine waits for.
def ahead() -> Records:
    return play(
        (2, 3, 1),
        activity=True,
        admission__law="batches_ahead",
        admission__batches_ahead=1,
        sync__pause_s=1.0,
        trainer__checkpoint__every_steps=2,
        trainer__checkpoint__stall_s=3.0,
        run__steps=3,
    )


def test_one_batch_ahead() -> None:
    records = ahead()
    assert of_instance(records, 0) == [
        ("busy", 0, 4),  # groups 0 and 1 until 3, groups 2 and 3 from 3 to 4
        ("idle", 4, 7),
        ("paused", 7, 8),
        ("busy", 8, 9),
        ("idle", 9, 14),
        ("paused", 14, 15),
        ("busy", 15, 16),
        ("idle", 16, 18),
    ]
    assert of_trainer(records) == [
        (0, "wait", 0, 3),
        (0, "train", 3, 7),
        (1, "train", 7, 11),
        (1, "checkpoint", 11, 14),
        (2, "train", 14, 18),
    ]
    assert depths(records) == [(0, 0), (2, 1), (3, 0), (4, 2), (7, 0), (9, 2), (14, 0), (16, 2)]
    assert whole(timeline.sync_spans(records)["trigger_s"]) == (7, 14)
    seen = timeline.staleness(records)
    assert seen["step"].tolist() == [0, 1, 2]
    assert whole(seen["time_s"]) == (3, 7, 14)
    assert [seen[name].tolist() for name in ("mean", "least", "most")] == [[0, 1, 1]] * 3


def test_a_window() -> None:
    records = ahead()
    assert timeline.steps_window(records, 1, 1) == pytest.approx((7, 14), abs=0.1)
    assert of_instance(records, 0, 3.5, 8.5) == [("busy", 3.5, 4), ("idle", 4, 7), ("paused", 7, 8), ("busy", 8, 8.5)]
    assert of_trainer(records, 6.0, 12.0) == [(0, "train", 6, 7), (1, "train", 7, 11), (1, "checkpoint", 11, 12)]
    assert depths(records, 5.0, 10.0) == [(5, 2), (7, 0), (9, 2)]
    assert depths(records, 2.5, 2.75) == [(2.5, 1)]
    assert timeline.sync_spans(records, 7.5, 7.75)["version"].tolist() == [1], "it reaches into the window"
    assert len(timeline.sync_spans(records, 8.5, 13.5)) == 0
    assert timeline.staleness(records, 6.0, 13.0)["step"].tolist() == [1]
    assert len(timeline.staleness(records, 4.0, 6.0)) == 0


def test_a_lost_instance_is_down_until_it_is_given_back() -> None:
    records = play(
        (4,),
        activity=True,
        fleet__instances=2,
        run__events=[{"step": 1, "lose_instance": 1}, {"step": 2, "instances": 1}],
        admission__law="barrier",
        run__steps=3,
    )
    assert of_instance(records, 0) == [
        ("busy", 0, 4), ("idle", 4, 8), ("busy", 8, 12), ("idle", 12, 16), ("busy", 16, 20), ("idle", 20, 24)
    ]  # fmt: skip
    assert of_instance(records, 1) == [("busy", 0, 4), ("idle", 4, 8), ("down", 8, 24)]


def test_shared_gpus() -> None:
    records = play(
        (2,),
        activity=True,
        admission__law="barrier",
        fleet__placement="colocated",
        fleet__switch_s=1.0,
        sync__pause_s=2.0,
        run__steps=1,
    )
    assert of_instance(records, 0) == [("busy", 0, 2), ("paused", 2, 10)]
    assert of_trainer(records) == [
        (0, "wait", 0, 2), (0, "switch", 2, 3), (0, "train", 3, 7), (0, "sync", 7, 9), (0, "switch", 9, 10)
    ]  # fmt: skip


# What is in flight at a sync must end before the weights change (drain). A response of 20 s does so at 20; the trainer,
# which has nothing else to do, waits for it. Training takes 4 s, a pause 3 s, the trainer's own hand-over 1 s.
DRAIN: dict[str, Any] = {
    "trainer__batch_samples": 1,
    "sync__in_flight": "drain",
    "sync__pause_s": 3.0,
    "sync__trainer_block_s": 1.0,
}


def of_steps(records: Records) -> list[tuple[float, ...]]:
    """Seconds of each step: wait, train, sync, hand-over of GPUs, and all of it."""
    steps = records.steps
    columns = [steps[name] for name in ("wait_s", "train_s", "sync_block_s", "switch_s")]
    return [whole(row) for row in np.transpose([*columns, steps["end_s"] - steps["start_s"]])]


def test_an_earlier_sync_that_still_drains() -> None:
    """2 batch (0) | 6 trained, version 1 waits for group 2 | 7 batch (1) | 11 trained: 20 group 2 ends, 20-23 pause,
    then the trainer's own hand-over of version 2."""
    records = play((2, 2, 20, 2), admission__law="batches_ahead", admission__batches_ahead=3, run__steps=2, **DRAIN)
    assert of_trainer(records) == [
        (0, "wait", 0, 2), (0, "train", 2, 6), (0, "sync", 6, 7),
        (1, "train", 7, 11), (1, "wait", 11, 20), (1, "sync", 20, 24),
    ]  # fmt: skip
    assert of_steps(records) == [(2, 4, 1, 0, 7), (9, 4, 4, 0, 17)]
    numbers = numbers_of(records)
    assert numbers["trainer_idle_fraction"] == pytest.approx(11 / 24, abs=0.01)
    assert numbers["sync_fraction"] == pytest.approx(5 / 24, abs=0.01)
    assert numbers["not_training_fraction"] == pytest.approx(16 / 24, abs=0.01)


def test_a_sync_that_the_trainer_must_see_over() -> None:
    """Under a barrier it waits for all of the sync. 6 published until 8 | 20 group 1, carried over, ends | 20-23 pause.
    Publishing and pausing hold it, the drain between them does not."""
    records = play(
        (2, 20),
        admission__law="barrier",
        buffer__batch_rule="first_finished",
        buffer__oversampling=2.0,
        buffer__leftover="carry_over",
        sync__publish_s=2.0,
        run__steps=1,
        **DRAIN,
    )
    assert of_trainer(records) == [
        (0, "wait", 0, 2), (0, "train", 2, 6), (0, "sync", 6, 8), (0, "wait", 8, 20), (0, "sync", 20, 23)
    ]  # fmt: skip
    assert of_steps(records) == [(14, 4, 5, 0, 23)]


def test_a_drain_beside_the_trainers_own_hand_over() -> None:
    """While the trainer is held by its own part of a sync, it could not go on without a drain either: 6-16 sync, and
    from then on it waits for group 1, which ends at 20."""
    records = play(
        (2, 20),
        admission__law="barrier",
        buffer__batch_rule="first_finished",
        buffer__oversampling=2.0,
        buffer__leftover="carry_over",
        run__steps=1,
        **DRAIN | {"sync__trainer_block_s": 10.0},
    )
    assert of_steps(records) == [(6, 4, 13, 0, 23)]


def test_a_sync_between_two_parts_of_a_batch() -> None:
    """Weights go out after each part. 2 part (0) | 4 trained | 5 part (1) | 7 trained | 20 group 2 ends, 20-23."""
    records = play(
        (2, 2, 20, 2),
        admission__law="batches_ahead",
        admission__batches_ahead=2,
        trainer__minibatches=2,
        sync__trigger="pulls",
        sync__every_pulls=1,
        run__steps=1,
        **DRAIN | {"trainer__batch_samples": 2},
    )
    assert of_trainer(records) == [
        (0, "wait", 0, 2), (0, "train", 2, 4), (0, "sync", 4, 5),
        (0, "train", 5, 7), (0, "wait", 7, 20), (0, "sync", 20, 24),
    ]  # fmt: skip
    assert of_steps(records) == [(15, 4, 5, 0, 24)]


def test_shared_gpus_that_still_generate() -> None:
    """The batch is there at 2, and the engines keep the GPUs until group 1 has ended at 9. Without a drain they stop at
    2, and no wait is left but the batch's."""
    shared: dict[str, Any] = {
        "admission__law": "batches_ahead",
        "admission__batches_ahead": 2,
        "fleet__placement": "colocated",
        "fleet__switch_s": 1.0,
        "run__steps": 1,
    }
    records = play((2, 9, 2), **DRAIN | shared | {"sync__pause_s": 2.0})
    assert of_trainer(records) == [
        (0, "wait", 0, 9), (0, "switch", 9, 10), (0, "train", 10, 14), (0, "sync", 14, 16), (0, "switch", 16, 17)
    ]  # fmt: skip
    assert of_steps(records) == [(9, 4, 2, 2, 17)]
    assert whole(records.steps["ready_s"]) == (2,)
    stopped = play((2, 9, 2), **DRAIN | shared | {"sync__pause_s": 2.0, "sync__in_flight": "keep"})
    assert of_steps(stopped) == [(2, 4, 2, 2, 10)]


def test_nobody_waits_for_instances_that_drain_in_turn() -> None:
    records = play(
        (2, 2, 20, 2),
        admission__law="batches_ahead",
        admission__batches_ahead=3,
        sync__scope="rolling",
        run__steps=2,
        **DRAIN,
    )
    assert of_steps(records) == [(2, 4, 1, 0, 7), (0, 4, 1, 0, 5)]


def test_waits_as_an_exporter_counts_them() -> None:
    """Each wait when it is over: the drain's with the step that it holds up, and not with the batch before it."""
    records = play((2, 2, 20, 2), admission__law="batches_ahead", admission__batches_ahead=3, run__steps=2, **DRAIN)
    ended, lasted = timeline.waits_for_samples(records)
    assert (whole(ended), whole(lasted)) == ((2, 20), (2, 9))


def test_streamed_parts_of_a_batch() -> None:
    records = play(
        (2, 6), activity=True, admission__law="barrier", fleet__instances=2, trainer__minibatches=2, run__steps=1
    )
    assert of_trainer(records) == [(0, "wait", 0, 2), (0, "train", 2, 4), (0, "wait", 4, 6), (0, "train", 6, 8)]


def test_lent_gpus() -> None:
    records = play(
        (2,),
        activity=True,
        trainer__batch_samples=4,
        fleet__placement="colocated_lending",
        fleet__max_in_flight_samples_per_instance=1,
        fleet__lending__instances=1,
        fleet__lending__return_at=0.5,
        fleet__switch_s=1.0,
        admission__law="barrier",
        run__steps=1,
    )
    assert of_instance(records, 0) == [("busy", 0, 6), ("idle", 6, 10)]
    assert of_instance(records, 1) == [("off", 0, 1), ("busy", 1, 3), ("off", 3, 10)]
    assert of_trainer(records) == [
        (0, "switch", 0, 1), (0, "wait", 1, 3), (0, "switch", 3, 4), (0, "wait", 4, 6), (0, "train", 6, 10)
    ]  # fmt: skip


def test_a_run_that_was_not_recorded() -> None:
    records = play((1,), run__steps=1)
    with pytest.raises(ValueError, match="activity was not recorded"):
        timeline.instance_spans(records)
    assert of_trainer(records) == [(0, "wait", 0, 1), (0, "train", 1, 5)]


@settings(max_examples=60)
@given(scenarios(), st.floats(0, 1), st.floats(0, 1))
def test_sums_are_the_metrics(scenario: Any, a: float, b: float) -> None:
    try:
        records = simulate(scenario, activity=True)
    except StuckError:
        return
    metrics, window = metrics_of(records), window_of(records)
    queue = timeline.queue_depth(records, window.start_s, window.end_s)
    lasts = np.diff(np.append(queue["time_s"], window.end_s))
    assert (queue["samples"] * lasts).sum() / window.span_s == pytest.approx(metrics["queue_depth"], abs=1e-9)
    assert np.all(queue["samples"] >= 0)
    seen = timeline.staleness(records)
    assert seen["mean"].mean() == pytest.approx(metrics["staleness_steps"]["mean"])
    assert seen["most"].max() == metrics["staleness_steps"]["max"]
    start, end = sorted((a * window.end_s, b * window.end_s))
    whole_run, part = timeline.instance_spans(records), timeline.instance_spans(records, start, end)
    assert np.all((part["start_s"] >= start) & (part["end_s"] <= end))
    for account in range(len(timeline.ACCOUNTS)):
        cut = np.clip(whole_run["end_s"], start, end) - np.clip(whole_run["start_s"], start, end)
        own = part[part["account"] == account]
        expected = cut[whole_run["account"] == account].sum()
        assert (own["end_s"] - own["start_s"]).sum() == pytest.approx(expected, abs=1e-9)
    assert np.all(records.groups["ready_s"][records.groups["status"] == t.G_TRAINED] >= 0)
