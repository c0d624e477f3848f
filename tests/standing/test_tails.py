"""Rare events from runs without any: against laws whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fleetsim.alerts.healthy import MONTH_H, Healthy, Tail, gumbel, healthy_of, levels_of, most_per_month, tail_of


def test_none_seen_is_the_rule_of_three() -> None:
    assert most_per_month(0, 168.0) == pytest.approx(3.0 / 168.0 * MONTH_H, rel=0.01)
    assert most_per_month(2, 168.0) > most_per_month(0, 168.0)


def test_a_gumbel_law_is_found_again() -> None:
    draws = np.random.default_rng(1).gumbel(5.0, 2.0, (1, 20_000))
    place, scale = gumbel(draws)
    assert place[0] == pytest.approx(5.0, abs=0.1)
    assert scale[0] == pytest.approx(2.0, rel=0.03)


def test_level_and_rate_are_inverse_and_right_for_exponential_values() -> None:
    random = np.random.default_rng(2)
    run = random.exponential(1.0, 240 * 120)
    tail = tail_of([run], 120, 1.0)
    level = tail.level(1.0)
    assert tail.per_month(level) == pytest.approx(1.0, rel=1e-6)
    truth = math.log(120 * MONTH_H)  # of 120 values an hour, one a month is above
    assert level == pytest.approx(truth, rel=0.1)
    assert np.quantile([other.per_month(level) for other in tail.again()], 0.95) >= tail.per_month(level)


def test_a_signal_that_never_moves_raises_no_alarm_above_its_level() -> None:
    tail = tail_of([np.full(1000, 3.0)], 120, 1.0)
    assert tail.per_month(3.0) == 0.0
    assert all(other.per_month(3.0) == 0.0 for other in tail.again())
    assert tail.per_month(2.9) == MONTH_H


def test_blocks_without_values_are_left_out() -> None:
    assert len(tail_of([np.full(250, np.nan), np.full(130, 1.0)], 120, 1.0).maxima) == 1
    assert math.isnan(tail_of([np.full(250, np.nan)], 120, 1.0).level(1.0))


def healthy(values: np.ndarray, corners: list[tuple[dict[str, float], float, float]]) -> Healthy:
    """Of one run, evaluated every half minute, in blocks of an hour."""
    return healthy_of(
        [values], tail_of([values], 120, 1.0), 30.0, levels_of(float(values.mean()), corners, 2.0), float(values.mean())
    )


def test_a_month_of_a_fleet_in_no_doubt_is_counted() -> None:
    """Values that are high every other time: what comes back within a day is one alarm."""
    found = healthy(np.tile([0.0, 1.0], 60 * 50), [])
    assert found.hours == 50.0
    assert found.per_month(0.5) == pytest.approx(0.5 + MONTH_H / 24.0, rel=0.01)
    assert found.per_month(1.0) == 0.0
    assert found.level(0.01, 0.2) == pytest.approx(1.0, abs=1e-3)


def test_a_fleet_that_is_off_begins_to_fire_once() -> None:
    """A level that never moves, of a fleet whose level is in doubt: how often it fires is how likely it is beyond."""
    found = healthy(np.full(1200, 10.0), [({"trainer": side}, side * 2.0, 1.0) for side in (-1.0, 1.0)])
    for sigmas in (1.0, 2.0, 3.0):
        beyond = 0.5 * math.erfc(sigmas / math.sqrt(2.0))
        assert found.per_month(10.0 + sigmas) == pytest.approx(beyond, rel=0.2)
    level = found.level(0.0228, 10.0)
    assert level == pytest.approx(12.0, abs=0.1)


def test_two_inputs_together_do_more_than_each() -> None:
    """A signal that moves only where both are off, as a trainer waits only where rollout is slow and it is fast."""
    both = {"engine": 1.0, "trainer": -1.0}
    found = levels_of(0.0, [({"engine": 1.0}, 0.0, 1.0), ({"trainer": -1.0}, 0.0, 1.0), (both, 4.0, 1.0)], 2.0)
    drawn = np.random.default_rng(5).normal(size=(2, 200_000)) / 2.0
    truth = 4.0 * np.maximum(0.0, drawn[0]) * np.maximum(0.0, -drawn[1])
    for level in (0.5, 2.0):
        assert np.dot(found.weights, found.by > level) == pytest.approx((truth > level).mean(), rel=0.15)


def test_a_level_that_is_highest_halfway_is_followed() -> None:
    """Waste grows as the trainer gets slower, until nothing is left to waste."""
    corners = [({"trainer": 0.5}, 3.0, 1.0), ({"trainer": 1.0}, -1.0, 1.0)]
    found = levels_of(10.0, corners, 2.0)
    assert found.by.max() == pytest.approx(3.0, abs=0.05)
    truth = 0.5 * (math.erf(1.45 / math.sqrt(2.0)) - math.erf(0.4 / math.sqrt(2.0)))  # from 0.2 to 0.725 of the end
    assert np.dot(found.weights, found.by > 1.2) == pytest.approx(truth, rel=0.15)


def test_few_blocks_are_told_wider() -> None:
    tail = Tail(np.array([1.0, 2.0, 3.0]), 1.0, 1.5, 2.0, wider=2.0)
    assert np.mean([other.scale for other in tail.again()]) > 1.5 * np.mean(
        [other.scale for other in Tail(tail.maxima, 1.0, 1.5, 1.0).again()]
    )
