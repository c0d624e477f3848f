"""Which counts of instances from which step on, what that saves, and what a rule that sees the past alone would do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import InputError, Problem, StuckError
from fleetsim.faces import flag
from fleetsim.forecast.schedule import CoursePoint, RunCourse
from fleetsim.job.looks import looked
from fleetsim.job.trainer_scaling import can_be
from fleetsim.job.trials import Measure, per_whole_step, unit_of, with_instances
from fleetsim.policies.scaling import Damping, Held, damped
from fleetsim.search.objective import usd_per_h
from fleetsim.search.rate_matching import MOST_INSTANCES
from fleetsim.sim.threads import side_by_side

Floats = NDArray[np.float64]

# --- What a rule that resizes the fleet does to a run: it sees the last hour only, and an instance takes time to
# start.
#
# `watch` follows such a rule. Against the resize plan, which knows the whole run beforehand, it comes late; against a
# count that never changes it wins where the run changes enough, and where instances start soon enough.

RULE = flag("rule")
# Starts that are tried for the longest with which a rule pays: from this, doubled so often, then halved between two.
_SHORTEST_S, _DOUBLED, _HALVED = 30.0, 12, 4
# A rule that never moves costs what the fixed count does, but for the last digits of two sums.
_ROUNDED = 1e-9
# Steps that are walked for it, at most.
_MOST_WALKED = 1_000_000


class ScalingRule(Struct, frozen=True):
    """damping: how counts that are wanted become one. every_s: between two evaluations. window_s: what each one sees.
    Raises InputError for seconds that are none."""

    damping: Damping = Damping()
    every_s: float = 60.0
    window_s: float = 3600.0

    def __post_init__(self) -> None:
        wrong = [x for x in (self.every_s, self.window_s) if not (math.isfinite(x) and x >= 1.0)]
        if wrong:
            raise InputError([Problem(RULE, wrong[0], "every and window are seconds, at least 1", "give every=60")])


# A word of --rule: what it sets, and whether that counts evaluations.
_WORDS = {"up_after": int, "down_after": int, "down_share": float, "cool_down": float, "every": float, "window": float}


def rule_of(text: str | None) -> ScalingRule:
    """The rule that `up_after=2,cool_down=300` says; what is left out is as `fleetsim watch` has it. Raises
    InputError."""
    said: dict[str, float] = {}
    for part in (text or "").split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if not part.strip():
            continue
        try:
            said[name] = _WORDS[name](value)
        except (KeyError, ValueError):
            remedy = f"for example up_after=2,cool_down=300; there are {', '.join(_WORDS)}"
            raise InputError([Problem(RULE, part, "is no NAME=NUMBER of a rule", remedy)]) from None
    loop = {f"{name}_s": said.pop(name) for name in ("every", "window") if name in said}
    if "cool_down" in said:
        said["cool_down_s"] = said.pop("cool_down")
    try:
        return ScalingRule(Damping(**said), **loop)  # type: ignore[arg-type]
    except InputError as error:
        raise InputError([Problem(RULE, text, p.rule, p.remedy) for p in error.problems]) from None


class FleetTotal(Struct, frozen=True):
    """A run with such counts: (from step, instances) in order; seconds and US dollars of all of it, resizes too."""

    counts: tuple[tuple[int, int], ...]
    seconds: float
    usd: float

    def worth(self, usd_per_s: float) -> float:
        """US dollars, with its seconds at what one is worth."""
        return self.usd + usd_per_s * self.seconds


def walked(
    rule: ScalingRule, counts: Sequence[int], start: int, step_s: Floats, score: Floats, usd_s: Floats, start_s: float
) -> FleetTotal:
    """The run from its first step on, with the count of index `start`.

    step_s, score: seconds of each step, and what it costs in all that counts, with each count, shape (counts, steps).
    usd_s: dollars a second of each count. start_s: a new instance is paid for so long before it serves. An evaluation
    wants the count with the least score over the steps that ended within its window; it serves from the next step on.
    """
    sums = np.concatenate([np.zeros((len(counts), 1)), np.cumsum(score, axis=1)], axis=1)
    index = {n: i for i, n in enumerate(counts)}
    held, serving, paid = Held(counts[start]), start, start
    now = due = ready_s = usd = 0.0
    ended, first = [0.0], 0
    moves = [(0, counts[start])]
    for step in range(step_s.shape[1]):
        if serving != paid and (paid < serving or now >= ready_s):
            serving = paid
            moves.append((step, counts[serving]))
        end = now + float(step_s[serving, step])
        usd += float(usd_s[paid]) * (end - now)
        while due <= end:
            while first < step and ended[first + 1] < due - rule.window_s:
                first += 1
            same = end if step == first else due  # until when an evaluation changes nothing
            if step > first:
                wanted = counts[int(np.argmin(sums[:, step] - sums[:, first]))]
                before, held = held, damped(held, wanted, counts[paid], due, rule.damping)
                new = index[held.instances or counts[paid]]
                if new != paid:
                    usd += float(usd_s[new] - usd_s[paid]) * (end - due) if new > paid else 0.0
                    paid, ready_s = new, due + start_s
                if held == before:  # nor do the next, until the window moves on or the rest after a change is over
                    rest = held.changed_s + rule.damping.cool_down_s
                    same = min(end, ended[first + 1] + rule.window_s, rest if rest > due else math.inf)
            due += rule.every_s * max(1.0, (same - due) // rule.every_s)
        now = end
        ended.append(end)
    return FleetTotal(tuple(moves), now, usd)


def longest_start(run_with: Callable[[float], float], fixed: float, steps: int) -> float | None:
    """The longest start of an instance that was tried, seconds, with which a rule is no dearer than the best fixed
    count; 0 where it never pays, None for a run too long to try.

    run_with: what counts of a run whose instances start in so many seconds. fixed: the same of the fixed count.
    """
    if steps * (_DOUBLED + _HALVED) > _MOST_WALKED:
        return None
    most = fixed * (1.0 + _ROUNDED)
    if run_with(0.0) > most:
        return 0.0
    pays, costs = 0.0, _SHORTEST_S
    for _ in range(_DOUBLED):
        if run_with(costs) > most:
            break
        pays, costs = costs, 2.0 * costs
    else:
        return pays
    for _ in range(_HALVED):
        middle = (pays + costs) / 2.0
        pays, costs = (middle, costs) if run_with(middle) <= most else (pays, middle)
    return pays


# --- The plan that knows the whole run beforehand.

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
            return float(per_whole_step(measure(looked(with_instances(bare, n)), 0))["step_s"])
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
