"""What `Job.split` found: every way to use the GPUs, ranked, and a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fleetsim.config.tree import did_you_mean
from fleetsim.errors import InputError, Problem
from fleetsim.job.metrics import Metrics
from fleetsim.job.result import Result
from fleetsim.job.unchanging import unchanging

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Group

    from fleetsim.job.job_face import Job, Tell
    from fleetsim.plan.split import SplitResult as Advice


@unchanging
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SplitResult(Result):
    """The advised way to use the GPUs.

    advice: everything that was found (fleetsim/plan/split.py): all ways with their runs, the ratio of the best split to
    the best colocated way, alternatives, assumptions. metrics: of the advised way, name -> Estimate.
    """

    asked: Job
    advice: Advice

    def __repr__(self) -> str:
        return f"<SplitResult: {self.verdict}; {self.way}>"

    @property
    def verdict(self) -> Literal["split", "do_not_split", "no_difference"]:
        """Whether the best split beats the better colocated way by more than chance."""
        return self.advice.verdict

    @property
    def way(self) -> str:
        """The advised way, in words."""
        return self.advice.chosen.arrangement.label

    @property
    def job(self) -> Job:
        """The advised way as a job, in which every value counts as given."""
        from fleetsim.job.job_face import load
        from fleetsim.plan.growth import as_asked

        return load(as_asked(self.advice.chosen.arrangement.scenario, self.asked.scenario))

    @property
    def metrics(self) -> Metrics:
        """Of the advised way."""
        return Metrics(self.advice.chosen.estimates)

    @property
    def mean(self) -> dict[str, float]:
        """Metric name -> mean, of the advised way."""
        return self.metrics.mean

    @property
    def warnings(self) -> tuple[str, ...]:
        """As the command prints them on stderr."""
        return self.advice.warnings

    def to_pandas(self) -> pd.DataFrame:
        """A row a way, best first by what it was ranked by.

        Columns: way, kind, instances, rollout_gpus, trainer_gpus, replications, binding, ties_with_first, and every
        metric's mean with `.ci_low` and `.ci_high`. Needs pandas.
        """
        from fleetsim.job.frames import frame, with_intervals

        rows = [
            {
                "way": o.arrangement.label,
                "kind": o.arrangement.kind,
                "instances": o.arrangement.instances,
                "rollout_gpus": o.arrangement.rollout_gpus,
                "trainer_gpus": o.arrangement.trainer_gpus,
                "replications": o.replications,
                "binding": o.binding,
                "ties_with_first": o.ties,
                **with_intervals(o.estimates),
            }
            for o in self.advice.outcomes
        ]
        return frame(rows)

    def view(self) -> Group:
        """What the command prints."""
        from fleetsim.report.split_view import split_report

        return split_report(self.advice)

    def page(self) -> str:
        """What the command writes under --html."""
        from fleetsim.report.split_page import split_page
        from fleetsim.sim.run import simulate

        ways = [o.arrangement for o in (self.advice.best_split, self.advice.best_colocated) if o is not None]
        return split_page(self.advice, {way.label: simulate(way.scenario, activity=True) for way in ways})

    def document(self) -> dict[str, Any]:
        """What the command prints under --json."""
        from fleetsim.report.json import split_document

        return split_document(self.advice)


def split(
    job: Job,
    gpus: int,
    by: Literal["step_s", "goodput", "cost_per_step"],
    trainer_min_gpus: int | None,
    trainer_unit: int | None,
    tell: Tell | None,
) -> SplitResult:
    """`Job.split`."""
    from fleetsim.plan.arrangements import MOST_GPUS, Rules
    from fleetsim.plan.split import split as advise
    from fleetsim.plan.ways import MEASURES

    problems = []
    if by not in MEASURES:
        problems.append(Problem("by", by, "is no measure to rank by", did_you_mean(str(by), MEASURES)))
    for name, value in (("gpus", gpus), ("trainer_min_gpus", trainer_min_gpus), ("trainer_unit", trainer_unit)):
        if value is None and name != "gpus":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_GPUS:
            rule = f"must be a whole number between 1 and {MOST_GPUS:,}"
            problems.append(Problem(name, value, rule, f"for example {name}=8"))
    if problems:
        raise InputError(problems)
    rules = Rules(trainer_min_gpus, trainer_unit or 1)
    return SplitResult(job, advise(job.scenario, gpus, by=by, rules=rules, given=job.given, notes=job.notes, tell=tell))
