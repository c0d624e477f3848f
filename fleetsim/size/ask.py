"""What `Job.size` found: a count, fleets about it, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetsim.job.metrics import Metrics
from fleetsim.job.result import Result
from fleetsim.job.unchanging import unchanging

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Group

    from fleetsim.job.job_face import Job, Tell
    from fleetsim.plan.size import SizeResult as Plan


@unchanging
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SizeResult(Result):
    """The recommended fleet.

    plan: everything that was found (fleetsim/plan/size.py): candidates, targets, rate matching, headroom, queue cap,
    alternatives, assumptions. metrics: of the recommended fleet, name -> Estimate.
    """

    asked: Job
    plan: Plan

    def __repr__(self) -> str:
        what = "" if self.feasible else ", targets missed"
        return f"<SizeResult: {self.instances} instances, bound by {self.binding}{what}>"

    @property
    def instances(self) -> int:
        """The recommendation."""
        return self.plan.instances

    @property
    def job(self) -> Job:
        """The job with the recommended fleet."""
        factors = self.asked.scenario.fleet.speed_factors
        fewer = {"fleet.speed_factors": factors[: self.instances]} if len(factors) > self.instances else {}
        return self.asked.with_({"fleet.instances": self.instances, **fewer})

    @property
    def metrics(self) -> Metrics:
        """Of the recommended fleet."""
        return Metrics(self.plan.recommended.estimates)

    @property
    def mean(self) -> dict[str, float]:
        """Metric name -> mean, of the recommended fleet."""
        return self.metrics.mean

    @property
    def binding(self) -> str:
        """What binds at the recommendation."""
        return self.plan.binding

    @property
    def feasible(self) -> bool:
        """Whether every target that somebody gave is held; assumed ones may be missed."""
        return self.plan.feasible

    @property
    def queue_cap(self) -> int:
        """Samples that the queue before the trainer should hold at most."""
        return self.plan.queue_cap.samples

    @property
    def explanation(self) -> str:
        """What binds and what else would help, in words."""
        return self.plan.explanation

    @property
    def warnings(self) -> tuple[str, ...]:
        """As the command prints them on stderr."""
        return self.plan.warnings

    def to_pandas(self) -> pd.DataFrame:
        """A row a candidate (the recommendation, fleets about it, the rate-matching count), by instances.

        Columns: recommended, replications, binding, and every metric's mean with `.ci_low` and `.ci_high`. Needs
        pandas.
        """
        from fleetsim.job.frames import frame, with_intervals

        rows = [
            {
                "instances": trial.instances,
                "recommended": trial.instances == self.instances,
                "replications": trial.replications,
                "binding": trial.binding,
                **with_intervals(trial.estimates),
            }
            for trial in self.plan.candidates
        ]
        return frame(rows).set_index("instances")

    def view(self) -> Group:
        """What the command prints."""
        from fleetsim.report.terminal import size_report

        return size_report(self.plan)

    def page(self) -> str:
        """What the command writes under --html."""
        from fleetsim.plan.around import around
        from fleetsim.plan.trials import remembered, simulated, with_instances
        from fleetsim.report.size_page import size_page
        from fleetsim.sim.run import simulate

        plan = self.plan
        also = [c.instances for c in plan.candidates]
        near = around(plan.scenario, plan.instances, remembered(simulated), also=also)
        return size_page(plan, near, simulate(with_instances(plan.scenario, plan.instances), activity=True))

    def document(self) -> dict[str, Any]:
        """What the command prints under --json."""
        from fleetsim.report.json import size_document

        return size_document(self.plan)


def sized(job: Job, tell: Tell | None) -> SizeResult:
    """`Job.size`."""
    from fleetsim.plan.size import size

    return SizeResult(job, size(job.scenario, given=job.given, notes=job.notes, tell=tell))
