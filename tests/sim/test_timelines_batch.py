"""Which finished groups make a batch, by hand: every rule, what happens to those that come too late, long rounds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.timelines import all_different, batches, play, sends, trained, trained_seconds

# Two groups a batch, the trainer computes 4 s, 6 may be out: (2 + v + 1) 2 - taken.
# Groups 0 to 5 take 1, 4, 2, 5, 13 and 25 s, all others 2 s. 0 send 0..5
# rule -> batches and what they train, steps 0 to 3
Row = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]
RULES: dict[str, Row] = {
    # 2 (0, 2) | 6 v1: send 6 7; (1, 3) | 10 v2: send 8 9; (6, 7) | 13 group 4 ends after 8 and 9 | 14 (8, 9)
    "fifo": ((2, 6, 10, 14), ((0, 2), (1, 3), (6, 7), (8, 9))),
    # the same up to 14: 4 is of v0, 8 and 9 of v2: (4, 8)
    "oldest_version_first": ((2, 6, 10, 14), ((0, 2), (1, 3), (6, 7), (4, 8))),
    # 10 4 and 5, of v0, have not ended: nothing younger is taken: 25 (4, 5) | 29 (6, 7)
    "wait_for_oldest": ((2, 6, 25, 29), ((0, 2), (1, 3), (4, 5), (6, 7))),
    # 4 step 0 is 0 and 1, whoever else has ended | 8 (2, 3) | 12 step 2 is 4 and 5: 25 | 29 (6, 7)
    "exact_target_step": ((4, 8, 25, 29), ((0, 1), (2, 3), (4, 5), (6, 7))),
}


@pytest.mark.parametrize("rule", RULES)
def test_rule_by_hand(rule: str) -> None:
    waits = rule == "wait_for_oldest"
    records = play(
        (1, 4, 2, 5, 13, 25, 2),
        admission__law="target_step" if rule == "exact_target_step" else "version_window",
        admission__max_staleness=2.0,
        buffer__batch_rule="oldest_version_first" if waits else rule,
        buffer__wait_for_oldest=waits,
    )
    assert (batches(records), trained(records)) == RULES[rule]


# Rounds of three groups for a batch of two, barrier, 4 s of training. Groups take 2, 6, 3, 4, 1 and 5 s, then 2 s.
# leftover -> when three batches are complete, the lengths that they train
Lengths = tuple[tuple[float, float], ...]
LEFTOVERS: dict[str, tuple[tuple[int, int, int], Lengths]] = {
    # no oversampling: 0 send two | 6 | 10 send two | 14 | 18 send two | 23
    "none": ((6, 14, 23), ((2, 6), (3, 4), (1, 5))),
    # 0 send 0 1 2 | 3 batch, 1 is gone | 7 send 3 4 5 | 11 batch, 5 is gone | 15 send 6 7 8 | 17
    "abort": ((3, 11, 17), ((2, 3), (1, 4), (2, 2))),
    # 3 batch; 1 goes on and ends at 6 | 7 send 3 4 | 8 batch (1, 4); 3 ends at 11 | 12 send 5 6 | 14 batch (3, 6)
    "carry_over": ((3, 8, 14), ((2, 3), (1, 6), (2, 4))),
    # 3 batch, 1 is deferred | 7 send 3 4 5 | 11 batch, 5 is deferred: they are two | 15 they start again, alone | 21
    "defer": ((3, 11, 21), ((2, 3), (1, 4), (5, 6))),
}


@pytest.mark.parametrize("leftover", LEFTOVERS)
def test_leftover_by_hand(leftover: str) -> None:
    none = leftover == "none"
    records = play(
        (2, 6, 3, 4, 1, 5, 2),
        admission__law="barrier",
        buffer__batch_rule="fifo" if none else "first_finished",
        buffer__oversampling=1.0 if none else 1.5,
        buffer__leftover="abort" if none else leftover,
        run__steps=3,
    )
    assert (batches(records), trained_seconds(records)) == LEFTOVERS[leftover]
    aborted = {"abort": 3 + 4, "defer": 3 + 4}.get(leftover, 0)  # seconds of groups 1 and 5 by then
    assert records.steps["aborted_tokens"][1] == pytest.approx(100 * aborted, abs=5)


def test_after_a_long_round_comes_a_short_one() -> None:
    """0-3 short, 7-11 short, 15-21 long, 25 short again: groups 6, 7 and 8 of 2 s."""
    records = play(
        (2, 6, 3, 4, 1, 5, 2),
        admission__law="barrier",
        buffer__batch_rule="first_finished",
        buffer__oversampling=1.5,
        buffer__leftover="defer",
        run__steps=5,
    )
    assert batches(records) == (3, 11, 21, 27, 33)
    assert trained_seconds(records)[3:] == ((2, 2), (2, 2))


# One group of two samples a batch, two batches; samples take 2, 6, 3, 1 s, then 5, 4, 8, 9 s.
# samples started -> when the batches are complete, the lengths trained, seconds of the samples that came too late
SIBLINGS: dict[int, tuple[tuple[int, int], Lengths, int]] = {
    # both of two: 6 | 10 send | 15
    2: ((6, 15), ((2, 6), (4, 5)), 0),
    # two of three: 3, the one of 6 s has 3 | 7 send | 12, the one of 8 s has 5
    3: ((3, 12), ((2, 3), (4, 5)), 3 + 5),
    # two of four: 2, those of 6 and 3 s have 2 | 6 send | 11, those of 8 and 9 s have 5
    4: ((2, 11), ((1, 2), (4, 5)), 2 + 2 + 5 + 5),
}


@pytest.mark.parametrize("started", SIBLINGS)
def test_siblings_started_beyond_the_group_by_hand(started: int) -> None:
    records = play(
        ((2, 6, 3, 1)[:started], (5, 4, 8, 9)[:started]),
        workload__group_size=2,
        admission__law="barrier",
        buffer__group_oversampling=started / 2,
        run__steps=2,
    )
    late = round(float(records.steps["aborted_tokens"][-1]) / 100)
    assert (batches(records), trained_seconds(records), late) == SIBLINGS[started]


def test_long_rounds_start_neither_more_groups_nor_more_siblings() -> None:
    """Two groups of two a batch; short rounds start three groups of three.

    0 (2 9 3) (8 7 1) (4 2 9): the first is through at 3, the third at 4: batch, the second is deferred | 8 (1 1 1)
    (9 9 9) (2 2 2): batch at 10, the second is deferred | 14 long: (8 7) and (9 9), from their prompts: 23
    """
    records = play(
        ((2, 9, 3), (8, 7, 1), (4, 2, 9), (1, 1, 1), (9, 9, 9), (2, 2, 2)),
        workload__group_size=2,
        trainer__batch_samples=4,
        admission__law="barrier",
        buffer__batch_rule="first_finished",
        buffer__oversampling=1.5,
        buffer__group_oversampling=1.5,
        buffer__leftover="defer",
        run__steps=3,
    )
    assert batches(records) == (4, 10, 23)
    assert trained_seconds(records) == ((2, 2, 3, 4), (1, 1, 2, 2), (7, 8, 9, 9))
    assert records.steps["samples"].tolist() == [4, 4, 4]


def test_round_ahead_is_oversampled_as_a_whole() -> None:
    """One batch ahead: what a first-finished batch leaves behind is thrown away at once, and its place is taken.

    0 send 0 1 2 of 2, 6, 3 s | 3 batch (0, 2), 1 is gone: send 3 4 5 of 4, 1, 5 s | 7 batch (4, 3): 3 ends at 7
    """
    records = play(
        (2, 6, 3, 4, 1, 5, 2),
        admission__law="batches_ahead",
        buffer__batch_rule="first_finished",
        buffer__oversampling=1.5,
        run__steps=2,
    )
    assert sends(records, 6) == (0, 0, 0, 3, 3, 3)
    assert (batches(records), trained(records)) == ((3, 7), ((0, 2), (3, 4)))


@pytest.mark.parametrize("table", [RULES, LEFTOVERS, SIBLINGS], ids=["rules", "leftovers", "siblings"])
def test_no_two_rows_have_the_same_timeline(table: dict[Any, Any]) -> None:
    assert all_different(table)
