"""Both counts of a fleet of two makes, where nobody says how many the second has.

An instance of one make stands for so many of the other, so a search of one count beside the other hardly moves: each
count of the second has the first that is best beside it (`best.py`), and the best of these pairs is looked for along
the second, from none of it to more than make a whole fleet. What is close by looks is decided by a long run each.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
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
from fleetsim.sim.second_pool import counted_as_first

COUNT = "fleet.second.instances"
# Of the count that makes a whole fleet: shares that are looked at before what lies between them, and the most.
_SHARES, _MOST = (0.25, 0.5, 0.75, 1.0, 1.5), 8.0
# Neighbours of the best are looked at down to this ratio between two counts, the first beside each down to that.
_FINE, _FIRST = 1.12, 4 / 3
# Pairs that are so close by looks are decided by a long run each, so many of them.
_CLOSE, _DECIDED = 1.05, 4


def is_open(scenario: Scenario, given: Collection[str]) -> bool:
    """Whether the fleet has a second make, and nobody says how many instances of it."""
    return scenario.fleet.second is not None and not is_given(COUNT, given)


def check_second_is_counted(scenario: Scenario, given: Collection[str]) -> None:
    """Raises InputError where the fleet has a second make, and nobody says how many instances of it."""
    if is_open(scenario, given):
        rule = "stays beside the GPUs that are divided: its count must be known"
        raise InputError([Problem(COUNT, None, rule, "give it, or ask size or plan, which count both makes")])


def with_second(scenario: Scenario, instances: int) -> Scenario:
    """The scenario with so many instances of its second make; 0 = without it."""
    return with_changes(scenario, {COUNT: instances} if instances else {"fleet.second": None})


def count_of(scenario: Scenario) -> dict[str, Any]:
    """The change that makes a job's second make as many as this scenario's."""
    return {"fleet.second": None} if scenario.fleet.second is None else {COUNT: scenario.fleet.seconds}


class _Pair(Struct, frozen=True):
    """job: with so many of the second make. first: the best count beside it. missed: whether it misses targets; what
    holds them is best where it is cheapest, all else where step time x cost per step is least: badness."""

    job: Scenario
    first: int
    missed: bool
    badness: float

    @property
    def order(self) -> tuple[bool, float]:
        """The smallest is best."""
        return self.missed, self.badness


def with_both_counts(job: Scenario, targets: Sequence[Target], measure: Measure, tell: Tell | None) -> Scenario:
    """A job with the count of its second make that is best, from those of both. Raises StuckError where every pair
    that was tried gets stuck."""
    if tell is not None:
        tell("counting the instances of both makes")
    unit, found, stuck = unit_of(job), dict[int, _Pair](), list[StuckError]()

    def pair(there: Scenario, trials: Trials, guess: int) -> _Pair:
        beat = math.inf if targets else _CLOSE * min((p.badness for p in found.values()), default=math.inf)
        best = best_of(trials, guess, targets, 1, fine=_FIRST, beat=beat)
        if targets and best.knee is None:
            return _Pair(there, best.instances, False, price_per_s(there, best.instances))
        step_s = trials.at(best.instances, 1).mean("step_s")
        return _Pair(there, best.instances, True, objective(there, best.instances, step_s))

    def look(engines: int) -> None:
        there = with_second(job, engines * unit)
        try:
            found[engines] = pair(there, Trials(there, measure).looks, matched(there)[1])
        except StuckError as error:
            stuck.append(error)

    look(0)
    first = found[0].first if found else matched(with_second(job, 0))[1]
    whole = first / counted_as_first(with_second(job, unit))
    for engines in sorted({round(share * whole) for share in _SHARES} - {0}):
        look(engines)
    while found and (between := _open({engines: p.order for engines, p in found.items()}, _MOST * whole)):
        look(between)
        if between not in found:
            break
    if not found:
        raise stuck[0]
    ranked = sorted(found.values(), key=lambda p: p.order)
    close = [p for p in ranked if p.missed == ranked[0].missed and p.badness <= _CLOSE * ranked[0].badness]
    decided = [pair(p.job, Trials(p.job, measure), p.first) for p in close[:_DECIDED]] if len(close) > 1 else close
    return min(decided, key=lambda p: p.order).job


def _open(order: Mapping[int, tuple[bool, float]], most: float) -> int:
    """A count between the best and its neighbours, in the wider gap; beyond the last where that is the best, up to
    `most`; 0 where these are close enough."""
    counts = sorted(order)
    here = min(counts, key=order.__getitem__)
    if here == counts[-1] and 0 < here < most:
        return 2 * here
    gaps = [(b / max(a, 1), a, b) for a, b in pairwise(counts) if here in (a, b) and b - a > 1 and b > _FINE * a]
    return sum(max(gaps)[1:]) // 2 if gaps else 0
