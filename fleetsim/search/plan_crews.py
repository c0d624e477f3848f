"""The workers of many plans: looked at with plenty of them, counted where a plan may be the best.

To count the workers of a plan takes runs of its own. So all plans are looked at as if no worker of a tool or a reward
and no engine of a judge were waited for, and again with those that this pace needs: a step takes as many
worker-seconds, however fast it is. Of the plans that are left the workers are counted as `size` does it; of those that
may be the best one, for what the budget is to be spent on.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from fleetsim.config.scenario import Scenario
from fleetsim.config.stations import MOST_JUDGES
from fleetsim.errors import StuckError
from fleetsim.job.trainer_scaling import takes_turns
from fleetsim.job.trials import Memo, Tell, flat, trial_of, unit_of, with_instances
from fleetsim.search.front import Budget
from fleetsim.search.workers import ROUNDS, Crewing, with_workers

# A look has so many workers, over those that would always be at work.
_EASE = 1.25
# Steps by which what is needed is held against a budget.
_LONGER = 1.02
# Engines of a fleet that shows what its pace needs.
_FASTEST = 128
# So many times the engines of a judge that are plenty beside one trainer are so beside any.
_MORE = 4
# Whether a scenario is within what may be bought.
Fits = Callable[[Scenario], bool]
Run = Mapping[str, Any]


class PlanCrews(Crewing):
    """The search for the workers of a job's plans. budget: what is wanted of the best of them, None = step x cost."""

    def __init__(self, job: Scenario, measure: Memo, tell: Tell | None, budget: Budget | None = None) -> None:
        super().__init__(job, measure, tell)
        self._budget = budget
        self._wanted: Budget | None = None  # of the plan whose workers are counted

    @cached_property
    def fewest(self) -> Scenario:
        """The job with one worker of each, and one engine of each judge."""
        return with_workers(self.asked, {name: self._each(name) for name in self.given})

    def counted(self, here: Scenario, fits: Fits = lambda _: True, *, best: bool = True) -> Scenario:
        """A plan, its instances as they are, with the workers that are best for it, or with fewer that fit. best:
        whether it may be the best plan; any other has those of least step x cost."""
        if not self.given:
            return here
        self._say()
        self._wanted = self._budget if best else None
        workers = self._most
        for _ in range(ROUNDS):
            before = dict(workers)
            for name in workers:
                workers[name] = self._best(self._with(here, workers), name, hardly=False)
            if workers == before:
                break
        self._near = self._within(here, workers, fits)
        return self._with(here, self._near)

    def _best(self, here: Scenario, name: str, hardly: bool) -> int:
        """Also for a step that is hardly longer where the shortest is wanted, and where none is short enough."""
        if self._wanted is not None and not hardly:
            longest = self._step_s(with_workers(here, {name: self._plenty(name)}))
            hardly = self._wanted.metric == "step_s" or math.isinf(longest)
        return super()._best(here, name, hardly)

    def _power(self, here: Scenario) -> float:
        return super()._power(here) if self._wanted is None else 1.0

    def _step_s(self, here: Scenario) -> float:
        """By all runs where a step is to be held, for they decide whether it is."""
        wanted = self._wanted
        if wanted is None or wanted.step_s is None:
            return super()._step_s(here)
        try:
            runs = [self._measure(here, r) for r in range(here.run.replications)]
        except StuckError:
            return math.inf
        step_s = trial_of(here.fleet.instances, runs).whole("step_s")
        return step_s if wanted.holds(step_s) else math.inf

    @cached_property
    def _work_s(self) -> dict[str, float]:
        """Worker-seconds that a step takes of each station at least, from a fleet in which groups hardly share an
        instance: calls of tools and rewards, each of which has a worker for itself; and answers of one engine that
        judges them together."""
        free = self.at_ease
        if not takes_turns(free):
            most = max(free.fleet.instances // unit_of(free), min(free.groups_per_step, _FASTEST))
            free = with_instances(free, most * unit_of(free))
        found = dict.fromkeys(self.given, 0.0)
        for name in found:
            # Of a judge with an overflow one engine would leave the others' work to it.
            alone = name in self._judges and self._judges[name].overflow is None
            for n in (self._each(name), self._plenty(name)) if alone else (self._plenty(name),):
                run = self._run(with_workers(free, {name: n}))
                if run.stuck is None:
                    found[name] = n * run.mean(f"stations.{name}.busy_fraction") * run.mean("step_s")
                    break
        return found

    def crewed(self, here: Scenario, replication: int, run: Run, fits: Fits) -> Run:
        """A look with plenty of workers for nothing, made again with those that its pace needs; `alone_s` is what a
        step took before. Any other run as it is."""
        alone_s = float(run["step_s"])
        there = self.manned(here, alone_s, fits)
        return run if there is here else {**flat(self._measure(there, replication)), "alone_s": alone_s}

    def manned(self, here: Scenario, alone_s: float, fits: Fits) -> Scenario:
        """A plan that was looked at with plenty of workers, with those that its pace needs, as far as they fit."""
        if not self.given or here.stations != self.at_ease.stations:
            return here
        return self._with(here, self._within(here, self._needed(alone_s), fits))

    def _plenty(self, name: str) -> int:
        """Of a judge more than beside the job's own trainer, for others are faster."""
        plenty = super()._plenty(name)
        return self._whole(name, min(MOST_JUDGES, _MORE * plenty)) if name in self._judges else plenty

    def _needed(self, step_s: float) -> dict[str, int]:
        """The workers with which a step hardly takes longer than so many seconds, by what it takes of them."""
        return {name: self._whole(name, math.ceil(_EASE * s / step_s)) for name, s in self._work_s.items()}

    def _with(self, here: Scenario, workers: Mapping[str, int]) -> Scenario:
        """A plan with so many workers, at the job's own prices."""
        return with_workers(here.model_copy(update={"stations": self.asked.stations}), workers)

    def _within(self, here: Scenario, workers: Mapping[str, int], fits: Fits) -> dict[str, int]:
        """Those of a plan, or what of them a longer step needs that fits: the shortest such step, and then as many more
        of each as fit, the busiest first; the fewest where no more do."""

        def fit(counts: Mapping[str, int]) -> bool:
            return fits(self._with(here, counts))

        if fit(workers):
            return dict(workers)

        def at(k: int) -> dict[str, int]:
            return {name: min(workers[name], n) for name, n in self._needed(shortest_s * _LONGER**k).items()}

        shortest_s = max(1e-9, min(s / workers[name] for name, s in self._work_s.items()))
        longest = math.ceil(math.log(max(1.0, _EASE * max(self._work_s.values()) / shortest_s), _LONGER))
        found = at(bisect_left(range(longest), True, key=lambda k: fit(at(k))))
        if fit(found):
            for name in sorted(found, key=lambda name: self._work_s[name] / found[name], reverse=True):
                counts = range(found[name], workers[name] + 1, self._each(name))
                found[name] = counts[bisect_left(counts, True, key=lambda n: not fit({**found, name: n})) - 1]
        return found
