"""Runs of all ways to use one set of GPUs: a look at each, then long runs where they matter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from fleetsim.config.scenario import Scenario
from fleetsim.errors import StuckError
from fleetsim.estimates import Estimate
from fleetsim.frameworks.equal_parts import divides, refusal
from fleetsim.job.trials import Measure, Tell, Trial, flat, looked, trial_of
from fleetsim.sim.paired_difference import Runs, differs, ratio_of
from fleetsim.sim.threads import side_by_side
from fleetsim.split.arrangements import Arrangement

By = Literal["step_s", "goodput", "cost_per_step"]
MEASURES: tuple[By, ...] = ("step_s", "goodput", "cost_per_step")
# Samples simulated over all replications, and the best few by each measure that are replicated whatever they cost.
_BUDGET, _CONTENDERS = 1_200_000, 4
# Steps of a long run, more or less.
_STEPS = 48
# Where there are more splits than this, some of them are tried and then those around the best.
_MOST_SPLITS = 100

Simulated = dict[Arrangement, list[dict[str, Any]]]


class WayRuns:
    """Ways to use the GPUs: each is looked at, the best are simulated as long as it takes; those that get stuck are set
    aside.

    runs: of each way a look, or its long runs. long: ways that have long runs.
    """

    def __init__(self, job: Scenario, gpus: int, measure: Measure, tell: Tell | None) -> None:
        self.job, self.gpus = job, gpus
        self.runs: Simulated = {}
        self.long: set[Arrangement] = set()
        self.stuck: dict[str, StuckError] = {}
        self._measure, self._tell = measure, tell or (lambda text: None)

    def shared(self, ways: Sequence[Arrangement]) -> None:
        """Colocated ways, where the job's framework can divide an update among so many GPUs."""
        self.add([way for way in ways if divides(way.scenario, self.gpus)])
        refused = [way for way in ways if not divides(way.scenario, self.gpus)]
        self.stuck |= {way.label: StuckError(refusal(way.scenario, self.gpus), ()) for way in refused}

    def splits(self, made: Callable[[int], Arrangement], counts: Sequence[int]) -> None:
        """The splits of `counts` instances, as `made`: all, or of many those closest at the best."""
        stride = math.ceil(len(counts) / _MOST_SPLITS)
        wanted = {*range(0, len(counts), stride), len(counts) - 1}
        at: dict[int, Arrangement] = {}
        while wanted:
            new = {i: made(counts[i]) for i in sorted(wanted)}
            self.add(list(new.values()))
            at |= {i: way for i, way in new.items() if way in self.runs}
            if stride == 1 or not at:
                return
            finer = max(1, stride // 4)
            best = {min(at, key=lambda i: badness(self.runs[at[i]][0], m)) for m in MEASURES}
            near = {j for i in best for j in range(i - stride, i + stride + 1, finer)}
            wanted, stride = {j for j in near if 0 <= j < len(counts)} - at.keys(), finer

    def add(self, ways: Sequence[Arrangement]) -> None:
        """Looks at each."""
        if not ways:
            return
        told = f"looking at ways to use the GPUs: {{:,}} of {len(ways):,}"
        self._tell(told.format(0))

        def done(i: int, run: dict[str, Any] | None) -> None:
            self._tell(told.format(i + 1))
            if run is not None:
                self.runs[ways[i]] = [run]

        side_by_side(lambda way: self._one(way, looked(way.scenario), 0), ways, each=done)

    def replicate(self, ways: Sequence[Arrangement]) -> None:
        """All replications of these, in long runs; one that gets stuck in any of them is left out."""
        missing = [way for way in ways if way not in self.long]
        jobs = [(way, r) for way in missing for r in range(self.job.run.replications)]
        told = f"simulating the best {len(missing):,}: {{:,}} of {len(jobs):,} runs"
        runs: Simulated = {way: [] for way in missing}

        def done(i: int, run: dict[str, Any] | None) -> None:
            self._tell(told.format(i + 1))
            if run is not None:
                runs[jobs[i][0]].append(run)

        try:
            side_by_side(lambda job: self._one(job[0], job[0].scenario, job[1]), jobs, each=done)
        finally:  # after Ctrl-C too, what is whole is known
            for way, found in runs.items():
                if len(found) == self.job.run.replications:
                    self.runs[way] = found
                    self.long.add(way)
                else:
                    self.runs.pop(way, None)

    def decided(self) -> Simulated:
        """The ways that have long runs."""
        return {way: runs for way, runs in self.runs.items() if way in self.long}

    def _one(self, way: Arrangement, scenario: Scenario, replication: int) -> dict[str, Any] | None:
        try:
            return flat(self._measure(scenario, replication))
        except StuckError as error:
            self.stuck[way.label] = error
            return None


def badness(run: Mapping[str, Any], measure: By) -> float:
    """A measure of a run, the smaller the better."""
    value = float(run[measure])
    return -value if measure == "goodput" else value


def worth_replicating(runs: Simulated, job: Scenario, by: By) -> list[Arrangement]:
    """Best first, as many as the budget allows; the colocated ones and the best few by each measure in any case."""
    affordable = _BUDGET // max(1, job.trainer.batch_samples * _STEPS * job.run.replications)

    def order(measure: By) -> list[Arrangement]:
        return sorted(runs, key=lambda way: badness(runs[way][0], measure))

    must = {way for way in runs if not way.apart} | {way for m in MEASURES for way in order(m)[:_CONTENDERS]}
    return [way for i, way in enumerate(order(by)) if way in must or i < affordable]


# --- One way to use the GPUs over its replications, beside others: the places that it takes.

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
