"""What would help a simulated job: another count of instances, and every lever with the count that is best for it."""

from __future__ import annotations

from collections.abc import Collection

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import StuckError
from fleetsim.job.trainer_scaling import next_count
from fleetsim.job.trials import Measure, Trials, one_more, with_instances
from fleetsim.search.alternative import Alternatives
from fleetsim.search.moves import alternatives_of

# Long runs of what decides, at most: a job may ask for thousands.
_MOST = 5


def alternatives_here(scenario: Scenario, measure: Measure, given: Collection[str]) -> Alternatives | None:
    """The levers of a job as it is, and its count as one of them; None where it gets stuck without its events.

    measure should remember runs. given: as in levers_of. Events of the scenario are left out, and runs are as long
    as they must be to be steady.
    """
    job = with_changes(scenario, {"run.events": [], "run.warmup_steps": None, "run.steps": None})
    n, runs = job.fleet.instances, min(_MOST, job.run.replications)
    try:
        now = Trials(job, measure).at(n, runs)
    except StuckError:
        return None
    if now.stuck is not None:
        return None
    grown = with_instances(job, next_count(job, n))
    return alternatives_of(job, grown, 1, measure, now=now, more=one_more(job), given=given, own_count=True)
