from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.replay.observe.observe import observe
from fleetsim.replay.observe.observed import Observed
from tests.replay.histories import START, Fleet, buckets_of


def assert_found(seen: Observed, truth: list[tuple[float, float]], within: float) -> None:
    assert seen.pauses is not None
    found = [(p.start_s - START, p.end_s - START) for p in seen.pauses.each]
    assert len(found) == len(truth), (found, truth)
    for (a, b), (c, d) in zip(found, truth, strict=True):
        assert abs(a - c) <= within, ((a, b), (c, d))
        assert abs(b - d) <= within, ((a, b), (c, d))


@settings(deadline=None, max_examples=30)
@given(
    instances=st.integers(1, 12),
    step_s=st.sampled_from([5.0, 15.0, 30.0]),
    first=st.floats(200, 260),
    long=st.floats(2.2, 8),  # scrape intervals
    every=st.floats(14, 30),
    noise=st.sampled_from([0.0, 0.02]),
    phased=st.booleans(),
    empty=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_pauses_are_recovered_within_one_scrape_interval(
    instances: int, step_s: float, first: float, long: float, every: float, noise: float, phased: bool, empty: bool,
    seed: int,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    # Engines that were emptied and are scraped at different times stand still together for a whole interval from three
    # intervals on: one for the interval, one for where it begins, one for when each is scraped.
    long = max(long, 3.05) if phased and empty else long
    starts = np.arange(first, 3600 - 12 * step_s, every * step_s)
    truth = tuple((float(s), float(s + long * step_s)) for s in starts)
    phases = tuple(rng.uniform(0, step_s * 0.999, instances)) if phased else ()
    fleet = Fleet(instances, step_s=step_s, pauses=truth, noise=noise, phases=phases, empty=empty, seed=seed)
    seen = observe(fleet.history())
    assert_found(seen, list(truth), step_s * 1.1 if noise else step_s)
    assert seen.pauses is not None
    if phases:
        assert seen.pauses.mean_s == pytest.approx(long * step_s, abs=0.5 * step_s)
    else:
        assert seen.pauses.mean_s == pytest.approx(long * step_s, abs=0.15 * step_s)
    if len(truth) >= 4:
        assert seen.pauses.period_s == pytest.approx(every * step_s, rel=0.05)
    if long > 3.2:
        assert {p.empty for p in seen.pauses.each} == {empty}


def test_several_pauses_in_a_row_stay_apart() -> None:
    truth = [(600.0, 640.0), (652.0, 700.0), (745.0, 800.0)]
    seen = observe(Fleet(4, pauses=tuple(truth)).history())
    assert_found(seen, truth, 15)
    assert seen.pauses is not None
    assert sum(p.seconds for p in seen.pauses.each) == pytest.approx(40 + 48 + 55, abs=3)


@pytest.mark.parametrize("noise", [0.0, 0.01])
@pytest.mark.parametrize("instances", [1, 16])
@pytest.mark.parametrize("long", [3.0, 6.0, 11.0])
def test_pauses_shorter_than_a_scrape_show_as_dips_with_a_rhythm(long: float, instances: int, noise: float) -> None:
    truth = tuple((s, s + long) for s in np.arange(100.0, 3500.0, 187.0))
    seen = observe(Fleet(instances, pauses=truth, noise=noise).history())
    assert_found(seen, list(truth), 15)
    assert seen.pauses is not None
    assert seen.pauses.share == pytest.approx(long * len(truth) / 3600, rel=0.12)
    assert seen.pauses.period_s == pytest.approx(187, abs=15)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("instances", [1, 4, 64])
def test_noise_is_no_pause(seed: int, instances: int) -> None:
    seen = observe(Fleet(instances, noise=0.05, span_s=6 * 3600, seed=seed).history())
    assert seen.pauses is not None
    assert seen.pauses.each == ()
    assert seen.pauses.share == 0
    assert seen.pauses.period_s is None


def test_a_slow_sag_of_the_rate_is_no_pause() -> None:
    history = Fleet(8).history()
    times = history.times - START
    rate = 4000 * (1 - 0.3 * ((times % 600) / 600))
    tokens = np.tile(np.cumsum(rate) * 15, (8, 1))
    seen = observe(_with(history, generation_tokens=tokens))
    assert seen.pauses is not None
    assert seen.pauses.each == ()


def test_one_instance_that_stops_is_no_pause_of_the_fleet() -> None:
    history = Fleet(4).history()
    tokens = history.values["generation_tokens"].copy()
    tokens[0, 100:140] = tokens[0, 100]
    tokens[0, 140:] -= tokens[0, 140] - tokens[0, 100]
    seen = observe(_with(history, generation_tokens=tokens))
    assert seen.pauses is not None
    assert seen.pauses.each == ()


def test_a_scrape_that_repeats_the_last_value_is_no_pause() -> None:
    history = Fleet(1).history()
    tokens = history.values["generation_tokens"].copy()
    tokens[0, 50] = tokens[0, 49]
    tokens[0, 120] = tokens[0, 119]
    seen = observe(_with(history, generation_tokens=tokens))
    assert seen.pauses is not None
    assert seen.pauses.each == ()


@settings(deadline=None, max_examples=15)
@given(instances=st.integers(2, 12), seed=st.integers(0, 1000))
def test_a_tenth_of_the_samples_missing_moves_pauses_by_less_than_two_intervals(instances: int, seed: int) -> None:
    truth = tuple((s, s + 70.0) for s in (500.0, 1200.0, 1900.0, 2600.0))
    history = Fleet(instances, pauses=truth).history()
    rng = np.random.default_rng(seed)
    tokens = np.where(
        rng.random(history.values["generation_tokens"].shape) < 0.1, np.nan, history.values["generation_tokens"]
    )
    seen = observe(_with(history, generation_tokens=tokens))
    assert_found(seen, list(truth), 30)


def test_sleep_names_the_pauses_it_overlaps() -> None:
    truth = tuple((s, s + 90.0) for s in (500.0, 1100.0, 1700.0, 2300.0))
    history = Fleet(4, pauses=truth, empty=True).history()
    times = history.times - START
    asleep = np.zeros_like(history.values["running"])
    for a, b in truth:
        asleep[:, (times >= a) & (times < b)] = 1
    seen = observe(_with(history, asleep=asleep))
    assert_found(seen, list(truth), 15)
    assert seen.pauses is not None
    assert {p.source for p in seen.pauses.each} == {"sleep"}
    assert seen.placement == "colocated"


def _counted(history, seconds: float, updates: int):  # type: ignore[no-untyped-def]
    times = START + np.array([0.0, 1800.0, 3600.0])
    each = [np.array([]), np.full(updates // 2, seconds), np.full(updates - updates // 2, seconds)]
    buckets = buckets_of([1.0, 10.0, 100.0], times, [each] * len(history.instances))
    return _with(history, histograms={"weight_update_s": buckets})


def test_counted_weight_updates_give_the_share_exactly() -> None:
    truth = tuple((s, s + 40.0) for s in np.arange(200.0, 3400.0, 300.0))
    seen = observe(_counted(Fleet(4, pauses=truth, phases=(0.0, 4.0, 9.0, 14.0)).history(), 40.0, len(truth)))
    assert seen.pauses is not None
    assert seen.pauses.share == pytest.approx(40 * len(truth) / 3600, rel=1e-9)
    assert seen.pauses.mean_s == pytest.approx(40)
    assert {p.source for p in seen.pauses.each} == {"counter"}


def test_counted_updates_that_nobody_can_see_have_a_share_and_no_times() -> None:
    seen = observe(_counted(Fleet(4, noise=0.05).history(), 0.5, 10))
    assert seen.pauses is not None
    assert seen.pauses.each == ()
    assert seen.pauses.share == pytest.approx(5 / 3600)
    assert seen.pauses.mean_s == pytest.approx(0.5)
    assert any("too short" in n.text for n in seen.notes)


def test_a_counter_that_counts_less_than_the_silence_does_not_hide_it() -> None:
    truth = tuple((s, s + 80.0) for s in np.arange(200.0, 3400.0, 400.0))
    seen = observe(_counted(Fleet(4, pauses=truth).history(), 5.0, len(truth)))
    assert seen.pauses is not None
    assert seen.pauses.share == pytest.approx(80 * len(truth) / 3600, rel=0.02)
    assert any("silence counts" in n.text for n in seen.notes)


def _with(history, histograms=None, **values):  # type: ignore[no-untyped-def]
    from fleetsim.records import replace

    return replace(history, values={**history.values, **values}, histograms=histograms or history.histograms)
