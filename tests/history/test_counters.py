"""Growth of running totals: what the scrapes can know, and never more."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.history.counters import growth, growth_between, increments, mended, no_total, restarts

NAN = np.nan


def arr(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)


# growth per interval, and whether the process restarted in it (growth is then counted from 0)
steps = st.lists(st.tuples(st.integers(0, 10_000), st.booleans()), min_size=1, max_size=60)


def exposed(first: int, moves: list[tuple[int, bool]]) -> np.ndarray:
    shown = [float(first)]
    for grown, restarted in moves:
        shown.append(grown if restarted else shown[-1] + grown)
    return np.array(shown)


def knowable(values: np.ndarray) -> list[float]:
    """The definition, one scrape at a time."""
    out = []
    for old, new in itertools.pairwise(values):
        out.append(new if new < old else new - old)
    return out


@given(st.integers(0, 10_000), steps)
def test_without_holes_the_increments_are_what_the_scrapes_can_know(first: int, moves: list[tuple[int, bool]]) -> None:
    values = exposed(first, moves)
    assert increments(values, 15.0).tolist() == knowable(values)
    assert growth(values) == sum(knowable(values))
    hidden = sum(1 for old, (grown, again) in zip(values, moves, strict=False) if again and grown >= old)
    assert restarts(values) == sum(again for _, again in moves) - hidden


@given(st.integers(0, 10_000), steps, st.integers(0, 1_000_000))
def test_where_the_total_starts_does_not_matter_without_restarts(
    first: int, moves: list[tuple[int, bool]], shift: int
) -> None:
    values = exposed(first, [(grown, False) for grown, _ in moves])
    assert np.array_equal(increments(values + shift, 15.0), increments(values, 15.0))
    assert restarts(values + shift) == 0


@given(
    st.lists(st.lists(st.one_of(st.floats(0, 1e12), st.just(NAN)), min_size=7, max_size=7), min_size=1, max_size=5),
    st.sampled_from([1.0, 15.0, 60.0, 400.0]),
)
def test_increments_are_never_negative_and_rows_do_not_touch_each_other(rows: list[list[float]], step_s: float) -> None:
    values = np.array(rows)
    grown = increments(values, step_s)
    assert grown.shape == (len(rows), 6)
    assert not (grown < 0).any()
    assert not (mended(values)[np.isfinite(values)] < 0).any()
    for row, alone in zip(rows, grown, strict=True):
        assert np.array_equal(increments(np.array(row), step_s), alone, equal_nan=True)


@given(st.integers(0, 1000), steps, st.data())
def test_holes_without_restart_keep_the_total(first: int, moves: list[tuple[int, bool]], data: st.DataObject) -> None:
    values = exposed(first, [(grown, False) for grown, _ in moves])
    lost = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    lost[0] = lost[-1] = False
    holed = np.where(lost, NAN, values)
    assert increments(holed, 1.0).sum() == pytest.approx(values[-1] - values[0], rel=1e-12)
    assert growth(holed) == values[-1] - values[0]
    assert restarts(holed) == 0


@given(st.integers(0, 1000), steps, st.data())
def test_growth_of_adjoining_ranges_adds_up(first: int, moves: list[tuple[int, bool]], data: st.DataObject) -> None:
    values = exposed(first, moves)
    times = 1000.0 + 15.0 * np.arange(len(values))
    cut = data.draw(st.floats(times[0] + 0.1, times[-1] - 0.1))
    (whole,) = growth_between(times, values, times[[0, -1]])
    parts = growth_between(times, values, np.array([times[0], cut, times[-1]]))
    assert whole == growth(values)
    assert np.nansum(parts) == pytest.approx(whole, rel=1e-9, abs=1e-9)


def test_a_short_hole_is_spread_evenly_and_a_long_one_is_a_gap() -> None:
    values = arr(10, 20, NAN, NAN, 50, 60)
    assert increments(values, 15.0).tolist() == [10, 10, 10, 10, 10]
    gap = increments(values, 150.0)  # 450 s
    assert gap[[0, 4]].tolist() == [10, 10]
    assert np.isnan(gap[1:4]).all()
    assert growth(values) == 50  # what grew in the gap is known, only not when


def test_a_restart_inside_a_hole_is_a_gap_of_known_growth() -> None:
    values = arr(100, 110, NAN, 7, 9)
    assert np.array_equal(increments(values, 15.0), arr(10, NAN, NAN, 2), equal_nan=True)
    assert restarts(values) == 1
    assert growth(values) == 10 + 7 + 2


def test_before_the_first_and_after_the_last_sample_there_is_nothing() -> None:
    values = np.array([[NAN, 5, 8, NAN], [NAN, NAN, NAN, NAN], [NAN, 3, NAN, NAN]])
    assert np.array_equal(increments(values, 15.0), np.array([[NAN, 3, NAN], [NAN] * 3, [NAN] * 3]), equal_nan=True)
    assert np.array_equal(growth(values), arr(3, NAN, NAN), equal_nan=True)
    between = [growth_between(arr(0, 15, 30, 45), row, arr(0, 45))[0] for row in values]
    assert np.array_equal(between, arr(3, NAN, NAN), equal_nan=True)


def test_neighbours_are_never_a_gap_however_coarse_the_grid() -> None:
    assert increments(arr(0, 4, 6), 3600.0).tolist() == [4, 2]


def test_infinite_values_are_no_samples() -> None:
    assert increments(arr(0, np.inf, 6), 15.0).tolist() == [3, 3]


@given(st.integers(0, 10_000), st.lists(st.integers(1, 10_000), min_size=6, max_size=60), st.integers(6, 20))
def test_a_total_that_restarts_now_and_then_is_one(first: int, grown: list[int], every: int) -> None:
    assert no_total(exposed(first, [(more, k % every == every - 1) for k, more in enumerate(grown)])) is None


@given(st.integers(12, 200), st.integers(0, 10_000))
def test_a_rate_is_no_total(size: int, seed: int) -> None:
    rate = 4000 * (1 + 0.1 * np.random.default_rng(seed).standard_normal(8 * size))
    found = no_total(rate)
    assert found is not None
    assert found[0] <= found[1] < len(rate)


@given(st.integers(40, 200), st.integers(0, 10_000))
def test_engines_in_turn_behind_one_address_are_no_total(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    totals = rng.uniform(0, 1e7, 3)[:, None] + np.cumsum(rng.uniform(0, 5e4, (3, size)), axis=1)
    assert no_total(totals[np.arange(size) % 3, np.arange(size)]) is not None
