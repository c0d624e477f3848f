"""Prices that nobody gave, in an answer that holds GPUs of several types against each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fleetsim import units
from fleetsim.engine.gpus import gpu_spec
from fleetsim.errors import InputError

PRICE = "cost.instance_price_usd_per_gpu_h"


def price_notes(unpriced: Iterable[tuple[str, float]], remedy: str) -> Iterator[str]:
    """A sentence where GPUs of several types cost the same because nobody said what they cost; else nothing.

    unpriced: GPU type and dollars per GPU-hour of each fleet in one answer whose own price nobody gave. remedy: how to
    give each type its own price there.
    """
    prices = {_name(gpu): price for gpu, price in unpriced}
    if len(prices) > 1 and len(set(prices.values())) == 1:
        price = next(iter(prices.values()))
        *names, last = prices
        yield (
            f"{', '.join(names)} and {last} are taken at the same {units.price(price)} per GPU-hour, because nobody "
            f"gave a price of each: then the cheapest is only the fastest, and costs do not compare; {remedy}"
        )


def _name(gpu: str) -> str:
    """The data sheet's name, by which "H100" and "H100-SXM" are one type; the name itself where there is none."""
    try:
        return gpu_spec(gpu).name
    except InputError:
        return gpu
