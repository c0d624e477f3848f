from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.errors import InputError
from fleetsim.search import rate_matching as rate

BATCH_TOKENS = 512 * 1536.0


def test_the_runbook_s_worked_example_to_the_digit() -> None:
    consumed = rate.consume_tok_s(BATCH_TOKENS, 20.0)
    assert consumed == 39_321.6
    assert rate.matched_instances(consumed, 4000.0, 0.8) == 13 == math.ceil(39321.6 / (4000 * 0.8))
    assert rate.trainer_idle_fraction(consumed, 8, 4000.0) == pytest.approx(1 - 20.0 / 24.576, abs=1e-12)
    assert rate.trainer_idle_fraction(consumed, 13, 4000.0) == 0.0
    assert rate.queue_growth_tok_s(consumed, 15, 4000.0) == pytest.approx(20_678.4, abs=1e-9)


def test_the_rows_hold_both_signatures() -> None:
    matching = rate.match_rates(BATCH_TOKENS, 20.0, lambda n: 4000.0, 0.8)
    assert (matching.instances, matching.consume_tok_s, matching.instance_tok_s) == (13, 39_321.6, 4000.0)
    assert [row.instances for row in matching.rows] == list(range(8, 16))
    by_count = {row.instances: row for row in matching.rows}
    assert f"{by_count[8].trainer_idle_fraction:.1%}" == "18.6%"
    assert by_count[15].backlog_tokens == pytest.approx(600 * 20_678.4)
    assert f"{by_count[15].backlog_tokens / 1e6:.1f}" == "12.4"


def test_a_fleet_that_covers_the_demand_exactly_is_not_rounded_up_by_the_last_bit() -> None:
    # 0.7 * 3 is 2.0999999999999996: 21 / 2.1 must stay 10.
    assert rate.matched_instances(21.0, 3.0, 0.7) == 10


@given(
    consumed=st.floats(1.0, 1e7),
    per_instance=st.floats(1.0, 1e6),
    headroom=st.floats(0.05, 1.0),
    sharing=st.floats(0, 1),
)
def test_the_match_is_the_smallest_count_that_covers_the_demand(
    consumed: float, per_instance: float, headroom: float, sharing: float
) -> None:
    """Also when instances slow down as they get fewer samples (supply still grows with the count)."""

    def at(n: int) -> float:
        return per_instance * n**-sharing if sharing < 0.9 else per_instance

    def covers(n: int) -> bool:
        return n * at(n) * headroom >= consumed * (1 - 1e-9)

    try:
        found = rate.match_rates(consumed * 10.0, 10.0, at, headroom).instances
    except InputError:
        assert not covers(rate.MOST_INSTANCES // 2)
        return
    assert covers(found)
    assert found == 1 or not (found - 1) * at(found - 1) * headroom >= consumed * (1 + 1e-9)


def test_where_samples_in_flight_are_bounded_no_count_may_cover_the_demand() -> None:
    """512 samples of 100 tok/s each, up to 64 an instance: never more than 51,200 tok/s, whatever is asked."""

    def rate_at(n: int) -> float:
        return min(64.0, 512 / n) * 100.0 if n < 512 else 51_200.0 / n

    found = rate.match_rates(75_000.0 * 10, 10.0, rate_at, 0.8)
    assert not found.covers
    assert found.instances == 8  # 8 x 64 samples: from here on supply is the same
    assert rate.match_rates(40_000.0 * 10, 10.0, rate_at, 0.8).covers


def test_a_demand_beyond_any_fleet_is_refused() -> None:
    with pytest.raises(InputError, match="consumes more than"):
        rate.match_rates(1e18, 1.0, lambda n: 1.0, 0.8)
