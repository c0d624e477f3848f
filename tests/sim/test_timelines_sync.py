"""When weights are published and how a batch is streamed, by hand: triggers and mini-batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fleetsim.sim.metrics import numbers_of
from fleetsim.sim.records import Records
from tests.sim.timelines import all_different, batches, play, sends, trained, whole


def ends(records: Records) -> tuple[float, ...]:
    """When each step was over."""
    return whole(records.steps["end_s"])


# Two groups of 1 s a batch, trained one after the other, 2 s each; no version older than the newest is started:
# (0 + v + 1) V - taken, V the groups of a published version.
# (trigger, count) -> when weights are published before 17, when groups 0..5 are sent, when steps 0 and 1 are over
TRIGGERS: dict[tuple[str, int], tuple[tuple[int, ...], tuple[int, ...], tuple[int, int]]] = {
    # V 2: 0 send 2 | 1-3-5 step 0, v1: send 2 | 6-8-10 step 1, v2: send 2 | 11-13-15 step 2, v3
    ("steps", 1): ((5, 10, 15), (0, 0, 5, 5, 10, 10), (5, 10)),
    # V 6: 0 send 6 | 1-5-9-13 steps 0 to 2, v1
    ("steps", 3): ((13,), (0, 0, 0, 0, 0, 0), (5, 9)),
    # V 1: 0 send 1 | 1-3, v1: send 1 | 4-6, v2, step 0: send 1 | 7-9 | 10-12 step 1 | 13-15
    ("pulls", 1): ((3, 6, 9, 12, 15), (0, 3, 6, 9, 12, 15), (6, 12)),
    # V 3: 0 send 3 | 1-3-5 step 0 | 5-7 half of step 1, v1: send 3 | 8-10 step 1 | 10-12-14 step 2, v2: send 3
    ("pulls", 3): ((7, 14), (0, 0, 0, 7, 7, 7), (5, 10)),
    # V 4: 0 send 4 | 1-5-9 steps 0 and 1, 4 trained, v1: send 4 | 10-14 step 2, 2 trained
    ("samples", 3): ((9,), (0, 0, 0, 0, 9, 9), (5, 9)),
}


@pytest.mark.parametrize(("trigger", "count"), TRIGGERS)
def test_trigger_by_hand(trigger: str, count: int) -> None:
    records = play(
        (1,),
        trainer__minibatches=2,
        admission__max_staleness=0.0,
        **{"sync__trigger": trigger, f"sync__every_{trigger}": count},
    )
    published = records.syncs["trigger_s"]
    got = whole(published[published < 16.5]), sends(records, 6), ends(records)[:2]
    assert got == TRIGGERS[trigger, count]


def test_staleness_in_parts_of_a_step() -> None:
    """Weights after every half step, and nothing ahead: half of what a step trains holds half of that step's update."""
    records = play(
        (1,), trainer__minibatches=2, admission__max_staleness=0.0, sync__trigger="pulls", sync__every_pulls=1
    )
    staleness = numbers_of(records)["staleness_steps"]
    assert staleness["mean"] == staleness["p50"] == -0.25
    assert (staleness["p99"], staleness["max"]) == (0.0, 0.0)


def test_samples_beyond_the_count_are_not_carried_over() -> None:
    """2 a step: 4 are the first 3 or more, after every second step; with the surplus kept it would be 9, 13, 21."""
    records = play(
        (1,),
        trainer__minibatches=2,
        admission__law="unbounded",
        sync__trigger="samples",
        sync__every_samples=3,
        run__steps=6,
    )
    published = records.syncs["trigger_s"]
    assert whole(published[published < 24.5]) == (9, 17)


# Four groups of 1, 5, 6 and 12 s a batch, all sent at once and none before the step is over (barrier); 4 s of training.
# mini-batches -> when step 0 is over, how long the trainer waited in all, when group 4 is sent
PARTS: dict[int, tuple[int, int, int]] = {
    # 12-16
    1: (16, 12, 16),
    # 5-7 two | 12-14 two
    2: (14, 5 + 5, 14),
    # 1-2 | 5-6 | 6-7 | 12-13
    4: (13, 1 + 3 + 0 + 5, 13),
}


@pytest.mark.parametrize("parts", PARTS)
def test_streamed_batch_by_hand(parts: int) -> None:
    records = play(
        (1, 5, 6, 12, 2), trainer__batch_samples=4, trainer__minibatches=parts, admission__law="barrier", run__steps=2
    )
    assert (ends(records)[0], *whole(records.steps["wait_s"][0]), sends(records, 5)[4]) == PARTS[parts]
    assert whole(records.steps["train_s"]) == (4, 4)
    assert records.steps["samples"].tolist() == [4, 4]


def test_parts_cost_their_own_tokens_and_their_share_of_what_is_fixed() -> None:
    """6 s fixed, a second per 100 tokens: 5 two of 6 s: 5-14 | two of 18 s: 14-35. As one: 12-42."""
    changes: dict[str, Any] = {
        "trainer__batch_samples": 4,
        "trainer__per_token_s": 0.004,
        "trainer__phases": [{"name": "logprob", "fixed_s": 2.0, "per_token_s": 0.006}],
        "admission__law": "barrier",
        "run__steps": 1,
    }
    assert ends(play((1, 5, 6, 12), trainer__minibatches=2, **changes)) == (35,)
    assert ends(play((1, 5, 6, 12), **changes)) == (42,)


# Two groups a batch, one batch ahead: groups of 2, 6, then 3 s; 4 s of training
# mini-batches -> when groups 0..5 are sent, when two steps are over, what they train
AHEAD: dict[int, tuple[tuple[int, ...], tuple[int, int], tuple[tuple[int, int], tuple[int, int]]]] = {
    # 6 (0, 1): send 2 3 | 10 (2, 3): send 4 5
    1: ((0, 0, 6, 6, 10, 10), (10, 14), ((0, 1), (2, 3))),
    # 2 (0): send 2 | 4 | 5 (2): send 3 | 7 step 1: (1): send 4 | 9 (3): send 5 | 11
    2: ((0, 0, 2, 5, 7, 9), (7, 11), ((0, 2), (1, 3))),
}


@pytest.mark.parametrize("parts", AHEAD)
def test_every_pull_lets_groups_start(parts: int) -> None:
    records = play((2, 6, 3), trainer__minibatches=parts, admission__law="batches_ahead", run__steps=2)
    assert (sends(records, 6), ends(records), trained(records)) == AHEAD[parts]


def test_one_part_is_the_whole_batch() -> None:
    whole_batch = play((2, 6, 3), admission__law="batches_ahead")
    one_part = play((2, 6, 3), admission__law="batches_ahead", trainer__minibatches=1)
    assert batches(whole_batch) == batches(one_part)
    np.testing.assert_array_equal(whole_batch.steps["end_s"], one_part.steps["end_s"])


@pytest.mark.parametrize("table", [TRIGGERS, PARTS, AHEAD], ids=["triggers", "parts", "ahead"])
def test_no_two_rows_have_the_same_timeline(table: dict[Any, Any]) -> None:
    assert all_different(table)
