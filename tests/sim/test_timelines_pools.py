"""GPUs that change sides, by hand: the trainer's GPUs lent to rollout while it waits, and requests put together."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.timelines import FREE, PREFILL, all_different, batches, done, limited, play, sends, whole

# Four groups of 2 s a batch, barrier, one in flight per instance, one instance of its own and one on the trainer's
# GPUs, which change hands in 1 s. Prompts and what was generated prefill for nothing. 4 s of training.
# placement, share at which the GPUs are called back -> when training starts, when groups 0..3 are complete
Lent = tuple[tuple[int, int], tuple[int, ...]]
LENDING: dict[tuple[str, float], Lent] = {
    # one after the other | 8-12 | 12-20
    ("disaggregated", 0.5): ((8, 20), (2, 4, 6, 8)),
    # 0 lent, 1 it serves: group 1 | 2 group 0 is a quarter: called back; group 1 has 1 s left and waits for the other
    # instance: 2-4 group 2, 4-5 group 1, 5-7 group 3 | 7-11 | 11-18
    ("colocated_lending", 0.25): ((7, 18), (2, 5, 4, 7)),
    # 1-3 group 1, 2-4 group 2 | 3 half is there: called back, the trainer has its GPUs at 4 | 4-6 group 3 | 6-10
    ("colocated_lending", 0.5): ((6, 16), (2, 3, 4, 6)),
    # 1-3 group 1, 2-4 group 2, 3-5 group 3 | 5 all are there: called back, it has its GPUs at 6 | 6-10 | 10-15-16
    ("colocated_lending", 1.0): ((6, 16), (2, 3, 4, 5)),
}


@pytest.mark.parametrize(("placement", "share"), LENDING)
def test_lending_by_hand(placement: str, share: float) -> None:
    records = play(
        (2,),
        trainer__batch_samples=4,
        fleet__placement=placement,
        fleet__max_in_flight_samples_per_instance=1,
        fleet__lending__instances=1,
        fleet__lending__return_at=share,
        fleet__switch_s=1.0,
        admission__law="barrier",
        run__steps=2,
    )
    assert (whole(records.steps["train_start_s"]), done(records, 0, 1, 2, 3)) == LENDING[placement, share]


# Three groups of 10 s a batch: 0 and 2 on instance 0, 1 on instance 1. A cache holds 40 s of tokens: after 3 s
# instance 0 uses 6 / 40, instance 1 3 / 40. To prefill takes as long as to generate. Looks every 3 s.
# below, up to -> when groups 0, 1 and 2 end
REPACK: dict[tuple[float, float], tuple[int, ...]] = {
    # 3: group 1 goes to instance 0 | 3-6 it prefills its 3 s, the others stand still | 13 all
    (0.1, 0.9): (13, 13, 13),
    # 3: instance 0 would be at 9 / 40 | 6: instance 1 is at 6 / 40
    (0.1, 0.2): (10, 10, 10),
}


@pytest.mark.parametrize(("below", "up_to"), REPACK)
def test_repack_by_hand(below: float, up_to: float) -> None:
    records = play(
        (10,),
        engine=limited(PREFILL, kv_blocks=400, block_size=10),
        trainer__batch_samples=3,
        fleet__instances=2,
        fleet__repack__every_s=3.0,
        fleet__repack__below_kv_use=below,
        fleet__repack__up_to_kv_use=up_to,
        admission__law="barrier",
        run__steps=1,
    )
    assert whole(records.samples["finish_s"][:3]) == REPACK[below, up_to]


def test_instance_that_gave_its_requests_away_is_idle() -> None:
    """Without the price of a prefill: 10 s for both, but instance 1 works 3 s and not 10."""
    busy = {}
    for below in (0.1, 0.05):
        records = play(
            (10,),
            engine=limited(FREE, kv_blocks=400, block_size=10),
            trainer__batch_samples=3,
            fleet__instances=2,
            fleet__repack__every_s=3.0,
            fleet__repack__below_kv_use=below,
            admission__law="barrier",
            run__steps=1,
        )
        assert batches(records) == (10,)
        busy[below] = whole(records.steps["busy_s"])[0]
    assert busy == {0.1: 13, 0.05: 20}


def test_requests_are_not_put_together_while_more_may_be_sent() -> None:
    """The same two instances, nearly empty, but the law has groups to send: they fill up by themselves."""
    records = play(
        (10,),
        engine=limited(PREFILL, kv_blocks=400, block_size=10),
        trainer__batch_samples=3,
        fleet__instances=2,
        fleet__repack__every_s=3.0,
        fleet__repack__below_kv_use=0.1,
        fleet__max_in_flight_samples=3,
        admission__law="unbounded",
        run__steps=1,
    )
    assert whole(records.samples["finish_s"][:3]) == (10, 10, 10)


@pytest.mark.parametrize("table", [LENDING, REPACK], ids=["lending", "repack"])
def test_no_two_rows_have_the_same_timeline(table: dict[Any, Any]) -> None:
    assert all_different(table)


# Two a group, two groups a batch, two groups' worth of places. Group 0 takes 1 and 5 s, group 1 2 and 2, group 2 3 and
# 3, all others 1 and 1. A sample's place is free when it ends, a group's when its last sample has its reward.
# (unit, per instance, reward seconds) -> when groups 0..4 are sent, when the first batch is complete
UNITS = {
    # 1 2a | 2 group 1 ends: 2b 3a | 3 3b | 4 group 3 ends: batch (1, 3)
    ("samples", False, 0): ((0, 0, 1, 2, 4), 4),
    # 2 group 1 ends: send 2 | 5 groups 0 and 2 end: batch, send 3 4
    ("groups", False, 0): ((0, 0, 2, 5, 5), 5),
    # one group for each of two instances: two of the fleet, wherever their samples are
    ("groups", True, 0): ((0, 0, 2, 5, 5), 5),
    # 3 group 1 is scored: send 2 | 6 group 0 is: batch (1, 0), send 3 | 7 group 2 is: send 4
    ("groups", False, 1): ((0, 0, 3, 6, 7), 6),
}


@pytest.mark.parametrize("row", UNITS)
def test_unit_of_the_caps_by_hand(row: tuple[str, bool, int]) -> None:
    unit, per_instance, reward_s = row
    name = "fleet__max_in_flight_samples" + ("_per_instance" if per_instance else "")
    records = play(
        [(1, 5), (2, 2), (3, 3), (1, 1)],
        workload__group_size=2,
        workload__reward={"latency_s": float(reward_s)},
        trainer__batch_samples=4,
        fleet__instances=2 if per_instance else 1,
        fleet__group_placement="spread",
        fleet__in_flight_unit=unit,
        admission__law="unbounded",
        **{name: 2 if per_instance else 4},
    )
    assert (sends(records, 5), batches(records)[0]) == UNITS[row]


def test_a_resize_moves_the_groups_that_are_kept_for_each_instance() -> None:
    """One group for each instance: from step 1 on there are two of them."""
    records = play(
        [(2, 2)],
        workload__group_size=2,
        fleet__in_flight_unit="groups",
        fleet__max_in_flight_samples_per_instance=2,
        admission__law="unbounded",
        run__events=[{"step": 1, "instances": 2}],
    )
    # 0 | 2 step 0 trains until 6, groups end one by one: 2 4 6 | 6 step 1: room for another one
    assert sends(records, 6) == (0, 2, 4, 6, 6, 8)
