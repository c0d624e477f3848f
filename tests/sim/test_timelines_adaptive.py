"""Adaptive concurrency by hand: the cap grows once a turnover, stops at full caches, and cancels at fuller ones.

One engine of 400 blocks of 10 tokens: a response of s seconds holds 10 s blocks, so n of them use n s / 40 of it.
"""

from __future__ import annotations

from typing import Any

import pytest

from fleetsim.engine.kernel import tables as t
from tests.sim.timelines import FREE, ROOMY, all_different, limited, play, sends, with_status

SMALL = limited(FREE, kv_blocks=400, block_size=10)
Row = tuple[tuple[int, ...], tuple[int, ...]]
FOUR: dict[str, Any] = {"start_samples": 4, "most_samples": 4, "interval_s": 5.0, "grow_below_kv": 0.0}
MARKS: dict[str, Any] = {"target_kv": 0.3, "trim_above_kv": 0.45}

# Groups of 6 s, then 12 s; four in flight at first; looks at 5, 10, 15 ...
# 5: 4 x 5 / 40 = 0.50 | 6 group 0 ends, three go on | 10: 3 x 10 / 40 = 0.75 | 12 they end
# marks -> when groups 0..5 are sent, which are cancelled
FULL: dict[str, tuple[dict[str, Any], Row]] = {
    # as a pool of four
    "roomy": ({"target_kv": 0.9, "trim_above_kv": 0.95, "cancel_above_kv": 1.0}, ((0, 0, 0, 0, 6, 12), ())),
    # 5: 4 x 0.3 / 0.5 = 2 | 6 three are in flight: nothing starts | 10: 3 x 0.3 / 0.75 = 1 | 12 one starts | 24
    "trimmed": (MARKS | {"cancel_above_kv": 1.0}, ((0, 0, 0, 0, 12, 24), ())),
    # 10 beside: the youngest two of the three are cancelled
    "cancelled": (MARKS | {"cancel_above_kv": 0.6}, ((0, 0, 0, 0, 12, 24), (2, 3))),
}


@pytest.mark.parametrize("marks", FULL)
def test_full_cache_by_hand(marks: str) -> None:
    adaptive, expected = FULL[marks]
    records = play(
        (6, 12),
        engine=SMALL,
        admission__law="adaptive",
        run__steps=3,
        **{f"admission__adaptive__{name}": value for name, value in (FOUR | adaptive).items()},
    )
    assert (sends(records, 6), with_status(records, t.G_ABORTED)) == expected


# Groups of 3 s, two in flight at first, a cache that is never full; looks at 2, 4, 6 ...
# growth -> when groups 0..11 are sent
GROWTH: dict[str, tuple[int, ...]] = {
    # two every 3 s
    "none": (0, 0, 3, 3, 6, 6, 9, 9, 12, 12, 15, 15),
    # 4: two have ended, as many as may run: four may | 6, 7 | 8: four have ended since 4: eight may
    "doubled": (0, 0, 3, 3, 4, 4, 6, 6, 7, 7, 8, 8),
    # 4: four may | 8: five may, one more | 9, 10, 11: what ends is replaced
    "up to five": (0, 0, 3, 3, 4, 4, 6, 6, 7, 7, 8, 9),
}


@pytest.mark.parametrize("growth", GROWTH)
def test_growth_by_hand(growth: str) -> None:
    most = {"none": 2, "doubled": 64, "up to five": 5}[growth]
    records = play(
        (3,),
        engine=(FREE[0], ROOMY),
        admission__law="adaptive",
        admission__adaptive__start_samples=2,
        admission__adaptive__most_samples=most,
        admission__adaptive__grow=2.0,
        admission__adaptive__interval_s=2.0,
        run__steps=6,
    )
    assert sends(records, 12) == GROWTH[growth]


def test_no_two_rows_have_the_same_timeline() -> None:
    assert all_different({name: expected for name, (_, expected) in FULL.items()})
    assert all_different(GROWTH)
