"""The plans of a job within a budget: all of them, and what one costs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product

from fleetsim.config.law_numbers import promised_steps
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import InputError
from fleetsim.job.trials import unit_of
from fleetsim.plan.choices import ChoiceInputs, combined
from fleetsim.records import replace
from fleetsim.search.front import Budget, Found
from fleetsim.search.makes import Counts, open_pools, with_counts, without_first
from fleetsim.search.objective import beside_usd_per_h
from fleetsim.search.permissions import NAMES, Allowed, stale, ways_ahead
from fleetsim.search.plan_crews import PlanCrews, Run
from fleetsim.search.shares import Candidate, Engines, Room, Value, around, counts, neighbours
from fleetsim.sim.judges import beside_gpus
from fleetsim.sim.pools import gpus_each, pool_price, pools_of

# A plan with all its runs, and its ranges.
PlanRow = Found[Candidate]


def beside_of(engines: Engines, scenario: Scenario) -> tuple[int, float]:
    """GPUs of judges and evaluation, and of other pools that are counted; and US dollars of an hour of all that is
    paid by the hour beside both pools."""
    return engines.pools_gpus + beside_gpus(scenario), beside_usd_per_h(scenario)


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
        self.pools = open_pools(asked.scenario, asked.given)
        self._counted: defaultdict[Value, dict[Counts, Engines]] = defaultdict(dict)  # by the counts of these
        self.engines = tuple(self._engines())

    def _engines(self) -> Iterator[Engines]:
        asked = self.asked
        for value in combined(asked.scenario, asked):
            there = with_changes(asked.scenario, value.changes) if value.changes else asked.scenario
            for one, left in without_first(there, self.pools):
                # the trainer is of the first make, so what stands in that one's place serves apart from it
                own = {} if one is there else {"fleet.placement": "disaggregated"}
                told = Value({**value.changes, **own}, value.needs) if own else value
                for counted in product(*(self._counts(one, name, left) for name in left)):
                    yield self._with_counts(one, told, dict(zip(left, counted, strict=True)))

    def _with_counts(self, there: Scenario, value: Value, pools: Mapping[str, int]) -> Engines:
        known, counted = self._counted[value], tuple(pools.values())
        if counted not in known:
            given = self.asked.given | value.changes.keys()
            known[counted] = Engines(with_counts(there, pools), value, given, counts_pools=bool(self.pools))
        return known[counted]

    def _counts(self, there: Scenario, name: str, left: Sequence[str]) -> list[int]:
        """Of a pool, what a plan tries; none of it where it cannot hold this engine. Of several, powers of two: what
        lies between is near one of them."""
        unit = unit_of(there)
        one = with_counts(there, {pool: unit if pool == name else 0 for pool in left})
        try:
            pools_of(one)
        except InputError:
            return [0]
        room = self.budget.gpus_of(pool_price(one, name)) // (unit * gpus_each(one, name))
        some = counts(room, 1, room) if len(left) == 1 else [2**k for k in range(room.bit_length())]
        return [0, *(n * unit for n in some)]

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
        """The same engines, with pools that are larger and smaller by a factor, where they are counted."""
        there, first = engines.scenario, engines.scenario.fleet.first
        left = self.pools[self.pools.index(first) + 1 :] if first in self.pools else self.pools
        now = {name: there.fleet.pools[name].instances if name in there.fleet.pools else 0 for name in left}
        each = [(*around(n, unit_of(there), stride),) if n else (0,) for n in now.values()]
        yield engines
        for counted in product(*each):
            if (pools := dict(zip(left, counted, strict=True))) != now:
                yield self._with_counts(there, engines.value, pools)

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
        paid, price = engines.pools_usd_per_h + beside_usd_per_h(beside), self.budget.price_per_h
        gpus = self.budget.gpus_of(min(engines.prices), paid, beside_gpus(beside) + engines.pools_gpus)
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
