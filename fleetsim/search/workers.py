"""How many workers a station needs: sandboxes of tools, workers of rewards, engines of judges, with the instances that
go with them.

Where a job limits a station's workers, and where it has engines that judge, they are searched together with the count
of instances, by the same objective: one count after the other with the others as they are, from plenty of workers
downwards, until none moves; then more or fewer of all together, for workers that are just enough hold more instances
up. Workers that cost nothing have no price to be held against: of them it is the fewest with which a step is hardly
longer. Workers are looked at in long runs: a short one sees the first calls of all rollouts at once, and more in use
than ever after. Where what they are too few for goes to an overflow that costs money, what it costs counts with them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, cached_property

from msgspec import Struct

from fleetsim import units
from fleetsim.config.judges import JUDGES, judges_of
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.stations import MOST_JUDGES
from fleetsim.config.tree import is_given, value_at
from fleetsim.errors import StuckError
from fleetsim.estimates import Estimate
from fleetsim.job.looks import long_enough
from fleetsim.job.trainer_scaling import next_count
from fleetsim.job.trials import Memo, Tell, Trial, Trials, never, trial_of, with_instances
from fleetsim.job.words import CALLED
from fleetsim.search.alternative import Anew, anew
from fleetsim.search.best import best_of
from fleetsim.search.bound import Bounds
from fleetsim.search.objective import Target, least, objective, price_per_s
from fleetsim.search.rate_matching import MOST_INSTANCES, matched, smallest
from fleetsim.sim.judges import judges_usd_per_h
from fleetsim.sim.stations import EDGES, HOUR_S, timed_stations

# More than any job has calls at once, and engines with which each judges so few answers of a batch.
PLENTY = 1_000_000
_ANSWERS = 8
# Workers without a price: so much longer a step may be than with plenty of them.
_HARDLY = 0.01
# Neighbouring counts of a search, and of counts of instances while workers are looked for.
_FINE, _INSTANCES = 1.1, 4 / 3
ROUNDS = 2
# What is told beside counts that the job does not say otherwise: so much fewer.
_FEWER = 2 / 3
# What a worker costs, and what a judge does.
_PRICES = ("worker_price_usd_per_h", "price_usd_per_gpu_h")


def path_of(station: str) -> str:
    """Where a scenario says how many workers a station has."""
    return f"stations.{station}.{'instances' if station in JUDGES else 'workers'}"


def counted(station: str, n: int) -> str:
    """ "96 sandboxes"; "1 engine of the judge"."""
    return f"{n:,} {CALLED[station]}" if station in CALLED else f"{units.plural(n, 'engine')} of the {station}"


def workers_of(scenario: Scenario) -> dict[str, int]:
    """Station -> its workers, of those that the job limits; judges have engines."""
    judges = (name for name, judge in judges_of(scenario).items() if judge.has_engines)
    own = {name: value_at(scenario, path_of(name)) for name in (*timed_stations(scenario), *judges)}
    return {name: n for name, n in own.items() if n is not None}


def workers_words(scenario: Scenario, estimates: Mapping[str, Estimate] | None = None) -> str:
    """ "96 sandboxes, 2 engines of the judge", with the share that is in use where that is known; empty for a job that
    limits none."""
    said = []
    for name, n in workers_of(scenario).items():
        busy = None if estimates is None else estimates[f"stations.{name}.busy_fraction"].mean
        said.append(counted(name, n) + ("" if busy is None else f" ({units.share(busy, 0)} in use)"))
    return ", ".join(said)


def with_workers(scenario: Scenario, workers: Mapping[str, int]) -> Scenario:
    """The scenario with other counts of workers, by station."""
    return with_changes(scenario, {path_of(name): n for name, n in workers.items()}) if workers else scenario


class Crew(Struct, frozen=True):
    """The workers of one station beside the recommended instances.

    workers: those of the plan; where the job sets no limit, as many as are in use for 99 % of the time. given: the
    job's own limit, None = none; said: somebody gave it, it is no default. p99, most: in use with plenty of them, for
    99 % of the time and at once. busy: the share of `workers` that is in use. with_them, other: the fleet as it is
    recommended, and with `fewer`, which are those given where they are others.
    """

    station: str
    workers: int
    given: int | None
    said: bool
    p99: float
    most: float
    busy: float
    with_them: Trial
    fewer: int
    other: Trial

    @property
    def longer(self) -> float:
        """By which share a step is longer with fewer; negative where they are more."""
        return self.other.whole("step_s") / self.with_them.whole("step_s") - 1.0

    @property
    def dearer(self) -> float:
        """The same of what a step costs."""
        other, now = (trial.whole("cost_per_step") for trial in (self.other, self.with_them))
        return other / now - 1.0 if now else 0.0

    def told(self) -> dict[str, object]:
        """As it stands in a JSON document."""
        names = ("step_s", "cost_per_step")
        beyond = {name: f"stations.{self.station}.{name}" for name in ("overflow_share", "overflow_usd")}
        other: dict[str, object] = {"workers": self.fewer, "stuck": self.other.stuck is not None}
        if self.other.stuck is None:
            other |= {name: self.other.mean(name) for name in names}
            other |= {"step_longer": self.longer, "cost_more": self.dearer}
        return {
            "workers": self.workers,
            "given": self.given,
            "in_use_p99": self.p99,
            "in_use_most": self.most,
            "busy_fraction": self.busy,
            **{name: self.with_them.mean(name) for name in names},
            **{what: self.with_them.mean(path) for what, path in beyond.items() if path in self.with_them.estimates},
            "fewer": other,
        }


class Crewing:
    """The search for the workers of a job's stations.

    asked: the job. stations: all whose calls take time. given: station -> workers, of those that the job limits; said:
    paths that somebody gave; chosen: of the workers, what is best for the job, once `job` has found that.
    """

    def __init__(self, job: Scenario, measure: Memo, tell: Tell | None, said: Collection[str] = ()) -> None:
        self._measure, self._tell, self._bounds = measure, tell, Bounds(steady=True)
        self._judges = {name: judge for name, judge in judges_of(job).items() if judge.has_engines}
        self.stations = (*timed_stations(job), *self._judges)
        self.given = workers_of(job)
        self.asked, self._said = job, said
        self.chosen: dict[str, int] = {}
        self._near = self.given  # where the search begins

    @cached_property
    def at_ease(self) -> Scenario:
        """The job with plenty of workers, for nothing."""
        free = {f"stations.{name}.{_PRICES[name in JUDGES]}": 0.0 for name in self.given}
        return with_changes(with_workers(self.asked, self._most), free) if self.given else self.asked

    def job(self, guess: int, targets: Sequence[Target]) -> tuple[Scenario, int]:
        """The job with the workers that are best for it, where it limits any, and the instances beside which they are.
        guess: instances."""
        if not self.given:
            return self.asked, guess
        self._say()
        workers, there = self._most, self.at_ease
        for _ in range(ROUNDS):
            n = best_of(Trials(there, self._measure).looks, guess, targets, 1, fine=_INSTANCES).instances
            before, guess = workers, n
            workers = self._counted(n, workers, workers, bool(targets))
            if workers == before:
                break
            there = with_workers(self.asked, workers)
        if not targets:
            n, workers = self._along(n, workers)
        self.chosen = workers
        return with_workers(self.asked, workers), n

    def _say(self) -> None:
        if self._tell is not None:
            self._tell("counting the workers of tools, rewards and judges")

    def _counted(
        self, instances: int, workers: Mapping[str, int], stations: Iterable[str], hardly: bool = False
    ) -> dict[str, int]:
        """These workers, of some stations as many as are best beside the others. hardly: as of `_best`."""
        found = dict(workers)
        for name in stations:
            found[name] = self._best(self._at(instances, found), name, hardly)
        return found

    def _along(self, instances: int, workers: dict[str, int]) -> tuple[int, dict[str, int]]:
        """These counts, or more or fewer instances with as many more or fewer workers. Either alone may gain nothing:
        workers that are just enough hold more instances up, and engines that judge are few."""

        def value(n: int, counts: dict[str, int]) -> float:
            seen = self._seen(here := self._at(n, counts))
            usd = sum(seen.mean(f"stations.{name}.overflow_usd") for name in counts if self._pays_beyond(name))
            return objective(here, n, seen.whole("step_s"), usd)

        least, called = value(instances, workers), [name for name in workers if name not in self._judges]
        for way in (1, -1):
            while n := self._next(instances, way):
                more = {name: max(1, round(workers[name] * n / instances)) for name in called}
                further = self._counted(n, workers | more, self._judges)
                if (found := value(n, further)) >= least:
                    break
                instances, workers = n, self._counted(n, further, called)
                least = min(found, value(instances, workers))  # of workers for nothing, fewer that are hardly worse
        return instances, workers

    def _next(self, instances: int, way: int) -> int:
        """The count that is a third more or fewer, or the next one; 0 without one."""
        n = found = next_count(self.asked, instances, way)
        while n and max(n / instances, instances / n) <= _INSTANCES:
            found, n = n, next_count(self.asked, n, way)
        return found if found <= MOST_INSTANCES else 0

    def crews(self, here: Scenario) -> tuple[Crew, ...]:
        """The workers of all stations beside the recommended fleet. here: it, with its count of instances."""
        return tuple(self._crew(here, name) for name in self.stations)

    def _at(self, instances: int, workers: Mapping[str, int]) -> Scenario:
        return with_instances(with_workers(self.asked, workers), instances)

    def _crew(self, here: Scenario, name: str) -> Crew:
        given, of, now = self.given.get(name), f"stations.{name}", self._run(here)
        said = given is not None and is_given(path_of(name), self._said)
        if name in self._judges:
            n, busy = self.chosen[name], now.mean(f"{of}.busy_fraction")
            fewer = given if given is not None and given != n else self._whole(name, math.floor(_FEWER * n))
            other = self._run(with_workers(here, {name: fewer}))
            return Crew(name, n, given, said, busy * n, float(n), busy, now, fewer, other)
        free = self._run(with_workers(here, {name: PLENTY}))
        p99, most, in_use = (free.mean(f"{of}.{what}") for what in ("workers_p99", "workers_most", "busy_fraction"))
        if given is not None:
            n, busy = self.chosen[name], now.mean(f"{of}.busy_fraction")
        else:
            station = getattr(here.stations, name)
            if station.calls_per_s is not None and station.overflow is None:  # what waits for its turn has a worker
                p99 = most = float(self._enough(here, name))
            n = max(1, math.ceil(p99))
            busy = min(1.0, in_use * PLENTY / n)
        fewer = given if given is not None and given != n else max(1, math.floor(_FEWER * n))
        other = self._run(with_workers(here, {name: fewer}))
        return Crew(name, n, given, said, p99, most, busy, now, fewer, other)

    def as_given(self, crew: Crew, now: Trial, targets: Sequence[Target]) -> Anew | None:
        """The fleet that is best with the workers that the job has, where they are others."""
        if crew.given is None or crew.given == crew.workers:
            return None
        changed = with_workers(self.asked, {**self.chosen, crew.station: crew.given})
        return anew(Trials(changed, self._measure), matched(changed)[1], now, targets)

    def _run(self, scenario: Scenario) -> Trial:
        """A long run; where calls that time out leave no batch complete, it gets stuck."""
        try:
            return trial_of(scenario.fleet.instances, [self._measure(scenario, 0)])
        except StuckError as error:
            return never(scenario.fleet.instances, 1, error)

    def _seen(self, scenario: Scenario) -> Trial:
        """The run that a search goes by."""
        return self._run(long_enough(scenario))

    def _best(self, here: Scenario, name: str, hardly: bool) -> int:
        """The workers of one station that are best for a count of instances. hardly: for a step that is hardly longer
        than with plenty of them, as targets ask."""
        n = self._some(here, name, hardly)
        return 0 if self._none_will_do(here, name, n, hardly) else n

    def _none_will_do(self, here: Scenario, name: str, n: int, hardly: bool) -> bool:
        """Whether all calls may as well go to a station's overflow, instead of n workers. hardly: as of `_best`."""
        if name in self._judges or getattr(here.stations, name).overflow is None:
            return False
        none, some = (self._seen(with_workers(here, {name: k})) for k in (0, n))
        if hardly and none.whole("step_s") > (1.0 + _HARDLY) * some.whole("step_s"):
            return False
        worth = 0.0 if hardly else here.targets.worth
        costs = (of.whole("step_s") ** worth * (of.whole("cost_per_step") or 1.0) for of in (none, some))
        return bool(next(costs) <= next(costs))

    def _some(self, here: Scenario, name: str, hardly: bool) -> int:
        """The same of those that are one at least."""
        if name in self._judges:
            return self._judging(here, name, hardly)
        if self._pays_beyond(name):
            return self._mixed(here, name, hardly)
        if hardly or not getattr(here.stations, name).worker_price_usd_per_h:
            return self._enough(here, name)
        free = self._seen(with_workers(here, {name: PLENTY}))
        most = max(1, math.ceil(free.mean(f"stations.{name}.workers_most")))
        in_use = free.mean(f"stations.{name}.workers_p99")

        return self._least(here, name, max(1, round(in_use)), most)

    def _pays_beyond(self, name: str) -> bool:
        """Whether what a station's workers are too few for goes where it costs money."""
        beyond = getattr(self.asked.stations, name).overflow
        return beyond is not None and beyond.has_price

    def _mixed(self, here: Scenario, name: str, hardly: bool) -> int:
        """The workers with the least step time x cost, what goes to their overflow included. hardly: those with which a
        step costs least, of those with which it is hardly longer than with plenty of them."""
        free = self._seen(with_workers(here, {name: PLENTY}))
        most, start = (max(1, math.ceil(free.mean(f"stations.{name}.workers_{what}"))) for what in ("most", "p99"))
        if not hardly:
            return self._least(here, name, start, most)
        return self._least(here, name, start, most, longest_s=(1.0 + _HARDLY) * free.whole("step_s"), power=1.0)

    def _least(
        self, here: Scenario, name: str, start: int, most: int, unit: int = 1, *, longest_s: float = math.inf,
        power: float | None = None,
    ) -> int:  # fmt: skip
        """The count of units of workers with the least step time x cost. start: where it is looked for first.
        longest_s: of a step. power: of the step, where it is another."""

        @cache
        def at(n: int) -> Scenario:
            return with_workers(here, {name: n * unit})

        def step_s(n: int) -> float:
            seen = self._step_s(at(n))
            return seen if seen <= longest_s else math.inf

        def beside(n: int) -> float:
            usd = self._seen(at(n)).mean(f"stations.{name}.overflow_usd") if self._pays_beyond(name) else 0.0
            return HOUR_S * usd

        floor = self._bounds.step_s if self._measure.simulates else lambda _: 0.0
        return least(
            step_s,
            lambda n: price_per_s(at(n), here.fleet.instances),
            min(most, start), most,
            power=power or self._power(here), fine=_FINE, floor=lambda n: floor(at(n)), beside=beside,
        )  # fmt: skip

    def _power(self, here: Scenario) -> float:
        """What is to be least is the step, to this power, times a price."""
        return 1.0 + here.targets.worth

    def _step_s(self, here: Scenario) -> float:
        """Seconds of a step's worth of whole samples, infinite where such a step is of no use."""
        return self._seen(here).whole("step_s")

    @property
    def _most(self) -> dict[str, int]:
        """Plenty of all that the job limits."""
        return {name: self._plenty(name) for name in self.given}

    def _plenty(self, name: str) -> int:
        """So many of a station that none is waited for."""
        if name not in self._judges:
            return PLENTY
        judge, batch = self._judges[name], self.asked.trainer.batch_samples
        answers = judge.votes * (batch if judge.per == "sample" else batch / self.asked.workload.group_size)
        return self._whole(name, min(MOST_JUDGES, max(judge.instances, math.ceil(answers / _ANSWERS))))

    def _each(self, name: str) -> int:
        """How many come and go together: the ranks of an engine."""
        return self._judges[name].engine.dp if name in self._judges else 1

    def _whole(self, name: str, n: int) -> int:
        """As many in whole engines, one at least."""
        each = self._each(name)
        return max(1, n // each) * each

    def _judging(self, here: Scenario, name: str, hardly: bool) -> int:
        """The engines of a judge that are best for a count of instances. hardly: as of `_best`; so where they cost
        nothing."""
        each, most = self._each(name), self._plenty(name)
        limit = (1.0 + _HARDLY) * self._seen(with_workers(here, {name: most})).whole("step_s")
        start = max(1, self._near[name] // each)
        pays = self._pays_beyond(name)
        if not hardly and (pays or judges_usd_per_h(here) > 0.0):
            return each * self._least(here, name, start, most // each, each)
        found = smallest(
            lambda n: self._seen(with_workers(here, {name: n * each})).whole("step_s") <= limit, start, most // each
        )
        found = most // each if found is None else found
        return each * (
            self._least(here, name, found, most // each, each, longest_s=limit, power=1.0) if pays else found
        )

    def _enough(self, here: Scenario, name: str) -> int:
        """The fewest workers with which a step is hardly longer than with plenty of them."""
        free = self._seen(with_workers(here, {name: PLENTY}))
        limit = (1.0 + _HARDLY) * free.whole("step_s")
        counts = EDGES[1 : bisect_left(EDGES, free.mean(f"stations.{name}.workers_most")) + 2]
        start = bisect_left(counts, free.mean(f"stations.{name}.workers_p99"))

        def step_s(k: int) -> float:
            return self._seen(with_workers(here, {name: int(counts[k - 1])})).whole("step_s")

        found = smallest(lambda k: step_s(k) <= limit, max(1, start), len(counts)) or len(counts)
        # Fewer calls at once may be better than plenty: engines then lose fewer of the blocks that a next turn wants.
        while found < len(counts) and step_s(found + 1) < step_s(found) / (1.0 + _HARDLY):
            found += 1
        return int(counts[found - 1])
