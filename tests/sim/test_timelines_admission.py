"""Every admission law on one small job, computed by hand: no two of them give the same timeline.

The job: 2 groups of one sample make a batch, the trainer computes 4 s, weights are published 1 s after a step, no
engine stops. Group 0 takes 1 s, group 1 takes 6 s, all others 2 s. FIFO by completion; one engine that runs at most 5.
"""

from __future__ import annotations

from typing import Any

import pytest

from fleetsim.errors import StuckError
from tests.sim.timelines import FREE, all_different, batches, limited, play, sends, trained

ENGINE = limited(FREE, max_num_seqs=5)
Row = tuple[tuple[int, ...], tuple[int, ...]]

# law and its parameters -> when groups 0..7 are sent, when the batches of steps 0..3 are complete
LAWS: dict[tuple[tuple[str, Any], ...], Row] = {
    # 0 send 0 1 | 6 batch | 10 trained | 11 published: send 2 3 | 13 batch | 17 | 18 send | 20 | 25 send | 27
    (("law", "barrier"),): ((0, 0, 11, 11, 18, 18, 25, 25), (6, 13, 20, 27)),
    # 0 send 0 1 | 6 batch taken: send 2 3 | 10 the trainer is back, 2 and 3 ended at 8: send 4 5 | 14
    (("law", "batches_ahead"),): ((0, 0, 6, 6, 10, 10, 14, 14), (6, 10, 14, 18)),
    # 0 send 0 1 2 3 | 2 batch (0, 2): send 4 5 | 6 batch (3, 4): send 6 7 | 10 | 14: the trainer is the limit
    (("law", "batches_ahead"), ("batches_ahead", 2)): ((0, 0, 0, 0, 2, 2, 6, 6), (2, 6, 10, 14)),
    # (1 + v + 1) 2 - taken: 0 send 4 | 2 batch: 4 - 2 = 2 are out | 6 batch | 7 v1: 6 - 4 = 2 more | 10 | 11 v2: 2 more
    (("law", "version_window"), ("max_staleness", 1.0)): ((0, 0, 0, 0, 7, 7, 11, 11), (2, 6, 10, 14)),
    # 4 in generation: 0 ends at 1, 2 and 3 at 2, 4 (sent at 1) at 3
    (("law", "fixed_pool"), ("pool_samples", 4)): ((0, 0, 0, 0, 1, 2, 2, 3), (2, 6, 10, 14)),
    # 5 is what the engine runs
    (("law", "unbounded"),): ((0, 0, 0, 0, 0, 1, 2, 2), (2, 6, 10, 14)),
    # floor(2 (1 + 0.5)) = 3 a window: 0 send 3 | 2 batch (0, 2) | 7 v1 has 2 of 3, 1 is queued: 2 more | 9 batch (1, 3)
    # | 14 v2: 2 more | 16 batch (4, 5) | 21 v3: 2 more | 23
    (("law", "per_sync_window"), ("staleness_threshold", 0.5)): ((0, 0, 0, 7, 7, 14, 14, 21), (2, 9, 16, 23)),
    # ceil(1 x 2) + 2 a step: 0 step 0 begins: 4 | 6 step 1 begins: 2 more | 10 step 2 begins: 2 more
    (("law", "cumulative_ratio"), ("async_ratio", 1.0)): ((0, 0, 0, 0, 6, 6, 10, 10), (2, 6, 10, 14)),
    # 0 send 0 1 for step 0, 2 3 for step 1 | 6 exactly (0, 1) | 10 (2, 3) | 11 v1: 6 - 4 = 2 more, for step 2 | 14 | 15
    (("law", "target_step"), ("max_staleness", 1.0)): ((0, 0, 0, 0, 11, 11, 15, 15), (6, 10, 14, 18)),
}


