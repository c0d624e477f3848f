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
from fleetsim.sim.metrics import metrics_of
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
