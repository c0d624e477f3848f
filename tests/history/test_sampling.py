"""When to read: a grid that meets each scrape of each target once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.errors import InputError
from fleetsim.history.grid import MAX_GRID, Scrapes, offset_of, sampling

START = 1_795_000_003.0


@given(
    st.lists(st.integers(0, 14_999), min_size=1, max_size=20), st.sampled_from([5.0, 15.0, 60.0]), st.integers(0, 59)
)
def test_each_interval_holds_one_scrape_of_each_target(phases_ms: list[int], interval_s: float, late_s: int) -> None:
    start = START + late_s
    targets = [np.round(START - 600 + (ms / 1000) % interval_s + interval_s * np.arange(200), 3) for ms in phases_ms]
    rhythm = Scrapes(interval_s, interval_s, offset_of(targets, interval_s))
    when = sampling(start, start + 60 * interval_s, None, rhythm)
    assert when.step_s == pytest.approx(interval_s, abs=2e-3)
    assert start - 1e-3 <= when.times[0] <= start + interval_s
    back = when.lookback_s(rhythm)
    for at in targets:
        held = [int(((at <= t + 1e-6) & (at > t - back - 1e-6)).sum()) for t in when.times]
        assert set(held) == {1}


@given(st.lists(st.floats(0, 15), min_size=1, max_size=6), st.floats(0.0, 0.05), st.integers(0, 2**32 - 1))
def test_jitter_moves_no_scrape_over_the_edge(phases: list[float], jitter: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    targets = [START + p + 15.0 * np.arange(100) + rng.uniform(-jitter, jitter, 100) for p in phases]
    offset = offset_of(targets, 15.0)
    ordered = np.sort(np.mod(np.add(phases, START), 15.0))
    free = np.diff(np.append(ordered, ordered[0] + 15.0)).max()
    if free > 6 * jitter + 0.01:  # else the targets fill the interval, and an edge must fall among some of them
        for at in targets:
            assert np.ptp(np.mod(offset - at, 15.0)) <= 2 * jitter + 1e-5  # none now fresh, now a whole interval old


def test_a_window_too_long_for_its_step_is_read_coarser_in_whole_scrapes() -> None:
    when = sampling(START, START + 30 * 86_400, None, Scrapes(15.0, 15.0, 0.0))
    assert len(when.times) <= MAX_GRID
    assert when.step_s % 15 == 0
    assert [note.kind for note in when.notes] == ["truncated"]
    with pytest.raises(InputError, match="at least"):
        sampling(START, START + 30 * 86_400, 15.0, Scrapes(15.0, 15.0, 0.0))


@given(st.floats(20, 90_000), st.sampled_from([1.0, 15.0, 60.0, 600.0]))
def test_the_histograms_grid_is_part_of_the_other_and_ends_with_it(span_s: float, step_s: float) -> None:
    try:
        when = sampling(START, START + span_s, step_s, Scrapes(step_s, step_s, 0.0))
    except InputError:
        assert span_s < 3 * step_s or span_s / step_s > MAX_GRID
        return
    assert set(when.coarse) <= set(when.times)
    assert when.coarse[-1] == when.times[-1]
    assert len(when.coarse) >= min(5, len(when.times))
    gaps = np.diff(when.coarse)
    assert np.allclose(gaps, gaps[0], atol=2e-3)


def test_an_unseen_rhythm_is_assumed_and_said() -> None:
    when = sampling(START, START + 3600, None, None)
    assert when.step_s == 15.0
    assert "assumed" in when.notes[0].text
