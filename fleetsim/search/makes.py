"""Counts of a fleet of several makes, where nobody says how many some of the pools have.

An instance of one make stands for so many of another, so a search of one count beside the others hardly moves: all
counts of the other pools have the count of the first that is best beside them (`best.py`); with none of the first, the
next pool is the first. The best of these fleets is looked for along lines: a pool's count, from none to more than makes
a whole fleet, the others as they are; and two pools in exchange, by what they are sent. It ends when no line has a
better one. What is close by looks is decided by a long run each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, pairwise
from typing import Any

from msgspec import Struct

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_given
from fleetsim.errors import InputError, Problem, StuckError
from fleetsim.job.trials import Measure, Tell, Trials, unit_of
from fleetsim.search.best import best_of
from fleetsim.search.objective import Target, objective, price_per_s
from fleetsim.search.rate_matching import matched
from fleetsim.sim.pools import counted_as_first

# Of the count that makes a whole fleet: shares that are looked at before what lies between them, and the most.
_SHARES, _MOST = (0.25, 0.5, 0.75, 1.0, 1.5), 8.0
# Neighbours of the best are looked at down to this ratio between two counts, the first beside each down to that.
_FINE, _FIRST = 1.12, 4 / 3
# Fleets that are so close by looks are decided by a long run each, so many of them for each pool.
_CLOSE, _DECIDED = 1.05, 4
# Instances of each pool that is counted, in units that come and go together.
Counts = tuple[int, ...]


def count_path(pool: str) -> str:
    """Where the count of another pool stands."""
    return f"fleet.pools.{pool}.instances"


def open_pools(scenario: Scenario, given: Collection[str]) -> tuple[str, ...]:
    """The other pools of which nobody says how many instances they have."""
    return tuple(name for name in scenario.fleet.pools if not is_given(count_path(name), given))


def check_pools_are_counted(scenario: Scenario, given: Collection[str]) -> None:
    """Raises InputError where nobody says how many instances a pool has."""
    rule = "stays beside the GPUs that are divided: its count must be known"
    remedy = "give it, or ask size or plan, which count all makes"
    problems = [Problem(count_path(name), None, rule, remedy) for name in open_pools(scenario, given)]
    if problems:
        raise InputError(problems)


def with_counts(scenario: Scenario, counts: Mapping[str, int]) -> Scenario:
    """The scenario with so many instances of these pools; 0 = without the pool."""
    return with_changes(scenario, {count_path(name): count for name, count in counts.items()})


def counts_of(scenario: Scenario, pools: Collection[str], instances: int) -> dict[str, Any]:
    """The changes that give a job with these pools the counts of this scenario. instances: of the make that is first in
    it, which may be one of the pools."""
    there, first = scenario.fleet.pools, scenario.fleet.first
    found = {count_path(name): there[name].instances if name in there else 0 for name in pools}
    return (
        found if first not in pools or first is None else found | {"fleet.instances": 0, count_path(first): instances}
    )


def without_first(scenario: Scenario, pools: Sequence[str]) -> Iterator[tuple[Scenario, tuple[str, ...]]]:
    """The scenario, and those without its first make, without the first two, and so on, as far as the next one is of
    these pools, each with those that are left of them."""
    yield scenario, tuple(pools)
    if pools and next(iter(scenario.fleet.pools)) == pools[0]:
        try:
            there = with_changes(scenario, {"fleet.instances": 0, "fleet.speed_factors": ()})
        except InputError:  # pools that are weighed by the first
            return
        yield from without_first(there, pools[1:])


class _Fleet(Struct, frozen=True):
    """job: with so many of the other pools. first: the best count beside them. missed: whether it misses targets; what
    holds them is best where it is cheapest, all else where step time x cost per step is least: badness."""

    job: Scenario
    first: int
    missed: bool
    badness: float

    @property
    def order(self) -> tuple[bool, float]:
        """The smallest is best."""
        return self.missed, self.badness


class _Line(Struct, frozen=True):
    """Fleets by the count of one pool. at: the counts of all there. here: of the best. whole: how many of it make a
    fleet. most: how many are tried."""

    at: Callable[[int], Counts]
    here: int
    whole: float
    most: float


class _Looks:
    """The fleets that were looked at, by their counts."""

    def __init__(
        self, job: Scenario, pools: tuple[str, ...], targets: Sequence[Target], measure: Measure, beat: float
    ) -> None:
        self.job, self.pools, self.targets, self.measure = job, pools, targets, measure
        self.unit, self.stuck, self.beat = unit_of(job), list[StuckError](), beat
        self.found: dict[Counts, _Fleet] = {}
        none = (0,) * len(pools)
        self.look(none)
        alone = with_counts(job, dict.fromkeys(pools, 0))
        self.first = self.found[none].first if self.found else matched(alone)[1]
        beside = counted_as_first(alone)
        self.weights = [
            counted_as_first(with_counts(job, {**dict.fromkeys(pools, 0), name: self.unit})) - beside for name in pools
        ]

    def look(self, counts: Counts) -> bool:
        """Whether a fleet runs; what it comes to is kept."""
        if counts not in self.found:
            there = with_counts(self.job, {n: k * self.unit for n, k in zip(self.pools, counts, strict=True)})
            try:
                worst = _CLOSE * min([self.beat, *(one.badness for one in self.found.values())])
                trials = Trials(there, self.measure).looks
                self.found[counts] = _fleet(trials, matched(there)[1], self.targets, worst)
            except StuckError as error:
                self.stuck.append(error)
        return counts in self.found

    def alone(self, here: Counts, i: int) -> _Line:
        """Other counts of one pool."""
        whole = self.first / self.weights[i]
        return _Line(partial(_put, here, i), here[i], whole, _MOST * whole)

    def exchanged(self, here: Counts, i: int, j: int) -> _Line:
        """One pool for another."""
        worth = self.weights[i] / self.weights[j]
        whole = here[i] + here[j] / worth
        return _Line(partial(_exchanged, here, i, j, worth), here[i], whole, whole)

    def along(self, line: _Line) -> Counts:
        """The best fleet of a line: it is looked at until none is left between the best and its neighbours."""
        shares = {n for share in _SHARES if (n := round(share * line.whole)) <= line.most}
        tried = {n: self.found[line.at(n)].order for n in sorted({0, line.here} | shares) if self.look(line.at(n))}
        while (between := _open(tried, line.most)) and self.look(line.at(between)):
            tried[between] = self.found[line.at(between)].order
        return line.at(min(tried, key=tried.__getitem__, default=line.here))

    def down(self, here: Counts) -> None:
        """From a fleet along all lines, until none has a better one."""
        every, before = range(len(self.pools)), ()
        while before != here:
            before = here
            for i in every:
                here = self.along(self.alone(here, i))
            for i, j in combinations(every, 2):
                here = self.along(self.exchanged(here, i, j))


def _fleet(trials: Trials, guess: int, targets: Sequence[Target], worst: float = math.inf) -> _Fleet:
    """A fleet with the first make's count that is best. worst: objective of a fleet that is none of the best."""
    there = trials.scenario
    best = best_of(trials, guess, targets, 1, fine=_FIRST, beat=math.inf if targets else worst)
    if targets and best.knee is None:
        return _Fleet(there, best.instances, False, price_per_s(there, best.instances))
    step_s = trials.at(best.instances, 1).whole("step_s")
    return _Fleet(there, best.instances, True, objective(there, best.instances, step_s))


