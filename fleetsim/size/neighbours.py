"""Fleets around an answer, simulated: how trainer idle, step time and cost depend on the number of instances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.job.trials import Measure, Tell, Trial, Trials, unit_of
from fleetsim.search.rate_matching import MOST_INSTANCES

# Steps of equal ratio from half the answer to it, and as many from there to the double.
_EACH_SIDE = 4


@dataclass(frozen=True, slots=True)
class Around:
    """trials: ascending counts, the answer among them. stuck: counts that cannot run."""

    trials: tuple[Trial, ...]
    stuck: tuple[int, ...]


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


def around(
    scenario: Scenario, instances: int, measure: Measure, *, also: Iterable[int] = (), tell: Tell | None = None
) -> Around:
    """Simulates those counts at the scenario's replications, each under the same draws.

    measure should remember runs: the plan that gave the answer has made some of them.
    """
    trials = Trials(scenario, measure)
    counts = counts_around(instances, also, unit_of(scenario))
    found: list[Trial] = []
    stuck: list[int] = []
    for i, count in enumerate(counts):
        if tell is not None:
            tell(f"for the page: {units.plural(count, 'instance')} ({i + 1} of {len(counts)})")
        trial = trials.at(count, scenario.run.replications)
        if trial.stuck is None:
            found.append(trial)
        else:
            stuck.append(count)
    return Around(tuple(found), tuple(stuck))
