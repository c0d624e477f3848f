"""Runs of all ways to use one set of GPUs: each once, then replications where they matter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fleetsim.config.scenario import Scenario
from fleetsim.errors import StuckError
from fleetsim.frameworks.equal_parts import divides, refusal
from fleetsim.job.trials import Measure, Tell, flat
from fleetsim.sim.threads import side_by_side
from fleetsim.split.arrangements import Arrangement, colocated_async, colocated_sync, split

By = Literal["step_s", "goodput", "cost_per_step"]
MEASURES: tuple[By, ...] = ("step_s", "goodput", "cost_per_step")
# Samples simulated over all replications, and the best few by each measure that are replicated whatever they cost.
_BUDGET, _CONTENDERS = 1_200_000, 4
# Where there are more splits than this, some of them are tried and then those around the best.
_MOST_SPLITS = 100

Simulated = dict[Arrangement, list[dict[str, Any]]]


class WayRuns:
    """Ways to use the GPUs, simulated once each and then replicated; those that get stuck are set aside."""

    def __init__(self, job: Scenario, gpus: int, measure: Measure, tell: Tell | None) -> None:
        self.job, self.gpus = job, gpus
        self.runs: Simulated = {}
        self.stuck: dict[str, StuckError] = {}
        self._measure, self._tell = measure, tell or (lambda text: None)

    def explore(self, counts: Sequence[int]) -> None:
        """The colocated ways, and the splits of `counts` instances: all, or of many those closest at the best."""
        in_turn = [colocated_sync(self.job, self.gpus), colocated_async(self.job, self.gpus)]
        if divides(in_turn[0].scenario, self.gpus):
            self.add(in_turn)
        else:
            why = refusal(in_turn[0].scenario, self.gpus)
            self.stuck |= {way.label: StuckError(why, ()) for way in in_turn}
        stride = math.ceil(len(counts) / _MOST_SPLITS)
        wanted = {*range(0, len(counts), stride), len(counts) - 1}
        at: dict[int, Arrangement] = {}
        while wanted:
            new = {i: split(self.job, counts[i], self.gpus) for i in sorted(wanted)}
            self.add(list(new.values()))
            at |= {i: way for i, way in new.items() if way in self.runs}
            if stride == 1 or not at:
                return
            finer = max(1, stride // 4)
            best = {min(at, key=lambda i: badness(self.runs[at[i]][0], m)) for m in MEASURES}
            near = {j for i in best for j in range(i - stride, i + stride + 1, finer)}
            wanted, stride = {j for j in near if 0 <= j < len(counts)} - at.keys(), finer

    def add(self, ways: Sequence[Arrangement]) -> None:
        """Runs each once."""
        told = f"simulating ways to use the GPUs: {{:,}} of {len(ways):,}"
        self._tell(told.format(0))

        def done(i: int, run: dict[str, Any] | None) -> None:
            self._tell(told.format(i + 1))
            if run is not None:
                self.runs[ways[i]] = [run]

        side_by_side(lambda way: self._one(way, 0), ways, each=done)

    def replicate(self, ways: Sequence[Arrangement]) -> None:
        """The other replications of these."""
        jobs = [(way, r) for way in ways for r in range(1, self.job.run.replications)]
        told = f"replicating the best {len(ways):,}: {{:,}} of {len(jobs):,} runs"

        def done(i: int, run: dict[str, Any] | None) -> None:
            self._tell(told.format(i + 1))
            way = jobs[i][0]
            if run is None:
                self.runs.pop(way, None)
            elif way in self.runs:
                self.runs[way].append(run)

        side_by_side(lambda job: self._one(*job), jobs, each=done)

    def _one(self, way: Arrangement, replication: int) -> dict[str, Any] | None:
        try:
            return flat(self._measure(way.scenario, replication))
        except StuckError as error:
            self.stuck[way.label] = error
            return None


def badness(run: Mapping[str, Any], measure: By) -> float:
    """A measure of a run, the smaller the better."""
    value = float(run[measure])
    return -value if measure == "goodput" else value


def worth_replicating(runs: Simulated, job: Scenario, by: By) -> list[Arrangement]:
    """Best first, as many as the budget allows; the colocated ones and the best few by each measure in any case."""
    affordable = _BUDGET // max(1, job.trainer.batch_samples * job.run.steps * (job.run.replications - 1))

    def order(measure: By) -> list[Arrangement]:
        return sorted(runs, key=lambda way: badness(runs[way][0], measure))

    must = {way for way in runs if way.kind != "split"} | {way for m in MEASURES for way in order(m)[:_CONTENDERS]}
    return [way for i, way in enumerate(order(by)) if way in must or i < affordable]
