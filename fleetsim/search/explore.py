"""Branch and bound over plans: the most promising first, and only those that their bound leaves a chance are simulated.

A plan has four looks: the rough bound, by rate and trainer alone; the bound of its scenario (`bound.py`); what plans
that are alike took, and how old their samples were (`Likely`); and one simulated run, all under the same draws. Plans
that differ in counts alone have their bounds at once, as numbers. Dollars are seconds times a price,
so that a bound of one is a bound of both. Of many counts some are looked at, then those between them beside the best.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field

from fleetsim import units
from fleetsim.config.law_numbers import law_of
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.engine.transport import syncs_between
from fleetsim.errors import StuckError
from fleetsim.job.looks import look_steps, looked
from fleetsim.job.trials import Measure, Tell, flat, run_ahead
from fleetsim.records import replace
from fleetsim.search.bound import Bounds, PoolSizes
from fleetsim.search.front import C, Found, Goal
from fleetsim.search.shares import Candidate
from fleetsim.sim.processes import some_free
from fleetsim.sim.threads import side_by_side

# Simulated at a time: what they find prunes the next ones.
_AT_ONCE = 8

# Steps of a run that says how old samples are in the long run.
_LONG, _LONG_SAMPLES = 100, 250_000

# Counts are first this much apart (`shares.STRIDE`), then that.
_STRIDES = (1.25, 1.12, 1.06, 1.03)
# Its place in the order, its number, what its step takes at least, the plan, and those that differ from it in counts
# alone until its own bound is known.
Waiting = tuple[Any, int, float, Candidate, Sequence[Candidate] | None]
# A choice, the scenario that was run for it, which replication, and that run, to the run as the search takes it.
Crewed = Callable[[Any, Scenario, int, Mapping[str, Any]], Mapping[str, Any]]


# Plans are alike whose counts of instances and trainer GPUs differ together by less than this, as logarithms.
_NEAR = 0.3
# No step of a thousand simulated plans of Qwen3-32B on up to 512 GPUs was below this share of the guess. Nor was one of
# 1,670 of ten jobs below exp(-distance), up to 0.2 apart: a pool that grows by some factor shortens no step by more.
_SURE = 0.9
# Of plans with other engines, whatever their counts.
_LESS_SURE = 0.87


class SearchTally(Struct):
    """Plans that were looked at, and how far: by the rough bound, by their scenario's, by plans that are alike, by a
    run. impossible: that no scenario, engine or trainer can be."""

    plans: int = 0
    impossible: int = 0
    rough: int = 0
    bound: int = 0
    alike: int = 0
    simulated: int = 0
    runs: int = 0


class Search:
    """The choices of one job that were simulated so far. found: by scenario, the latest of each. stuck: choices that
    get stuck, with the reason. too_old: places whose samples were, in more runs than the search makes of each. known:
    by place, with all runs, what a look was luckier than. crewed: what a run of a choice is taken for."""

    def __init__(
        self,
        measure: Measure,
        tell: Tell | None = None,
        crewed: Crewed = lambda choice, scenario, replication, run: run,
    ) -> None:
        self.found: dict[Scenario, Found[Any]] = {}
        self.stuck: dict[Any, StuckError] = {}
        self.too_old: set[object] = set()
        self.known: dict[object, Found[Candidate]] = {}
        self._crewed = crewed
        self.tally = SearchTally()
        self._bounds, self._likely = Bounds(), Likely()
        self._closer: dict[Candidate, float] = {}
        self.measure, self._tell = measure, tell or (lambda text: None)

    def refining(
        self, candidates: Iterable[Candidate], wanted: Goal, finer: Callable[[Candidate, float], Iterable[Candidate]],
        what: str,
    ) -> list[Found[Candidate]]:  # fmt: skip
        """Those whose samples are as fresh as is permitted; then what lies between the counts of those that are worth
        it, in ever smaller strides.

        A pool that grows by some factor shortens no step by more, so a plan that is beaten by more than the stride has
        nothing better near it. finer: plans whose counts differ by so much from those of one.
        """
        found = list(self.exploring(candidates, wanted, what))
        seen = {f.choice.place for f in found}
        for stride in _STRIDES:
            near: dict[object, Candidate] = {}
            for f in found:
                if self._fits(f, wanted, f.sure_age) and wanted.worth(f.step_s / stride, f.usd / stride):
                    near |= {c.place: c for c in finer(f.choice, stride) if c.place not in seen}
            seen |= near.keys()
            found += self.exploring(near.values(), wanted, f"{what}, counts within {units.share(stride - 1, 0)}")
            if stride == _STRIDES[0]:
                wanted.tell([f for f in found if self._fits(f, wanted)])
        return [f for f in found if self._fits(f, wanted)]

    def _fits(self, found: Found[Candidate], wanted: Goal, age: float | None = None) -> bool:
        """Whether its samples are as fresh as is permitted, and an hour of it is paid. age: theirs, if not that of all
        its runs: what is near a plan whose look is too old by a sample or two may be fresh."""
        fresh = wanted.permits(found.age if age is None else age) and found.choice.place not in self.too_old
        return fresh and wanted.budget.affords(found)

    def exploring(self, candidates: Iterable[Candidate], wanted: Goal, what: str) -> Iterator[Found[Candidate]]:
        """Simulates those that stay worth a look while others are found, in the order of their bounds; what is found
        may be older than is permitted."""
        waiting: list[Waiting] = []
        before = len(self.found)
        for alike in by_kind(candidates):
            for candidate, bound in zip(alike, rough_s(self._bounds, alike), strict=True):
                self.tally.plans += 1
                if math.isinf(bound):
                    self.tally.impossible += 1
                elif not wanted.worth(bound, candidate.usd_per_s * bound):
                    self.tally.rough += 1
                else:
                    waiting.append(_waiting(wanted, self.tally.plans, bound, candidate, alike))
        heapq.heapify(waiting)
        missed = wanted.missed
        while waiting:
            if wanted.missed != missed:
                missed = wanted.missed
                waiting = [_waiting(wanted, *one[1:]) for one in waiting]
                heapq.heapify(waiting)
            chosen = self._next(waiting, wanted)
            if chosen:
                self._tell(f"{what}: {len(waiting):,} left, {len(self.found) - before:,} simulated")
            bounds = {candidate.place: bound for bound, candidate, _ in chosen}
            for look in self.simulated([(c, s) for _, c, s in chosen]):
                found = self.known.get(look.choice.place, look)
                if self._fits(found, wanted) and wanted.decides(found.step_s, found.usd):
                    (found,) = self.aged([found])  # what rules all others out must be as fresh as it looks
                if self._fits(found, wanted):
                    wanted.add(found.step_s, found.usd)
                self._likely.add(found.choice, found.alone_s, bounds[found.choice.place], found.sure_age)
                yield found

    def bounded(self, candidates: Iterable[Candidate]) -> Iterator[tuple[Candidate, float]]:
        """Those that can be, with the seconds that a step of each takes at least."""
        for alike in by_kind(candidates):
            for candidate, bound in zip(alike, rough_s(self._bounds, alike), strict=True):
                least = bound if math.isinf(bound) else max(bound, self.closer_s(candidate, alike))
                if not math.isinf(least):
                    yield candidate, least

    def _next(self, waiting: list[Waiting], wanted: Goal) -> list[tuple[float, Candidate, Scenario]]:
        """The next few that are worth a simulation, taken from the heap, with their bounds."""
        chosen: list[tuple[float, Candidate, Scenario]] = []
        while waiting and len(chosen) < _AT_ONCE:
            place, number, bound, candidate, alike = heapq.heappop(waiting)
            if not wanted.worth(bound, candidate.usd_per_s * bound):
                if alike is not None:
                    self.tally.rough += 1
                else:
                    self.tally.bound += 1
            elif alike is not None:
                closer = max(bound, self.closer_s(candidate, alike))
                if math.isinf(closer):
                    self.tally.impossible += 1
                    continue
                heapq.heappush(waiting, _waiting(wanted, number, closer, candidate))
            else:
                asked = wanted.budget.step_s is not None
                likely = self._likely.step_s(candidate, bound, asked=asked, of_others=wanted.only_best)
                old = not wanted.permits(self._likely.age(candidate))
                if old or not wanted.worth(likely, candidate.usd_per_s * likely):
                    self.tally.alike += 1
                elif (key := wanted.order(likely, candidate.usd_per_s * likely)) > place:  # others may be better
                    heapq.heappush(waiting, (key, number, bound, candidate, None))
                elif (made := candidate.scenario()) is None:
                    self.tally.impossible += 1
                else:
                    chosen.append((bound, candidate, made))
                    if some_free():  # while others are chosen
                        run_ahead(self.measure, looked(made))
        return chosen

    def closer_s(self, candidate: Candidate, alike: Sequence[Candidate]) -> float:
        """Seconds that a step takes at least, by the scenario of the plan; those of all that are alike are worked out
        at once, as numbers. Infinite where there is no such scenario."""
        if candidate not in self._closer:
            made = candidate.scenario()
            if made is None:
                return math.inf
            if law_of(made).ahead is None or made.fleet.speed_factors:
                return self._bounds.step_s(made)
            there = [c for c in alike if c.engines.trainer(c.share) is not None]
            syncs = syncs_between(made, [(c.share.instances, c.share.trainer_gpus) for c in there])
            by = self._bounds.by_pools(made, replace(pools_for(there), syncs=syncs))
            steps = np.maximum.reduce(np.broadcast_arrays(*by.values(), np.zeros(len(there))))
            self._closer |= dict(zip(there, steps.tolist(), strict=True))
        return self._closer[candidate]

    def simulated(self, plans: Sequence[tuple[C, Scenario]], replications: int = 0, what: str = "") -> list[Found[C]]:
        """The choices, by so many long runs each, or by a look; those that get stuck are left out.

        what: what these are, for who is told how many runs are made. After Ctrl-C what is whole is known.
        """
        each = max(1, replications)
        short = [scenario if replications else looked(scenario) for _, scenario in plans]
        jobs = [(n, r) for n in range(len(plans)) for r in range(each)]
        runs: list[list[Mapping[str, Any]]] = [[] for _ in plans]
        found = []

        def made(job: tuple[int, int]) -> Mapping[str, Any] | None:
            return self._one(plans[job[0]][0], short[job[0]], job[1])

        def done(i: int, run: Mapping[str, Any] | None) -> None:
            if what:
                self._tell(f"{what}: {i + 1:,} of {units.plural(len(jobs), 'run')}")
            n, (choice, scenario) = jobs[i][0], plans[jobs[i][0]]
            if run is None:
                self.found.pop(scenario, None)
                return
            runs[n].append(run)
            if len(runs[n]) == each:
                self.found[scenario] = Found(choice, scenario, tuple(runs[n]), decided=replications > 0)
                found.append(self.found[scenario])

        side_by_side(made, jobs, each=done)
        self.tally.simulated += len(plans)
        self.tally.runs += len(jobs)
        return found

    def aged(self, plans: Sequence[Found[C]]) -> list[Found[C]]:
        """The plans with a long run of each: a short one may end before the oldest samples are trained."""
        longer = []
        for f in plans:  # long enough for the age of its samples, and affordable
            steps = max(look_steps(f.scenario), min(_LONG, _LONG_SAMPLES // f.scenario.trainer.batch_samples))
            longer.append((f.choice, with_changes(f.scenario, {"run.steps": steps})))
        runs = side_by_side(lambda one: self._one(*one, 0), longer)
        self.tally.runs += len(longer)
        return [replace(f, long=() if run is None else (run,)) for f, run in zip(plans, runs, strict=True)]

    def _one(self, choice: object, scenario: Scenario, replication: int) -> Mapping[str, Any] | None:
        try:
            return self._crewed(choice, scenario, replication, flat(self.measure(scenario, replication)))
        except StuckError as error:
            self.stuck[choice] = error
            return None


def _waiting(
    wanted: Goal, number: int, least_s: float, candidate: Candidate, alike: Sequence[Candidate] | None = None
) -> Waiting:
    """A plan in its place of the order, by what its step takes at least."""
    return wanted.order(least_s, candidate.usd_per_s * least_s), number, least_s, candidate, alike


def by_kind(candidates: Iterable[Candidate]) -> Iterable[list[Candidate]]:
    """Those that differ in their counts alone, together."""
    found: dict[object, list[Candidate]] = {}
    for c in candidates:
        found.setdefault((c.engines, c.ahead, c.share.kind), []).append(c)
    return found.values()


def pools_for(alike: Sequence[Candidate]) -> PoolSizes:
    """Their pools, without syncs; infinite seconds of a trainer that does not fit."""
    rows = [(c.share.instances, *c.engines.trainer_s(c.share)) for c in alike]
    return PoolSizes(*np.array(rows, np.float64).T)


def rough_s(bounds: Bounds, alike: Sequence[Candidate]) -> list[float]:
    """Seconds that a step of each takes at least, before there is a scenario; of plans that differ in counts alone.
    Infinite for a trainer that does not fit."""
    one = alike[0]
    together = one.share.kind != "split"
    found = bounds.rough_s(one.engines.scenario, pools_for(alike), one.ahead.steps, together=together)
    return [float(seconds) for seconds in found]


class Likely(Struct):
    """What a step is likely to take, from plans that are alike: by how much the simulator was above the bound there.

    Bounds leave out tails, imbalance and the order of samples. What they leave out hardly changes from a plan to one
    with a few GPUs more of either pool, on the same engines and under the same staleness. So the bound of a plan, times
    what the nearest plan of its kind took over its own, is near its step; less surely, what one of other engines took.
    """

    # By kind, with and without the engines: instances and trainer GPUs as logarithms, steps, and these over their
    # bounds.
    _seen: dict[object, list[tuple[float, float, float, float]]] = field(default_factory=dict)
    # By engines, share and cadence: how far ahead, instances and trainer GPUs, and ages.
    _ages: dict[object, list[tuple[float, float, float, float]]] = field(default_factory=dict)

    def add(self, candidate: Candidate, step_s: float, bound: float, age: float) -> None:
        """One simulated plan."""
        place = _place(candidate)
        for kind in (candidate.kind, candidate.kind[1:]):
            self._seen.setdefault(kind, []).append((*place, step_s, step_s / bound))
        self._ages.setdefault(_cadence(candidate), []).append((candidate.ahead.steps or 0.0, *place, age))

    def step_s(self, candidate: Candidate, bound: float, *, asked: bool, of_others: bool) -> float:
        """Seconds that its step is likely to take at least. of_others: where nothing is known of its own engines, by
        those of others.

        asked: a step is asked for, and what is smaller than a plan that does not make it is not looked at for the sake
        of luck. Of 490,000 pairs of simulated plans of a kind, of which one has no more of either pool, none of these
        had a step below 0.97 of the other's.
        """
        instances, trainer = _place(candidate)
        larger = (s for n, t, s, _ in self._seen.get(candidate.kind, []) if n >= instances and t >= trainer)
        least = max([bound, *larger]) if asked else bound
        kinds = [(candidate.kind, _SURE), (candidate.kind[1:], _LESS_SURE)]
        for kind, sure in kinds if of_others else kinds[:1]:
            seen = self._seen.get(kind, [])
            near = ((abs(n - instances) + abs(t - trainer), over) for n, t, _, over in seen)
            far, over = min(near, default=(math.inf, 1.0))
            if far < _NEAR:
                own = kind == candidate.kind
                return max(least, (max(sure, math.exp(-far)) if own else sure) * over * bound)
        return least

    def age(self, candidate: Candidate) -> float:
        """Steps that its samples are old at least; 0 where nothing is known.

        A fleet that is no larger, beside a trainer that is no smaller, takes as many steps for a response at least; and
        one that may run farther ahead does.
        """
        ahead, (instances, trainer) = candidate.ahead.steps or 0.0, _place(candidate)
        seen = self._ages.get(_cadence(candidate), [])
        return max((age for a, n, t, age in seen if a <= ahead and n >= instances and t <= trainer), default=0.0)


def _cadence(candidate: Candidate) -> tuple[object, ...]:
    return candidate.engines, candidate.share.kind, candidate.ahead.changes.get("sync.every_steps")


def _place(candidate: Candidate) -> tuple[float, float]:
    instances = candidate.share.instances + candidate.engines.pools_as_first
    return math.log(instances), math.log(candidate.share.trainer_gpus)
