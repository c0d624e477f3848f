"""Length laws against theory: means, quantiles, atoms and correlation, each with its interval.

4 standard errors leave one false alarm in 16,000; the seeds are fixed besides.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from fleetsim.config.workload import (
    ConstantSeconds,
    ConstantTokens,
    Gamma,
    Histogram,
    LatencySpec,
    LengthSpec,
    Lognormal,
)
from fleetsim.workload import normal
from fleetsim.workload.lengths import (
    limited_mean,
    mean_length,
    quantile_length,
    sample_latencies,
    sample_lengths,
    values_at,
)
from fleetsim.workload.normal import gamma_table

N = 400_000


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


LAWS: list[Lognormal | Gamma | Histogram] = [
    Lognormal(mean=1536.0, cv=1.0, max=8192.0),
    Lognormal(mean=1536.0, cv=1.0),
    Lognormal(median=800.0, p99=6000.0, max=4000.0),
    Lognormal(mean=2000.0, cv=3.0, max=32768.0),
    Gamma(mean=700.0, cv=0.5, max=1000.0),
    Gamma(mean=700.0, cv=1.0),
    Gamma(mean=700.0, cv=2.5, max=9000.0),
    Gamma(mean=700.0, cv=0.01),
    Histogram(le=(128.0, 512.0, 600.0, 2048.0), count=(10.0, 70.0, 0.0, 20.0)),
    Histogram(le=(128.0, 512.0, 2048.0), count=(10.0, 70.0, 20.0), max=900.0),
]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_sample_mean_is_the_closed_form(law: LengthSpec) -> None:
    x = sample_lengths(law, rng(), N).astype(np.float64)
    # half a token for rounding at one token and below; the laws here have next to nothing there
    assert abs(x.mean() - mean_length(law)) < 4.0 * x.std() / math.sqrt(N) + 0.02


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_latency_mean_is_the_closed_form(law: LatencySpec) -> None:
    x = sample_latencies(law, rng(2), N)
    assert abs(x.mean() - mean_length(law)) < 4.0 * x.std() / math.sqrt(N)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_quantiles_are_those_of_the_sample(law: LengthSpec) -> None:
    x = sample_lengths(law, rng(3), N)
    for q in (0.1, 0.5, 0.9, 0.99):
        at = quantile_length(law, q)
        # P(X <= Q(q)) = q, within 4 binomial standard errors; a token of slack for rounding, one-sided at atoms
        error = 4.0 * math.sqrt(q * (1 - q) / N)
        assert np.mean(x <= at + 1.0) >= q - error
        assert np.mean(x < at - 1.0) <= q + error


def test_median_and_p99_are_recovered() -> None:
    law = Lognormal(median=800.0, p99=6000.0)
    assert quantile_length(law, 0.5) == pytest.approx(800.0, rel=1e-12)
    assert quantile_length(law, 0.99) == pytest.approx(6000.0, rel=1e-12)
    x = sample_latencies(law, rng(4), N)
    assert np.mean(x <= 800.0) == pytest.approx(0.5, abs=4 * math.sqrt(0.25 / N))
    assert np.mean(x <= 6000.0) == pytest.approx(0.99, abs=4 * math.sqrt(0.01 * 0.99 / N))


def test_the_cap_keeps_an_atom_of_the_right_mass() -> None:
    law = Lognormal(mean=1536.0, cv=1.0, max=4096.0)
    sigma = math.sqrt(math.log(2.0))
    mass = stats.norm.sf(
        (math.log(4095.5) - (math.log(1536.0) - sigma**2 / 2)) / sigma
    )  # what rounds to 4,096 is there
    x = sample_lengths(law, rng(5), N)
    assert x.max() == 4096
    assert np.mean(x == 4096) == pytest.approx(mass, abs=4 * math.sqrt(mass / N))


@pytest.mark.parametrize("cv", [0.005, 0.1, 0.5, 1.0, 3.0, 10.0])
def test_gamma_table_is_the_gamma_law(cv: float) -> None:
    law, shape = Gamma(mean=1000.0, cv=cv), cv**-2
    exact = stats.gamma(shape, scale=1000.0 / shape)
    q = np.array([1e-6, 0.01, 0.2, 0.5, 0.9, 0.99, 1 - 1e-9])
    # absolute where the law is below a token's thousandth: with a cv of 10 its first percentile is 1e-180
    np.testing.assert_allclose(values_at(law, stats.norm.ppf(q)), exact.ppf(q), rtol=2e-5, atol=1e-3)
    for cap in (10.0, 900.0, 5000.0):
        k = shape
        below = 1000.0 * stats.gamma.cdf(cap * k / 1000.0, k + 1)
        assert limited_mean(law, cap) == pytest.approx(below + cap * exact.sf(cap), rel=2e-6)
    assert gamma_table(shape).weights.sum() == pytest.approx(1.0, abs=1e-9)


def test_limited_mean_of_a_lognormal() -> None:
    law = Lognormal(mean=100.0, cv=0.7)
    sigma = math.sqrt(math.log(1.49))
    exact = stats.lognorm(sigma, scale=100.0 * math.exp(-(sigma**2) / 2))
    for cap in (5.0, 100.0, 400.0):
        assert limited_mean(law, cap) == pytest.approx(exact.expect(partial(np.minimum, cap)), rel=1e-6)
    assert limited_mean(law, math.inf) == pytest.approx(100.0, rel=1e-12)


def test_histogram_by_hand() -> None:
    law = Histogram(le=(10.0, 20.0), count=(1.0, 3.0))
    assert mean_length(law) == pytest.approx(0.25 * 5 + 0.75 * 15)
    # the cap cuts the second bucket in the middle: half of it has mean 12.5, half of it is 15
    assert mean_length(Histogram(le=(10.0, 20.0), count=(1.0, 3.0), max=15.0)) == pytest.approx(
        0.25 * 5 + 0.75 * (0.5 * 12.5 + 0.5 * 15)
    )
    assert quantile_length(law, 0.25) == pytest.approx(10.0)
    assert quantile_length(law, 0.625) == pytest.approx(15.0)
    assert quantile_length(law, 1.0) == pytest.approx(20.0)


def test_mean_with_a_scale_and_a_floor() -> None:
    law = Lognormal(mean=1536.0, cv=1.0, max=8192.0)
    x = np.clip(sample_latencies(Lognormal(mean=1536.0, cv=1.0), rng(6), N) * 1.5, 600.0, 8192.0)
    assert mean_length(law, scale=1.5, at_least=600.0) == pytest.approx(x.mean(), abs=4 * x.std() / math.sqrt(N))
    assert mean_length(ConstantTokens(value=512), at_least=600.0) == 600.0
    assert mean_length(law, scale=0.0, at_least=1.0) == 1.0


def test_constants() -> None:
    assert sample_lengths(ConstantTokens(value=512), rng(), 3).tolist() == [512, 512, 512]
    assert sample_lengths(ConstantTokens(value=0), rng(), 2, at_least=0).tolist() == [0, 0]
    assert sample_lengths(ConstantTokens(value=100), rng(), 2, scale=np.array([1.0, 1.5])).tolist() == [100, 150]
    assert sample_latencies(ConstantSeconds(value=0.5), rng(), 2).tolist() == [0.5, 0.5]
    assert mean_length(ConstantTokens(value=512)) == quantile_length(ConstantTokens(value=512), 0.3) == 512


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("law", [Lognormal(mean=1e6, cv=1.0), Gamma(mean=1e6, cv=1.0)], ids=["lognormal", "gamma"])
def test_siblings_share_rho_of_the_variance(law: LengthSpec, rho: float) -> None:
    groups = 50_000
    common = rng(7).standard_normal(groups)
    x = sample_lengths(law, rng(8), 2 * groups, common=np.repeat(common, 2), rho=rho).reshape(groups, 2)
    # back to z by ranks, which is exact whatever the law; for a lognormal z is the log-length itself
    z = stats.norm.ppf((stats.rankdata(x).reshape(groups, 2) - 0.5) / x.size)
    measured = float(np.corrcoef(z[:, 0], z[:, 1])[0, 1])
    assert measured == pytest.approx(rho, abs=4 * (1 - rho**2) / math.sqrt(groups) + 0.002)
    if isinstance(law, Lognormal):
        logs = np.log(x)
        assert np.corrcoef(logs[:, 0], logs[:, 1])[0, 1] == pytest.approx(rho, abs=4 / math.sqrt(groups))


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_correlation_does_not_change_the_law(law: LengthSpec) -> None:
    common = np.repeat(rng(9).standard_normal(N // 2), 2)
    a = sample_lengths(law, rng(10), N)
    b = sample_lengths(law, rng(10), N, common=common, rho=0.4)
    # siblings make the effective sample smaller: at worst half of it
    assert abs(a.mean() - b.mean()) < 4.0 * a.std() * math.sqrt(3.0 / N)
    np.testing.assert_array_equal(a, sample_lengths(law, rng(10), N, common=common, rho=0.0))


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_chunks_do_not_matter(law: LengthSpec) -> None:
    whole, r = sample_lengths(law, rng(11), 1000), rng(11)
    parts = np.concatenate([sample_lengths(law, r, n) for n in (1, 0, 499, 500)])
    np.testing.assert_array_equal(whole, parts)


laws = st.one_of(
    st.builds(Lognormal, mean=st.floats(1e-3, 1e9), cv=st.floats(1e-3, 10), max=st.none() | st.floats(1e-3, 1e9)),
    st.builds(Gamma, mean=st.floats(1e-3, 1e9), cv=st.floats(1e-3, 10), max=st.none() | st.floats(1e-3, 1e9)),
    st.builds(
        lambda median, factor: Lognormal(median=median, p99=median * factor), st.floats(1, 1e4), st.floats(1.001, 1e4)
    ),
)


@given(laws, st.floats(0, 1), st.floats(1e-9, 1e9))
@settings(max_examples=150, deadline=None)
def test_any_law_gives_lengths_in_range(law: Lognormal | Gamma, rho: float, scale: float) -> None:
    x = sample_lengths(law, rng(), 50, common=rng(2).standard_normal(50), rho=rho, scale=scale)
    assert x.dtype == np.int32
    assert x.min() >= 1
    assert x.max() <= (100_000_000 if law.max is None else max(1.0, law.max))
    t = sample_latencies(law, rng(), 50)
    assert np.isfinite(t).all()
    assert t.min() >= 0
    assert 0 < mean_length(law) < math.inf
    assert quantile_length(law, 0.0) <= quantile_length(law, 0.5) <= quantile_length(law, 1.0)


def test_normal_cdf_table() -> None:
    z = np.linspace(-12, 12, 100_001)
    np.testing.assert_allclose(normal.cdf_array(z), stats.norm.cdf(z), atol=5e-8)
    assert (np.diff(normal.cdf_array(z)) >= 0).all()
    assert normal.cdf_array(np.array([40.0]))[0] < 1.0
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile_length(ConstantTokens(value=1), 1.5)


@pytest.mark.parametrize("law", [Lognormal, Gamma])
def test_the_smallest_cv_that_is_allowed_is_next_to_a_constant(law: type[Lognormal] | type[Gamma]) -> None:
    """A denormal cv once divided by zero; the schema's smallest must work on both sides of the cap."""
    cv = 1e-4
    assert mean_length(law(mean=1000.0, cv=cv, max=2000.0)) == pytest.approx(1000.0, rel=1e-6)
    assert mean_length(law(mean=1000.0, cv=cv, max=900.0)) == pytest.approx(900.0, rel=1e-6)
    with pytest.raises(ValidationError):
        law(mean=1000.0, cv=cv / 2, max=2000.0)