def changes_of(parameters: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    changes = {f"admission__{name}": value for name, value in parameters}
    if ("law", "target_step") in parameters:
        changes["buffer__batch_rule"] = "exact_target_step"
    return changes


def name_of(parameters: tuple[tuple[str, Any], ...]) -> str:
    return ",".join(str(value) for _, value in parameters)


@pytest.mark.parametrize("parameters", LAWS, ids=name_of)
def test_law_by_hand(parameters: tuple[tuple[str, Any], ...]) -> None:
    records = play((1, 6, 2), engine=ENGINE, sync__publish_s=1.0, **changes_of(parameters))
    assert (sends(records, 8), batches(records)) == LAWS[parameters]


# the same job with all groups of 2 s, of which group 1 is filtered when it ends
# law -> when groups 0..5 are sent, when the batches of steps 0 and 1 are complete, what they train
Filtered = tuple[tuple[int, ...], tuple[int, int], tuple[tuple[int, int], tuple[int, int]]]
FILTERED: dict[tuple[tuple[str, Any], ...], Filtered] = {
    # 2 filtered: send 2 | 4 batch (0, 2) | 8 trained | 9 published: send 3 4 | 11 batch, taken | 15 | 16 send 5
    (("law", "barrier"),): ((0, 0, 2, 9, 9, 16), (4, 11), ((0, 2), (3, 4))),
    # 2 filtered: send 2 | 4 batch: send 3 4 | 8 batch: send 5 6
    (("law", "batches_ahead"),): ((0, 0, 2, 4, 4, 8), (4, 8), ((0, 2), (3, 4))),
    # floor(1.5 x 2) = 3 | 2 filtered: send 3; batch (0, 2) | 6 trained | 7 v1: 5 - 2 - 1 = 2 more | 9 batch (3, 4)
    (("law", "version_window"), ("max_staleness", 0.5)): ((0, 0, 0, 2, 7, 7), (2, 9), ((0, 2), (3, 4))),
    # 3 in generation: three end at 2, three more
    (("law", "fixed_pool"), ("pool_samples", 3)): ((0, 0, 0, 2, 2, 2), (2, 6), ((0, 2), (3, 4))),
    # 3 a window; the filtered one does not come back | 7 published, nothing is out: 3 more | 9 batch
    (("law", "per_sync_window"), ("staleness_threshold", 0.5)): ((0, 0, 0, 7, 7, 7), (2, 9), ((0, 2), (3, 4))),
    # 1 + 2 | 2 the filtered one returns its place: send 3 | 6 step 1 begins: 2 more | 8 batch (3, 4)
    (("law", "cumulative_ratio"), ("async_ratio", 0.5)): ((0, 0, 0, 2, 6, 6), (2, 8), ((0, 2), (3, 4))),
    # 0 1 for step 0, 2 for step 1 | 2 filtered: 3 takes its place in step 0 | 4 batch (0, 3) | 8 trained | 9 v1:
    # 5 - 2 - 1 = 2 more, 4 for step 1 and 5 for step 2 | 11 batch (2, 4)
    (("law", "target_step"), ("max_staleness", 0.5)): ((0, 0, 0, 2, 9, 9), (4, 11), ((0, 3), (2, 4))),
}


@pytest.mark.parametrize("parameters", FILTERED, ids=name_of)
def test_filtered_group_by_hand(parameters: tuple[tuple[str, Any], ...]) -> None:
    records = play((2,), filtered=[1], sync__publish_s=1.0, **changes_of(parameters))
    assert (sends(records, 6), batches(records)[:2], trained(records)[:2]) == FILTERED[parameters]


def test_without_surplus_a_filtered_group_stops_a_sync_window_and_not_a_version_window() -> None:
    """Two a window, one filtered: the batch is never complete, and no publication will come to say so."""
    with pytest.raises(StuckError) as stuck:
        play((2,), filtered=[1], admission__law="per_sync_window", admission__staleness_threshold=0.0)
    assert any(problem.path.startswith("admission") for problem in stuck.value.limits)
    other = play((2,), filtered=[1], admission__law="version_window", admission__max_staleness=0.0)
    assert batches(other)[0] == 4


# four groups of 2 s, two of 3 s, then 6 s; a sync window of floor(2 (1 + 1)) = 4 and a trainer that never waits for a
# sync: seconds that a publication takes -> when groups 0..11 are sent, when the first six batches are complete
SYNCS: dict[float, tuple[tuple[int, ...], tuple[int, ...]]] = {
    # 0 send 4 | 2 batch | 6 v1: 2 more, batch | 10 v2: 2 more, batch | 14 v3: 2 more | 16 batch of what 10 sent
    # | 20 v4: 2 more, batch | 26 batch: two steps in ten seconds
    0.0: ((0, 0, 0, 0, 6, 6, 10, 10, 14, 14, 20, 20), (2, 6, 10, 16, 20, 26)),
    # 6 batch (2, 3) | 7 v1 has 0 1; 2 3 are being trained and still count: 2 more, and not 4, which would give batches
    # at 14, 18, 22 ..., a step in four seconds | 11 v2: 2 more | 15 v3 | 17 batch | 22 v4 | 28: two steps in eleven
    1.0: ((0, 0, 0, 0, 7, 7, 11, 11, 15, 15, 22, 22), (2, 6, 10, 17, 21, 28)),
}


@pytest.mark.parametrize("publish_s", SYNCS)
def test_a_later_publication_lets_no_more_groups_start(publish_s: float) -> None:
    changes = {"admission__law": "per_sync_window", "admission__staleness_threshold": 1.0, "run__steps": 6}
    records = play((2, 2, 2, 2, 3, 3, 6), sync__publish_s=publish_s, **changes)
    assert (sends(records, 12), batches(records)) == SYNCS[publish_s]


# groups of 2, 6 and 3 s, then 2 s: (alpha, extra groups) -> when groups 0..5 are sent, when three batches are complete.
# Extra groups start, beside the count, while fewer than that number run, the counted ones included
# (alibaba/ROLL 9cbbd0e, roll/distributed/scheduler/generate_scheduler.py, ReplayBuffer._check_send_new_request).
EXTRA: dict[tuple[float, int], Row] = {
    # 2 a step | 6 batch (0, 1) | 10 step 1: send 2 3 | 13 batch | 17 step 2: send 4 5 | 19
    (0.0, 0): ((0, 0, 10, 10, 17, 17), (6, 13, 19)),
    # 3, then 2 a step | 3 batch (0, 2) | 7 step 1: send 3 4 | 9 batch (1, 3) | 13 step 2: send 5 6 | 15 batch (4, 5)
    (0.5, 0): ((0, 0, 0, 7, 7, 13), (3, 9, 15)),
    # 6 batch (0, 1), and none runs: extra 2 | 9: extra 3 | 10 step 1: send 4 5 | 11 batch (2, 3) | 15 step 2: (4, 5)
    (0.0, 1): ((0, 0, 6, 9, 10, 10), (6, 11, 15)),
    # 2 one runs: extra 2 | 5 batch (0, 2), one runs: extra 3 | 6, 7, 8: what ends is replaced | 9 (1, 3) | 13 (4, 5)
    (0.0, 2): ((0, 0, 2, 5, 6, 7), (5, 9, 13)),
}


@pytest.mark.parametrize(("ratio", "extra"), EXTRA)
def test_extra_groups_by_hand(ratio: float, extra: int) -> None:
    records = play(
        (2, 6, 3, 2),
        sync__publish_s=1.0,
        admission__law="cumulative_ratio",
        admission__async_ratio=ratio,
        admission__extra_groups=extra,
        run__steps=3,
    )
    assert (sends(records, 6), batches(records)) == EXTRA[ratio, extra]


@pytest.mark.parametrize("table", [LAWS, FILTERED, EXTRA], ids=["laws", "filtered", "extra"])
def test_no_two_laws_have_the_same_timeline(table: dict[Any, Any]) -> None:
    assert all_different(table)
