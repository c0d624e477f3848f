"""What an old group means, by hand: whose version its age is counted from, and what happens when it is too old.

Age = versions that the trainer has triggered - the group's reference version. Publishing takes no time here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fleetsim.engine.kernel import tables as t
from fleetsim.sim.metrics import masked_in, numbers_of
from fleetsim.sim.window import window_of
from tests.sim.timelines import FREE, all_different, batches, limited, play, sends, trained, with_status

# One group of 5 s a batch, the trainer computes 2 s, the window is (3 + v + 1) - taken: 4 may be out from the start.
# The client keeps 2 in flight, the engine runs one of them. Nothing may be older than 1.
#   0 granted 0 1 2 3, sent 0 1 (v0) | 5 step 0: (0), sent 2 (v0) | 7 v1, granted 4 | 10 step 1: (1), sent 3 (v1)
#   12 v2, granted 5 | 15 2 ends, sent 4 (v2), 3 runs | 20 3 ends, sent 5, 4 runs | 25 4 ends, 5 runs | 30 5 ends
# group:         0  1  2  3  4  5
# granted under  0  0  0  0  1  2
# sent under     0  0  0  1  2
# begun under    0  0  1  2
# reference -> batches, groups trained in steps 0 to 3, groups dropped
REFERENCES: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    # 15: 2 - 1 = 1, trained, v3 at 17 | 20: 3 - 2 = 1, trained
    "oldest_token": ((5, 10, 15, 20), (0, 1, 2, 3), ()),
    # 15: 2 - 0 = 2, dropped | 20, still v2: 2 - 1 = 1, trained, v3 at 22 | 25: 3 - 2 = 1, trained
    "submission": ((5, 10, 20, 25), (0, 1, 3, 4), (2,)),
    # 15: 2 - 0 = 2, dropped | 20: the same | 25: 2 - 1 = 1, trained, v3 at 27 | 30: 3 - 2 = 1, trained
    "creation": ((5, 10, 25, 30), (0, 1, 4, 5), (2, 3)),
}


@pytest.mark.parametrize("reference", REFERENCES)
def test_reference_by_hand(reference: str) -> None:
    records = play(
        (5,),
        engine=limited(FREE, max_num_seqs=1),
        trainer__batch_samples=1,
        trainer__fixed_s=2.0,
        fleet__max_in_flight_samples=2,
        admission__max_staleness=3.0,
        admission__age_reference=reference,
        admission__age_action="drop_on_dequeue",
        admission__max_age=1.0,
    )
    flat = tuple(group for groups in trained(records) for group in groups)
    assert (batches(records), flat, with_status(records, t.G_STALE)) == REFERENCES[reference]


# One group a batch, the trainer computes 4 s, 3 may be out: (2 + v + 1) - taken. Group 0 takes 1 s, group 1 12 s,
# group 2 4 s, all others 2 s; first come, first served. Nothing may be older than 1. In all four:
#   0 send 0 1 2 | 1 step 0: (0) | 5 v1: send 3; step 1: (2), age 1 | 9 v2; step 2: (3), age 1
# action -> when groups 0..8 are sent, trained in steps 0 to 5, thrown away
ACTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    # 9 send 4 | 12 group 1 ends | 13 v3: send 5; (4) | 17 v4: send 6; (1), age 4 | 21 v5: send 7; (5) | end
    "train_anyway": ((0, 0, 0, 5, 9, 13, 17, 21), (0, 2, 3, 4, 1, 5), ()),
    # 9 send 4 | 13 v3: send 5; (4), 1 is behind it | 17 v4: send 6; 1 is dropped: send 7; (5) | 21 v5: send 8
    "drop_on_dequeue": ((0, 0, 0, 5, 9, 13, 17, 17), (0, 2, 3, 4, 5, 6), (1,)),
    # 9 send 4 | 13 v3: 1 is evicted: send 5 6; (4) | 17 v4: send 7; (5), age 1 | 21 v5: 6, of v3, is evicted; (7)
    "drop_and_refill": ((0, 0, 0, 5, 9, 13, 13, 17), (0, 2, 3, 4, 5, 7), (1, 6)),
    # 9 v2: 1 is cancelled: send 4 5 | 13 v3: send 6; (4) | 17 v4: 5, of v2, is evicted: send 7 8; (6) | 21 v5: (7) |
    # 25 v6: 8, of v4, is evicted
    "cancel_in_flight": ((0, 0, 0, 5, 9, 9, 13, 17), (0, 2, 3, 4, 6, 7), (1, 5, 8)),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_action_by_hand(action: str) -> None:
    records = play(
        (1, 12, 4, 2),
        trainer__batch_samples=1,
        admission__max_staleness=2.0,
        admission__age_action=action,
        admission__max_age=1.0,
        run__steps=6,
    )
    lost = tuple(sorted((*with_status(records, t.G_STALE), *with_status(records, t.G_ABORTED))))
    flat = tuple(group for groups in trained(records) for group in groups)
    assert batches(records) == (1, 5, 9, 13, 17, 21)
    assert (sends(records, 8), flat, lost) == ACTIONS[action]
    if action == "cancel_in_flight":
        assert with_status(records, t.G_ABORTED) == (1,), "1 never ended; 5 and 8 had"
        assert records.steps["aborted_tokens"][-1] == pytest.approx(900, abs=5), "nine seconds of it were made"


def test_a_masked_group_fills_its_place_and_is_lost() -> None:
    """The run is that of train_anyway, to the last bit; groups 1 and 5, trained at ages 4 and 2, are lost."""
    said = {"trainer__batch_samples": 1, "admission__max_staleness": 2.0, "admission__max_age": 1.0, "run__steps": 6}
    masked = play((1, 12, 4, 2), admission__age_action="mask", **said)
    anyway = play((1, 12, 4, 2), admission__age_action="train_anyway", **said)
    assert (batches(masked), trained(masked)) == (batches(anyway), trained(anyway))
    window = window_of(masked)
    assert tuple(np.flatnonzero(masked_in(masked, window))) == (1, 5)
    of_masked, of_all = numbers_of(masked, window), numbers_of(anyway, window)
    assert of_masked["step_s"] == of_all["step_s"]
    assert of_masked["staleness_steps"]["max"] <= 1.0 < of_all["staleness_steps"]["max"]
    assert of_all["samples_lost"]["all"] == 0.0
    steps = len(window.steps)
    assert of_masked["samples_lost"]["all"] == pytest.approx(2 / steps)
    learned = masked.samples["made"][[1, 5]].sum()
    rest = 1.0 - learned / window.steps["output_tokens"].sum()
    assert of_masked["goodput"] / of_all["goodput"] == pytest.approx(rest, rel=1e-9)


# Two groups a batch, 4 s, 4 may be out: (1 + v + 1) 2 - taken. Group 0 takes 1 s, 1 15 s, 2 2 s, 3 3 s, others 2 s.
#   0 send 0 1 2 3 | 2 step 0: (0, 2) | 6 v1: send 4 5
# (action, max age) -> batches and what they train, steps 0 to 3
Waits = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]
WAITS: dict[tuple[str, float], Waits] = {
    # 8 (3, 4) | 12 v2: send 6 7 | 14 (5, 6) | 18 v3: send 8 9; (7, 1): 7 ended at 14, 1 at 15, age 3
    ("train_anyway", 1.0): ((2, 8, 14, 18), ((0, 2), (3, 4), (5, 6), (1, 7))),
    # 8 (3, 4) | 14 (5, 6) | 18 v3: send 8 9; 7, of v2, is taken, 1 is dropped: send 10 | 20 (7, 8)
    ("drop_on_dequeue", 1.0): ((2, 8, 14, 20), ((0, 2), (3, 4), (5, 6), (7, 8))),
    # 6 v2 would make 1 and 3 too old: 15 (1, 3) | 19 v2: send 6 7; 4 and 5 would be next: (4, 5) | 23 v3: (6, 7)
    ("wait", 1.0): ((2, 15, 19, 23), ((0, 2), (1, 3), (4, 5), (6, 7))),
    # 8 v2 makes nothing older than 2: (3, 4) | 12 v2: send 6 7; v3 would make 1 too old: 15 (1, 5) | 19 v3: (6, 7)
    ("wait", 2.0): ((2, 8, 15, 19), ((0, 2), (3, 4), (1, 5), (6, 7))),
}


@pytest.mark.parametrize(("action", "limit"), WAITS)
def test_waiting_for_old_groups_by_hand(action: str, limit: float) -> None:
    records = play(
        (1, 15, 2, 3, 2), admission__max_staleness=1.0, admission__age_action=action, admission__max_age=limit
    )
    assert (batches(records), trained(records)) == WAITS[action, limit]
    groups = records.groups[records.groups["status"] == t.G_TRAINED]
    oldest = (groups["trained_step"] - groups["version"]).max()
    assert oldest == 3 if action == "train_anyway" else oldest <= limit
    assert (len(with_status(records, t.G_STALE)) > 0) == (action == "drop_on_dequeue")


@pytest.mark.parametrize("table", [REFERENCES, ACTIONS, WAITS], ids=["references", "actions", "waits"])
def test_no_two_rows_have_the_same_timeline(table: dict[Any, Any]) -> None:
    assert all_different(table)


# Two a batch, 1 s each, one instance; the trainer computes 4 s. The client keeps 4 in flight, the buffer holds 2, and
# nothing may be older than 0.
#   0 send 0-3 | 1 step 0: (0, 1); 2 3 go in: send 4-7 | 2 they end and stand at the door | 5 v1: 2 3 are dropped, 4 5
#   go in and are dropped, 6 7 likewise: send 8-11 | 6 step 1: (8, 9), and so on, every 5 s
def test_what_a_drop_lets_in_from_the_door_is_looked_at_at_once() -> None:
    records = play(
        (1,),
        fleet__max_in_flight_samples=4,
        admission__law="unbounded",
        admission__age_action="drop_on_dequeue",
        admission__max_age=0.0,
        buffer__capacity_samples=2,
    )
    assert batches(records) == (1, 6, 11, 16)
    assert trained(records) == ((0, 1), (8, 9), (16, 17), (24, 25))
    assert with_status(records, t.G_STALE) == (*range(2, 8), *range(10, 16), *range(18, 24))
    assert sends(records, 13) == (0, 0, 0, 0, 1, 1, 1, 1, 5, 5, 5, 5, 6)
