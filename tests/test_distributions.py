"""What fleetsim computes of probability laws and least squares itself, held against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, special

from fleetsim.distributions import (
    binomial_above,
    incomplete_beta,
    poisson_below,
    poisson_most,
    student_below,
    student_quantile,
)
from fleetsim.least_squares import non_negative

EXACT = {"rel": 1e-9, "abs": 1e-280}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def test_students_t(rng: np.random.Generator) -> None:
    for freedom, t in zip(10.0 ** rng.uniform(-0.7, 6.0, 300), rng.normal(0.0, 4.0, 300), strict=True):
        assert student_below(freedom, t) == pytest.approx(special.stdtr(freedom, t), **EXACT)
    for freedom in 10.0 ** rng.uniform(-0.7, 6.0, 60):
        assert student_quantile(freedom, 0.975) == pytest.approx(special.stdtrit(freedom, 0.975), **EXACT)
    assert student_below(3.0, 0.0) == 0.5


def test_binomial_and_poisson(rng: np.random.Generator) -> None:
    for n in (10.0 ** rng.uniform(0.4, 3.5, 300)).astype(int).tolist():
        k, p = int(rng.integers(0, n)), float(rng.uniform())
        assert binomial_above(k, n, p) == pytest.approx(special.bdtrc(k, n, p), **EXACT)
    for seen in [0, 1, *(10.0 ** rng.uniform(0, 4, 30)).astype(int).tolist()]:
        for share in (0.95, 0.3):  # above what was seen, and below it
            assert poisson_most(seen, share) == pytest.approx(special.gammaincinv(seen + 1, share), **EXACT)
        mean = float(10.0 ** rng.uniform(-2, 3))
        assert poisson_below(seen, mean) == pytest.approx(special.pdtr(seen, mean), **EXACT)
    assert [incomplete_beta(2.0, 3.0, x) for x in (0.0, 1.0)] == [0.0, 1.0]


def test_least_squares_with_coefficients_of_0_at_least(rng: np.random.Generator) -> None:
    """No worse than scipy's, and with the same coefficients wherever they are determined."""
    for _ in range(200):
        rows, columns = int(rng.integers(1, 40)), int(rng.integers(1, 9))
        a = rng.normal(size=(rows, columns)) ** 2 * 10.0 ** rng.uniform(-3, 3, columns)
        y = a @ np.maximum(rng.normal(size=columns), 0.0) + rng.normal(size=rows)
        ours, (theirs, error) = non_negative(a, y), optimize.nnls(a, y)
        assert (ours >= 0.0).all()
        for likely in (ours > 0.0, rng.random(columns) < 0.5):
            np.testing.assert_allclose(a @ non_negative(a, y, likely), a @ ours, atol=1e-9 * np.linalg.norm(y))
        assert np.linalg.norm(a @ ours - y) <= error * (1 + 1e-9) + 1e-9 * np.linalg.norm(y)
        if rows >= columns:
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9 * theirs.max(initial=0.0))
    assert non_negative(np.zeros((3, 0)), np.ones(3)).shape == (0,)
    assert non_negative(np.zeros((3, 2)), np.ones(3)).tolist() == [0.0, 0.0]
