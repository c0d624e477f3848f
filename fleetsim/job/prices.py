"""Prices that nobody knows, in an answer that holds GPUs of several types against each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fleetsim import units
from fleetsim.config.run import CostConfig
from fleetsim.engine.prices import UNKNOWN, listed_price

PRICE = "cost.instance_price_usd_per_gpu_h"


def price_notes(fleets: Iterable[tuple[str, CostConfig]], remedy: str) -> Iterator[str]:
    """A sentence where an answer compares GPU types and the price of one is a guess; else nothing.

    fleets: GPU type and prices of each fleet in one answer. remedy: how to give each type its own price there.
    """
    types: dict[str, bool] = {}
    for gpu, cost in fleets:
        listed = listed_price(gpu, cost.market, cost.prices)
        known = listed.known or cost.instance_price_usd_per_gpu_h is not None
        types[listed.name] = types.get(listed.name, True) and known
    unknown = [name for name, known in types.items() if not known]
    if len(types) > 1 and unknown:
        yield (
            f"no price of {units.listed(unknown)} is on record, and {units.price(UNKNOWN)} per GPU-hour is taken: "
            f"costs do not compare; {remedy}"
        )
