"""A choice that was simulated: by one look, or by all replications of long runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from fleetsim.config.scenario import Scenario
from fleetsim.estimates import Estimate
from fleetsim.job.input_moves import MetricRanges
from fleetsim.job.result import Later
from fleetsim.job.trials import Trial, trial_of
from fleetsim.search.ranges import KnownMetrics, ranges_of

C = TypeVar("C")


@dataclass(frozen=True, eq=False)
class Found(Generic[C]):
    """scenario: of the choice, as it runs. runs: flat metrics, run by run. decided: whether these are all replications,
    not a look. long: the same of one long run, where there is one. known_later: what is known of it in joint cases."""

    choice: C
    scenario: Scenario
    runs: tuple[Mapping[str, Any], ...]
    decided: bool = False
    long: tuple[Mapping[str, Any], ...] = ()
    known_later: Later[KnownMetrics | None] = Later(lambda: None)  # noqa: RUF009 - it never changes

    def mean(self, metric: str) -> float:
        """The mean of one metric over its runs."""
        return sum(float(run[metric]) for run in self.runs) / len(self.runs)

    @property
    def step_s(self) -> float:
        """Mean seconds of a step."""
        return self.mean("step_s")

    @property
    def alone_s(self) -> float:
        """The same as if no worker were waited for, of a look that was made so before."""
        return float(self.runs[0].get("alone_s", self.step_s))

    @property
    def usd(self) -> float:
        """Mean US dollars of a step."""
        return self.mean("cost_per_step")

    @property
    def age(self) -> float:
        """Optimizer steps that 99 % of the trained samples are at most old, in each of its runs."""
        return age_of((*self.runs, *self.long))

    @property
    def replications(self) -> int:
        """Runs behind its figures."""
        return len(self.runs)

    @cached_property
    def trial(self) -> Trial:
        """The same, as a trial of its count."""
        return trial_of(self.scenario.fleet.instances, self.runs)

    @property
    def estimates(self) -> Mapping[str, Estimate]:
        """By dotted metric name."""
        return self.trial.estimates

    @property
    def binding(self) -> str:
        """What binds in it."""
        return self.trial.binding

    @property
    def known(self) -> KnownMetrics | None:
        """What its ranges are worked out from, in short runs when it is first asked for."""
        return self.known_later()

    @cached_property
    def ranges(self) -> MetricRanges | None:
        """How far it may be off; None where no input is in doubt, or nobody asked."""
        return ranges_of(self.known)

    def range_of(self, metric: str) -> tuple[float, float]:
        """From, to; twice the mean where no input is in doubt."""
        mean = self.mean(metric)
        return (mean, mean) if self.ranges is None else self.ranges.metrics[metric]


def age_of(runs: Iterable[Mapping[str, Any]]) -> float:
    """Whole optimizer steps that 99 % of the trained samples are at most old, in every one of some runs."""
    return float(math.ceil(max(float(run["staleness_steps.p99"]) for run in runs) - 1e-9))
