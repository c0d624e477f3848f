from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.config import default_scenario, with_changes
from fleetsim.plan.knee import knee, price_per_s


@given(
    work=st.floats(1.0, 5000.0), floor=st.floats(1.0, 100.0), trainer=st.integers(1, 512), tp=st.sampled_from([1, 4])
)
def test_it_minimises_step_time_times_cost(work: float, floor: float, trainer: int, tp: int) -> None:
    s = with_changes(default_scenario(), {"trainer.gpus": trainer, "engine.tp": tp})

    def step_s(n: int) -> float:
        return work / n + floor

    def dear(n: int) -> float:
        return step_s(n) ** 2 * price_per_s(s, n)

    found = knee(s, step_s, 7, 2000)
    assert dear(found) == pytest.approx(min(map(dear, range(1, 2001))), rel=1e-12)


def test_beyond_the_knee_cost_rises_by_a_larger_share_than_throughput() -> None:
    """The runbook's test of a rebalance, at the knee's neighbours."""
    s = default_scenario()
    found = knee(s, lambda n: 160.0 / n + 20.0, 8, 500)

    def throughput_and_cost(n: int) -> tuple[float, float]:
        step = 160.0 / n + 20.0
        return 1.0 / step, step * price_per_s(s, n)

    (before, dear_before), (here, dear_here), (after, dear_after) = map(
        throughput_and_cost, (found - 1, found, found + 1)
    )
    assert here / before > dear_here / dear_before
    assert after / here < dear_after / dear_here


def test_free_rollout_gpus_still_end_somewhere() -> None:
    s = with_changes(default_scenario(), {"cost.instance_price_usd_per_gpu_h": 0.0})
    assert knee(s, lambda n: 160.0 / n + 20.0, 8, 500) < 50
