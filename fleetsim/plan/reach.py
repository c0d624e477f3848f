"""What a step would take that no plan of a budget makes: told by bounds, without a simulation."""

from __future__ import annotations

import math

from msgspec import Struct

from fleetsim.plan.space import Space, bought
from fleetsim.search.explore import Search
from fleetsim.search.front import MOST_GPUS, Budget
from fleetsim.search.permissions import Allowed


class Reach(Struct, frozen=True):
    """within_s: seconds of a step at least, within the budget; beyond_s: on up to `MOST_GPUS` GPUs, whatever they cost.
    gpus: of the smallest plan beyond the budget that may make the step, usd_per_h: of the cheapest, by what the budget
    is said in; both None where none may."""

    within_s: float
    beyond_s: float
    gpus: int | None = None
    usd_per_h: float | None = None


def reach_of(search: Search, space: Space, allowed: Allowed) -> Reach:
    """What the step takes at least that no plan of the budget makes."""
    budget = space.budget
    within = min(least_s for _, least_s in search.bounded(space.plans(allowed)))
    if budget.gpus is None and budget.price_per_h is None:
        return Reach(within, within)
    wide = Space(space.asked, Budget(MOST_GPUS), space.crewing)
    beyond = [(bought(c, wide.fewest(c.engines)), s) for c, s in search.bounded(wide.plans(allowed))]
    shortest = min((s for _, s in beyond), default=math.inf)
    may = [paid for paid, s in beyond if budget.holds(s) and not budget.allows(*paid)]
    gpus, usd_per_h = min(may, key=lambda paid: paid[budget.gpus is None], default=(None, None))
    return Reach(within, min(shortest, within), *(gpus, None) if budget.gpus is not None else (None, usd_per_h))
