"""Which counts of instances from which step on, and what that saves against the best count that never changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import StuckError
from fleetsim.forecast.course import CoursePoint, RunCourse
from fleetsim.forecast.rule_course import FleetTotal, ScalingRule, longest_start, walked
from fleetsim.job.looks import looked
from fleetsim.job.trainer_scaling import can_be
from fleetsim.job.trials import Measure, unit_of, with_instances
from fleetsim.search.objective import usd_per_h
from fleetsim.search.rate_matching import MOST_INSTANCES
from fleetsim.sim.threads import side_by_side

Floats = NDArray[np.float64]
# Counts that are tried: the job's own divided and multiplied by these; as far beyond an end that is worth having; and
# those between the best one and its neighbours that are farther apart than this.
_NEAR, _FINE = np.geomspace(1.0, 3.0, 6), 1.06
# A count that gets stuck: so many times the longest step.
_STUCK = 1e3


class ResizePlan(Struct, frozen=True):
    """plan: counts that change. fixed: the best one that does not. as_is: the job's own. usd_per_s: what a second of
    the run is worth, by targets.worth at the best fixed count. resize_s: that new instances are paid before they
    serve. by_rule: the job's own count, moved by a rule that knows the past alone. longest_start_s: with which that
    rule is no dearer than the best fixed count (`longest_start`)."""

    plan: FleetTotal
    fixed: FleetTotal
    as_is: FleetTotal
    usd_per_s: float
    resize_s: float
    by_rule: FleetTotal
    longest_start_s: float | None

    @property
    def saved(self) -> tuple[float, float]:
        """Seconds and US dollars that the plan saves against the best fixed count."""
        return self.fixed.seconds - self.plan.seconds, self.fixed.usd - self.plan.usd

    @property
    def regret(self) -> float:
        """What the rule costs more than the plan, which knew the run beforehand; US dollars, seconds at their worth."""
        return self.by_rule.worth(self.usd_per_s) - self.plan.worth(self.usd_per_s)


def resize_plan(
    course: RunCourse,
    measure: Measure,
    tell: Callable[[str], None] = lambda text: None,
    rule: ScalingRule | None = None,
) -> ResizePlan:
    """The plan of a run whose course is known, and what a rule would do, None: that of `watch`. Short runs of every
    count at every point; lines between the points.

    The counts' own schedule is left out: this says what it should be.
    """
    first = course.points[0].scenario
    resize_s, worth = first.fleet.failures.restart_s, first.targets.worth
    counts, own = list[int](), first.fleet.instances
    wider = _with_whole(first, [own], np.append(own / _NEAR, own * _NEAR))
    while counts != wider:
        counts = wider
        tell(f"simulating {len(counts)} counts at {len(course.points)} points")
        step_s = _steps(course, counts, measure)
        usd_s = np.array([usd_per_h(first, n) / 3600.0 for n in counts])
        usd = step_s * usd_s[:, None]
        best = at = counts.index(own)
        for _ in range(4):  # what a second is worth follows from the count that is best by it
            per_s = worth * float(usd[best].sum() / step_s[best].sum())
            score = usd + per_s * step_s
            best = int(np.argmin(score.sum(axis=1)))
        chosen = _cheapest_way(score, resize_s * np.maximum(0.0, usd_s - usd_s[:, None]))
        wider = _with_whole(first, counts, _beside(counts, {best, *chosen.tolist()}, best))

    def by_rule(start_s: float) -> FleetTotal:
        return walked(rule or ScalingRule(), counts, at, step_s, score, usd_s, start_s)

    fixed = _total(course, counts, np.full(course.steps, best), step_s, usd, resize_s, usd_s)
    return ResizePlan(
        _total(course, counts, chosen, step_s, usd, resize_s, usd_s),
        fixed,
        _total(course, counts, np.full(course.steps, at), step_s, usd, resize_s, usd_s),
        per_s,
        resize_s,
        by_rule(resize_s),
        longest_start(lambda start_s: by_rule(start_s).worth(per_s), fixed.worth(per_s), course.steps),
    )


def _beside(counts: list[int], used: set[int], best: int) -> Iterator[float]:
    """Numbers beyond an end that is used, and between the best count and its neighbours; used, best: indices."""
    if 0 in used:
        yield from counts[0] / _NEAR
    if len(counts) - 1 in used:
        yield from counts[-1] * _NEAR
    near = pairwise(counts[max(0, best - 1) : best + 2])
    yield from (math.sqrt(a * b) for a, b in near if b > _FINE * a)


def _with_whole(scenario: Scenario, counts: list[int], wanted: Iterable[float]) -> list[int]:
    """The counts, ascending, and others next to some numbers."""
    unit = unit_of(scenario)
    others = {max(1, round(n / unit)) * unit for n in wanted if n <= MOST_INSTANCES}
    return sorted({*counts, *(n for n in others if can_be(scenario, n))})


def _steps(course: RunCourse, counts: list[int], measure: Measure) -> Floats:
    """Seconds of every step with every count, shape (counts, steps). More instances never count as slower: where the
    simulation says so, it is chance or a limit that more of them do not lift."""
    jobs = [(point, n) for point in course.points for n in counts]

    def run(job: tuple[CoursePoint, int]) -> float:
        point, n = job
        try:
            bare = with_changes(point.scenario, {"run.warmup_steps": None})
            return float(measure(looked(with_instances(bare, n)), 0)["step_s"])
        except StuckError:
            return np.inf

    found = dict(zip(((point.step, n) for point, n in jobs), side_by_side(run, jobs), strict=True))
    worst = _STUCK * max(x for x in found.values() if np.isfinite(x))
    rows = [course.per_step(lambda p, n=n: min(worst, found[p.step, n])) for n in counts]
    return np.minimum.accumulate(np.array(rows), axis=0)


def _cheapest_way(score: Floats, change: Floats) -> NDArray[np.int64]:
    """The index of the count of each step with the least sum. change: what it costs more to go from one to another,
    shape (counts, counts); nothing to stay."""
    counts, steps = score.shape
    came = np.empty((steps, counts), np.int64)
    here = np.arange(counts)
    sums = score[:, 0].copy()
    came[0] = here
    for step in range(1, steps):
        through = sums[:, None] + change
        came[step] = np.where(sums <= through.min(axis=0), here, through.argmin(axis=0))
        sums = through[came[step], here] + score[:, step]
    chosen = np.empty(steps, np.int64)
    chosen[-1] = int(np.argmin(sums))
    for step in range(steps - 1, 0, -1):
        chosen[step - 1] = came[step, chosen[step]]
    return chosen


def _total(
    course: RunCourse,
    counts: list[int],
    chosen: NDArray[np.int64],
    step_s: Floats,
    usd: Floats,
    resize_s: float,
    usd_s: Floats,
) -> FleetTotal:
    at = np.arange(course.steps)
    begins = np.flatnonzero(np.diff(chosen, prepend=-1))
    grown = sum(
        max(0.0, float(usd_s[b] - usd_s[a])) for a, b in zip(chosen[begins][:-1], chosen[begins][1:], strict=True)
    )
    moves = tuple((int(step), counts[int(chosen[step])]) for step in begins)
    return FleetTotal(moves, float(step_s[chosen, at].sum()), float(usd[chosen, at].sum()) + resize_s * grown)
