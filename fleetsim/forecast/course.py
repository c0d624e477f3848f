"""A run in pieces: a few long runs at points of its schedule, and straight lines between them.

A long run says what a step takes once the pipeline is full (`sim/run.py`). Along a stretch in which a value moves,
it is asked at both ends and in the middle, and again between two of these where the middle is off the line by more
than `_OFF`; what is left between the points is smaller than what was found there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.config.scenario import Scenario
from fleetsim.estimates import Estimate
from fleetsim.forecast.schedule import Schedule
from fleetsim.job.trials import Measure, trial_of
from fleetsim.sim.threads import side_by_side

Floats = NDArray[np.float64]
# A middle that is off the straight line by this share of a step is a point of its own; points of a stretch, at most.
_OFF, _MOST_POINTS = 0.01, 9


class CoursePoint(Struct, frozen=True):
    """A step at which a long run was made. metrics: of its replications, flat. binding: what held it up."""

    step: int
    values: Mapping[str, Any]
    scenario: Scenario
    metrics: Mapping[str, Estimate]
    binding: str


class RunCourse(Struct, frozen=True):
    """steps: of the run. stretches: the points of each, ascending; one alone holds for all of its stretch. off: by how
    much of a step the points that were added last differ from the line that they replaced, at most."""

    steps: int
    stretches: tuple[tuple[tuple[int, int], tuple[CoursePoint, ...]], ...]
    off: float

    @property
    def points(self) -> tuple[CoursePoint, ...]:
        """All points in the order of steps."""
        return tuple({point.step: point for _, points in self.stretches for point in points}.values())

    def per_step(self, of: Callable[[CoursePoint], float]) -> Floats:
        """A figure of every step, shape (steps,)."""
        found = np.empty(self.steps)
        for (first, last), points in self.stretches:
            at = np.arange(first, last + 1)
            found[first : last + 1] = np.interp(at, [p.step for p in points], [of(p) for p in points])
        return found

    def metric(self, name: str, end: str = "mean") -> Floats:
        """A metric of every step: its mean, or an end of its interval over the seeds (ci_low, ci_high)."""
        return self.per_step(lambda point: float(getattr(point.metrics[name], end)))

    def middle(self) -> CoursePoint:
        """The point nearest to the step at which half of the seconds are over."""
        over = np.cumsum(self.metric("step_s"))
        half = int(np.searchsorted(over, over[-1] / 2))
        return min(self.points, key=lambda point: abs(point.step - half))


Scene = Callable[[Mapping[str, Any]], Scenario]


def course_of(
    scene: Scene,
    schedule: Schedule,
    steps: int,
    replications: int,
    measure: Measure,
    tell: Callable[[str], None] = lambda text: None,
) -> RunCourse:
    """The course of a run. scene: the scenario of a step's values. Raises InputError, StuckError as a simulation."""
    known: dict[tuple[tuple[str, Any], ...], tuple[Scenario, Mapping[str, Estimate], str]] = {}

    def at(step: int) -> CoursePoint:
        values = schedule.at(step)
        key = tuple(sorted(values.items()))
        if key not in known:
            tell(f"simulating step {step:,} of {steps:,}")
            scenario = scene(values)
            runs = side_by_side(lambda r: measure(scenario, r), range(replications))
            trial = trial_of(scenario.fleet.instances, runs)
            known[key] = scenario, trial.estimates, trial.binding
        return CoursePoint(step, values, *known[key])

    stretches, off = [], 0.0
    for first, last in schedule.stretches(steps):
        if not schedule.moves(first, last):
            stretches.append(((first, last), (at(first),)))
            continue
        # where nothing jumps, one stretch ends with the point that the next begins with
        end = last if last + 1 == steps or schedule.jumps(last + 1) else last + 1
        points, worst = _refined(at, first, end)
        off = max(off, worst)
        stretches.append(((first, last), points))
    return RunCourse(steps, tuple(stretches), off)


def _refined(at: Callable[[int], CoursePoint], first: int, last: int) -> tuple[tuple[CoursePoint, ...], float]:
    """Points of a stretch in which something moves, and by how much those that were added last were off the line."""
    points = {step: at(step) for step in (first, last)}
    gaps, worst = [(first, last, 0.0)], 0.0
    while gaps:
        a, b, left = gaps.pop(0)
        flat = abs(_step(points[b]) / _step(points[a]) - 1.0) <= _OFF
        if b - a < 2 or flat or len(points) >= _MOST_POINTS:
            worst = max(worst, left)
            continue
        middle = (a + b) // 2
        points[middle] = at(middle)
        off = abs(_step(points[middle]) / _between(points[a], points[b], middle) - 1.0)
        # half as far between two points, a line is a quarter as far from an even bend
        if off > _OFF:
            gaps += [(a, middle, off / 4), (middle, b, off / 4)]
        else:
            worst = max(worst, off / 4)
    return tuple(points[step] for step in sorted(points)), worst


def _step(point: CoursePoint) -> float:
    return point.metrics["step_s"].mean


def _between(a: CoursePoint, b: CoursePoint, step: int) -> float:
    return _step(a) + (_step(b) - _step(a)) * (step - a.step) / (b.step - a.step)


def drifting(mean: Callable[[float], float], drift: float, steps: int) -> tuple[tuple[int, float], ...]:
    """Points of lengths that grow by a share of themselves in each step. mean: of lengths so many times as long."""
    at = sorted({round(x) for x in np.linspace(0, max(1, steps - 1), min(steps, 9))})
    return tuple((step, mean((1.0 + drift) ** step)) for step in at)
