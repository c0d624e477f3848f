"""What happens to work in flight at a sync, by hand: every policy, on a fleet that stops at once and on one that rolls.

Prompts are one token, and to prefill a token again takes as long as to generate it. One batch ahead.
"""

from __future__ import annotations

import pytest

from tests.sim.timelines import PREFILL, all_different, batches, done, play, trained, versions, whole

# One instance, one group a batch: group 0 takes 4 s, group 1 10 s, all others 2 s. The trainer computes 4 s.
# 0 send 0 | 4 batch (0): send 1 | 8 trained; the engine is to stand still for 3 s; 4 s of group 1 are done
# policy -> batches of steps 1 and 2, what the first three steps trained, under which versions
GLOBAL = {
    # 8-11 pause | 17 batch (1): send 2 | 19 it ends | 21 the trainer is back
    "keep": ((17, 21), (0, 1, 2), (0, 0, 1)),
    # no pause: 14 batch (1): send 2 | 16 it ends | 18 the trainer is back
    "finish_on_old_weights": ((14, 18), (0, 1, 2), (0, 0, 1)),
    # 14 batch (1), the last in flight | 14-17 pause | 17 send 2 | 19 batch (2)
    "drain": ((14, 19), (0, 1, 2), (0, 0, 1)),
    # 8 group 1 is gone | 11 send 2 in its place | 13 batch (2): send 3 | 17 the trainer is back
    "abort_discard": ((13, 17), (0, 2, 3), (0, 1, 1)),
    # 8-11 pause | 11-15 its 4 s again | 21 batch (1): send 2 | 25 the trainer is back
    "abort_resume": ((21, 25), (0, 1, 2), (0, 0, 1)),
    "keep_recompute": ((21, 25), (0, 1, 2), (0, 0, 1)),
}


@pytest.mark.parametrize("policy", GLOBAL)
def test_policy_by_hand(policy: str) -> None:
    records = play(
        (4, 10, 2),
        engine=PREFILL,
        trainer__batch_samples=1,
        admission__law="batches_ahead",
        sync__in_flight=policy,
        sync__pause_s=3.0,
        run__steps=3,
    )
    flat = tuple(group for groups in trained(records) for group in groups)
    under = tuple(version for step in versions(records) for version in step)
    assert (batches(records)[1:], flat, under) == GLOBAL[policy]


# Two instances, two groups a batch: groups 0 and 1 take 4 s, group 2 (on instance 0) 6 s, group 3 (on 1) 5 s, others 3.
# 0 send 0 1 | 4 batch: send 2 3 | 8 trained, weights are published; an instance stands still for 2 s
# (policy, scope) -> when 2 and 3 are complete, when 4 and 5 are sent, when version 1 is served everywhere
Row = tuple[tuple[int, int], tuple[int, int], int]
SCOPES: dict[tuple[str, str], Row] = {
    # 8-10 both stand still
    ("keep", "global"): ((12, 11), (12, 12), 10),
    # 8-10 instance 0, 10-12 instance 1: group 3 is through at 9
    ("keep", "rolling"): ((12, 9), (12, 12), 12),
    # 10 batch, and the last in flight has ended: 10-12 both | 12 send 4 5
    ("drain", "global"): ((10, 9), (12, 12), 12),
    # 8 instance 0 closes, 10 it is empty and stands still | 10 batch: send 4 5, both to instance 1 | 12 its turn: it
    # closes, 13 it is empty: 13-15
    ("drain", "rolling"): ((10, 9), (10, 10), 15),
    # 8-10 both; 4 s of either are prefilled again by 14; 2 s and 1 s are left
    ("abort_resume", "global"): ((16, 15), (16, 16), 10),
    # 8-10 instance 0, 10-14 it prefills; group 3 is through at 9, so instance 1 has nothing to lose at 10
    ("abort_resume", "rolling"): ((16, 9), (16, 16), 12),
    # 8 both are gone | 10 send 4 5 in their place
    ("abort_discard", "global"): ((-1, -1), (10, 10), 10),
    # 8 group 2 is gone: send 4 in its place | group 3 is through at 9 | 13 batch (3, 4): send 5
    ("abort_discard", "rolling"): ((-1, 9), (8, 13), 12),
    # nobody stands still
    ("finish_on_old_weights", "global"): ((10, 9), (10, 10), 10),
    ("finish_on_old_weights", "rolling"): ((10, 9), (10, 10), 12),
}


@pytest.mark.parametrize(("policy", "scope"), SCOPES)
def test_scope_by_hand(policy: str, scope: str) -> None:
    records = play(
        (4, 4, 6, 5, 3),
        engine=PREFILL,
        fleet__instances=2,
        admission__law="batches_ahead",
        sync__in_flight=policy,
        sync__scope=scope,
        sync__pause_s=2.0,
    )
    served = whole(records.syncs["end_s"][records.syncs["version"] == 1])
    assert (done(records, 2, 3), whole(records.groups["submit_s"][[4, 5]]), *served) == SCOPES[policy, scope]


@pytest.mark.parametrize("policy", GLOBAL)
def test_shared_gpus_have_nothing_in_flight_at_the_sync(policy: str) -> None:
    """2 batch, all have ended: the trainer takes the GPUs | 6 trained | 7 published, the engines go on | 9 batch."""
    records = play(
        (2,), fleet__placement="colocated", admission__law="batches_ahead", sync__in_flight=policy, sync__publish_s=1.0
    )
    assert batches(records) == (2, 9, 16, 23)


def test_no_two_rows_have_the_same_timeline() -> None:
    """Resuming an abort and recomputing the cache cost the same: prompt and tokens are prefilled again in either."""
    rows = dict(GLOBAL)
    assert rows.pop("keep_recompute") == rows["abort_resume"]
    assert all_different(rows)
    assert all_different(SCOPES)
