"""A changed job with the fleet that is best for it: what the change saves once the count is chosen anew.

A lever that buys nothing at the recommended count may still make that fleet far too large: with a higher cap on samples
in flight five instances may be enough where fifty were needed. So the count is searched again by the rule of the
recommendation, and what it comes to is simulated as long as the recommendation was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from fleetsim.config.scenario import Scenario
from fleetsim.errors import StuckError
from fleetsim.job.trials import Trial, Trials, with_instances
from fleetsim.search.best import best_of
from fleetsim.search.levers import more_lost
from fleetsim.search.objective import Target

# Of an alternative the best count is looked for down to this ratio between two counts.
_FINE = 4 / 3
# A gain below this share of the objective is none.
LEAST_GAIN = 0.02
# Shares of samples that are lost: of all, and of the longest tenth.
LOST = ("samples_lost.all", "samples_lost.longest_tenth")


class Anew(Struct, frozen=True):
    """A changed job with its own count.

    scenario: with that count; trial: what it came to. instead_of: the trial of the job as it is. holds: whether it
    holds all targets.
    """

    scenario: Scenario
    trial: Trial
    instead_of: Trial
    holds: bool

    @property
    def instances(self) -> int:
        """Its count."""
        return self.trial.instances

    @property
    def step_ratio(self) -> float:
        """Its step / that of the job as it is; no gain beside a look that saw nothing but a burst of ready batches."""
        now = self.instead_of.mean("step_s")
        return self.trial.mean("step_s") / now if now else math.inf

    @property
    def saves_s(self) -> float:
        """Seconds that a step becomes shorter."""
        return self.instead_of.mean("step_s") - self.trial.mean("step_s")

    @property
    def saves_usd(self) -> float:
        """US dollars that a step becomes cheaper."""
        return self.instead_of.mean("cost_per_step") - self.trial.mean("cost_per_step")

    @property
    def gain(self) -> float:
        """The share by which step time x cost per step becomes less."""
        cost, now = self.trial.mean("cost_per_step"), self.instead_of.mean("cost_per_step")
        worth = self.scenario.targets.worth
        return 1.0 - math.pow(self.step_ratio, worth) * (cost / now if now else 1.0)

    @property
    def loses_more(self) -> bool:
        """Whether notably more samples are thrown away than in the job as it is."""
        return any(more_lost((self.instead_of.mean(metric), self.trial.mean(metric))) for metric in LOST)

    @property
    def saves(self) -> bool:
        """Whether that is more than luck."""
        return self.gain > LEAST_GAIN


def anew(
    trials: Trials, start: int, now: Trial, targets: Sequence[Target], *, look: bool = False, beat: float = math.inf
) -> Anew | None:
    """The count that is best for a changed job; None where it gets stuck.

    trials: of that job; what was looked at before is known. start: where the search begins. now: the job as it is.
    targets: as for the recommendation. look: by one look at each of few counts, as `now` is one; else by as many long
    runs as `now` has. beat: see `least`.
    """
    runs = now.replications
    try:
        if look:
            trials = trials.looks
            best = best_of(trials, start, targets, runs, fine=_FINE, beat=beat)
        else:
            best = best_of(trials, start, targets, runs)
        trial = trials.at(best.instances, runs)
    except StuckError:
        return None
    holds = all(t.held_by(trial.estimates[t.metric]) for t in targets)
    return Anew(with_instances(trials.scenario, best.instances), trial, now, holds)
