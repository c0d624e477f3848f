"""Where more instances stop paying: the answer when no count holds a target.

The runbook's own test of a rebalance: "if throughput rose but cost per step rose faster, the rebalance bought the wrong
thing". One more instance makes a step shorter and dearer at once; as long as the step time falls by a larger share than
the cost per step rises, it pays. The knee is where that ends: the count that minimises

    step time * cost per step  =  step time^2 * price of both pools per second

Step time over the count is no smooth curve (groups that do not divide, caps, rounding), so a descent ends in the next
valley. The search is global, and few counts are simulated, because step time falls with the count: between two counts
a < b no fleet is faster than b's and none is cheaper per second than a's, so that

    step(b)^2 * price(a + 1)

bounds all that lies between them. What cannot beat the best so far is never simulated.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import pairwise
from math import isqrt

from fleetsim.config.scenario import Scenario
from fleetsim.engine.prices import Prices, prices_of
from fleetsim.job.trainer_scaling import takes_turns, trainer_gpus

# Gains below this are not looked for: one run does not show them.
_TOLERANCE = 0.01
# Neighbours of the best count are looked at down to this ratio between two counts; farther away a wider one does.
FINE, _COARSE = 1.2, 1.5


def usd_per_h(scenario: Scenario, instances: int) -> float:
    """What both pools cost in an hour; GPUs that both share cost what rollout's do, as in `sim/metrics.py`."""
    return _price(scenario, instances, prices_of(scenario))


def price_per_s(scenario: Scenario, instances: int) -> float:
    """The same in any second, as far as counts are held against each other; in GPUs where all prices are zero."""
    prices = prices_of(scenario)
    if prices.rollout > 0:
        return _price(scenario, instances, prices)
    # Free rollout GPUs would make every further one pay; they count as much as the trainer's.
    return _price(scenario, instances, replace(prices, rollout=prices.trainer or 1.0))


def _price(scenario: Scenario, instances: int, prices: Prices) -> float:
    gpus, trainer = instances * scenario.engine.gpus, trainer_gpus(scenario, instances)
    if takes_turns(scenario):
        trainer = max(0, trainer - gpus)
    return gpus * prices.rollout + trainer * prices.trainer


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
) -> int:
    """The n in 1..most with the least step_s(n)^power * price(n), from the step times of few counts.

    step_s falls with the count but for noise, is infinite for a count that gets stuck, and remembers its answers; price
    never falls. start: where the answer is
    expected. power: 2 for the knee, 1 for the cost per step. fine: ratio of two neighbouring counts that is close
    enough beside the best one. bends: counts where the step time may fall at once; none that may be best is passed
    over. known: counts whose step time costs nothing to ask for.
    """
    seen: dict[int, float] = {}

    def cost(n: int) -> float:
        return math.pow(seen[n], power) * price(n)

    def open_gap() -> tuple[int, int] | None:
        """Where a better count may still be: the count below it, the last that could be better."""
        counts = sorted(seen)
        here = min(counts, key=cost)
        limit = (1.0 - _TOLERANCE) * cost(here)
        found = []
        for low, high in pairwise((0, *counts)):
            fastest = math.pow(min(seen[high], seen.get(low, math.inf)), power)
            worth = low + bisect_left(range(low + 1, high), limit / fastest, key=price)
            if low == 0 and (high == counts[-1] or not seen[counts[1]] < seen[high] < math.inf):
                worth = high - 1  # fewer have not yet been seen to be slower
            near = here in (low, high)
            bend = any(low < n <= worth for n in bends)
            if worth > low and (bend or worth + 1 > low * (fine if near else _COARSE)):
                found.append((not near, fastest * price(low + 1), low, worth))
        return min(found)[2:] if found else None

    for n in {most, min(max(1, start), most), *(n for n in known if n < most)}:
        seen[n] = step_s(n)
    while gap := open_gap():
        low, worth = gap
        # From the fewest seen downwards by halves; else the geometric middle.
        middle = min(max(low + 1, isqrt(low * (worth + 1)) if low else (min(seen) + 1) // 2), worth)
        middle = min((n for n in bends if low < n <= worth), key=lambda n: abs(n - middle), default=middle)
        seen[middle] = step_s(middle)
    return min(sorted(seen), key=cost)
