"""Steps of a job whose fleet and whose uncertain seconds vary, from a few dozen short runs.

A step takes as long as the slower of two sides, and a little more where they are even:

    step(n, f)  =  max(A, R) * bump(n, ln A / R)
    A  =  f_trainer T + f_sync B     the trainer alone: its compute, and what a weight sync holds it
    R                                rollout alone: the step of a trainer that takes no time

T are the trainer's seconds beside n instances: on the same GPUs, or on those that n leave of a number of them, it has
others for each count. On shared GPUs both take turns: a step is A + R, and what a sync holds the trainer is a part of
R. f are the factors on the seconds of the engines, the trainer and the weight sync, and
on the spread of lengths and what siblings share of it. R is simulated along the counts, and at a few of them, the
posts, for a slower sync and for other lengths. The bump, and the trainer's own share of a step, are simulated at the
posts for trainers of different speed. Multiplying all seconds by one factor multiplies the step by it, so the engines'
factor needs no runs; one run tests that. Where it does not hold (seconds that nothing scales: tools, rewards,
hand-over, failures) the factor of the engines is simulated as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from fleetsim.config.base import MAX_SECONDS
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import StuckError
from fleetsim.job.looks import looked
from fleetsim.job.nameplate import mean_step_s
from fleetsim.job.trainer_scaling import takes_turns
from fleetsim.job.trials import Measure, per_whole_step, run_ahead
from fleetsim.job.uncertainty import UNCERTAIN, Axis
from fleetsim.sim.threads import side_by_side

# --- Short runs of a job whose inputs are off: what a step took, and what the trainer did in it.

At = Callable[[int], Scenario]
# What a factor on each axis changes; inputs of one axis change it alike.
_TIMES = {u.axis: u.times for u in UNCERTAIN}


class ShortRun(Struct, frozen=True):
    """Seconds of a step, those of it in which the trainer does not wait for samples, those of these in which a sync
    holds it; and the 99th percentile of staleness."""

    step_s: float
    busy_s: float
    held_s: float
    staleness: float


class ShortRuns:
    """Runs of one job with factors on its inputs. at: the job with so many instances. whole: their seconds are those of
    a step's worth of whole samples. runs: how many; lose: whether any of them loses some for good. measure should
    remember runs."""

    def __init__(self, at: At, measure: Measure, whole: bool) -> None:
        self.runs, self._at, self._measure, self._whole, self.lose = 0, at, measure, whole, False

    def job(self, instances: int, moved: Mapping[Axis, float]) -> Scenario:
        """The job with so many instances and its inputs off by these factors."""
        scenario = looked(self._at(instances))
        changes: dict[str, Any] = {}
        for axis, factor in moved.items():
            changes |= _TIMES[axis](scenario, factor)
        return with_changes(scenario, changes) if changes else scenario

    def of(self, wanted: Iterable[tuple[int, Mapping[Axis, float]]]) -> list[ShortRun | None]:
        """One run each, side by side; None where it gets stuck."""
        jobs = []
        for n, moved in wanted:
            jobs.append(self.job(n, moved))
            run_ahead(self._measure, jobs[-1])  # while others are written
        self.runs += len(jobs)
        return side_by_side(self._run, jobs)

    def _run(self, scenario: Scenario) -> ShortRun | None:
        try:
            run = self._measure(scenario, 0)
        except StuckError:
            return None
        whole = per_whole_step(run)
        self.lose |= whole is not run
        run = whole if self._whole else run
        step, idle, held = (float(run[name]) for name in ("step_s", "trainer_idle_fraction", "sync_fraction"))
        return ShortRun(step, step * (1.0 - idle), step * held, float(run["staleness_steps"]["p99"]))


Floats = npt.NDArray[np.float64]
# How far each axis in doubt may lie, low and high, as factors. One that is not in doubt is not moved.
Far = Mapping[Axis, tuple[float, float]]
# ln of what a factor does, a polynomial of the factor's own logarithm: coefficients of the first and second power.
Curve = tuple[float, float]
# One axis of one count moved by a factor.
Move = tuple[Axis, int, float]

# Axes of the law of lengths.
_LENGTHS: tuple[Axis, ...] = ("lengths", "siblings")
# The trainer's factor in runs of rollout alone.
_ALONE = 1e-3
# ln A / R where both sides are simulated together: at the answer, and at posts beside it, where the bump is widest.
_EVEN, _EVEN_BESIDE = (-0.6, -0.2, 0.0, 0.12, 0.35, 1.2), (-0.4, 0.0, 0.12)
# There the trainer counts for nothing, and the bump is none.
_LEFT = -3.0
_GRID = np.linspace(_LEFT, 1.5, 91)
# Posts, over the answer.
POSTS = (0.5, 1.0, 2.0)
# Two steps whose logarithms differ by less are alike.
_ALIKE = 0.005
_LEAST_S = 1e-9


class Factors(Struct, frozen=True):
    """Joint cases: what the seconds of each side, the lengths' coefficient of variation, and what siblings share of it
    are multiplied by; beside: a whole step."""

    engine: Floats
    trainer: Floats
    sync: Floats
    lengths: Floats
    siblings: Floats
    beside: Floats


class _Count(Struct, frozen=True):
    """What is known of one count. alone_s: rollout alone; held_s: seconds that a sync holds the trainer; beside_s: all
    those of rollout alone in which it does not wait; sync: its share of rollout alone; curves: of rollout alone, by
    axis. Over ln A / R: the bump, the trainer's own seconds over A (both as logarithms), and staleness."""

    alone_s: float
    held_s: float
    beside_s: float
    sync: float
    curves: Mapping[Axis, Floats]
    bump: Callable[[Floats], Floats]
    busy: Callable[[Floats], Floats]
    staleness: Callable[[Floats], Floats]


