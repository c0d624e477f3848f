"""Ratios and differences of two means: their intervals hold the truth as often as they say, and agree."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.contrast import Contrast, Mean, holm, mean_of, paired, quantile, unpaired

RUNS = 2000
# Two-sided 99.99 % range of a hit rate of 95 % over so many runs.
LOWEST, HIGHEST = 0.95 - 3.9 * math.sqrt(0.95 * 0.05 / RUNS), 0.95 + 3.9 * math.sqrt(0.95 * 0.05 / RUNS)


def drawn(rng: np.random.Generator, n: int, m: int, ratio: float, alike: float) -> tuple[list[float], list[float]]:
    """n values of A and m of B around 10 and 10 ratio; the first ones share a part of their noise."""
    common = rng.standard_normal(max(n, m))
    a = 10 * (1 + 0.1 * (math.sqrt(alike) * common[:n] + math.sqrt(1 - alike) * rng.standard_normal(n)))
    b = 10 * ratio * (1 + 0.2 * (math.sqrt(alike) * common[:m] + math.sqrt(1 - alike) * rng.standard_normal(m)))
    return a.tolist(), b.tolist()


@pytest.mark.parts
@pytest.mark.parametrize(
    ("n", "m", "ratio", "alike"), [(5, 5, 1.1, 0.9), (10, 10, 1.0, 0.99), (5, 12, 0.7, 0.0), (8, 4, 1.3, 0.0)]
)
def test_the_intervals_hold_the_truth(n: int, m: int, ratio: float, alike: float) -> None:
    rng = np.random.default_rng(1)
    in_ratio = in_difference = 0
    for _ in range(RUNS):
        a, b = drawn(rng, n, m, ratio, alike)
        contrast = paired(a, b) if alike else unpaired(mean_of(a), mean_of(b))
        found, difference = contrast.ratio(), contrast.difference()
        assert found is not None
        in_ratio += found.ci_low <= ratio <= found.ci_high
        in_difference += difference.ci_low <= 10 * (ratio - 1) <= difference.ci_high
    assert LOWEST <= in_ratio / RUNS <= HIGHEST
    assert LOWEST <= in_difference / RUNS <= HIGHEST


means = st.builds(Mean, st.floats(5, 50), st.floats(0.01, 1), st.integers(2, 30).map(float))
values = st.lists(st.tuples(st.floats(50, 100), st.floats(50, 100)), min_size=3, max_size=12)


@given(st.one_of(st.tuples(means, means), values.map(lambda v: tuple(zip(*v, strict=True)))))
def test_ratio_and_difference_tell_the_same(sides: tuple[Mean, Mean]) -> None:
    contrast = of(sides)
    ratio, difference = contrast.ratio(), contrast.difference()
    if ratio is None:
        return
    p = 2 * min(contrast.beyond(1.0, 0.0, True), contrast.beyond(1.0, 0.0, False))
    if abs(p - 0.05) < 1e-6:
        return  # an edge
    assert (ratio.ci_low <= 1 <= ratio.ci_high) == (difference.ci_low <= 0 <= difference.ci_high) == (p > 0.05)


@given(st.one_of(st.tuples(means, means), values.map(lambda v: tuple(zip(*v, strict=True)))))
def test_swapping_the_sides_inverts_the_ratio(sides: tuple[Mean, Mean]) -> None:
    there, back = of(sides).ratio(), of(sides[::-1]).ratio()
    if there is None or back is None:
        return
    assert there.mean * back.mean == pytest.approx(1.0)
    assert there.ci_low * back.ci_high == pytest.approx(1.0, rel=1e-6)
    assert there.ci_high * back.ci_low == pytest.approx(1.0, rel=1e-6)


def of(sides: tuple) -> Contrast:
    return unpaired(*sides) if isinstance(sides[0], Mean) else paired(*sides)


@given(st.lists(st.floats(0.1, 1e6), min_size=2, max_size=8), st.floats(0.5, 2.0))
def test_a_multiple_has_no_interval(a: list[float], factor: float) -> None:
    found = paired(a, [factor * x for x in a]).ratio()
    assert found is not None
    assert found.mean == found.ci_low == found.ci_high == pytest.approx(factor)


def test_no_ratio_to_what_is_not_told_from_nothing() -> None:
    assert paired([0.0, 0.0, 0.0], [1.0, 2.0, 3.0]).ratio() is None
    assert unpaired(Mean(0.1, 0.2, 4.0), Mean(1.0, 0.1, 4.0)).ratio() is None
    assert paired([0.0, 0.0, 0.0], [1.0, 1.1, 1.2]).beyond(1.01, 0.0, True) < 0.01


def test_last_bits_are_no_difference() -> None:
    contrast = paired([0.1, 0.2, 0.3], [0.1 + 1e-12, 0.2 + 1e-12, 0.3 + 1e-12])
    assert contrast.difference_error == 0.0
    assert contrast.b.value == contrast.a.value


def test_students_quantile() -> None:
    assert quantile(4) == pytest.approx(2.7764, abs=1e-4)
    assert quantile(1e9) == pytest.approx(1.95996, abs=1e-4)


def test_holm_of_the_textbook() -> None:
    """Smallest times 4, next times 3...; never below the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.9, 0.9]) == [1.0, 1.0]


def test_holm_keeps_the_chance_of_any_below_five_percent() -> None:
    rng = np.random.default_rng(2)
    any_ = np.mean([min(holm(rng.random(20).tolist())) < 0.05 for _ in range(RUNS)])
    assert any_ < 0.05 + 3.9 * math.sqrt(0.05 * 0.95 / RUNS)
