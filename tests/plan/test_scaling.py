from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.config import default_scenario, scenario_from_mapping, with_changes
from fleetsim.config.pools import TrainerConfig
from fleetsim.errors import InputError
from fleetsim.job.trainer_scaling import HALF_SERIAL_GPUS, anchored, law_words, parallel_share, scaled, time_factor

GPUS = st.integers(1, 4096)


def trainer(gpus: int = 8, share: float | None = None, points: list[tuple[int, float]] | None = None) -> TrainerConfig:
    return TrainerConfig.model_validate(
        {"gpus": gpus, "scaling": {"parallel_share": share, "points": points or []}}, strict=False
    )


def test_by_hand() -> None:
    # 20 s on 8 GPUs, half of it divided: 10 + 10 * 8 / 16 = 15 s on 16, 10 + 10 * 8 / 2 = 50 s on 2.
    assert time_factor(trainer(8, 0.5), 16) == pytest.approx(0.75)
    assert time_factor(trainer(8, 0.5), 2) == pytest.approx(2.5)
    assert time_factor(trainer(8, 1.0), 2) == pytest.approx(4.0)
    assert time_factor(trainer(8, 0.0), 2) == 1.0
    # a power law through (4, 40) and (16, 10) halves from 4 to 8
    measured = trainer(4, 1.0, [(4, 40.0), (16, 10.0)])
    assert time_factor(measured, 8) == pytest.approx(0.5)
    assert time_factor(measured, 16) == pytest.approx(0.25)
    assert time_factor(measured, 32) == pytest.approx(0.125), "beyond the points the law goes on: p = 1"


def test_the_default_is_what_the_published_figures_imply() -> None:
    """K from a least-squares fit of log t = log c + log(1 + K / g) to verl's update_actor + old_log_prob."""
    gpus, seconds = np.array([32.0, 64.0, 128.0]), np.array([269.8 + 107.71, 133.41 + 70.26, 113.81 + 53.92])

    def error(k: float) -> float:
        residual = np.log(seconds) - np.log1p(k / gpus)
        return float(np.square(residual - residual.mean()).sum())

    best = min(np.arange(10.0, 500.0, 0.25), key=error)
    assert best == pytest.approx(HALF_SERIAL_GPUS, abs=1.0)
    assert parallel_share(trainer(), 32) == pytest.approx(0.74, abs=0.005)
    predicted = np.array([time_factor(trainer(32), int(g)) for g in gpus])
    ratio = predicted / seconds * seconds[0]
    assert np.abs(ratio / np.exp(np.log(ratio).mean()) - 1).max() < 0.12


@given(start=GPUS, share=st.none() | st.floats(0, 1), few=GPUS, more=GPUS)
def test_more_gpus_are_never_slower_and_never_better_than_divided(
    start: int, share: float | None, few: int, more: int
) -> None:
    few, more = sorted((few, more))
    a, b = (time_factor(trainer(start, share), g) for g in (few, more))
    assert b <= a * (1 + 1e-12)
    assert b >= a * few / more * (1 - 1e-12)
    assert time_factor(trainer(start, share), start) == pytest.approx(1.0, rel=1e-12)


@given(start=GPUS, share=st.none() | st.floats(0, 1), there=GPUS, further=GPUS)
def test_the_law_does_not_depend_on_the_way(start: int, share: float | None, there: int, further: int) -> None:
    """A trainer that was moved to another count and is moved on takes what a direct move takes."""
    base = with_changes(default_scenario(), {"trainer.gpus": start, "trainer.scaling.parallel_share": share})
    moved = with_changes(base, scaled(base, there))
    assert moved.trainer.gpus == there
    direct, on = scaled(base, further), scaled(moved, further)
    assert on["trainer.fixed_s"] == pytest.approx(direct["trainer.fixed_s"], rel=1e-9)


@given(
    points=st.lists(st.tuples(GPUS, st.floats(0.01, 1e4)), min_size=1, max_size=8, unique_by=lambda p: p[0]),
    start=GPUS,
    gpus=GPUS,
)
def test_points_are_met_and_falling_points_give_falling_seconds(
    points: list[tuple[int, float]], start: int, gpus: int
) -> None:
    met = trainer(points[0][0], None, points)
    for count, seconds in points:
        assert time_factor(met, count) == pytest.approx(seconds / points[0][1], rel=1e-9)
    counts = sorted(count for count, _ in points)
    falling = list(zip(counts, sorted((s for _, s in points), reverse=True), strict=True))
    t = trainer(start, None, falling)
    assert time_factor(t, gpus + 1) <= time_factor(t, gpus) * (1 + 1e-12)
    assert math.isfinite(time_factor(t, gpus))


def test_all_that_computes_is_scaled_and_nothing_else() -> None:
    base = scenario_from_mapping(
        {
            "trainer": {
                "gpus": 8,
                "fixed_s": 4.0,
                "per_token_s": 2e-6,
                "phases": [{"name": "log_prob", "fixed_s": 1.0, "per_token_s": 1e-6}],
                "checkpoint": {"every_steps": 5, "stall_s": 30.0},
                "scaling": {"parallel_share": 0.5},
            }
        }
    )
    t = with_changes(base, scaled(base, 16)).trainer
    assert (t.gpus, t.fixed_s, t.per_token_s) == (16, 3.0, pytest.approx(1.5e-6))
    assert (t.phases[0].fixed_s, t.phases[0].per_token_s) == (0.75, pytest.approx(0.75e-6))
    assert t.checkpoint == base.trainer.checkpoint
    assert t.scaling.parallel_share == pytest.approx(1 / 3), "of 3 s on 16 GPUs, 1 s is the divided half of 4 s"


def test_points_alone_also_say_how_long_a_step_is() -> None:
    s = with_changes(default_scenario(), {"trainer.scaling.points": [(4, 40.0), (16, 10.0)]})
    assert (anchored(s, frozenset()).trainer.gpus, anchored(s, frozenset()).trainer.fixed_s) == (4, 40.0)
    at_8 = with_changes(s, {"trainer.gpus": 8})
    assert anchored(at_8, frozenset({"trainer.gpus"})).trainer.fixed_s == pytest.approx(20.0)
    own = anchored(at_8, frozenset({"trainer.gpus", "trainer.fixed_s"})).trainer
    assert own.fixed_s == default_scenario().trainer.fixed_s
    assert anchored(default_scenario(), frozenset()) == default_scenario()


def test_the_law_in_words() -> None:
    assert law_words(trainer()).startswith("of the seconds on 8 GPUs 92 % are divided")
    assert "verl" in law_words(trainer())
    assert "verl" not in law_words(trainer(8, 0.9))
    assert law_words(trainer(4, None, [(4, 1.0), (8, 0.6)])).startswith("measured on 4, 8 GPUs")


@pytest.mark.parametrize(
    ("points", "told"),
    [
        ([[8, 20], [8, 21]], "stands there twice"),
        ([[8]], "required"),
        ([[0, 1]], "at least 1"),
        ([[8, 0]], "above 0"),
        ([["8", 1]], "whole number"),
    ],
)
def test_points_that_cannot_be(points: list[object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        scenario_from_mapping({"trainer": {"scaling": {"points": points}}})
