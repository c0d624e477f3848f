"""What moves over a window is told with both its ends; what only scatters is not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.history.history import History
from fleetsim.replay.implied.implied_scenario import implied
from fleetsim.replay.observe.observe import observe
from fleetsim.replay.observe.observed import Observed, Trend
from fleetsim.replay.run import replay
from fleetsim.tell.next_lines import is_command
from tests.replay.histories import START, Fleet, buckets_of, log_of
from tests.replay.test_diagnose import finding, judged, text
from tests.replay.windows import STARVED, window

HOURS = 2.0


def growing(first: float, last: float) -> History:
    """Responses whose mean goes from one number to the other, in 24 intervals of five minutes."""
    rng = np.random.default_rng(7)
    times = START + np.arange(0.0, HOURS * 3600 + 1, 300.0)
    means = np.linspace(first, last, len(times))
    ended = [[rng.gamma(1.0, mean, 400) for mean in means] for _ in range(2)]
    histogram = buckets_of([500.0, 1000.0, 2000.0, 5000.0, 10_000.0], times, ended)
    return Fleet(instances=2, span_s=HOURS * 3600).history(histograms={"output_tokens": histogram})


def log(seconds: list[float], lengths: list[float]) -> Observed:
    time_s = list(START + np.cumsum(seconds))
    return observe(log_of(time_s=time_s, step_s=seconds, wait_s=[0.5 * s for s in seconds], length_mean=lengths))


def test_responses_that_grow_are_told_with_both_ends_and_the_fleet_sized_for_the_end() -> None:
    observed = observe(growing(1000.0, 2000.0))
    found = observed.trend("response_tokens")
    assert found is not None
    assert found.first == pytest.approx(1125, rel=0.08)  # means of quarters, not of the ends
    assert found.last == pytest.approx(1900, rel=0.08)
    (note,) = [n.text for n in observed.notes if "responses grew" in n.text]
    assert "sized for the end: fleetsim replay ... --start 2026-09-21T15:43Z --recommend" in note
    starved = judged(window(**STARVED, trends=observed.trends))
    assert "the fleet is too small since responses grew by" in starved.headline
    assert "responses grew from" in text(finding(starved, "rollout"))


def test_what_is_simulated_of_them_is_the_windows_mean_and_says_so() -> None:
    history = growing(1000.0, 2000.0)
    assumed = [line for line in implied(observe(history), history).assumed if "although responses grew" in line]
    assert len(assumed) == 1
    history = growing(1000.0, 1000.0)
    assert not any("although" in line for line in implied(observe(history), history).assumed)


def test_responses_that_do_not_grow_are_not_told() -> None:
    assert observe(growing(1000.0, 1000.0)).trends == ()
    assert observe(growing(1000.0, 1060.0)).trends == ()


def test_a_run_log_whose_steps_and_responses_grow() -> None:
    n = 100
    observed = log([30.0 + 0.2 * k for k in range(n)], [1200.0 + 8 * k for k in range(n)])
    assert {t.what for t in observed.trends} == {"response_tokens", "step_s"}
    said = text(finding(judged(observed), "rollout"))
    assert "responses grew from 1," in said
    assert "a step takes" in said


def test_a_log_without_engines_is_not_held_against_a_fleet_that_nobody_named() -> None:
    history = log_of(step_s=[30.0] * 40, wait_s=[10.0] * 40, train_s=[18.0] * 40, samples=[512.0] * 40)
    result = replay(history)
    assert result.backtest is None
    assert result.implied is None
    assert result.unsimulated is not None
    assert result.unsimulated.startswith("no engine metrics")
    found = finding(result.verdict, "model")
    assert (found.state, found.title) == ("unknown", "cannot be back-tested: no engine metrics")
    lines = (found.next or "").splitlines()
    assert [is_command(line) for line in lines] == [False, True, False, True]
    assert all("or this log" not in line for line in lines if is_command(line))
    assert "--scenario" in (found.next or "")


def test_a_log_with_a_scenario_is_back_tested() -> None:
    from fleetsim.config.load import load_scenario

    history = log_of(step_s=[30.0] * 40, wait_s=[10.0] * 40, train_s=[18.0] * 40, samples=[512.0] * 40)
    base = load_scenario("async-one-step")
    assert replay(history, base, given={"fleet.instances", "workload"}).backtest is not None


@given(st.floats(min_value=0.0, max_value=0.09), st.integers(min_value=0, max_value=10_000))
def test_less_than_a_tenth_is_no_trend_and_growth_has_the_sign_of_its_ends(by: float, seed: int) -> None:
    noise = np.random.default_rng(seed).normal(0.0, 0.002, 80)
    flat = [30.0 * (1 + by * k / 79) * (1 + e) for k, e in zip(range(80), noise, strict=True)]
    assert log(flat, [1000.0] * 80).trends == ()
    steep = [30.0 * (1 - 0.5 * k / 79) * (1 + e) for k, e in zip(range(80), noise, strict=True)]
    (found,) = log(steep, [1000.0] * 80).trends
    assert isinstance(found, Trend)
    assert found.growth == pytest.approx(found.last / found.first - 1)
    assert found.growth < -0.1