class Surface:
    """Metrics of the counts around an answer, in many joint cases at once.

    at: the job with so many instances. counts: those to simulate; posts: those of them that are looked at closely.
    whole: steps are those of a step's worth of whole samples, not as they are told. measure should remember runs.
    Raises StuckError where the answer gets stuck with a trainer that takes no time.
    """

    def __init__(
        self, at: At, instances: int, counts: Collection[int], posts: Collection[int], far: Far, measure: Measure,
        whole: bool = True,
    ) -> None:  # fmt: skip
        self._runs, self._far, self.instances = ShortRuns(at, measure, whole), far, instances
        self._turns = takes_turns(at(instances))
        # Of each count the trainer is the same.
        self._alike = not self._turns and len({at(n).trainer.gpus for n in posts}) == 1
        self._trainer_s: dict[int, float] = {}
        self._alone: dict[int, ShortRun] = {}
        self._known: dict[int, _Count] = {}
        posts = {*posts, instances}
        self.extend({*counts, *posts})
        if instances not in self._alone:
            raise StuckError(f"{instances} instances get stuck with a trainer that takes no time", ())
        self._posts = sorted(posts & self._alone.keys())
        self._trainer_by_lengths = self._trainer_curve()
        moved = self._moved()
        self._curves: dict[Axis, dict[int, Curve]] = {
            of: {n: curve_through({x: y for (*at, x), y in moved.items() if at == [of, n]}) for n in self._posts}
            for of in (*_LENGTHS, "engine")
        }
        self._sync = {n: (self._sync_share(moved, n),) for n in self._posts}
        self._even = self._even_sides()

    @property
    def counts(self) -> list[int]:
        """Counts that were simulated and do not get stuck, ascending."""
        return sorted(self._alone)

    @property
    def runs(self) -> int:
        """How many short runs it took so far."""
        return self._runs.runs

    @property
    def lose(self) -> bool:
        """Whether any of them loses samples for good."""
        return self._runs.lose

    def extend(self, counts: Collection[int]) -> None:
        """Simulates rollout alone for further counts."""
        new = sorted({*counts} - self._alone.keys())
        found = self._runs.of((n, {"trainer": _ALONE}) for n in new)
        self._alone |= {n: run for n, run in zip(new, found, strict=True) if run is not None}
        self._known.clear()

    def step_s(self, instances: int, f: Factors) -> Floats:
        """Seconds of a step."""
        trainer, rollout = self._sides(instances, f)
        bump = np.exp(self._at(instances).bump(np.log(trainer / rollout)))
        return self._together(trainer, rollout) * bump * f.beside

    def idle(self, instances: int, f: Factors) -> Floats:
        """The trainer's idle share."""
        trainer, rollout = self._sides(instances, f)
        at = self._at(instances)
        # in turn it does its own, and what it does beside rollout alone: a sync, two hand-overs
        busy = trainer + at.beside_s if self._turns else trainer * np.exp(at.busy(np.log(trainer / rollout)))
        return np.clip(1.0 - busy / self.step_s(instances, f), 0.0, 1.0)

    def staleness(self, instances: int, f: Factors) -> Floats:
        """The 99th percentile of staleness."""
        trainer, rollout = self._sides(instances, f)
        return self._at(instances).staleness(np.log(trainer / rollout))

    def _together(self, trainer: Floats, rollout: Floats) -> Floats:
        """Seconds of a step without a bump: on the same GPUs both come one after the other."""
        return trainer + rollout if self._turns else np.maximum(trainer, rollout)

    def _seconds(self, instances: int, lengths: float = 1.0) -> float:
        """The trainer's own seconds beside so many instances."""
        moved: dict[Axis, float] = {} if lengths == 1.0 else {"lengths": lengths}
        if moved:
            return max(_LEAST_S, mean_step_s(self._runs.job(instances, moved)))
        if instances not in self._trainer_s:
            of = self.instances if self._alike else instances
            self._trainer_s[instances] = max(_LEAST_S, mean_step_s(self._runs.job(of, {})))
        return self._trainer_s[instances]

    def _held_s(self, instances: int) -> float:
        """Seconds that a sync holds the trainer beside its own; on shared GPUs they are seconds of rollout alone."""
        return 0.0 if self._turns else self._alone[instances].held_s

    def _sides(self, instances: int, f: Factors) -> tuple[Floats, Floats]:
        """Seconds of the trainer alone and of rollout alone."""
        at = self._at(instances)
        rollout = at.alone_s * (f.engine * (1.0 - at.sync) + f.sync * at.sync)
        for axis, curve in at.curves.items():
            rollout *= np.exp(bent(curve, getattr(f, axis)))
        trainer = f.trainer * self._seconds(instances) * np.exp(bent(self._trainer_by_lengths, f.lengths))
        return trainer + at.held_s * f.sync, rollout

    def _at(self, instances: int) -> _Count:
        """What is known of a count: between those that were simulated on the logarithm of the count."""
        if instances not in self._known:
            x, counts, alone = math.log(instances), np.log(self.counts), [self._alone[n] for n in self.counts]
            tables = (_between(x, {n: even[i] for n, even in self._even.items()}) for i in range(3))
            self._known[instances] = _Count(
                math.exp(np.interp(x, counts, [math.log(run.step_s) for run in alone])),
                float(np.interp(x, counts, [self._held_s(n) for n in self.counts])),
                float(np.interp(x, counts, [run.busy_s for run in alone])),
                float(_between(x, self._sync)[0]),
                {axis: _between(x, by) for axis, by in self._curves.items()},
                *(partial(np.interp, xp=_GRID, fp=table) for table in tables),
            )
        return self._known[instances]

    def _trainer_curve(self) -> Curve:
        """What lengths do to the trainer's seconds: a cap cuts wide ones off."""
        ends = [factor for factor in self._far.get("lengths", ()) if factor != 1.0]
        seconds = {x: self._seconds(self.instances, x) for x in ends}
        return curve_through({x: math.log(s / self._seconds(self.instances)) for x, s in seconds.items()})

    def _moved(self) -> dict[Move, float]:
        """ln of what each move does to rollout alone, at the posts."""
        ends = [(axis, x) for axis in _LENGTHS for x in self._far.get(axis, ()) if x != 1.0]
        wanted: list[Move] = [(axis, n, x) for axis, x in ends for n in self._posts]
        sync = self._far.get("sync", (1.0, 1.0))[1]
        slower: list[Move] = [("sync", n, sync) for n in self._posts if sync != 1.0]
        engine = [x for x in reversed(self._far.get("engine", ())) if x != 1.0]
        test: list[Move] = [("engine", self.instances, engine[0])] if engine else []
        found = self._simulated([*wanted, *slower, *test])
        if all(abs(found.pop(move, 0.0)) <= _ALIKE for move in test):
            return found
        return found | self._simulated([("engine", n, x) for n in self._posts for x in engine])

    def _simulated(self, moves: Sequence[Move]) -> dict[Move, float]:
        """ln of what the moves do, without those that get stuck. The sync moves with the engines, and what they do is
        over their own factor: what is left is that of seconds that nothing scales."""

        def factors(axis: Axis, factor: float) -> dict[Axis, float]:
            moved: dict[Axis, float] = {axis: factor, "trainer": _ALONE}
            return moved | {"sync": factor} if axis == "engine" else moved

        runs = self._runs.of((n, factors(axis, factor)) for axis, n, factor in moves)
        return {
            (axis, n, factor): math.log(run.step_s / self._alone[n].step_s / (factor if axis == "engine" else 1.0))
            for (axis, n, factor), run in zip(moves, runs, strict=True)
            if run is not None
        }

    def _sync_share(self, moved: Mapping[Move, float], n: int) -> float:
        """The share of rollout alone that a sync takes: a slower one makes a step longer in proportion."""
        factor = self._far.get("sync", (1.0, 1.0))[1]
        longer = math.expm1(moved.get(("sync", n, factor), 0.0))
        return min(1.0, max(0.0, longer / (factor - 1.0))) if factor > 1.0 else 0.0

    def _even_sides(self) -> dict[int, Floats]:
        """At each post over _GRID: the bump, the trainer's own share, staleness. Beyond what was simulated of a post
        beside the answer, the answer's stand in."""
        posts = [] if self._turns else self._posts  # one after the other they are never even
        wanted = [
            (n, factor)
            for n in posts
            for even in (_EVEN if n == self.instances else _EVEN_BESIDE)
            if (factor := (self._alone[n].step_s * math.exp(even) - self._held_s(n)) / self._seconds(n)) > _ALONE
            and factor * self._seconds(n) < MAX_SECONDS
        ]
        # the likeliest case: a window of few versions holds a step up by more than either side, differently at each
        wanted += [(n, 1.0) for n in posts]
        runs = self._runs.of((n, {"trainer": factor}) for n, factor in wanted)
        found: dict[int, dict[float, tuple[float, float, float]]] = {n: {} for n in self._posts}
        for (n, factor), run in zip(wanted, runs, strict=True):
            if run is not None:
                own, alone_s = factor * self._seconds(n) + self._held_s(n), self._alone[n].step_s
                bump = math.log(run.step_s / float(self._together(np.asarray(own), np.asarray(alone_s))))
                found[n][math.log(own / alone_s)] = bump, math.log(max(_LEAST_S, run.busy_s) / own), run.staleness
        for own_nodes in found.values():
            low, high = min(own_nodes, default=math.inf), max(own_nodes, default=-math.inf)
            own_nodes |= {x: of for x, of in found[self.instances].items() if not low <= x <= high}
        return {n: self._over_grid(n, found[n]) for n in self._posts}

    def _over_grid(self, n: int, nodes: Mapping[float, tuple[float, float, float]]) -> Floats:
        alone = self._alone[n]
        own = _ALONE * self._seconds(n) + self._held_s(n)
        left = 0.0, math.log(max(_LEAST_S, alone.busy_s) / own), alone.staleness
        points = {min([_LEFT, *(x - 1.0 for x in nodes)]): left, **nodes}
        xs = sorted(points)
        return np.array([np.interp(_GRID, xs, column) for column in zip(*(points[x] for x in xs), strict=True)])


