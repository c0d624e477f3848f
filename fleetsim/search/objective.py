"""Where more instances stop paying: the answer when no count holds a target.

The runbook's own test of a rebalance: "if throughput rose but cost per step rose faster, the rebalance bought the wrong
thing". One more instance makes a step shorter and dearer at once; as long as the step time falls by a larger share than
the cost per step rises, it pays. The knee is where that ends: the count that minimises

    step time * cost per step  =  step time^2 * price of both pools per second

A step counts for the samples of its batch that are learned from and were not cut: a fleet too small to end its rollouts
in time has short steps, and is no better for it. So every question takes seconds and dollars of a batch's worth of
whole samples (`Trial.whole`). What is thrown away and generated anew makes the step longer by itself, and is not
counted again.

Step time over the count is no smooth curve (groups that do not divide, caps, rounding), so a descent ends in the next
valley. The search is global, and few counts are simulated, because step time falls with the count: between two counts
a < b no fleet is faster than b's and none is cheaper per second than a's, so that

    step(b)^2 * price(a + 1)

bounds all that lies between them; and no fleet is faster than its operational bound (`bound.py`). Above that both of
two neighbours stay by some factor, and so, nearly, does what lies between them. What cannot beat the best so far is
never simulated.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import pairwise
from math import isqrt

from msgspec import Struct

from fleetsim.config.scenario import Scenario
from fleetsim.engine.prices import Prices, prices_of
from fleetsim.estimates import Estimate
from fleetsim.job.trainer_scaling import takes_turns, trainer_gpus
from fleetsim.records import replace
from fleetsim.sim.judges import judges_usd_per_h
from fleetsim.sim.pools import pools_paid
from fleetsim.sim.stations import HOUR_S, workers_usd_per_h

# --- What a fleet must hold to be recommended, and the rule by which a simulated fleet holds it.

RULE = "a target holds when the upper end of the 95 % interval of its mean over the replications is within it"

# Each field of the targets section and the metric that it limits. More instances always help the first two; the other
# two have a price of their own and are looked at once these hold.
_METRICS = {
    "trainer_idle_fraction": "trainer_idle_fraction",
    "step_s": "step_s",
    "staleness_p99_steps": "staleness_steps.p99",
    "cost_per_step": "cost_per_step",
}
_HELPED_BY_INSTANCES = ("trainer_idle_fraction", "step_s")


class Target(Struct, frozen=True):
    """A limit from above on one metric, that somebody asked for."""

    name: str
    metric: str
    limit: float

    @property
    def helped_by_instances(self) -> bool:
        """Whether more instances always bring it closer."""
        return self.name in _HELPED_BY_INSTANCES

    def held_by(self, estimate: Estimate) -> bool:
        """See RULE."""
        return self.decides(estimate) <= self.limit

    def open_by(self, estimate: Estimate) -> bool:
        """Whether the limit lies within the interval, so that more runs may decide it."""
        return estimate.ci_low <= self.limit < self.decides(estimate)

    @staticmethod
    def decides(estimate: Estimate, narrows: float = 1.0) -> float:
        """What is held against the limit: the mean lies below the upper end; without an interval it decides itself.
        narrows: the part of the interval that more runs leave."""
        return estimate.mean + narrows * max(0.0, estimate.ci_high - estimate.mean)


def targets_of(scenario: Scenario) -> tuple[Target, ...]:
    """The targets that the scenario sets."""
    return tuple(
        Target(name, metric, float(limit))
        for name, metric in _METRICS.items()
        if (limit := getattr(scenario.targets, name)) is not None
    )


# Gains below this are not looked for: one run does not show them.
_TOLERANCE = 0.01
# Neighbours of the best count are looked at down to this ratio between two counts; farther away a wider one does.
FINE, _COARSE = 1.2, 1.5
# What lies between two counts is above its bound by this share of what these are at the least.
_SURE = 0.95
# A rollout GPU counts as at least this share of a trainer's.
_LEAST_PRICE = 0.01


def usd_per_h(scenario: Scenario, instances: int) -> float:
    """What both pools cost in an hour; GPUs that both share cost what rollout's do, as in `sim/metrics.py`."""
    return _price(scenario, instances, prices_of(scenario))


def price_per_s(scenario: Scenario, instances: int) -> float:
    """The same in any second, as far as counts are held against each other; in GPUs where all prices are zero."""
    prices = prices_of(scenario)
    if not prices.rollout + prices.trainer:
        prices = replace(prices, rollout=1.0, spot=1.0, trainer=1.0)
    # Of GPUs that cost next to nothing every further one would pay, by a step that is shorter by luck.
    dearer = _LEAST_PRICE * prices.trainer
    prices = replace(prices, rollout=max(prices.rollout, dearer), spot=max(prices.spot, dearer))
    never_had = scenario.fleet.never_had(instances) * scenario.engine.gpus  # nor does this pay for them
    return _price(scenario, instances, prices) + never_had * prices.spot


def objective(scenario: Scenario, instances: int, step_s: float, beside_usd: float = 0.0) -> float:
    """What is to be least of a count with such a step. beside_usd: what a step costs beside the price of the count."""
    more = math.pow(step_s, scenario.targets.worth) * HOUR_S * beside_usd if beside_usd else 0.0
    return math.pow(step_s, 1.0 + scenario.targets.worth) * price_per_s(scenario, instances) + more


def beside_usd_per_h(scenario: Scenario) -> float:
    """What workers, the engines of judges and instances that only evaluate cost in an hour."""
    evaluating = scenario.evaluation.own_instances * scenario.engine.gpus * prices_of(scenario).rollout
    return workers_usd_per_h(scenario) + judges_usd_per_h(scenario) + evaluating


