"""The damping rule: states it again as properties, and holds it against random wishes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.errors import InputError
from fleetsim.policies.scaling import Damping, Held, damped

RULE = Damping(up_after=3, down_after=6, down_share=0.05, cool_down_s=300.0)
EVERY = 60.0


def follow(wishes: list[int], current: int, held: Held, rule: Damping = RULE) -> list[Held]:
    """The held states after each wish, a minute apart."""
    result = []
    for k, wanted in enumerate(wishes):
        held = damped(held, wanted, current, k * EVERY, rule)
        result.append(held)
    return result


def test_up_after_three_in_a_row_to_the_least_of_them() -> None:
    assert [h.instances for h in follow([12, 10, 11], 8, Held(8))] == [8, 8, 10]


def test_down_after_six_in_a_row_to_the_most_of_them() -> None:
    assert [h.instances for h in follow([5, 4, 6, 5, 5, 5], 8, Held(8))] == [8, 8, 8, 8, 8, 6]


def test_one_that_agrees_starts_the_count_anew() -> None:
    assert [h.instances for h in follow([9, 9, 8, 9, 9], 8, Held(8))] == [8] * 5


def test_one_that_points_the_other_way_does_too() -> None:
    assert [h.instances for h in follow([9, 9, 6, 9, 9, 9], 8, Held(8))] == [8, 8, 8, 8, 8, 9]


def test_a_large_fleet_is_not_shrunk_by_an_instance() -> None:
    assert follow([59] * 20, 60, Held(60))[-1].instances == 60  # 5 % of 60 is 3
    assert follow([57] * 6, 60, Held(60))[-1].instances == 57


def test_no_second_change_before_the_cool_down_is_over() -> None:
    states = follow([9] * 3 + [11] * 6, 8, Held(8))
    assert [h.instances for h in states] == [8, 8, 9, 9, 9, 9, 9, 11, 11]  # 300 s after the change at 120 s


def test_a_start_says_nothing_for_three_evaluations_and_then_holds_still() -> None:
    assert [h.instances for h in follow([6, 6, 6, 6], 8, Held())] == [None, None, 8, 8]


def test_a_start_while_an_instance_is_lost_does_not_recommend_the_loss() -> None:
    assert [h.instances for h in follow([8, 8, 8], 7, Held())] == [None, None, 8]


counts = st.integers(1, 40)
rules = st.builds(Damping, st.integers(1, 5), st.integers(1, 12), st.sampled_from([0.0, 0.05, 0.3]), st.just(300.0))


@given(st.lists(counts, min_size=1, max_size=80), counts, st.none() | counts, rules)
def test_whatever_is_wished(wishes: list[int], current: int, start: int | None, rule: Damping) -> None:
    states = [Held(start), *follow(wishes, current, Held(start), rule)]
    moves = []
    for k, (before, after) in enumerate(pairwise(states)):
        if before.instances is None or before.instances == after.instances:
            continue
        was, now = before.instances, after.instances
        assert now is not None
        moves.append(k * EVERY)
        last = wishes[max(0, k + 1 - (rule.up_after if now > was else rule.down_after)) : k + 1]
        assert len(last) == (rule.up_after if now > was else rule.down_after)
        # Everybody in the row wanted to go at least as far.
        assert all(w >= now for w in last) if now > was else all(w <= now for w in last)
        if now < was:
            assert was - now >= rule.margin_down(was)
    assert all(b - a >= rule.cool_down_s for a, b in pairwise(moves))


@given(counts, st.integers(0, 1), rules)
def test_a_wish_that_swings_around_the_present_count_moves_nothing(n: int, phase: int, rule: Damping) -> None:
    wishes = [n + 1 if (k + phase) % 2 else max(1, n - 1) for k in range(60)]
    slow = Damping(max(2, rule.up_after), max(2, rule.down_after), rule.down_share, rule.cool_down_s)
    assert {h.instances for h in follow(wishes, n, Held(n), slow)} == {n}


@given(counts, counts, rules)
def test_a_steady_wish_is_met_in_the_end(present: int, wish: int, rule: Damping) -> None:
    end = follow([wish] * 40, present, Held(present), rule)[-1].instances
    assert end == wish or (wish < present and present - wish < rule.margin_down(present) and end == present)


@pytest.mark.parametrize(
    "rule", [{"up_after": 0}, {"down_after": -1}, {"down_share": 1.0}, {"cool_down_s": float("nan")}]
)
def test_senseless_rules_are_refused(rule: dict[str, float]) -> None:
    with pytest.raises(InputError):
        Damping(**rule)  # type: ignore[arg-type]
