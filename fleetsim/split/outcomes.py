"""Ways to use the GPUs beside each other: the places that they take, and which are the same within chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from fleetsim.estimates import Estimate
from fleetsim.search.arrangements import Arrangement
from fleetsim.search.found import Found
from fleetsim.sim.paired_difference import differs, ratio_of
from fleetsim.split.ways import MEASURES, By, Way, badness

_UNRANKED: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Outcome(Found[Arrangement]):
    """One arrangement over its replications.

    ratio: of the ranking measure to the first-ranked one, paired (step_s and cost_per_step above 1 are worse, goodput
    below). ties: whether that is within chance. ranks: place by each measure, from 1.
    """

    ratio: Estimate
    ties: bool
    ranks: Mapping[str, int]

    @property
    def arrangement(self) -> Arrangement:
        """The way itself."""
        return self.choice


def ranked(ways: Sequence[Way], by: By) -> tuple[Outcome, ...]:
    """Best first by the mean of the replications; what ran only once comes after what was replicated."""
    most = max(way.replications for way in ways)

    def order(measure: By) -> list[int]:
        def place(i: int) -> tuple[bool, float]:
            runs = ways[i].runs
            return len(runs) < most, sum(badness(run, measure) for run in runs) / len(runs)

        return sorted(range(len(ways)), key=place)

    orders = {measure: order(measure) for measure in MEASURES}
    first = ways[orders[by][0]]
    return tuple(
        outcome_of(ways[i], first, by, {measure: orders[measure].index(i) + 1 for measure in MEASURES})
        for i in orders[by]
    )


def outcome_of(way: Way, first: Way, by: By, ranks: Mapping[str, int] = _UNRANKED) -> Outcome:
    """One way beside another, run by run."""
    ratio = ratio_of(way.runs, first.runs, by)
    ties = not differs(ratio, min(way.replications, first.replications))
    return Outcome(
        choice=way.choice,
        scenario=way.scenario,
        runs=way.runs,
        decided=way.decided,
        ratio=ratio,
        ties=ties,
        ranks=ranks,
    )
