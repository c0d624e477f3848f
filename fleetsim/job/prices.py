"""Prices that nobody knows, in an answer that holds GPUs of several types against each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fleetsim import units
from fleetsim.config.cost import CostConfig
from fleetsim.config.scenario import Scenario
from fleetsim.engine.prices import UNKNOWN, listed_price
from fleetsim.faces import flag, text

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


def unlisted_price(scenario: Scenario) -> Iterator[str]:
    """A sentence where no list of prices has the job's GPU, so that its dollars are a guess; else nothing."""
    cost = scenario.cost
    given = cost.instance_price_usd_per_gpu_h, cost.trainer_price_usd_per_gpu_h
    listed = listed_price(scenario.engine.gpu, cost.market, cost.prices)
    if not listed.known and None in given:
        stands_in = f"{listed.words}: {units.price(UNKNOWN)} per GPU-hour stands in, and dollars are as wrong as that"
        yield text(f"{stands_in}; give {{}} and {{}}", flag("instance_price"), flag("trainer_price"))
