"""What repeated calibrations prove: a machine that differs from itself proves nothing, a wrong model is caught."""

from __future__ import annotations

import pytest

from tests.real_vllm.attempts import LIMIT, sure


@pytest.mark.parametrize("errors", [(0.41, 0.34, -0.70), (0.09, 0.14, 0.36), (-0.30, 0.16, -0.02), (0.12, 0.13, 0.14)])
def test_errors_that_scatter_by_more_than_the_limit_show_no_bias(errors: tuple[float, ...]) -> None:
    assert sure(errors) <= LIMIT


@pytest.mark.parametrize("errors", [(0.45, 0.52, 0.39), (-0.35, -0.41, -0.30), (0.9, 1.1, 1.0, 0.7)])
def test_errors_that_agree_beyond_the_limit_do(errors: tuple[float, ...]) -> None:
    assert sure(errors) > LIMIT
