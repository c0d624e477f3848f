"""Rare events from runs without any: against laws whose answer is known."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from fleetsim.alerts.healthy import (
    MONTH_H,
    Healthy,
    Tail,
    exceeded,
    gumbel,
    healthy_of,
    levels_of,
    most_per_month,
    tail_of,
)


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
    assert np.quantile(exceeded(level, *tail.again()) * MONTH_H, 0.95) >= tail.per_month(level)


def test_a_signal_that_never_moves_raises_no_alarm_above_its_level() -> None:
    tail = tail_of([np.full(1000, 3.0)], 120, 1.0)
    assert tail.per_month(3.0) == 0.0
    assert not exceeded(3.0, *tail.again()).any()
    assert tail.per_month(2.9) == MONTH_H


def test_blocks_without_values_are_left_out() -> None:
    assert len(tail_of([np.full(250, np.nan), np.full(130, 1.0)], 120, 1.0).maxima) == 1
    assert math.isnan(tail_of([np.full(250, np.nan)], 120, 1.0).level(1.0))


def healthy(values: np.ndarray, fleets: list[tuple[float, float]]) -> Healthy:
    """Of one run, evaluated every half minute, in blocks of an hour."""
    mean = float(values.mean())
    return healthy_of([values], tail_of([values], 120, 1.0), 30.0, levels_of(mean, fleets), mean)


def normal(count: int) -> list[tuple[float, float]]:
    """As many fleets, one in each part of a normal law of the level."""
    return [(NormalDist().inv_cdf((k + 0.5) / count), 1.0) for k in range(count)]


def test_a_month_of_a_fleet_in_no_doubt_is_counted() -> None:
    """Values that are high every other time: what comes back within a day is one alarm."""
    found = healthy(np.tile([0.0, 1.0], 60 * 50), [])
    assert found.hours == 50.0
    assert found.per_month(0.5) == pytest.approx(0.5 + MONTH_H / 24.0, rel=0.01)
    assert found.per_month(1.0) == 0.0
    assert found.level(0.01, 0.2) == pytest.approx(1.0, abs=1e-3)


def test_a_fleet_that_is_off_begins_to_fire_once() -> None:
    """A level that never moves, of a fleet whose level is in doubt: how often it fires is how likely it is beyond."""
    found = healthy(np.full(1200, 10.0), normal(2000))
    for sigmas in (1.0, 2.0):
        beyond = 0.5 * math.erfc(sigmas / math.sqrt(2.0))
        assert found.per_month(10.0 + sigmas) == pytest.approx(beyond, rel=0.2)
        from_first, begun = found.each(10.0 + sigmas)
        assert from_first.mean() == pytest.approx(beyond, rel=0.2)
        assert not begun.any()
    level = found.level(0.0228, 10.0)
    assert level == pytest.approx(12.0, abs=0.1)


def test_few_fleets_leave_a_law_wider_and_never_narrower() -> None:
    found = levels_of(0.0, normal(14))
    for sigmas in (1.0, 2.0, 3.0):
        beyond = 0.5 * math.erfc(sigmas / math.sqrt(2.0))
        assert beyond < (found.by > sigmas).mean() < 6.0 * beyond


def test_a_mean_of_few_hours_is_in_doubt_too() -> None:
    assert levels_of(0.0, [], 2.0).by.std() == pytest.approx(2.0, rel=0.05)
    assert not levels_of(0.0, []).by.any()


def test_few_blocks_are_told_wider() -> None:
    tail = Tail(np.array([1.0, 2.0, 3.0]), 1.0, 1.5, 2.0, wider=2.0)
    assert tail.again()[1].mean() > 1.5 * Tail(tail.maxima, 1.0, 1.5, 1.0).again()[1].mean()
