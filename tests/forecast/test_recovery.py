"""Failures of the trainer: what is walked against what theory says, and the interval that is best."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fleetsim.forecast.recovery import Recovery, expected_run_s, interval_of, losses_of, walk
from fleetsim.workload.streams import stream

STEPS = np.full(600, 40.0)


class Clock:
    """Failures after times that are given."""

    def __init__(self, *after: float) -> None:
        self.after = list(after)

    def exponential(self, mean: float) -> float:
        return self.after.pop(0) if self.after else math.inf


@pytest.mark.parametrize(
    ("late", "after", "seconds", "lost"),
    [
        # steps of 10 s, a checkpoint of 2 s after every second: there at 22, 44, 66 s; restart 5 s
        (0.0, [], 66.0, 0),
        (0.0, [30.0], 30.0 + 5.0 + 44.0, 1),  # in the third step: it is made again
        (0.0, [43.0], 43.0 + 5.0 + 44.0, 2),  # in the second checkpoint: both steps before it
        (0.0, [21.0, 3.0], 21.0 + 3.0 + 5.0 + 66.0, 2),  # in the first checkpoint, and again in the restart
        (15.0, [30.0], 30.0 + 5.0 + 66.0, 3),  # the checkpoint of 22 s is there at 37 s
        (15.0, [38.0], 38.0 + 5.0 + 44.0, 2),
        (15.0, [38.0, math.inf, 10.0], 38.0 + 5.0 + 10.0 + 5.0 + 44.0, 4),  # what it began from once, it has
    ],
)
def test_walks_by_hand(late: float, after: list[float], seconds: float, lost: int) -> None:
    recovery = Recovery(1e6, 5.0, 2.0, late)
    clock = Clock(*after)
    found = walk(recovery, np.full(6, 10.0), 2, clock)  # type: ignore[arg-type]
    assert found == (pytest.approx(seconds), sum(map(math.isfinite, after)), lost)


@pytest.mark.parametrize(
    ("mtbf_s", "restart_s", "every", "late_s"),
    [
        (7200.0, 300.0, 20, 0.0),
        (3600.0, 0.0, 5, 0.0),
        (20_000.0, 900.0, 100, 0.0),
        # written in the background: there in the next stretch, after the next but one, and too late for the last one
        (7200.0, 300.0, 20, 300.0),
        (3600.0, 60.0, 5, 500.0),
        (20_000.0, 900.0, 100, 3900.0),
    ],
)
def test_the_mean_of_walks_is_that_of_theory(mtbf_s: float, restart_s: float, every: int, late_s: float) -> None:
    recovery = Recovery(mtbf_s, restart_s, 30.0, late_s)
    walked = [walk(recovery, STEPS, every, stream(1, r, "trainer failures"))[0] for r in range(400)]
    error = float(np.std(walked)) / 20.0
    assert abs(np.mean(walked) - expected_run_s(recovery, STEPS, every)) < 4.0 * error
    assert error < 0.02 * np.mean(walked)


@pytest.mark.parametrize(("held_s", "mtbf_s"), [(10.0, 86_400.0), (60.0, 7200.0), (300.0, 3600.0)])
def test_closed_forms_lie_where_the_expected_time_is_least(held_s: float, mtbf_s: float) -> None:
    """Young and Daly against brute force over the exact expectation of one second of work."""
    recovery = Recovery(mtbf_s, 0.0, held_s)
    work = np.geomspace(held_s / 4, 4 * mtbf_s, 4000)
    cost = np.array([recovery.expected_s(w + held_s) / w for w in work])
    best = float(work[cost.argmin()])
    assert recovery.daly_s == pytest.approx(best, rel=0.02)
    # a flat minimum: Young's first term costs next to nothing more
    assert recovery.expected_s(recovery.young_s + held_s) / recovery.young_s < 1.02 * cost.min()


@pytest.mark.parametrize("every", [None, 1, 100])
@pytest.mark.parametrize(
    ("steps", "recovery"),
    [
        (600, Recovery(7200.0, 300.0, 60.0)),
        (600, Recovery(7200.0, 300.0, 5.0, 400.0)),  # written in the background
        (50, Recovery(1200.0, 60.0, 300.0)),  # a few stretches: they should be equal
        (50, Recovery(1e6, 60.0, 300.0)),  # no checkpoint is worth its time
        (120, Recovery(3600.0, 600.0, 60.0)),
    ],
)
def test_no_interval_is_better_than_the_best(every: int | None, steps: int, recovery: Recovery) -> None:
    step_s = STEPS[:steps]
    least = min(expected_run_s(recovery, step_s, n) for n in (None, *range(1, steps + 1)))
    found = interval_of(recovery, step_s, every, seed=3)
    assert expected_run_s(recovery, step_s, found.best.every) <= 1.005 * least
    assert found.best.seconds <= found.now.seconds


def test_a_run_without_checkpoints_may_never_end() -> None:
    found = losses_of(Recovery(600.0, 60.0, 30.0), STEPS, None, 0)
    assert found.seconds == math.inf
    assert math.isinf(Recovery(1.0, 0.0, 0.0).expected_s(1e6))
