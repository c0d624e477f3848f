"""The queue of attention ranks of calibration/prompt_ranks.py: against what one can count by hand."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[2] / "calibration" / "prompt_ranks.py"))
WAYS = [(False, False), (True, False), (False, True), (True, True)]


def waits(chunk: int, by_chance: bool, in_step: bool, seed: int = 0, **changes: Any) -> float:
    usual = {"engines": 1, "ranks": 4, "clients": 1, "each": 50, "prompt": 1000, "output": 10, "token_s": 1e-3}
    load = SCRIPT["Load"](**{**usual, "later_s": 0.01, **changes})
    return float(SCRIPT["first_s"](load, chunk, by_chance=by_chance, in_step=in_step, seed=seed))


@pytest.mark.parametrize(("by_chance", "in_step"), WAYS)
def test_one_client_waits_for_its_own_prompt(by_chance: bool, in_step: bool) -> None:
    """900 tokens in the mean, a thousand a second, on whichever rank and in however many iterations."""
    assert waits(100, by_chance, in_step) == pytest.approx(0.9, rel=0.03)
    assert waits(4000, by_chance, in_step) == pytest.approx(0.9, rel=0.03)


def test_a_wave_on_one_rank_takes_as_long_as_its_tokens() -> None:
    """40 prompts of 0.9 s at once: the k-th waits for k, 20.5 of them in the mean. All in one iteration: for all."""
    wave = {"ranks": 1, "clients": 40, "each": 1}
    assert waits(1, False, False, **wave) == pytest.approx(20.5 * 0.9, rel=0.03)
    assert waits(10**6, False, True, **wave) == pytest.approx(40 * 0.9, rel=0.03)


def test_a_wave_in_step_waits_for_the_fullest_rank() -> None:
    """64 prompts in one iteration of four ranks: 16 each by turns; by chance the fullest of four has 1.3 times as many
    (the mean of the largest of a multinomial)."""
    wave = {"clients": 64, "each": 1}
    assert waits(10**6, False, False, **wave) == pytest.approx(16 * 0.9, rel=0.03)
    assert waits(10**6, False, True, **wave) == pytest.approx(16 * 0.9, rel=0.06)
    found = [waits(10**6, True, True, seed=seed, **wave) for seed in range(40)]
    largest = np.random.default_rng(1).multinomial(64, [0.25] * 4, size=10000).max(axis=1).mean()
    assert np.mean(found) == pytest.approx(largest * 0.9, rel=0.05)