def _price(scenario: Scenario, instances: int, prices: Prices) -> float:
    each, spot = scenario.engine.gpus, scenario.fleet.spot
    gpus, on_spot, trainer = instances * each, spot.of(instances) * each, trainer_gpus(scenario, instances)
    if takes_turns(scenario):
        trainer = max(0, trainer - gpus)
    served = beside_usd_per_h(scenario) + pools_paid(scenario)[1]
    rollout = (gpus - on_spot) * prices.rollout + on_spot * scenario.fleet.held_share(instances) * prices.spot
    return rollout + trainer * prices.trainer + served


def least(
    step_s: Callable[[int], float],
    price: Callable[[int], float],
    start: int,
    most: int,
    *,
    power: float = 2.0,
    fine: float = FINE,
    bends: Collection[int] = (),
    known: Collection[int] = (),
    floor: Callable[[int], float] = lambda n: 0.0,
    falls: float = 1.0,
    beat: float = math.inf,
    beside: Callable[[int], float] = lambda n: 0.0,
    ahead: Callable[[Callable[[], int | None]], None] = lambda following: None,
) -> int:
    """The n in 1..most with the least step_s(n)^power * price(n), from the step times of few counts.

    step_s falls with the count but for noise, is infinite for a count that gets stuck, and remembers its answers; price
    never falls. start: where the answer is expected. power: 2 for the knee, 1 for the cost per step. fine: ratio of two
    neighbouring counts that is close enough beside the best one. bends: counts where the step time may fall at once;
    none that may be best is passed over. known: counts whose step time costs nothing to ask for. floor: a step takes so
    long at least, less for more instances. falls: a step of fewer is no shorter than this share of that of more. beat:
    only what is less than this is looked for. beside: what a step costs beside price, in its unit, of a count whose
    step is known; it never rises, and step_s(n)^(power - 1) * beside(n) is added. ahead: told before each step time
    that is asked for, how to find the count after it, if the step is as those beside it let expect.
    """
    seen: dict[int, float] = {}

    def cost(n: int) -> float:
        return math.pow(seen[n], power) * price(n) + added(n, seen[n])

    def added(n: int, step_s: float) -> float:
        more = beside(n) if step_s < math.inf else 0.0
        return math.pow(step_s, power - 1.0) * more if more else 0.0

    def open_gap() -> tuple[int, int] | None:
        """Where a better count may still be: the count below it, the last that could be better."""
        counts = sorted(seen)
        here = min(counts, key=cost)
        limit = min((1.0 - _TOLERANCE) * cost(here), beat)
        found = []
        beyond = () if most in seen else (most + 1,)
        for before, high in pairwise((0, *counts, *beyond)):
            low = before
            # Above its bound by as much as the nearer to it of both ends, and no less than the bound.
            ends = [n for n in (low, high) if n in seen]
            over = [seen[n] / floor(n) for n in ends if 0.0 < floor(n) <= seen[n] < math.inf]
            sure = max([1.0, _SURE * falls * min(over)]) if len(over) == 2 else 1.0
            shortest = sure * floor(min(high, most))
            if high in seen:
                shortest = max(shortest, falls * min(seen[high], seen.get(low, math.inf)))
            fastest = math.pow(shortest, power)
            left = limit - (added(high, shortest) if high in seen else 0.0)
            worth = low + bisect_left(range(low + 1, high), left / fastest, key=price)

            def may_be_best(n: int, sure: float = sure, fastest: float = fastest, left: float = left) -> bool:
                return max(fastest, math.pow(sure * floor(n), power)) * price(n) < left

            # What is bound by rollout becomes worth a look from some count on.
            low += bisect_left(range(low + 1, worth + 1), True, key=may_be_best)
            if before == 0 < worth - low and (len(counts) == 1 or not seen[counts[1]] < seen[high] < math.inf):
                worth = high - 1  # fewer have not yet been seen to be slower
            near = here in (before, high)
            bend = any(low < n <= worth for n in bends)
            if worth > low and (bend or worth + 1 > low * (fine if near else _COARSE)):
                found.append((not near, fastest * price(low + 1), low, worth))
        return min(found)[2:] if found else None

    def following() -> int | None:
        """The count to look at next."""
        if (gap := open_gap()) is None:
            return None
        low, worth = gap
        # From the fewest seen downwards by halves; else the geometric middle.
        middle = min(max(low + 1, isqrt(low * (worth + 1)) if low else (min(seen) + 1) // 2), worth)
        return min((n for n in bends if low < n <= worth), key=lambda n: abs(n - middle), default=middle)

    def after(n: int) -> int | None:
        """The count to look at after n."""
        seen[n] = max(floor(n), likely(seen, n))
        found = following()
        del seen[n]
        return found

    # The most is looked at only where nothing is known of it: it takes longest.
    last = (most,) if floor(most) <= 0.0 or most in known else ()
    for n in dict.fromkeys((*(n for n in known if n < most), min(max(1, start), most), *last)):
        if seen and n not in known:
            ahead(partial(after, n))
        seen[n] = step_s(n)
    while (n := following()) is not None:
        ahead(partial(after, n))
        seen[n] = step_s(n)
    return min(sorted(seen), key=cost)


def likely(seen: Mapping[int, float], n: int) -> float:
    """The step of a count, by those of others: on a line between the logarithms of its neighbours, beside all of them
    in proportion."""
    below, above = (max((k for k in seen if k < n), default=None), min((k for k in seen if k > n), default=None))
    if below is None or above is None:
        near = above if below is None else below
        assert near is not None
        return seen[near] * near / n
    share = math.log(n / below) / math.log(above / below)
    return math.pow(seen[below], 1.0 - share) * math.pow(seen[above], share)
