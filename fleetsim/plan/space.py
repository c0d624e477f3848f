"""The plans of a job within a budget: all of them, and what one costs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial

from fleetsim.config.law_numbers import promised_steps
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import InputError
from fleetsim.job.trials import unit_of
from fleetsim.plan.choices import ChoiceInputs, combined
from fleetsim.records import replace
from fleetsim.search.found import Found
from fleetsim.search.front import Budget
from fleetsim.search.objective import beside_usd_per_h
from fleetsim.search.permissions import NAMES, Allowed, stale
from fleetsim.search.plan_crews import PlanCrews, Run
from fleetsim.search.shares import Candidate, Engines, Room, Value, around, counts, neighbours
from fleetsim.search.staleness import ways_ahead
from fleetsim.search.two_makes import is_open, with_second
from fleetsim.sim.judges import beside_gpus
from fleetsim.sim.second_pool import second_gpus, second_pool, second_price

# A plan with all its runs, and its ranges.
PlanRow = Found[Candidate]


def beside_of(engines: Engines, scenario: Scenario) -> tuple[int, float]:
    """GPUs of judges and evaluation, and of a second make that is counted; and US dollars of an hour of all that is
    paid by the hour beside both pools."""
    return engines.second_gpus + beside_gpus(scenario), beside_usd_per_h(scenario)


def bought(candidate: Candidate, scenario: Scenario) -> tuple[int, float]:
    """The same with both pools."""
    gpus, usd_per_h = beside_of(candidate.engines, scenario)
    return candidate.share.gpus + gpus, 3600 * candidate.usd_per_s + usd_per_h


def gpus_of(row: PlanRow) -> int:
    """GPUs of both pools, and of judges and evaluation."""
    return bought(row.choice, row.scenario)[0]


def usd_per_token(row: PlanRow) -> float:
    """US dollars of a trained output token."""
    return row.usd / (row.mean("goodput") * gpus_of(row) * row.step_s)


def usd_per_h(row: PlanRow) -> float:
    """US dollars of an hour, of all that is paid by the hour."""
    return bought(row.choice, row.scenario)[1]


class Space:
    """All plans of a job within a budget, whatever they need. crewing: what counts their workers, None = nothing."""

    def __init__(self, asked: ChoiceInputs, budget: Budget, crewing: PlanCrews | None = None) -> None:
        self.asked, self.budget, self.crewing = asked, budget, crewing
        self.own = promised_steps(asked.scenario, asked.given)
        self._counted: defaultdict[Value, dict[int, Engines]] = defaultdict(dict)  # by the count of their second make
        self.engines = tuple(self._engines())

    def _engines(self) -> Iterator[Engines]:
        asked = self.asked
        for value in combined(asked.scenario, asked):
            there = with_changes(asked.scenario, value.changes) if value.changes else asked.scenario
            if not is_open(there, asked.given):
                yield Engines(there, value, asked.given | value.changes.keys())
                continue
            for count in self._second_counts(there):
                yield self._counted[value].setdefault(count, self._with_second(there, value, count))

    def _with_second(self, there: Scenario, value: Value, count: int) -> Engines:
        return Engines(with_second(there, count), value, self.asked.given | value.changes.keys(), counts_second=True)

    def _second_counts(self, there: Scenario) -> list[int]:
        """Of the second make, what a plan tries; none of it where it cannot hold this engine."""
        unit = unit_of(there)
        one = with_second(there, unit)
        try:
            second_pool(one)
        except InputError:
            return [0]
        room = self.budget.gpus_of(second_price(one))
        return [0, *(n * unit for n in counts(room // second_gpus(one), 1, room // second_gpus(one)))]

    def plans(self, allowed: Allowed, *, but: Allowed | None = None) -> Iterator[Candidate]:
        """Those that may be taken, if their runs show no older samples than `oldest`; but: and that could not with so
        much."""
        for engines in self.engines:
            needs = engines.value.needs.split()
            known = but is not None and but.covers(needs) and but.staleness == allowed.staleness
            if known or not allowed.covers(needs):
                continue
            shares = {on_policy: tuple(engines.shares(self._room(engines), on_policy)) for on_policy in (False, True)}
            ways = ways_ahead(engines.scenario, allowed.staleness)
            yield from self._paid(
                engines, (Candidate(engines, ahead, share) for ahead in ways for share in shares[ahead.on_policy])
            )

    def near(self, candidate: Candidate, stride: float) -> Iterator[Candidate]:
        """Plans of other counts, by so much, within the budget."""
        for engines in self._near(candidate.engines, stride):
            there = replace(candidate, engines=engines)
            yield from self._paid(engines, neighbours(there, self._room(engines), stride))

    def _near(self, engines: Engines, stride: float) -> Iterator[Engines]:
        """The same engines, with a second make that is larger and smaller by a factor, where that is counted."""
        yield engines
        known, now = self._counted[engines.value], engines.scenario.fleet.seconds
        if now == 0 or not engines.counts_second:
            return
        for count in around(now, unit_of(engines.scenario), stride):
            if count not in known:
                known[count] = self._with_second(engines.scenario, engines.value, count)
            if count != now:
                yield known[count]

    def _paid(self, engines: Engines, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
        """Those of some engines whose own spot machines leave them within the budget, with the fewest workers and
        judges."""
        gpus, usd_per_h = beside_of(engines, self.fewest(engines))
        return (c for c in candidates if self.budget.allows(c.share.gpus + gpus, 3600 * c.usd_per_s + usd_per_h))

    def fewest(self, engines: Engines) -> Scenario:
        """What is paid beside a plan: the job with the fewest workers and judges."""
        return engines.scenario if self.crewing is None else self.crewing.fewest

    def _room(self, engines: Engines) -> Room:
        beside = self.fewest(engines)
        paid, price = engines.second_usd_per_h + beside_usd_per_h(beside), self.budget.price_per_h
        gpus = self.budget.gpus_of(min(engines.prices), paid, beside_gpus(beside) + engines.second_gpus)
        return Room(gpus, math.inf if price is None else price - paid, *engines.prices)

    def _fits(self, candidate: Candidate, scenario: Scenario) -> bool:
        """Whether a plan is within the budget, its judges and workers too."""
        return self.budget.allows(*bought(candidate, scenario))

    def crewed(self, candidate: Candidate, scenario: Scenario, replication: int, run: Run) -> Run:
        """A look, with what it needs of workers."""
        fits = partial(self._fits, candidate)
        return run if self.crewing is None else self.crewing.crewed(scenario, replication, run, fits)

    def manned(self, found: PlanRow) -> PlanRow:
        """A plan that was looked at, with the workers that its look had."""
        if self.crewing is None:
            return found
        there = self.crewing.manned(found.scenario, found.alone_s, partial(self._fits, found.choice))
        return replace(found, scenario=there)

    def counted(self, found: PlanRow, best: bool = True) -> PlanRow:
        """A plan with the workers that are best for it. best: as of `PlanCrews.counted`."""
        if self.crewing is None:
            return found
        there = self.crewing.counted(found.scenario, partial(self._fits, found.choice), best=best)
        return replace(found, scenario=there)

    def forbidden(self, allowed: Allowed) -> Iterator[str]:
        """Permissions that nobody gave, of what could be had here, and one step more of staleness."""
        had = {need for engines in self.engines for need in engines.value.needs.split()}
        yield from (name for name in NAMES if name in had and name not in allowed.names)
        if (oldest := allowed.oldest(self.own)) is not None:
            yield stale(int(oldest) + 1)
