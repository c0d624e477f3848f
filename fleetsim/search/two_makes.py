"""Both counts of a fleet of two makes, where nobody says how many the second has.

An instance of one make stands for so many of the other, so a search of one count beside the other hardly moves: each
count of the second has the first that is best beside it (`best.py`), and the best of these pairs is looked for along
the second, from none of it to more than make a whole fleet. What is close by looks is decided by a long run each.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_given
from fleetsim.errors import StuckError
from fleetsim.job.trials import Measure, Tell, Trials, unit_of
from fleetsim.search.best import best_of
from fleetsim.search.objective import Target, objective, price_per_s
from fleetsim.search.rate_matching import matched
from fleetsim.sim.second_pool import counted_as_first

COUNT = "fleet.second.instances"
# Shares of the count that makes a whole fleet of the second make: looked at before what lies between them.
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5)
# Neighbours of the best are looked at down to this ratio between two counts, the first beside each down to that.
_FINE, _FIRST = 1.12, 4 / 3
# Pairs that are so close by looks are decided by a long run each, so many of them.
_CLOSE, _DECIDED = 1.05, 4


def is_open(scenario: Scenario, given: Collection[str]) -> bool:
    """Whether the fleet has a second make, and nobody says how many instances of it."""
    return scenario.fleet.second is not None and not is_given(COUNT, given)


def with_second(scenario: Scenario, instances: int) -> Scenario:
    """The scenario with so many instances of its second make; 0 = without it."""
    return with_changes(scenario, {COUNT: instances} if instances else {"fleet.second": None})


def count_of(scenario: Scenario) -> dict[str, Any]:
    """The change that makes a job's second make as many as this scenario's."""
    return {"fleet.second": None} if scenario.fleet.second is None else {COUNT: scenario.fleet.seconds}


def with_both_counts(job: Scenario, targets: Sequence[Target], measure: Measure, tell: Tell | None) -> Scenario:
    """A job with the count of its second make that is best, from those of both. Raises StuckError where every pair
    that was tried gets stuck."""
    if tell is not None:
        tell("counting the instances of both makes")
    return _Pairs(job, targets, measure).best()


@dataclass(frozen=True, slots=True)
class _Pair:
    """job: with so many of the second make. first: the best count beside it. holds: whether it holds the targets; then
    the cheapest is best, else what has the least step time x cost. badness: that."""

    job: Scenario
    first: int
    holds: bool
    badness: float

    @property
    def order(self) -> tuple[bool, float]:
        """The smallest is best."""
        return not self.holds, self.badness


class _Pairs:
    """The pairs that were looked at, by engines of the second make."""

    def __init__(self, job: Scenario, targets: Sequence[Target], measure: Measure) -> None:
        self._job, self._targets, self._measure, self._unit = job, targets, measure, unit_of(job)
        self._found: dict[int, _Pair] = {}
        self._error: StuckError | None = None

    def best(self) -> Scenario:
        """See the module's docstring."""
        each = counted_as_first(with_second(self._job, self._unit))
        without = matched(with_second(self._job, 0))[1]
        for share in _SHARES:
            self._look(round(share * (self._found[0].first if 0 in self._found else without) / each))
        while open_ := next(self._open(), None):
            self._look(open_)
        if not self._found:
            assert self._error is not None  # every look adds to one of them
            raise self._error
        ranked = sorted(self._found.values(), key=lambda p: p.order)
        close = [p for p in ranked if p.holds == ranked[0].holds and p.badness <= _CLOSE * ranked[0].badness]
        return min(map(self._decided, close[:_DECIDED]), key=lambda p: p.order).job if len(close) > 1 else close[0].job

    def _look(self, engines: int) -> None:
        """Looks at a count of the second make."""
        if engines in self._found:
            return
        there = with_second(self._job, engines * self._unit)
        try:
            self._found[engines] = self._pair(there, Trials(there, self._measure).looks, matched(there)[1])
        except StuckError as error:
            self._error = error

    def _decided(self, pair: _Pair) -> _Pair:
        """The same by long runs."""
        return self._pair(pair.job, Trials(pair.job, self._measure), pair.first)

    def _pair(self, job: Scenario, trials: Trials, guess: int) -> _Pair:
        least = min((p.badness for p in self._found.values()), default=math.inf)
        beat = math.inf if self._targets else _CLOSE * least
        best = best_of(trials, guess, self._targets, 1, fine=_FIRST, beat=beat)
        step_s = trials.at(best.instances, 1).mean("step_s")
        holds = bool(self._targets) and best.knee is None
        price = price_per_s(job, best.instances)
        return _Pair(job, best.instances, holds, price if holds else objective(job, best.instances, step_s))

    def _open(self) -> Iterator[int]:
        """Counts between the best and its neighbours, the wider gap first; beyond the last where that is the best."""
        counts = sorted(self._found)
        if not counts:
            return
        here = min(counts, key=lambda k: self._found[k].order)
        if here == counts[-1] and here:
            yield 2 * here
        gaps = [(b / max(a, 1), a, b) for a, b in pairwise(counts) if here in (a, b) and b - a > 1 and b > _FINE * a]
        yield from ((a + b) // 2 for _, a, b in sorted(gaps, reverse=True))
