"""Rare events from runs without any: against laws whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fleetsim.alerts.rate import MONTH_H, gumbel, most_per_month, tail_of


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
    assert tail.per_month_upper(level) >= tail.per_month(level)


def test_a_signal_that_never_moves_raises_no_alarm_above_its_level() -> None:
    tail = tail_of([np.full(1000, 3.0)], 120, 1.0)
    assert (tail.per_month(3.0), tail.per_month_upper(3.0)) == (0.0, 0.0)
    assert tail.per_month(2.9) == MONTH_H


def test_blocks_without_values_are_left_out() -> None:
    assert len(tail_of([np.full(250, np.nan), np.full(130, 1.0)], 120, 1.0).maxima) == 1
    assert math.isnan(tail_of([np.full(250, np.nan)], 120, 1.0).level(1.0))
