"""A changed job with the fleet that is best for it: what the change saves once the count is chosen anew.

A lever that buys nothing at the recommended count may still make that fleet far too large: with a higher cap on samples
in flight five instances may be enough where fifty were needed. So the count is searched again by the rule of the
recommendation, from one run a count; of a change that is advised, from all runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetsim.config.scenario import Scenario
from fleetsim.dataclass import dataclass
from fleetsim.errors import StuckError
from fleetsim.job.trials import Measure, Trial, Trials
from fleetsim.size.best import best_of, held_by_some
from fleetsim.size.targets import Target

# Of an alternative the best count is looked for down to this ratio between two counts.
_FINE = 4 / 3
# A saving below this share of the cost per step is none.
_LEAST = 0.03


@dataclass(frozen=True, slots=True)
class Anew:
    """A changed job with its own count.

    instances: its count. instead_of: the recommendation without the change. holds: whether it holds all targets that
    were given or that more instances help. step_ratio: its step time / that of the recommendation as it is; saves_usd:
    how much less a step costs than there. replications: runs of both.
    """

    instances: int
    instead_of: int
    holds: bool
    trainer_idle_fraction: float
    step_s: float
    step_ratio: float
    cost_per_step: float
    staleness_p99_steps: float
    saves_usd: float
    replications: int

    @property
    def saves(self) -> bool:
        """Whether a step becomes notably cheaper."""
        return self.saves_usd > _LEAST * (self.cost_per_step + self.saves_usd)


def reachable(changed: Scenario, instances: int, targets: Sequence[Target], measure: Measure) -> bool:
    """Whether a fleet holds the targets that more instances help: this many, or as many as are of use."""
    try:
        return held_by_some(Trials(changed, measure), instances, targets)
    except StuckError:
        return False


def anew(changed: Scenario, now: Trial, targets: Sequence[Target], measure: Measure) -> Anew | None:
    """The count that is best for a changed job, from as many runs as `now` has; None where it gets stuck.

    now: the recommendation as it is. targets: as for the recommendation. measure should remember runs.
    """
    trials = Trials(changed, measure)
    try:
        best = best_of(trials, now.instances, targets, now.replications, fine=_FINE)
        trial = trials.at(best.instances, now.replications)
    except StuckError:
        return None
    return Anew(
        instances=best.instances,
        instead_of=now.instances,
        holds=all(t.held_by(trial.estimates[t.metric]) for t in targets if t.given or t.helped_by_instances),
        trainer_idle_fraction=trial.mean("trainer_idle_fraction"),
        step_s=trial.mean("step_s"),
        step_ratio=trial.mean("step_s") / now.mean("step_s"),
        cost_per_step=trial.mean("cost_per_step"),
        staleness_p99_steps=trial.mean("staleness_steps.p99"),
        saves_usd=now.mean("cost_per_step") - trial.mean("cost_per_step"),
        replications=now.replications,
    )
