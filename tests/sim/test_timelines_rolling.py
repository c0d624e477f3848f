"""A rolling sync by hand: the published version is the oldest one served, and the trainer waits for nobody."""

from __future__ import annotations

import pytest

from tests.sim.timelines import all_different, batches, play, sends, whole

# Two groups of 2 s a batch, 4 s of training, the window is (0 + v + 1) 2 - taken.
# 0 send 0 1 | 2 batch | 6 trained; an instance needs 2 s to load
# (scope, at once, instances) -> batches of four steps
TURNS: dict[tuple[str, int, int], tuple[int, ...]] = {
    # 6-8 both load, v1: send 2 3 | 10 batch | 14-16 | 18 | 22-24 | 26
    ("rolling", 2, 2): (2, 10, 18, 26),
    # 6-8 the first, 8-10 the second, v1: send 2 3 | 12 batch | 16-20 | 22 | 26-30 | 32
    ("rolling", 1, 2): (2, 12, 22, 32),
    # 6-8, 8-10, 10-12 | 14 | 18-24 | 26 | 30-36 | 38
    ("rolling", 1, 3): (2, 14, 26, 38),
}


@pytest.mark.parametrize(("scope", "at_once", "instances"), TURNS)
@pytest.mark.parametrize("policy", ["keep", "drain", "abort_discard", "abort_resume", "finish_on_old_weights"])
def test_turns_by_hand(scope: str, at_once: int, instances: int, policy: str) -> None:
    """Nothing is in flight when the weights come, so the policy does not matter."""
    records = play(
        (2,),
        fleet__instances=instances,
        admission__max_staleness=0.0,
        sync__scope=scope,
        sync__at_once=at_once,
        sync__in_flight=policy,
        sync__pause_s=2.0,
    )
    assert batches(records) == TURNS[scope, at_once, instances]


def test_all_at_once_is_the_global_sync() -> None:
    records = play((2,), fleet__instances=2, admission__max_staleness=0.0, sync__pause_s=2.0, sync__in_flight="keep")
    assert batches(records) == TURNS["rolling", 2, 2]


def test_an_instance_whose_turn_comes_takes_the_newest_version() -> None:
    """Groups of 1 s, two a batch, 2 s of training: versions at 3, 5, 7, 9, 11 ...; to load takes 7 s and stops nobody.

    3-10 instance 0 loads v1 | 10-17 instance 1 loads v4, made at 9: v1 is the oldest | 17-24 instance 0 loads the
    newest of 17: v4 is the oldest, and v2 and v3 are published with it. One after the other v2 would come at 31.
    """
    records = play(
        (1,),
        fleet__instances=2,
        trainer__fixed_s=2.0,
        admission__law="batches_ahead",
        admission__batches_ahead=4,
        sync__scope="rolling",
        sync__pause_s=7.0,
        sync__in_flight="finish_on_old_weights",
        run__steps=13,
    )
    assert whole(records.syncs["trigger_s"][:4]) == (3, 5, 7, 9)
    assert records.syncs["version"][:4].tolist() == [1, 2, 3, 4]
    assert whole(records.syncs["end_s"][:4]) == (17, 24, 24, 24)


# Barrier, one instance, two groups of 2 s a batch, 4 s of training, 3 s to load, which stops nobody
SCOPES = {
    # 2 batch | 6-9 the trainer waits for the sync | 9 send | 11
    "global": ((0, 0, 9, 9), (2, 11)),
    # 2 batch | 6 the trainer goes on: send | 8
    "rolling": ((0, 0, 6, 6), (2, 8)),
}


@pytest.mark.parametrize("scope", SCOPES)
def test_the_trainer_never_waits_for_a_rolling_publication(scope: str) -> None:
    records = play(
        (2,),
        admission__law="barrier",
        sync__scope=scope,
        sync__pause_s=3.0,
        sync__in_flight="finish_on_old_weights",
        run__steps=2,
    )
    assert (sends(records, 4), batches(records)) == SCOPES[scope]


def test_no_two_rows_have_the_same_timeline() -> None:
    assert all_different(TURNS)
    assert all_different(SCOPES)