def _put(counts: Counts, i: int, n: int) -> Counts:
    """The counts with another of one pool."""
    return (*counts[:i], n, *counts[i + 1 :])


def _exchanged(counts: Counts, i: int, j: int, worth: float, n: int) -> Counts:
    """The same with what another pool takes up: one of the first is worth so many of it."""
    return _put(_put(counts, i, n), j, max(0, round(counts[j] + (counts[i] - n) * worth)))


def with_counted_pools(
    job: Scenario, given: Collection[str], targets: Sequence[Target], measure: Measure, tell: Tell | None
) -> Scenario:
    """A job with the counts of its other pools that are best, where nobody says them. Raises StuckError where every
    fleet that was tried gets stuck."""
    pools = open_pools(job, given)
    if not pools:
        return job
    if tell is not None:
        tell("counting the instances of all makes")
    found, stuck = list[_Fleet](), list[StuckError]()
    for there, left in without_first(job, pools):
        looks = _Looks(there, left, targets, measure, min((one.badness for one in found), default=math.inf))
        for i in range(len(left)):
            looks.down(looks.along(looks.alone((0,) * len(left), i)))
        found, stuck = [*found, *looks.found.values()], [*stuck, *looks.stuck]
    if not found:
        raise stuck[0]
    ranked = sorted(found, key=lambda one: one.order)
    close = [one for one in ranked if one.missed == ranked[0].missed and one.badness <= _CLOSE * ranked[0].badness]
    if len(close) > 1:
        close = [_fleet(Trials(o.job, measure), o.first, targets) for o in close[: _DECIDED * len(pools)]]
    return min(close, key=lambda one: one.order).job


def _open(order: Mapping[int, tuple[bool, float]], most: float) -> int:
    """A count between the best and its neighbours, in the wider gap; beyond the last where that is the best, up to
    `most`; 0 where these are close enough."""
    counts = sorted(order)
    here = min(counts, key=order.__getitem__, default=0)
    if here and here == counts[-1] and here < most:
        return 2 * here
    gaps = [(b / max(a, 1), a, b) for a, b in pairwise(counts) if here in (a, b) and b - a > 1 and b > _FINE * a]
    return sum(max(gaps)[1:]) // 2 if gaps else 0
