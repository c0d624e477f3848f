"""One way to use the GPUs over its replications, beside others: the places that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fleetsim.estimates import Estimate
from fleetsim.job.trials import Trial, trial_of
from fleetsim.sim.paired_difference import Runs, differs, ratio_of
from fleetsim.split.arrangements import Arrangement
from fleetsim.split.runs import MEASURES, By, Simulated, badness

_UNRANKED: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Outcome:
    """One arrangement over its replications.

    estimates: by dotted metric name. runs: the same, run by run. ratio: of the ranking measure to the first-ranked
    one, paired (step_s and cost_per_step above 1 are worse, goodput below). ties: whether that is within chance.
    ranks: place by each measure, from 1.
    """

    arrangement: Arrangement
    estimates: Mapping[str, Estimate]
    runs: tuple[Mapping[str, Any], ...]
    binding: str
    ratio: Estimate
    ties: bool
    ranks: Mapping[str, int]

    @property
    def trial(self) -> Trial:
        """The same, as a trial of its count."""
        return trial_of(self.arrangement.instances, self.runs)

    @property
    def replications(self) -> int:
        """Runs behind the estimates."""
        return len(self.runs)

    def mean(self, metric: str) -> float:
        """The mean of one metric."""
        return self.estimates[metric].mean


def ranked(runs: Simulated, by: By) -> tuple[Outcome, ...]:
    """Best first by the mean of the replications; what ran only once comes after what was replicated."""
    most = max(len(found) for found in runs.values())

    def order(measure: By) -> list[Arrangement]:
        def place(way: Arrangement) -> tuple[bool, float]:
            found = runs[way]
            return len(found) < most, sum(badness(run, measure) for run in found) / len(found)

        return sorted(runs, key=place)

    ranks: dict[Arrangement, dict[str, int]] = {way: {} for way in runs}
    for measure in MEASURES:
        for i, way in enumerate(order(measure)):
            ranks[way][measure] = i + 1
    best = order(by)
    return tuple(outcome_of(way, runs[way], runs[best[0]], by, ranks[way]) for way in best)


def outcome_of(way: Arrangement, runs: Runs, first: Runs, by: By, ranks: Mapping[str, int] = _UNRANKED) -> Outcome:
    """One way beside another, run by run."""
    trial, ratio = trial_of(way.instances, runs), ratio_of(runs, first, by)
    ties = not differs(ratio, min(len(runs), len(first)))
    return Outcome(way, trial.estimates, tuple(runs), trial.binding, ratio, ties, ranks)
