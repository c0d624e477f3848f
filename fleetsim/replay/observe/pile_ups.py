"""Instances on which work piles up: slow ones behind a router that looks at no load."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from fleetsim.replay.observe.observed import InstanceView

# Fewer instances have no median to be slower than.
FEWEST = 3
# Such a router piles work up on a slow instance until its larger batch yields what the others' yield: then rates are
# equal and loads are not. Healthy loads under round robin differ by a fifth, and yield more.
PILED = 1.4
# Equal shares of the requests make equal rates, but for the lengths that each happened to get.
EQUAL = 1.03


def piled(instances: Sequence[InstanceView]) -> list[InstanceView]:
    """Instances that hold PILED times the median's requests and make no more tokens of them."""
    known = [i for i in instances if i.running is not None]
    if len(known) < FEWEST:
        return []
    load, rate = usual_load(instances), median(i.active_tok_s for i in known)
    found = [i for i in known if load > 0 and (i.running or 0.0) > PILED * load and i.active_tok_s <= EQUAL * rate]
    return found if len(found) * FEWEST <= len(known) else []  # more than a third is how work is spread


def usual_load(instances: Sequence[InstanceView]) -> float:
    """The median instance's requests."""
    return median(i.running for i in instances if i.running is not None)
