"""Fleets around an answer, simulated: how trainer idle, step time and cost depend on the number of instances."""

from __future__ import annotations

from collections.abc import Iterable

from fleetsim.job.trials import Trial, Trials, unit_of
from fleetsim.search.rate_matching import MOST_INSTANCES

# Steps of equal ratio from half the answer to it, and as many from there to the double.
_EACH_SIDE = 4


def counts_around(instances: int, also: Iterable[int] = (), unit: int = 1) -> tuple[int, ...]:
    """Nine counts or fewer from half of an answer to its double, and those of `also` in between; ascending.

    unit: instances that come and go together.

    >>> counts_around(13)
    (6, 8, 9, 11, 13, 15, 18, 22, 26)
    >>> counts_around(16, unit=8)
    (8, 16, 24, 32)
    """
    span = range(-_EACH_SIDE, _EACH_SIDE + 1)
    engines = {max(1, round(instances / unit * 2 ** (k / _EACH_SIDE))) for k in span}
    found = {n * unit for n in engines if n * unit <= MOST_INSTANCES}
    return tuple(sorted(found | {n for n in also if min(found) <= n <= max(found)}))


def around(trials: Trials, instances: int, also: Iterable[int] = ()) -> tuple[Trial, ...]:
    """The fleets of those counts over all replications, those that get stuck among them."""
    scenario = trials.scenario
    return tuple(trials.at(n, scenario.run.replications) for n in counts_around(instances, also, unit_of(scenario)))
