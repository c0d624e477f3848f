"""Plans with all their runs, the rows that are shown, and what each forbidden thing would buy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleetsim.config.scenario import Scenario
from fleetsim.estimates import Estimate
from fleetsim.job.facts import Spans, run_differs
from fleetsim.job.input_moves import MetricRanges
from fleetsim.plan.front import Budget
from fleetsim.plan.search import SearchTally
from fleetsim.plan.shares import Candidate
from fleetsim.split.permissions import Allowed

# Metrics whose ranges are told of each row.
RANGED = ("step_s", "cost_per_step")


@dataclass(frozen=True, slots=True, eq=False)
class PlanRow:
    """A plan with all its runs. age: optimizer steps that 99 % of its trained samples are at most old, in each of them
    and in a long one. ranges: how far it may be off, None where no input is in doubt."""

    candidate: Candidate
    scenario: Scenario
    estimates: Mapping[str, Estimate]
    runs: int
    binding: str
    age: float
    ranges: MetricRanges | None

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return self.estimates["step_s"].mean

    @property
    def usd(self) -> float:
        """US dollars of a step."""
        return self.estimates["cost_per_step"].mean

    @property
    def spans(self) -> Spans:
        """Metric -> from, to in eight of ten cases."""
        return None if self.ranges is None else self.ranges.metrics

    def range_of(self, metric: str) -> tuple[float, float]:
        """From, to; twice the mean where no input is in doubt."""
        mean = self.estimates[metric].mean
        return (mean, mean) if self.spans is None else self.spans[metric]

    @property
    def usd_per_token(self) -> float:
        """US dollars of a trained output token."""
        gpu_s = self.candidate.share.gpus * self.step_s
        return self.usd / (self.estimates["goodput"].mean * gpu_s)

    @property
    def usd_per_h(self) -> float:
        """US dollars of an hour, of both pools."""
        return 3600 * self.candidate.usd_per_s


@dataclass(frozen=True, slots=True)
class Bought:
    """What one thing would buy that the recipe forbids. row: the best plan with it, None where it is no better."""

    permission: str
    row: PlanRow | None


@dataclass(frozen=True, slots=True)
class Plans:
    """What was found for a job.

    rows: the recommended one, then the others of the front by their step. bought: a line for each thing that is
    forbidden and could be had. tally: what was looked at. as_run_s: seconds of a step, simulated, on the fleet of the
    run that shows the job; None where none does, or nobody says its fleet.
    """

    scenario: Scenario
    given: frozenset[str]
    budget: Budget
    allowed: Allowed
    rows: tuple[PlanRow, ...]
    bought: tuple[Bought, ...]
    tally: SearchTally
    as_run_s: float | None = None

    @property
    def contradicted(self) -> bool:
        """Whether the job, simulated as its run was, is another than the run: then nothing is to be advised."""
        return self.as_run_s is not None and run_differs(self.scenario, self.as_run_s)

    @property
    def best(self) -> PlanRow:
        """The recommended row."""
        return self.rows[0]

    @property
    def better(self) -> list[tuple[str, PlanRow]]:
        """Permissions that nobody gave and that make the plan better, with the best plan of each."""
        return [(b.permission, b.row) for b in self.bought if b.row is not None]

    @property
    def feasible(self) -> bool:
        """Whether the step that was asked for is held."""
        return self.budget.holds(self.best.step_s)
