"""One job run in several ways under the same draws, and the step of each beside that of the job as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from fleetsim.config.scenario import Scenario
from fleetsim.errors import InputError, StuckError
from fleetsim.estimates import Estimate
from fleetsim.job.trials import Measure, flat
from fleetsim.sim.paired_difference import differs, ratio_of
from fleetsim.sim.threads import side_by_side

Way = TypeVar("Way")
Runs = Sequence[Mapping[str, Any]]


def runs_of(ways: Mapping[Way, Scenario], replications: int, measure: Measure) -> Mapping[Way, Runs]:
    """Flat metrics of each replication of each way, in the order of the ways. A run that gets stuck, or that cannot be
    made, is left out."""

    def run(job: tuple[Way, int]) -> dict[str, Any] | None:
        try:
            return flat(measure(ways[job[0]], job[1]))
        except (StuckError, InputError):  # the way may have no room for its longest request
            return None

    jobs = [(way, r) for way in ways for r in range(replications)]
    runs: dict[Way, list[dict[str, Any]]] = {way: [] for way in ways}
    for (way, _), made in zip(jobs, side_by_side(run, jobs), strict=True):
        if made is not None:
            runs[way].append(made)
    return runs


def step_beside(runs: Runs, base: Runs) -> tuple[float, Estimate, bool]:
    """Mean seconds of a step, their ratio to those of the job as it is, paired, and whether they differ by more than
    chance."""
    ratio = ratio_of(runs, base, "step_s")
    step_s = sum(float(run["step_s"]) for run in runs) / len(runs)
    return step_s, ratio, differs(ratio, min(len(runs), len(base)))
