"""The fit gives back the coefficients of an engine that is known."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from fleetsim.calibrate.fit.design import Observations, observations_of
from fleetsim.calibrate.fit.fit import Fit, Prior, fit
from fleetsim.calibrate.loads import Load
from fleetsim.calibrate.order import loads_in_order
from fleetsim.engine import StepTime
from fleetsim.errors import InputError
from tests.calibrate.fake_engine import CALM, ROUGH, SMALL, TRUTH, Weather, measured

LINEAR = ("per_seq_s", "per_kv_token_s", "per_attn_pair_s")
Row = tuple[float, float, float, float]


@cache
def sweeps() -> tuple[Load, ...]:
    return tuple(load for load in loads_in_order(SMALL, quick=True) if not load.kept_out and not load.optional)


def observed(folder: Path, weather: Weather = CALM, seed: int = 0, step_time: StepTime = TRUTH) -> Observations:
    path = folder / f"{seed}.raw.jsonl"
    return observations_of(measured(path, list(sweeps()), step_time=step_time, weather=weather, seed=seed))


def chunk(tokens: float, after: float = 0.0) -> Row:
    return 0.0, 0.0, tokens, tokens * after + tokens * (tokens + 1) / 2


def grid() -> list[list[Row]]:
    """Loads of iterations, without an engine: decodes by batch size and context, prompts, chunks, both."""
    loads: list[list[Row]] = []
    sizes = (1, 2, 3, 6, 12, 24, 48, 96, 192, 384)
    loads += [[(b, b * (c + i), 0.0, 0.0) for i in range(6)] for c in (64, 512, 4096) for b in sizes]
    loads += [[chunk(p)] * 3 for p in (16, 48, 96, 192, 384, 768, 1536, 3072)]
    loads += [[chunk(512, after) for after in (0, 512, 1024, 1536)]]
    loads += [[(b, b * 300.0, *chunk(p)[2:])] * 3 for b in (8, 64, 256) for p in (64, 512, 2048)]
    return loads


def of_loads(loads: list[list[Row]], seconds: Callable[[Row], float]) -> Observations:
    rows = np.array([row for load in loads for row in load])
    segment = np.repeat(np.arange(len(loads), dtype=np.int32), [len(load) for load in loads])
    n = len(rows)
    taken = np.array([seconds(tuple(row)) for row in rows])
    return Observations(taken, segment, np.zeros(n), np.arange(n), np.pad(rows, ((0, 0), (0, 1))))


def seconds_of(step_time: StepTime) -> Callable[[Row], float]:
    def seconds(row: Row) -> float:
        b, kv, p, pairs = row
        curve = float(np.interp(b + p, step_time.knots_tokens, step_time.knots_s))
        linear = step_time.per_seq_s * b + step_time.per_prefill_token_s * p
        return curve + linear + step_time.per_kv_token_s * kv + step_time.per_attn_pair_s * pairs

    return seconds


def test_without_noise_every_coefficient_and_f_within_one_per_cent(tmp_path: Path) -> None:
    found = fit(observed(tmp_path)).step_time
    for name in LINEAR:
        assert getattr(found, name) == pytest.approx(getattr(TRUTH, name), rel=0.01)
    assert found.per_prefill_token_s == 0.0
    tokens = np.arange(1, 2049)
    np.testing.assert_allclose(found.table(2048)[tokens], TRUTH.table(2048)[tokens], rtol=0.01)


def test_without_noise_the_knots_are_where_the_truth_bends(tmp_path: Path) -> None:
    assert fit(observed(tmp_path)).step_time.knots_tokens == TRUTH.knots_tokens


def test_with_noise_and_outliers_the_truth_lies_in_the_intervals(tmp_path: Path) -> None:
    seeds = 8
    fits = [fit(observed(tmp_path, ROUGH, seed), seed=seed) for seed in range(seeds)]
    # nominally 95 %; the least number of hits that 90 % would give in all but a thousandth of such tests
    least = binom.ppf(0.001, seeds, 0.9)
    for name in LINEAR:
        estimates = [getattr(f.coefficients, name) for f in fits]
        assert sum(e.ci_low <= getattr(TRUTH, name) <= e.ci_high for e in estimates) >= least
    knots = [
        (k.ci_low <= TRUTH.seconds(int(n)) - TRUTH.per_seq_s * n <= k.ci_high)
        for f in fits
        for n, k in zip(f.coefficients.knots_tokens, f.coefficients.knots_s, strict=True)
    ]
    assert sum(knots) >= binom.ppf(0.001, len(knots), 0.9)


def test_hiccups_and_late_results_are_left_out_and_counted(tmp_path: Path) -> None:
    calm = fit(observed(tmp_path, Weather(noise=0.01), 1))
    rough = fit(observed(tmp_path, Weather(noise=0.01, hiccup=0.03, late=0.02), 2))
    assert calm.error.left_out <= 2
    bad = rough.error.left_out / (rough.error.left_out + rough.error.observations)
    assert 0.03 <= bad <= 0.12  # a hiccup spoils one duration, a late result two
    assert any("went into outliers" in text for text in rough.assumed)
    assert calm.assumed == ()
    for b in (1, 16, 64, 96):
        assert rough.step_time.seconds(b, 0, 500.0 * b) == pytest.approx(TRUTH.seconds(b, 0, 500.0 * b), rel=0.02)


def test_the_error_is_that_of_loads_not_seen(tmp_path: Path) -> None:
    exact = fit(observed(tmp_path)).error
    assert exact.median < 1e-3
    noisy = fit(observed(tmp_path, Weather(noise=0.05), 1)).error
    # of a normal law the median absolute deviation is 0.67 standard deviations, the 90th percentile 1.64
    assert noisy.median == pytest.approx(0.67 * 0.05, rel=0.25)
    assert noisy.p90 == pytest.approx(1.64 * 0.05, rel=0.25)


def test_the_same_observations_give_the_same_fit(tmp_path: Path) -> None:
    o = observed(tmp_path, ROUGH)
    assert fit(o, seed=3) == fit(o, seed=3)
    assert fit(o, seed=3).step_time == fit(o, seed=4).step_time


def test_ranges_are_what_was_measured(tmp_path: Path) -> None:
    o = observed(tmp_path)
    ranges = fit(o).ranges
    assert ranges.decodes == (1.0, 96.0)
    assert ranges.prefill_tokens == (o.prefill_tokens[o.prefill_tokens > 0].min(), 2048.0)
    assert ranges.kv_tokens is not None
    assert ranges.kv_tokens[1] == o.kv_tokens.max()


# ------------------------------------------------------------------------------------------------- padding to graphs


def padded_truth(sizes: tuple[int, ...]) -> StepTime:
    """Steps up to the sizes, 4 ms and 40 us per token of the size; beyond the last 3 ms more and no steps."""
    tokens, seconds, before = [], [], 0
    for size in sizes:
        tokens += [before + 1, size] if size > before + 1 else [size]
        seconds += [4e-3 + 4e-5 * size] * (2 if size > before + 1 else 1)
        before = size
    tokens += [before + 1, 4096]
    seconds += [7e-3 + 4e-5 * before, 7e-3 + 4e-5 * 4096]
    return StepTime(tuple(map(float, tokens)), tuple(seconds), 0.0, 0.0, 2e-8, 1e-9)


def padded_loads() -> list[list[Row]]:
    decodes = [[(b, b * (c + i), 0.0, 0.0) for i in range(5)] for c in (100, 1000) for b in range(1, 100, 2)]
    return decodes + [[chunk(p)] * 3 for p in (100, 200, 400, 800, 1600, 3200, 4096)]


def test_steps_of_padded_batches_are_found() -> None:
    sizes = (1, 2, 4, 8, 16, 32, 48, 64)
    truth = padded_truth(sizes)
    o = of_loads(padded_loads(), seconds_of(truth))
    found = fit(o, graph_sizes=sizes)
    assert found.padded
    tokens = np.arange(1, 4097)
    np.testing.assert_allclose(found.step_time.table(4096)[tokens], truth.table(4096)[tokens], rtol=0.01)
    smooth = fit(o)
    assert not smooth.padded
    assert smooth.error.median > 5 * found.error.median


def test_sizes_are_ignored_where_batches_are_not_padded() -> None:
    truth = StepTime((1.0, 4096.0), (0.004, 0.2), 0.0, 0.0, 2e-8, 1e-9)
    found = fit(of_loads(padded_loads(), seconds_of(truth)), graph_sizes=(1, 2, 4, 8, 16, 32, 48, 64))
    assert not found.padded
    assert found.step_time.seconds(50) == pytest.approx(truth.seconds(50), rel=0.01)


# ----------------------------------------------------------------------------------------------- what cannot be told


@pytest.mark.parametrize(("g", "h"), [(4e-5, 0.0), (4e-5, 1e-5), (0.0, 3e-5), (1e-5, 4e-5), (2e-5, 2e-5)])
def test_per_seq_and_per_prefill_token_are_told_up_to_what_f_can_hold(g: float, h: float) -> None:
    truth = StepTime((1.0, 64.0, 3456.0), (0.005, 0.006, 0.09), g, h, 2e-8, 1e-9)
    found = fit(of_loads(grid(), seconds_of(truth))).step_time
    shared = min(g, h)
    assert found.per_seq_s == pytest.approx(g - shared, rel=0.01, abs=1e-7)
    assert found.per_prefill_token_s == pytest.approx(h - shared, rel=0.01, abs=1e-7)
    for b, p in ((1, 0), (100, 0), (0, 1000), (100, 1000)):
        assert found.seconds(b, p, 50.0 * b) == pytest.approx(truth.seconds(b, p, 50.0 * b), rel=0.01)


def test_all_that_is_missing_is_said_at_once() -> None:
    o = of_loads([[(8.0, 8.0 * (512 + i), 0.0, 0.0) for i in range(10)]], seconds_of(TRUTH))
    with pytest.raises(InputError) as caught:
        fit(o)
    assert [p.path.removeprefix("observations: ") for p in caught.value.problems] == [
        "decodes",
        "context tokens per decode",
        "prefill_tokens",
    ]
    assert all("--gpu" in p.remedy for p in caught.value.problems)


@pytest.mark.parametrize(
    ("drop", "missing"),
    [
        (lambda row: row[2] > 0, "prefill_tokens"),
        (lambda row: row[2] == 0 and row[1] > 100 * row[0], "context"),
        (lambda row: row[0] > 1, "decodes"),
    ],
)
def test_one_thing_missing_is_named(drop: Callable[[Row], bool], missing: str) -> None:
    loads = [load for load in grid() if not drop(load[0]) and not (load[0][0] > 0 and load[0][2] > 0)]
    with pytest.raises(InputError) as caught:
        fit(of_loads(loads, seconds_of(TRUTH)))
    assert [missing in p.path for p in caught.value.problems] == [True]


def test_nothing_at_all_and_nonsense_are_refused() -> None:
    o = of_loads(grid(), seconds_of(TRUTH))
    empty = Observations(*(getattr(o, name)[:0] for name in Observations.__struct_fields__))
    with pytest.raises(InputError, match="decoding at two batch sizes"):
        fit(empty)
    for wrong in (np.where(np.arange(len(o)) == 3, value, o.seconds) for value in (np.nan, 0.0, -1.0)):
        with pytest.raises(InputError, match="seconds > 0"):
            fit(Observations(wrong, *(getattr(o, n) for n in Observations.__struct_fields__[1:])))


def test_pairs_that_go_with_the_prompts_are_part_of_f() -> None:
    """Chunks of one length after one context: their pairs cannot be told from their tokens, and that is said."""
    loads = [load for load in grid() if load[0][2] == 0] + [[(0.0, 0.0, p, 10.0 * p)] * 3 for p in (500, 1000, 2000)]
    found = fit(of_loads(loads, lambda row: 0.005 + 3e-5 * (row[0] + row[2]) + 2e-8 * row[1]))
    assert found.step_time.per_attn_pair_s == 0.0
    assert any(text.startswith("per_attn_pair_s = 0") for text in found.assumed)
    assert found.step_time.seconds(0, 1500, 0.0, 15000.0) == pytest.approx(0.05, rel=0.01)


# ---------------------------------------------------------------------------------------------- several per duration


def test_durations_of_several_iterations_and_a_clients_overhead() -> None:
    """What a client sees: mean iterations of decodes, times to first token of chunked prompts and a fixed cost."""
    seconds, overhead = seconds_of(TRUTH), 0.0123
    spans = [([(b, b * (c + 4), 0.0, 0.0)], 0) for c in (64, 1024) for b in (1, 2, 4, 8, 16, 32, 64, 96) for _ in "ab"]
    for p in (64, 256, 1024, 2048, 4096):
        chunks = [chunk(min(1024, p - c), c) for c in range(0, p, 1024)]
        spans += [(chunks, 1)] * 3
    for p in (128, 512, 1024):
        spans += [([(32, 3200.0, *chunk(p)[2:]), (32, 3232.0, 0.0, 0.0)], 0)] * 3
    rows = np.array([row for held, _ in spans for row in held])
    o = Observations(
        np.array([sum(map(seconds, held)) + ovh * overhead for held, ovh in spans]),
        np.array([hash(tuple(held)) % 2**31 for held, _ in spans], np.int32),
        np.array([float(ovh) for _, ovh in spans]),
        np.repeat(np.arange(len(spans)), [len(held) for held, _ in spans]),
        np.pad(rows, ((0, 0), (0, 1))),
    )
    found = fit(o)
    assert found.error.overhead_s == pytest.approx(overhead, rel=0.02)
    for b, p in ((1, 0), (48, 0), (0, 512), (32, 512)):
        assert found.step_time.seconds(b, p, 100.0 * b) == pytest.approx(TRUTH.seconds(b, p, 100.0 * b), rel=0.01)


# ------------------------------------------------------------------------------------------------------------- prior


def test_a_prior_fills_in_what_was_not_measured_and_yields_where_it_was() -> None:
    guess = of_loads(grid(), lambda row: 1.3 * seconds_of(TRUTH)(row))
    decodes = [load for load in grid() if load[0][2] == 0]
    rng = np.random.default_rng(0)
    o = of_loads(decodes, lambda row: seconds_of(TRUTH)(row) * (1 + 0.02 * rng.standard_normal()))
    with pytest.raises(InputError, match="prompts of two lengths"):
        fit(o)
    found = fit(o, prior=Prior(guess, 0.3, "a roofline"))
    for b, c in ((1, 100), (32, 500), (200, 1000)):
        assert found.step_time.seconds(b, 0, b * c) == pytest.approx(TRUTH.seconds(b, 0, b * c), rel=0.03)
    pairs = 2000.0 * 2001 / 2
    assert found.step_time.seconds(0, 2000, 0, pairs) == pytest.approx(1.3 * TRUTH.seconds(0, 2000, 0, pairs), rel=0.1)
    assert "per_attn_pair_s: from a roofline" in found.assumed
    assert any(text.startswith("f at ") and "3072" in text for text in found.assumed)
    assert not any(text.startswith("per_kv_token_s") for text in found.assumed)
    pair = found.coefficients.per_attn_pair_s
    assert pair.ci_low is not None
    assert pair.ci_high is not None
    assert pair.ci_high - pair.ci_low > 0.5 * pair.value  # known to 30 % or so


def test_a_few_measurements_and_a_prior_are_enough() -> None:
    guess = of_loads(grid(), lambda row: 0.7 * seconds_of(TRUTH)(row))
    three = [[(b, b * 600.0, 0.0, 0.0)] for b in (8.0, 32.0, 128.0)]
    found = fit(of_loads(three, seconds_of(TRUTH)), prior=Prior(guess, 0.3))
    for b in (8, 32, 128):
        assert found.step_time.seconds(b, 0, b * 600.0) == pytest.approx(TRUTH.seconds(b, 0, b * 600.0), rel=0.05)
    one = fit(of_loads(three[1:2], seconds_of(TRUTH)), prior=Prior(guess, 0.3)).step_time
    assert one.seconds(32, 0, 32 * 600.0) == pytest.approx(TRUTH.seconds(32, 0, 32 * 600.0), rel=0.03)


def test_a_prior_without_a_spread_is_refused() -> None:
    o = of_loads(grid(), seconds_of(TRUTH))
    with pytest.raises(InputError, match="spread > 0"):
        fit(o, prior=Prior(o, 0.0))


# -------------------------------------------------------------------------------------------------------- any engine


def wholesome(found: Fit) -> None:
    """What holds for every fit, whatever it was given."""
    c = found.coefficients
    values = [k.value for k in c.knots_s]
    assert values == sorted(values)
    for e in (*c.knots_s, *(getattr(c, name) for name in (*LINEAR, "per_prefill_token_s"))):
        assert e.ci_low is not None
        assert e.ci_high is not None
        assert 0.0 <= e.ci_low <= e.value <= e.ci_high
    assert found.step_time.knots_s == tuple(values)


small = st.floats(0.0, 1e-4)


@settings(max_examples=15, deadline=None)
@given(
    knots=st.sets(st.sampled_from([4.0, 8.0, 16.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0]), max_size=4),
    first=st.floats(1e-5, 0.1),
    slopes=st.lists(small, min_size=5, max_size=5),
    g=small,
    h=small,
    kv=st.floats(0.0, 1e-6),
    pair=st.floats(0.0, 1e-8),
)
def test_any_engine_is_predicted_where_it_was_measured(
    knots: set[float], first: float, slopes: list[float], g: float, h: float, kv: float, pair: float
) -> None:
    tokens = [1.0, *sorted(knots), 4096.0]
    seconds = np.cumsum([first, *(s * w for s, w in zip(slopes, np.diff(tokens), strict=False))])
    truth = StepTime(tuple(tokens), tuple(seconds.tolist()), g, h, kv, pair)
    o = of_loads(grid(), seconds_of(truth))
    found = fit(o)
    wholesome(found)
    again = of_loads(grid(), seconds_of(found.step_time))
    np.testing.assert_allclose(again.seconds, o.seconds, rtol=0.02)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), spread=st.floats(0.0, 1.0))
def test_noise_of_any_kind_gives_a_sound_fit(seed: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    exact = seconds_of(TRUTH)
    wholesome(fit(of_loads(grid(), lambda row: exact(row) * float(np.exp(spread * rng.standard_normal())))))