def _between(x: float, by: Mapping[int, Sequence[float] | Floats]) -> Floats:
    """Values at the posts, between them on the logarithm of the count x."""
    posts: Floats = np.log(list(by))
    rows = [np.asarray(row, dtype=np.float64) for row in by.values()]
    i = min(max(int(np.searchsorted(posts, x)), 1), len(posts) - 1)
    if i == 0:
        return rows[0]
    share = min(1.0, max(0.0, (x - posts[i - 1]) / (posts[i] - posts[i - 1])))
    return (1.0 - share) * rows[i - 1] + share * rows[i]


def curve_through(points: Mapping[float, float]) -> Curve:
    """The polynomial through none, one or two points and zero at the factor 1. points: factor -> value."""
    at = [(math.log(factor), y) for factor, y in points.items()]
    if len(at) < 2:
        return (at[0][1] / at[0][0], 0.0) if at else (0.0, 0.0)
    (x1, y1), (x2, y2) = at
    second = (y2 / x2 - y1 / x1) / (x2 - x1)
    return y1 / x1 - second * x1, second


def bent(curve: Curve | Floats, factor: Floats) -> Floats:
    """The logarithm of what some factors do."""
    first, second = curve
    if first == second == 0.0:
        return np.zeros_like(factor)
    x = np.log(factor)
    return x * (first + second * x)
